// Owns: figures in words and in lines: bytes, rates, times, bars, courses over time.
// Invariants: what is not known is a dash, never a zero.
'use strict';

const NONE = '–';

/** Bytes, as in `1.4 GiB`. */
function bytes(amount) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let value = amount;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** A whole number. */
const count = (value) => value.toLocaleString('en');

/** A number with few digits. */
function few(value) {
  if (value >= 100 || value === 0) return count(Math.round(value));
  return value.toFixed(1);
}

/** Milliseconds, as in `12 ms` or `3.4 s`. */
function millis(value) {
  if (value >= 1000) return `${(value / 1000).toFixed(value < 100_000 ? 1 : 0)} s`;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

/** Seconds, as in `3 h 12 min`. */
function span(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  if (minutes < 60) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const SVG = 'http://www.w3.org/2000/svg';

/** A drawing with a path for its area and one for its line. */
class Course {
  /** Points that are shown, one a second. */
  static POINTS = 120;
  #values = [];

  constructor(name, words) {
    this.words = words;
    this.value = make('dd', '', NONE);
    this.most = make('dd', 'most', '');
    this.svg = document.createElementNS(SVG, 'svg');
    this.svg.setAttribute('viewBox', `0 0 ${Course.POINTS} 32`);
    this.svg.setAttribute('preserveAspectRatio', 'none');
    this.svg.setAttribute('role', 'img');
    this.name = name;
    this.area = document.createElementNS(SVG, 'path');
    this.line = document.createElementNS(SVG, 'path');
    this.area.setAttribute('class', 'area');
    this.line.setAttribute('class', 'line');
    this.svg.append(this.area, this.line);
    this.node = make('div', 'course', make('dl', '', make('dt', '', name), this.value), this.svg, this.most);
  }

  /** Adds a value, or null where nothing was measured. */
  add(value, highest) {
    this.#values.push(value);
    if (this.#values.length > Course.POINTS) this.#values.shift();
    const known = this.#values.filter((each) => each !== null);
    const top = highest ?? Math.max(...known, 0);
    this.value.textContent = value === null ? NONE : this.words(value);
    const peak = known.length ? `up to ${this.words(Math.max(...known))}` : '';
    this.most.textContent = peak;
    this.svg.setAttribute('aria-label', `${this.name}: ${this.value.textContent} now${peak ? `, ${peak}` : ''}`);
    this.#draw(top || 1);
  }

  #draw(top) {
    const left = Course.POINTS - this.#values.length;
    const y = (value) => (30 - (28 * value) / top).toFixed(2);
    let [line, area, run] = ['', '', []];
    const close = () => {
      if (!run.length) return;
      // A single point is a short line.
      const points = run.length > 1 ? run : [run[0], [run[0][0] + 0.6, run[0][1]]];
      const path = points.map(([x, value]) => `${x} ${y(value)}`).join('L');
      line += `M${path}`;
      area += `M${points[0][0]} 31L${path}L${points.at(-1)[0]} 31Z`;
      run = [];
    };
    this.#values.forEach((value, at) => (value === null ? close() : run.push([left + at, value])));
    close();
    this.line.setAttribute('d', line);
    this.area.setAttribute('d', area);
  }

  clear() {
    this.#values = [];
  }
}

/** A bar that is filled to a share. */
function bar(share, className = '') {
  const fill = make('span', 'fill');
  fill.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  const node = make('span', `meter ${className}`, fill);
  node.setAttribute('aria-hidden', 'true');
  return node;
}

/** Names with their values. */
function pairs(entries) {
  return make('dl', 'pairs', ...entries.map(([name, value]) => make('div', '', make('dt', '', name), make('dd', '', value))));
}
