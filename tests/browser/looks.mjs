// Owns: what can be measured of the page's looks: contrast of text, and what sticks out of the window.
// Invariants: a finding names its element and its figures.

/** Texts whose contrast is too low (WCAG 2, 4.5, or 3 for large text), within a part of the page. */
export function faintTexts(page, within = 'body') {
  return page.evaluate((selector) => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
    const rgba = (color) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      return [r, g, b, a / 255];
    };
    const over = (top, under) => [0, 1, 2].map((at) => top[at] * top[3] + under[at] * (1 - top[3])).concat(1);
    const behind = (element) => {
      const layers = [];
      for (let node = element; node; node = node.parentElement) {
        layers.push(rgba(getComputedStyle(node).backgroundColor));
        if (layers.at(-1)[3] === 1) break;
      }
      return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255, 1]);
    };
    const light = (color) => {
      const [r, g, b] = color.map((value) => {
        const share = value / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
    const texts = [];
    for (const element of document.querySelector(selector).querySelectorAll('*')) {
      if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
      if (element.closest('.unseen')) continue;
      const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
      if (own) texts.push([element, getComputedStyle(element)]);
      if (element.matches('input, textarea')) {
        texts.push([element, getComputedStyle(element)], [element, getComputedStyle(element, '::placeholder')]);
      }
    }
    const faint = [];
    for (const [element, style] of texts) {
      const under = behind(element);
      const found = ratio(over(rgba(style.color), under), under);
      const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
      if (found < (large ? 3 : 4.5)) {
        faint.push(`${element.tagName.toLowerCase()}#${element.id}.${element.className}: ${found.toFixed(2)} "${element.textContent.slice(0, 30)}"`);
      }
    }
    return { count: texts.length, faint };
  }, within);
}

/** Elements that stick out of the window and do not lie in a box that scrolls by itself. */
export function sticksOut(page) {
  return page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const out = [];
    if (document.documentElement.scrollWidth > width) out.push(`the document is ${document.documentElement.scrollWidth} px wide`);
    for (const element of document.body.querySelectorAll('*')) {
      if (!element.checkVisibility() || element.closest('pre, .unseen, svg')) continue;
      const box = element.getBoundingClientRect();
      if (box.right > width + 0.5 || box.left < -0.5) out.push(`${element.tagName.toLowerCase()}#${element.id}.${element.className}: ${box.left} to ${box.right}`);
      if (element.scrollWidth > element.clientWidth + 1 && ['auto', 'scroll'].includes(getComputedStyle(element).overflowX)) {
        out.push(`${element.tagName.toLowerCase()}#${element.id} scrolls sideways`);
      }
    }
    return out;
  });
}
