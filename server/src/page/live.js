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
  device: new Course('Device', (value) => `${few(value)} commands/s`),
};
byId('rates').append(...Object.values(courses).map((course) => course.node));

/** The status before, and when it came. */
let before = null;

watching.readers.push((status, at) => {
  const last = before;
  before = { status, at };
  const anew = !last || last.status.pid !== status.pid || last.status.started_at !== status.started_at;
  if (anew) Object.values(courses).forEach((course) => course.clear());
  // Between answers that lie far apart nothing is known of the course.
  const rates = !anew && at - last.at < 5000 ? differences(last.status, status, (at - last.at) / 1000) : {};
  showRates(status, rates);
  if (byId('live-view').hidden) return;
  showNow(status, rates);
  showQueue(status);
  showMemory(status.engine, status.memory_bytes);
  showGaps(status.gaps);
  showPool(status.engine);
  showLast(status.requests);
  const { engine } = status;
  byId('about-server').textContent =
    `slotstream ${status.version} · ${engine.backend} on ${engine.device} · arithmetic ${engine.arithmetic} · window ${status.window.toLocaleString('en')} tokens · up ${span(status.uptime_seconds)}`;
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
  if (wanted) words.push(`Since the start ${((100 * engine.hits) / wanted).toFixed(1)}% of ${wanted.toLocaleString('en')} experts wanted were in slots.`);
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
  const share = running.prompt_tokens ? running.read_tokens / running.prompt_tokens : 0;
  const head = make('p', 'phase', make('strong', '', PHASES[running.phase]), ` ${running.path}`);
  const progress = make('progress', '');
  progress.max = 1;
  progress.value = reading ? share : 1;
  progress.setAttribute('aria-label', 'Prompt read');
  const facts = pairs([
    ['Prompt', reading ? `${running.read_tokens} of ${running.prompt_tokens} tokens` : `${running.prompt_tokens} tokens`],
    ['Written', reading ? NONE : `${running.output_tokens} tokens`],
    ['Rate', (reading ? rates.read : rates.written) ? perSecond(reading ? rates.read : rates.written) : NONE],
    ['Since', millis(running.seconds * 1000)],
    ['Request', running.id],
  ]);
  node.replaceChildren(head, progress, facts);
  node.dataset.phase = running.phase;
}

function showQueue(status) {
  const waiting = status.running.filter((request) => request.phase === 'queued');
  const words = waiting.length ? `${waiting.length} of ${status.queue_limit} places in the queue are taken:` : 'Nothing waits.';
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
    pairs([['Half are under', millis(gaps.p50_ms)], ['The longest', millis(gaps.most_ms)], ['Measured', `${gaps.count.toLocaleString('en')} gaps`]]),
  );
}

function showPool(engine) {
  const node = byId('pool');
  if (!hasPool(engine)) return node.replaceChildren(make('p', 'note', 'This engine has no expert pool.'));
  const full = engine.layers.reduce((sum, layer) => sum + layer.resident, 0);
  const words = make('p', 'sum', make('strong', '', `${engine.slots.toLocaleString('en')} slots`), ` for ${engine.experts.toLocaleString('en')} experts of ${engine.layers.length} layers; ${full.toLocaleString('en')} experts are in slots`);
  const strip = make('div', 'strip', ...engine.layers.map(cell));
  strip.setAttribute('role', 'img');
  strip.setAttribute('aria-label', `Share of experts in slots, layer by layer: ${engine.layers.map((layer) => `${layer.layer}: ${percent(layer)}`).join(', ')}`);
  const ends = engine.layers.length ? make('p', 'ends', make('span', '', `layer ${engine.layers[0].layer}`), make('span', 'scale', 'none ', make('i', ''), ' all'), make('span', '', `layer ${engine.layers.at(-1).layer}`)) : '';
  node.replaceChildren(words, strip, ends);
}

const percent = (layer) => `${layer.experts ? Math.round((100 * layer.resident) / layer.experts) : 0}%`;

function cell(layer) {
  const node = make('span', '');
  node.style.setProperty('--share', percent(layer));
  node.title = `Layer ${layer.layer}: ${layer.resident} of ${layer.experts} experts in slots`;
  return node;
}

const COLUMNS = [
  ['Path', (done) => done.path],
  ['End', (done) => ENDS[done.ended] ?? done.ended.replaceAll('_', ' ')],
  ['Prompt', (done) => done.prompt_tokens.toLocaleString('en')],
  ['Cached', (done) => done.cached_tokens.toLocaleString('en')],
  ['Written', (done) => done.output_tokens.toLocaleString('en')],
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
