// Owns: the conversation: what is asked, the answer as it comes, settings.
// Refuses: a second question while an answer is written.
// Invariants: what the model is told is what was answered in full or stopped with words; an exchange that failed is not sent again.
'use strict';

// ---- settings

const DEFAULTS = { system: '', thinking: 'none', temperature: '', tokens: '' };
const FIELDS = { system: 'set-system', thinking: 'set-thinking', temperature: 'set-temperature', tokens: 'set-tokens' };

function readSettings() {
  try {
    return { ...DEFAULTS, ...JSON.parse(kept.get('localStorage', 'settings')) };
  } catch {
    return { ...DEFAULTS };
  }
}

let settings = readSettings();

function showSettings() {
  for (const [name, id] of Object.entries(FIELDS)) byId(id).value = settings[name];
}

for (const [name, id] of Object.entries(FIELDS)) {
  byId(id).addEventListener('input', (event) => {
    // What the field itself says is wrong is not kept.
    if (!event.target.checkValidity()) return;
    settings[name] = event.target.value;
    kept.set('localStorage', 'settings', JSON.stringify(settings));
  });
}
byId('reset-settings').addEventListener('click', () => {
  settings = { ...DEFAULTS };
  kept.set('localStorage', 'settings', null);
  showSettings();
});
byId('open-settings').addEventListener('click', () => {
  showSettings();
  byId('settings').showModal();
});
byId('settings').querySelector('form').addEventListener('submit', (event) => {
  event.preventDefault();
  byId('settings').close();
});

// ---- the conversation

/** Messages that the model is told. */
let turns = [];
/** The answer that is being written. */
let current = null;

/** The request's body; a setting that is empty is the server's. */
function requestBody(messages) {
  const body = { messages, stream: true, stream_options: { include_usage: true } };
  if (settings.system.trim()) body.messages = [{ role: 'system', content: settings.system }, ...messages];
  if (settings.temperature !== '') body.temperature = Number(settings.temperature);
  if (settings.tokens !== '') body.max_tokens = Number(settings.tokens);
  if (settings.thinking === 'on') body.think = true;
  else body.reasoning_effort = settings.thinking;
  return body;
}

/** The data and comments of a stream of events, in turn. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop();
    for (const line of blocks.flatMap((block) => block.split('\n'))) {
      if (line.startsWith('data: ')) yield line.slice(6);
    }
  }
}

/** An answer on the screen. */
class Answer {
  content = '';
  reasoning = '';
  usage = null;
  ending = null;
  first = 0;
  last = 0;
  id = null;
  stopped = false;
  control = new AbortController();
  #sent = performance.now();
  #thoughts = null;

  constructor() {
    this.text = make('div', 'text');
    this.facts = make('p', 'facts');
    this.node = make('article', 'turn model', make('h3', 'unseen', 'Answer'), this.text, this.facts);
    this.node.setAttribute('aria-busy', 'true');
    this.flow = new Flow(this.text);
  }

  /** Takes what a chunk brings. */
  take(chunk) {
    if (chunk.error) throw new Problem(errorWords(chunk, 500), 500);
    if (chunk.usage) this.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    if (choice.finish_reason) this.ending = choice.finish_reason;
    const { reasoning_content: thought, content } = choice.delta ?? {};
    if (!thought && !content) return;
    this.last = performance.now();
    this.first ||= this.last;
    if (thought) this.#think(thought);
    if (content) this.#say(content);
  }

  #think(text) {
    if (!this.#thoughts) {
      const body = make('div', 'text');
      const summary = make('summary', '', 'Thinking…');
      this.#thoughts = { flow: new Flow(body), summary, since: performance.now() };
      this.text.before(make('details', 'thoughts', summary, body));
    }
    this.reasoning += text;
    this.#thoughts.flow.append(text);
  }

  #say(text) {
    this.#thoughtsEnd();
    this.content += text;
    this.flow.append(text);
  }

  #thoughtsEnd() {
    if (!this.#thoughts || this.#thoughts.over) return;
    this.#thoughts.over = true;
    this.#thoughts.flow.end();
    this.#thoughts.summary.textContent = `Thought for ${((this.last - this.#thoughts.since) / 1000).toFixed(1)} s`;
  }

  /** No more will come. */
  end() {
    this.#thoughtsEnd();
    this.flow.end();
    this.node.setAttribute('aria-busy', 'false');
    if (this.content) this.node.append(make('div', 'after', this.facts, copyButton(() => this.content, 'Copy the answer')));
  }

  /** What was measured, in words. */
  tell(tokens, rate) {
    const words = [];
    if (this.stopped) words.push('Stopped');
    if (this.ending === 'length') words.push('Cut off at the token limit');
    if (tokens) words.push(tokens === 1 ? '1 token' : `${tokens} tokens`);
    if (rate) words.push(`${rate.toFixed(rate < 10 ? 1 : 0)} tok/s`);
    if (this.first) words.push(`first after ${millis(this.first - this.#sent)}`);
    this.facts.textContent = words.join(' · ');
  }

  /** Tokens a second, by the clock of this page; of a reply that came at once it tells nothing. */
  rate() {
    const seconds = (this.last - this.first) / 1000;
    return this.usage && seconds > 0.05 ? (this.usage.completion_tokens - 1) / seconds : 0;
  }
}

/** Asks, and shows the answer as it comes. */
async function say(words) {
  const answer = new Answer();
  current = answer;
  const question = make('article', 'turn user', make('h3', 'unseen', 'You'), make('div', 'text', make('p', '', words)));
  byId('turns').append(question, answer.node);
  running(true);
  scrollDown(true);
  const messages = [...turns, { role: 'user', content: words }];
  let problem = '';
  try {
    await receive(answer, messages);
  } catch (error) {
    if (!answer.stopped) problem = error instanceof Problem ? error.message : 'The connection broke off before the answer was whole.';
  }
  answer.end();
  if (current !== answer) return;
  current = null;
  running(false);
  if (answer.content && !problem) turns = [...messages, { role: 'assistant', content: answer.content }];
  else unanswered(question, answer, words);
  answer.tell(answer.usage?.completion_tokens, answer.rate());
  if (answer.stopped) recount(answer);
  phase(problem ? '' : answer.stopped ? 'Stopped.' : '');
  complain(problem);
  scrollDown();
}

async function receive(answer, messages) {
  const response = await ask('/v1/chat/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(requestBody(messages)),
    signal: answer.control.signal,
  });
  answer.id = response.headers.get('x-request-id');
  for await (const data of events(response)) {
    if (data === '[DONE]') return;
    const waited = !answer.first;
    answer.take(JSON.parse(data));
    // Once, so that what is said later stays.
    if (waited && answer.first) phase('');
    scrollDown();
  }
  throw new Problem('The connection broke off before the answer was whole.', 0);
}

/** An exchange that the model will not be told of; the words go back to where they were written. */
function unanswered(question, answer, words) {
  question.classList.add('void');
  if (answer.node.querySelector('.thoughts') || answer.content) answer.node.classList.add('void');
  else answer.node.remove();
  if (!byId('ask').value) {
    byId('ask').value = words;
    grow();
  }
}

/** What the server counted of an answer that was stopped. */
async function recount(answer) {
  for (let tries = 0; tries < 8 && answer.id; tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, 150));
    const status = await ask('/ss/status').then((response) => response.json()).catch(() => null);
    const done = status?.requests.find((request) => request.id === answer.id);
    if (done) return answer.tell(done.output_tokens, done.decode_rate);
  }
}

function stop() {
  if (!current) return;
  current.stopped = true;
  current.control.abort();
}

function running(is) {
  byId('send').hidden = is;
  byId('stop').hidden = !is;
  if (!is && document.activeElement === document.body) byId('ask').focus();
  if (is) {
    complain('');
    phase('Waiting for the server…');
  }
  byId('welcome').hidden = byId('turns').childElementCount > 0;
  wantStatus('chat', is);
}

function phase(words) {
  if (byId('phase').textContent !== words) byId('phase').textContent = words;
}

function complain(words) {
  byId('problem').hidden = !words;
  byId('problem').textContent = words;
}

// Until the first token it is said what the request waits for.
watching.readers.push((status) => {
  if (!current || current.first) return;
  const own = status.running.find((request) => request.id === current.id);
  if (!current.id && status.active_requests) phase('Waiting for its turn: another answer is being written…');
  else if (own?.phase === 'reading' && own.read_tokens) phase(`Reading the prompt: ${own.read_tokens} of ${own.prompt_tokens} tokens…`);
});

// ---- the field

const field = byId('ask');

function grow() {
  field.style.height = 'auto';
  field.style.height = `${Math.min(field.scrollHeight + 2, 240)}px`;
}

/** Keeps the end in view for those who look at it. */
let follows = true;
const talk = byId('talk');
talk.addEventListener('scroll', () => {
  follows = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 60;
});
function scrollDown(always = false) {
  if (always) follows = true;
  if (follows) requestAnimationFrame(() => (talk.scrollTop = talk.scrollHeight));
}

byId('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  const words = field.value.trim();
  if (!words || current) return;
  field.value = '';
  grow();
  say(words);
});
field.addEventListener('input', grow);
field.addEventListener('keydown', (event) => {
  // While a word is being composed, Enter ends the word.
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (current) phase('An answer is being written: Esc stops it.');
  else byId('composer').requestSubmit();
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !document.querySelector('dialog[open]')) stop();
});
byId('stop').addEventListener('click', () => {
  stop();
  field.focus();
});
byId('fresh').addEventListener('click', () => {
  stop();
  current = null;
  turns = [];
  byId('turns').replaceChildren();
  running(false);
  phase('');
  complain('');
  field.focus();
});

// What is typed next is a message, not a press of the button that opened the settings.
byId('settings').addEventListener('close', () => field.focus());

if (!byId('chat-view').hidden) field.focus();
