// Owns: the live view: what the server's status says, and how its counters go.
// Refuses: anything that the status does not tell: an engine without a pool, disk or device is shown without them.
// Invariants: rates are differences of counters over the time between two answers; a server that was started anew starts anew here.
'use strict';

const PHASES = { queued: 'Waiting', reading: 'Reading the prompt', writing: 'Writing' };
const ENDS = {
  stop: 'complete', length: 'cut off', tool_calls: 'calls', repeated: 'went round', cancelled: 'cancelled',
};
const ROWS = 20;

const perSecond = (value) => `${few(value)} tok/s`;
const courses = {
  read: new Course('Prompt read', perSecond),
  written: new Course('Written', perSecond),
  hits: new Course('Hit rate', (value) => `${(value * 100).toFixed(1)}%`),
  disk: new Course('Disk', (value) => `${bytes(value)}/s`),
  device: new Course('Device commands', (value) => `${few(value)}/s`),
};
byId('rates').append(...Object.values(courses).map((course) => course.node));

/** The status before, and when it came. */
let before = null;
/** The rates measured last. */
let latest = {};

watching.readers.push((status, at) => {
  const anew = !before || before.status.pid !== status.pid || before.status.started_at !== status.started_at;
  const seconds = anew ? 0 : (at - before.at) / 1000;
  let rates = latest;
  // Between answers that lie close together chance rules, and of a time between answers far apart nothing is known.
  if (anew || seconds >= 0.5) {
    rates = !anew && seconds < 5 ? differences(before.status, status, seconds) : {};
    if (anew) Object.values(courses).forEach((course) => course.clear());
    showRates(status, rates);
    before = { status, at };
    latest = rates;
  }
  if (byId('live-view').hidden) return;
  showNow(status, rates);
  showQueue(status);
  showMemory(status.engine, status.memory_bytes);
  showGaps(status.gaps);
  showPool(status.engine);
  showLast(status.requests);
  const { engine } = status;
  byId('about-server').textContent =
    `slotstream ${status.version} · ${engine.backend} on ${engine.device} · arithmetic ${engine.arithmetic} · window ${count(status.window)} tokens · up ${span(status.uptime_seconds)}`;
});

/** How counters went in a time. */
function differences(from, to, seconds) {
  const rate = (a, b) => Math.max(0, b - a) / seconds;
  const hits = to.engine.hits - from.engine.hits;
  const wanted = hits + to.engine.misses - from.engine.misses;
  return {
    read: rate(from.totals.read_so_far, to.totals.read_so_far),
    written: rate(from.totals.written_so_far, to.totals.written_so_far),
    hits: wanted > 0 ? hits / wanted : null,
    disk: rate(from.engine.disk_bytes, to.engine.disk_bytes),
    device: rate(from.engine.dispatches, to.engine.dispatches),
  };
}

/** Whether there is a machine behind the words. */
const isScript = (engine) => engine.backend === 'scripted';
const hasPool = (engine) => engine.slots > 0 || engine.layers.length > 0;

function showRates(status, rates) {
  const { engine } = status;
  courses.hits.node.hidden = !hasPool(engine);
  courses.disk.node.hidden = courses.device.node.hidden = isScript(engine);
  for (const [name, course] of Object.entries(courses)) {
    course.add(rates[name] ?? null, name === 'hits' ? 1 : undefined);
  }
  const wanted = engine.hits + engine.misses;
  const words = [];
  if (isScript(engine)) words.push('Replies are those of a script: there is no disk, no device and no pool to measure.');
  if (wanted) words.push(`Since the start ${((100 * engine.hits) / wanted).toFixed(1)}% of ${count(wanted)} experts wanted were in slots.`);
  if (engine.disk_bytes) words.push(`${bytes(engine.disk_bytes)} were read from disk, and ${few(engine.disk_wait_seconds)} s waited for them.`);
  replaceWords(byId('rates-note'), words.join(' '));
  byId('rates-note').hidden = !words.length;
}

function showNow(status, rates) {
  const running = status.running.find((request) => request.phase !== 'queued');
  const node = byId('now');
  if (!running) {
    node.replaceChildren(make('p', 'idle', `Nothing runs. The last request ended ${span(status.idle_seconds)} ago.`));
    if (!status.requests.length) node.replaceChildren(make('p', 'idle', 'Nothing runs, and nothing was asked yet.'));
    return;
  }
  const reading = running.phase === 'reading';
  const rate = reading ? rates.read : rates.written;
  const facts = pairs([
    ['Prompt', reading ? `${count(running.read_tokens)} of ${count(running.prompt_tokens)} tokens` : `${count(running.prompt_tokens)} tokens`],
    ['Written', reading ? NONE : `${count(running.output_tokens)}${running.max_tokens ? ` of at most ${count(running.max_tokens)}` : ''} tokens`],
    ['Rate', rate ? perSecond(rate) : NONE],
    ['Time', millis(running.seconds * 1000)],
    ['Request', running.id],
  ]);
  const head = make('p', 'phase', make('strong', '', PHASES[running.phase]), ` ${running.path}`);
  node.replaceChildren(head, ...progress(running, reading), facts);
}

/** How far a request is; of an answer without a limit nobody knows. */
function progress(running, reading) {
  const [done, of] = reading ? [running.read_tokens, running.prompt_tokens] : [running.output_tokens, running.max_tokens];
  if (!of) return [];
  const node = make('progress', '');
  node.value = Math.min(1, done / of);
  node.setAttribute('aria-label', reading ? 'Prompt read' : 'Written of the most that was asked for');
  return [node];
}

function showQueue(status) {
  const waiting = status.running.filter((request) => request.phase === 'queued');
  const words = waiting.length ? `${waiting.length} of ${status.queue_limit} places in the queue ${waiting.length === 1 ? 'is' : 'are'} taken:` : 'Nothing waits.';
  const item = (request) => make('li', '', `${request.path}, ${request.prompt_tokens} prompt tokens, since ${millis(request.seconds * 1000)}`);
  byId('queue').replaceChildren(make('p', 'note', words), ...(waiting.length ? [make('ol', '', ...waiting.map(item))] : []));
}

function showMemory(engine, sum) {
  const node = byId('memory');
  if (!sum) return node.replaceChildren(make('p', 'note', 'This engine has allocated nothing.'));
  const most = Math.max(...engine.memory.map((part) => part.bytes));
  const row = (part) => make('tr', '', make('th', '', part.name), make('td', 'draw', bar(part.bytes / most)), make('td', 'number', bytes(part.bytes)));
  const of = engine.machine_bytes ? ` of ${bytes(engine.machine_bytes)} that the machine has` : '';
  const whole = engine.machine_bytes ? [bar(sum / engine.machine_bytes, 'tall')] : [];
  node.replaceChildren(
    make('p', 'sum', make('strong', '', bytes(sum)), of),
    ...whole,
    make('table', 'ledger', make('tbody', '', ...engine.memory.map(row))),
  );
  node.querySelectorAll('th').forEach((head) => (head.scope = 'row'));
}

function showGaps(gaps) {
  const node = byId('gaps');
  if (!gaps.count) return node.replaceChildren(make('p', 'note', 'No two tokens were written yet.'));
  node.replaceChildren(
    make('p', 'sum', make('strong', '', millis(gaps.p99_ms)), ' is the 99th percentile'),
    pairs([['Half are under', millis(gaps.p50_ms)], ['The longest', millis(gaps.most_ms)], ['Measured', `${count(gaps.count)} gaps`]]),
  );
}

function showPool(engine) {
  const node = byId('pool');
  if (!hasPool(engine)) return node.replaceChildren(make('p', 'note', 'This engine has no expert pool.'));
  const full = engine.layers.reduce((sum, layer) => sum + layer.resident, 0);
  const words = make('p', 'sum', make('strong', '', `${count(engine.slots)} slots`), ` for ${count(engine.experts)} experts of ${engine.layers.length} layers; ${count(full)} experts are in slots`);
  const most = Math.max(...engine.layers.map(share), 0);
  const strip = make('div', 'strip', ...engine.layers.map((layer) => cell(layer, most)));
  strip.setAttribute('role', 'img');
  strip.setAttribute('aria-label', `Share of experts in slots, layer by layer: ${engine.layers.map((layer) => `${layer.layer}: ${percent(share(layer))}`).join(', ')}`);
  const scale = make('span', 'scale', '0% ', make('i', ''), ` ${percent(most)}`);
  const layer = (at) => make('span', '', engine.layers.length ? `layer ${engine.layers.at(at).layer}` : '');
  node.replaceChildren(words, strip, make('p', 'ends', layer(0), scale, layer(-1)));
}

const share = (layer) => (layer.experts ? layer.resident / layer.experts : 0);
const percent = (value) => `${Math.round(100 * value)}%`;

/** A layer, as dark as its share is of the greatest. */
function cell(layer, most) {
  const node = make('span', '');
  node.style.setProperty('--share', percent(most ? share(layer) / most : 0));
  node.title = `Layer ${layer.layer}: ${layer.resident} of ${layer.experts} experts in slots`;
  return node;
}

const COLUMNS = [
  ['Path', (done) => done.path],
  ['End', (done) => ENDS[done.ended] ?? done.ended.replaceAll('_', ' ')],
  ['Prompt', (done) => count(done.prompt_tokens)],
  ['Cached', (done) => count(done.cached_tokens)],
  ['Written', (done) => count(done.output_tokens)],
  ['First token', (done) => (done.ttft_ms === null ? NONE : millis(done.ttft_ms))],
  ['Reading', (done) => (done.prefill_rate ? perSecond(done.prefill_rate) : NONE)],
  ['Writing', (done) => (done.decode_rate ? perSecond(done.decode_rate) : NONE)],
];

let shownLast = null;

function showLast(requests) {
  // A table that did not change is left alone: somebody may be reading it.
  const newest = requests[0]?.id ?? '';
  if (newest === shownLast) return;
  shownLast = newest;
  if (!requests.length) return byId('last').replaceChildren(make('p', 'note', 'None yet.'));
  const head = COLUMNS.map(([name]) => {
    const node = make('th', '', name);
    node.scope = 'col';
    return node;
  });
  const row = (done) => {
    const cells = COLUMNS.map(([name, words]) => {
      const node = make('td', '', words(done));
      node.dataset.name = name;
      return node;
    });
    const node = make('tr', '', ...cells);
    node.title = done.id;
    node.dataset.ended = done.ended;
    return node;
  };
  byId('last').replaceChildren(make('table', 'last', make('thead', '', make('tr', '', ...head)), make('tbody', '', ...requests.slice(0, ROWS).map(row))));
}

function replaceWords(node, words) {
  if (node.textContent !== words) node.textContent = words;
}
