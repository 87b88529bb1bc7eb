// Owns: a model's text on the screen while it is written: paragraphs, headings, code.
// Refuses: markup: whatever the model writes becomes text nodes in elements that are made here.
// Invariants: what is complete is drawn once; the open block alone is drawn anew; the time of a text is linear in it.
'use strict';

const FENCE = /^(\s*)(`{3,}|~{3,})\s*([^`]*)$/;

/** A text that grows. */
class Flow {
  #node;
  /** The line that is not complete yet. */
  #partial = '';
  /** Complete lines of the open paragraph. */
  #lines = [];
  /** The open paragraph. */
  #paragraph = null;
  /** The open code block: its texts, its fence, its indent. */
  #code = null;
  #frame = 0;

  constructor(node) {
    this.#node = node;
  }

  /** Adds text; it is drawn with the next frame. */
  append(text) {
    const lines = (this.#partial + text).split('\n');
    this.#partial = lines.pop();
    lines.forEach((line) => this.#take(line));
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  /** No more will come. */
  end() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    if (this.#partial) this.#take(this.#partial);
    this.#partial = '';
    this.#draw();
  }

  /** A line is complete. */
  #take(line) {
    if (this.#code) {
      if (this.#closes(line)) this.#closeCode();
      else this.#code.done.appendData(`${this.#outdented(line)}\n`);
      return;
    }
    const fence = FENCE.exec(line);
    if (fence) {
      this.#closeParagraph();
      this.#openCode(fence);
    } else if (!line.trim()) {
      this.#closeParagraph();
    } else if (/^#{1,6} /.test(line)) {
      this.#closeParagraph();
      const heading = make('p', 'heading');
      inline(heading, line.replace(/^#+ +/, ''));
      this.#node.append(heading);
    } else {
      this.#lines.push(line);
    }
  }

  #draw() {
    if (this.#code) {
      // A line that may yet end the block is not shown as a part of it.
      const shown = /^\s*[`~]+$/.test(this.#partial) ? '' : this.#outdented(this.#partial);
      if (this.#code.open.data !== shown) this.#code.open.data = shown;
      return;
    }
    const partial = /^\s*([`~]+|#{1,6})$/.test(this.#partial) || FENCE.test(this.#partial) ? '' : this.#partial;
    const text = [...this.#lines, ...(partial ? [partial] : [])].join('\n');
    if (!text) return;
    if (!this.#paragraph) this.#node.append((this.#paragraph = make('p')));
    this.#paragraph.replaceChildren();
    inline(this.#paragraph, text);
  }

  #closeParagraph() {
    if (this.#lines.length) {
      const paragraph = this.#paragraph ?? make('p');
      paragraph.replaceChildren();
      inline(paragraph, this.#lines.join('\n'));
      if (!this.#paragraph) this.#node.append(paragraph);
    } else {
      // What was shown of a line that turned out to be something else.
      this.#paragraph?.remove();
    }
    this.#lines = [];
    this.#paragraph = null;
  }

  #openCode([, indent, fence, language]) {
    const code = { done: new Text(), open: new Text(), fence, indent: indent.length };
    const name = language.trim().split(/\s/)[0].slice(0, 30);
    const text = make('code', '', code.done, code.open);
    const copy = copyButton(() => text.textContent, 'Copy the code');
    const block = make('pre', '', text);
    block.tabIndex = 0;
    block.setAttribute('aria-label', name ? `Code, ${name}` : 'Code');
    block.setAttribute('role', 'region');
    this.#node.append(make('div', 'code', make('div', 'code-head', make('span', '', name || 'code'), copy), block));
    this.#code = code;
  }

  #closes(line) {
    const mark = line.trim();
    return mark.length >= this.#code.fence.length && mark === this.#code.fence[0].repeat(mark.length);
  }

  #closeCode() {
    this.#code.open.remove();
    // The last line's end belongs to the fence.
    const { done } = this.#code;
    if (done.data.endsWith('\n')) done.deleteData(done.length - 1, 1);
    this.#code = null;
  }

  /** Without the indent that its fence has. */
  #outdented(line) {
    let at = 0;
    while (at < this.#code.indent && /\s/.test(line[at] ?? 'x')) at += 1;
    return line.slice(at);
  }
}

/** Appends a text in which `code` and **strong words** are told apart. */
function inline(node, text) {
  const mark = /`([^`\n]+)`|\*\*([^*\n]+)\*\*/g;
  let from = 0;
  for (const found of text.matchAll(mark)) {
    node.append(text.slice(from, found.index), make(found[1] ? 'code' : 'strong', '', found[1] ?? found[2]));
    from = found.index + found[0].length;
  }
  node.append(text.slice(from));
}

/** A button that copies a text. */
function copyButton(text, label) {
  const button = make('button', 'quiet copy', 'Copy');
  button.type = 'button';
  button.setAttribute('aria-label', label);
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = 'Copied';
    } catch {
      // Browsers let pages copy on this machine or over TLS alone.
      button.textContent = 'Not allowed here';
    }
    setTimeout(() => (button.textContent = 'Copy'), 1500);
  });
  return button;
}
