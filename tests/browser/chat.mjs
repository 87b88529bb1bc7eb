// Owns: tests of the chat view.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from './harness.mjs';
import { Server, sleep } from './server.mjs';

const { replies } = JSON.parse(readFileSync(new URL('script.json', import.meta.url)));
const scripted = (when) => replies.find((reply) => reply.when === when).text;

/** Opens the chat. */
export async function open(page, server) {
  await page.goto(server.url);
  await page.locator('#served[data-state=up]').waitFor();
}

/** Says something; the answer is there when its figures are. */
export async function say(page, words) {
  await page.locator('#ask').fill(words);
  await page.keyboard.press('Enter');
}

export const answered = (page, count = 1) => page.locator('.turn.model[aria-busy=false] .facts:not(:empty)').nth(count - 1).waitFor();

/** Bodies of the requests for replies. */
function bodies(page) {
  const sent = [];
  page.on('request', (request) => request.url().endsWith('/v1/chat/completions') && sent.push(request.postDataJSON()));
  return sent;
}

test('a chat streams, and is the text of the script', async ({ page, server }) => {
  await open(page, server);
  const lengths = new Set();
  await page.exposeFunction('grew', (length) => lengths.add(length));
  await page.evaluate(() => new MutationObserver(() => {
    window.grew(document.querySelector('.turn.model > .text')?.textContent.length ?? 0);
  }).observe(document.querySelector('#turns'), { childList: true, subtree: true, characterData: true }));
  await say(page, 'Tell me. [plain]');
  await answered(page);
  assert.equal(await page.locator('.turn.model > .text').textContent(), scripted('[plain]'));
  assert.ok(lengths.size > 5, `it came in ${lengths.size} steps`);
  assert.match(await page.locator('.turn.model .facts').textContent(), /^\d+ tokens · \d+(\.\d)? tok\/s · first after \d+(\.\d)? m?s$/);
  assert.equal(await page.locator('#turns').getAttribute('aria-live'), 'polite');
});

test('the next question brings the conversation along, and a new one does not', async ({ page, server }) => {
  const sent = bodies(page);
  await open(page, server);
  await say(page, 'One. [plain]');
  await answered(page);
  await say(page, 'Two.');
  await answered(page, 2);
  assert.deepEqual(sent[1].messages, [
    { role: 'user', content: 'One. [plain]' },
    { role: 'assistant', content: scripted('[plain]') },
    { role: 'user', content: 'Two.' },
  ]);
  await page.getByRole('button', { name: 'New conversation' }).click();
  assert.equal(await page.locator('.turn').count(), 0);
  await say(page, 'Three.');
  await answered(page);
  assert.deepEqual(sent[2].messages, [{ role: 'user', content: 'Three.' }]);
});

test('thinking is folded', async ({ page, server }) => {
  await open(page, server);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Thinking').selectOption('low');
  await page.getByRole('button', { name: 'Done' }).click();
  await say(page, 'What is it? [think]');
  await answered(page);
  const thoughts = page.locator('details.thoughts');
  assert.equal(await thoughts.getAttribute('open'), null);
  assert.match(await thoughts.locator('summary').textContent(), /^Thought for \d+\.\d s$/);
  assert.equal(await thoughts.locator('.text').isVisible(), false);
  await thoughts.locator('summary').click();
  assert.equal(await thoughts.locator('.text').textContent(), 'Six times seven: that is a product of the small table.');
  assert.equal(await page.locator('.turn.model > .text').textContent(), 'It is 42.');
});

test('code is told apart, and can be copied', async ({ page, server }) => {
  await open(page, server);
  await say(page, 'Show me. [code]');
  await answered(page);
  const code = 'fn main() {\n    println!("<hello>");\n}';
  assert.equal(await page.locator('.code pre').textContent(), code);
  assert.equal(await page.locator('.code-head span').textContent(), 'rust');
  assert.deepEqual(await page.locator('.turn.model > .text > p').allTextContents(), ['Here it is:', 'Run it with cargo run; that is all.']);
  assert.equal(await page.locator('.turn.model p code').textContent(), 'cargo run');
  await page.getByRole('button', { name: 'Copy the code' }).click();
  await page.getByText('Copied').waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), code);
  await page.getByRole('button', { name: 'Copy the answer' }).click();
  await page.getByText('Copied').nth(1).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), scripted('[code]'));
});

test('what the model writes is never markup', async ({ page, server }) => {
  await open(page, server);
  await say(page, 'Try. [markup]');
  await answered(page);
  assert.equal(await page.locator('#turns :is(img, script)').count(), 0);
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert.equal(await page.locator('.turn.model > .text > p').textContent(), scripted('[markup]').split('\n')[0]);
});

test('stop ends the request, and the server says that it was cancelled', async ({ page, server }) => {
  await open(page, server);
  const { totals } = await server.settled();
  await say(page, 'On and on. [slow]');
  await page.locator('.turn.model > .text').filter({ hasText: 'and on and on' }).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  const status = await server.settled();
  assert.equal(status.requests[0].ended, 'cancelled');
  assert.equal(status.totals.cancelled, totals.cancelled + 1);
  const words = page.locator('.turn.model .facts');
  await page.waitForFunction(() => /\d+ tokens/.test(document.querySelector('.turn.model .facts').textContent));
  assert.match(await words.textContent(), new RegExp(`^Stopped · ${status.requests[0].output_tokens} tokens`));
  assert.equal(await page.locator('#send').isVisible(), true);
});

test('a prompt that is read slowly says how far it is, and escape ends it', async ({ page, server }) => {
  await open(page, server);
  await say(page, 'Long. [read]');
  await page.locator('#phase').filter({ hasText: /^Reading the prompt: \d+ of \d+ tokens…$/ }).waitFor();
  await page.keyboard.press('Escape');
  assert.equal((await server.settled()).requests[0].ended, 'cancelled');
  // Nothing was answered: the words are back where they were written.
  assert.equal(await page.locator('#ask').inputValue(), 'Long. [read]');
});

test('settings reach the request, and are remembered', async ({ page, server }) => {
  const sent = bodies(page);
  await open(page, server);
  await say(page, 'As it is.');
  await answered(page);
  assert.deepEqual(Object.keys(sent[0]).sort(), ['messages', 'reasoning_effort', 'stream', 'stream_options']);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('System text').fill('Be brief.');
  await page.getByLabel('Temperature').fill('0.3');
  await page.getByLabel('Most tokens').fill('1');
  await page.getByLabel('Thinking').selectOption('high');
  await page.getByRole('button', { name: 'Done' }).click();
  await page.reload();
  await page.locator('#served[data-state=up]').waitFor();
  await say(page, 'As set.');
  await answered(page);
  assert.deepEqual(sent[1], {
    messages: [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'As set.' }],
    stream: true,
    stream_options: { include_usage: true },
    temperature: 0.3,
    max_tokens: 1,
    reasoning_effort: 'high',
  });
  assert.match(await page.locator('.turn.model .facts').textContent(), /^Cut off at the token limit · 1 token/);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Temperature').fill('7');
  await page.getByRole('button', { name: 'Defaults' }).click();
  assert.equal(await page.getByLabel('System text').inputValue(), '');
  assert.equal(await page.evaluate(() => localStorage.getItem('slotstream.settings')), null);
});

test('the keyboard is enough', async ({ page, server }) => {
  await open(page, server);
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.tagName);
  assert.equal(await focused(), 'ask');
  await page.keyboard.type('First line [slow]');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('second line');
  assert.equal(await page.locator('#ask').inputValue(), 'First line [slow]\nsecond line');
  await page.keyboard.press('Enter');
  await page.locator('.turn.model > .text').filter({ hasText: 'and on' }).waitFor();
  await page.keyboard.press('Enter');
  assert.match(await page.locator('#phase').textContent(), /Esc stops it/);
  await page.keyboard.press('Escape');
  assert.equal((await server.settled()).requests[0].ended, 'cancelled');
  assert.equal(await focused(), 'ask');
  const order = [];
  await page.evaluate(() => {
    const start = document.querySelector('h1');
    start.tabIndex = -1;
    start.focus();
  });
  for (let steps = 0; steps < 12 && order.at(-1) !== 'open-settings'; steps += 1) {
    await page.keyboard.press('Tab');
    order.push(await focused());
  }
  assert.deepEqual(order.filter((id) => id === id.toLowerCase()), ['to-chat', 'to-live', 'theme', 'talk', 'ask', 'send', 'fresh', 'open-settings']);
  await page.keyboard.press('Enter');
  assert.equal(await page.locator('dialog#settings').isVisible(), true);
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('dialog#settings').isVisible(), false);
  assert.equal(await focused(), 'ask');
});

test('a failure is a sentence, and what was asked is not lost', async ({ page, server }) => {
  const sent = bodies(page);
  await open(page, server);
  await say(page, 'Break it. [break]');
  await page.locator('#problem').filter({ hasText: 'The device was lost.' }).waitFor();
  assert.match(await page.locator('.turn.model > .text').textContent(), /^A few/);
  assert.equal(await page.locator('#ask').inputValue(), 'Break it. [break]');
  await say(page, 'Refuse it. [refuse]');
  await page.locator('#problem').filter({ hasText: 'The device was lost.' }).waitFor();
  await say(page, 'Again.');
  await page.locator('.turn.model > .text').filter({ hasText: 'Hello.' }).waitFor();
  assert.equal(await page.locator('#problem').isVisible(), false);
  assert.deepEqual(sent.at(-1).messages, [{ role: 'user', content: 'Again.' }]);
}, { console: /status of 500/ });

test('a key is asked for, kept in the tab, and asked for again when it is wrong', async ({ page }) => {
  const locked = await Server.start({ key: 'sesame' });
  try {
    await page.goto(locked.url);
    await page.getByRole('textbox', { name: 'Key' }).fill('simsalabim');
    await page.keyboard.press('Enter');
    await page.locator('#key-words').filter({ hasText: 'is not the one' }).waitFor();
    await page.keyboard.press('Escape');
    await page.locator('#banner').filter({ hasText: 'This server asks for a key.' }).waitFor();
    await page.getByRole('button', { name: 'Enter the key' }).click();
    await page.getByRole('textbox', { name: 'Key' }).fill('sesame');
    await page.keyboard.press('Enter');
    await page.locator('#served[data-state=up]').waitFor();
    assert.equal(await page.locator('#banner').isVisible(), false);
    await page.reload();
    await page.locator('#served[data-state=up]').waitFor();
    await say(page, 'Hi.');
    await answered(page);
    assert.deepEqual(await page.evaluate(() => [sessionStorage.getItem('slotstream.key'), Object.values(localStorage).includes('sesame')]), ['sesame', false]);
  } finally {
    await locked.stop();
  }
}, { console: /status of 401/ });

test('a server that goes and comes back is noticed', async ({ page }) => {
  const first = await Server.start();
  await page.goto(`${first.url}/#live`);
  await page.locator('#served[data-state=up]').waitFor();
  await first.stop();
  await page.locator('#banner').filter({ hasText: 'The server does not answer.' }).waitFor();
  const second = await Server.start({ port: first.port });
  try {
    await page.locator('#served[data-state=up]').waitFor({ timeout: 20_000 });
    assert.equal(await page.locator('#banner').isVisible(), false);
    await page.goto(`${second.url}/#chat`);
    await say(page, 'On. [slow]');
    await page.locator('.turn.model > .text').filter({ hasText: 'and on' }).waitFor();
    await sleep(100);
    await second.stop();
    await page.locator('#problem').filter({ hasText: 'The connection broke off before the answer was whole.' }).waitFor();
  } finally {
    await second.stop();
  }
}, { console: /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET/ });
