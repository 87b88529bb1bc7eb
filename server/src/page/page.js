// Owns: what both views stand on: the server's address and key, its status, the choice of view and theme, what is remembered.
// Refuses: any server but the one that the page came from.
// Invariants: the status is asked for once at a time, less often when nobody looks, and ever less often while it fails.
'use strict';

const byId = (id) => document.getElementById(id);

/** An element with a class and its children, which are elements or text; text is never read as markup. */
function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** What the browser keeps, where it lets the page keep anything. */
const kept = {
  get(store, name) {
    try {
      return window[store].getItem(`slotstream.${name}`);
    } catch {
      return null;
    }
  },
  set(store, name, value) {
    try {
      if (value === null) window[store].removeItem(`slotstream.${name}`);
      else window[store].setItem(`slotstream.${name}`, value);
    } catch {
      // It is then known until the page is closed.
    }
  },
};

/** A failure in a sentence for a person. */
class Problem extends Error {
  constructor(words, status) {
    super(words);
    this.status = status;
  }
}

const UNREACHABLE = 'The server does not answer. Is it still running?';

/** What a JSON error of any form says. */
function errorWords(body, status) {
  const words = body?.error?.message ?? body?.error;
  if (typeof words !== 'string' || !words) return `The server answered with status ${status}.`;
  const sentence = words[0].toUpperCase() + words.slice(1);
  return /[.?!]$/.test(sentence) ? sentence : `${sentence}.`;
}

// ---- key

let key = kept.get('sessionStorage', 'key') ?? '';
let asking = null;

/** Asks for a key; tells whether one was given. */
function askKey() {
  asking ??= new Promise((resolve) => {
    const dialog = byId('key');
    byId('key-words').textContent = key
      ? 'The key that was given is not the one. Keys are kept in this tab until the tab is closed.'
      : 'It was started with one. The key is kept in this tab until the tab is closed.';
    byId('key-text').value = '';
    dialog.returnValue = '';
    dialog.addEventListener('close', () => {
      asking = null;
      const given = dialog.returnValue === 'given';
      if (given) {
        key = byId('key-text').value.trim();
        kept.set('sessionStorage', 'key', key);
      }
      byId('key-text').value = '';
      resolve(given);
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

byId('key').querySelector('form').addEventListener('submit', (event) => {
  event.preventDefault();
  byId('key').close('given');
});
byId('key-cancel').addEventListener('click', () => byId('key').close(''));

/** Asks the server; a refusal is a `Problem`, and a missing key is asked for. */
async function ask(path, options = {}) {
  for (;;) {
    const used = key;
    const headers = { ...options.headers, ...(used ? { authorization: `Bearer ${used}` } : {}) };
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Problem(UNREACHABLE, 0);
    }
    if (response.ok) return response;
    const body = await response.json().catch(() => null);
    if (response.status !== 401) throw new Problem(errorWords(body, response.status), response.status);
    // Another request may have brought a key meanwhile.
    if (key === used && !(await askKey())) throw new Problem('This server asks for a key.', 401);
  }
}

// ---- status

const FAST = 1000;
const SLOW = 10_000;
const SLOWEST = 15_000;

const watching = {
  /** Called with each status and when it came. */
  readers: [],
  /** Names of those who want to know at once. */
  eager: new Set(),
  timer: 0,
  busy: false,
  failures: 0,
  /** A key is wanted and was not given. */
  locked: false,
};

/** Whether somebody wants to know the status at once. */
function wantStatus(who, wants) {
  if (wants === watching.eager.has(who)) return;
  if (wants) watching.eager.add(who);
  else watching.eager.delete(who);
  if (wants && !watching.locked) pollSoon(0);
}

function pollSoon(wait) {
  clearTimeout(watching.timer);
  watching.timer = setTimeout(poll, wait);
}

async function poll() {
  if (watching.busy || document.hidden) return;
  watching.busy = true;
  try {
    const response = await ask('/ss/status', { signal: AbortSignal.timeout(30_000), cache: 'no-store' });
    const status = await response.json();
    watching.failures = 0;
    served(status.model, 'up');
    banner('');
    for (const reader of watching.readers) reader(status, performance.now());
  } catch (error) {
    watching.failures += 1;
    lost(error);
  } finally {
    watching.busy = false;
  }
  if (watching.locked) return;
  const usual = watching.eager.size ? FAST : SLOW;
  pollSoon(watching.failures ? Math.min(FAST * 2 ** (watching.failures - 1), SLOWEST) : usual);
}

function lost(error) {
  watching.locked = error.status === 401;
  if (watching.locked) {
    served('Key needed', 'down');
    banner('This server asks for a key.', true);
  } else if (error.status === 503) {
    served('Loading', 'busy');
    banner(error.message);
  } else {
    served('Not connected', 'down');
    banner(error instanceof Problem ? error.message : UNREACHABLE);
  }
}

function served(words, state) {
  byId('served').dataset.state = state;
  if (byId('served-words').textContent !== words) byId('served-words').textContent = words;
  byId('served-words').title = words;
}

function banner(words, keyWanted = false) {
  if (byId('banner-words').textContent !== words) byId('banner-words').textContent = words;
  byId('banner').hidden = !words;
  byId('banner-key').hidden = !keyWanted;
}

byId('banner-key').addEventListener('click', async () => {
  if (await askKey()) {
    watching.locked = false;
    pollSoon(0);
  }
});

document.addEventListener('visibilitychange', () => {
  if (!document.hidden && !watching.locked) pollSoon(0);
});

// ---- views and themes

/** Shows the view that the address names. */
function showView() {
  const live = location.hash === '#live';
  byId('chat-view').hidden = live;
  byId('live-view').hidden = !live;
  for (const [id, current] of [['to-chat', !live], ['to-live', live]]) {
    if (current) byId(id).setAttribute('aria-current', 'page');
    else byId(id).removeAttribute('aria-current');
  }
  document.title = live ? 'Live · slotstream' : 'slotstream';
  wantStatus('live', live);
}

const THEMES = ['auto', 'light', 'dark'];

function showTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId('theme').textContent = `Theme: ${theme}`;
  kept.set('localStorage', 'theme', theme === 'auto' ? null : theme);
}

let theme = THEMES.includes(kept.get('localStorage', 'theme')) ? kept.get('localStorage', 'theme') : 'auto';
showTheme(theme);
byId('theme').addEventListener('click', () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  showTheme(theme);
});

addEventListener('hashchange', showView);
showView();
pollSoon(0);
