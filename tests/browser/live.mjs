// Owns: tests of the live view.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from './harness.mjs';

const pool = JSON.parse(readFileSync(new URL('pool.json', import.meta.url)));

/** Lets the page see an engine with a pool, which no script has: the rest of the status is the server's own. */
export async function withPool(page) {
  let polls = 0;
  const { about, ...engine } = pool;
  const layers = Array.from({ length: 48 }, (_, layer) => ({
    layer,
    experts: 512,
    resident: Math.round(24 + 180 * Math.abs(Math.sin(layer * 0.37)) * (0.4 + layer / 80)),
  }));
  await page.route('**/ss/status', async (route) => {
    const response = await route.fetch();
    const status = await response.json();
    polls += 1;
    Object.assign(status.engine, engine, {
      layers,
      hits: 9000 + polls * 900,
      misses: 1000 + polls * 100,
      disk_bytes: polls * 250_000_000,
      disk_wait_seconds: polls * 0.1,
      dispatches: polls * 4000,
    });
    status.memory_bytes = pool.memory.reduce((sum, part) => sum + part.bytes, 0);
    await route.fulfill({ response, json: status });
  });
}

test('the live view shows the request that runs, the one that waits, and those that ran', async ({ page, server }) => {
  await server.settled();
  await page.goto(`${server.url}/#live`);
  await page.locator('#now').filter({ hasText: 'Nothing runs' }).waitFor();
  const ends = [server.ask('Long. [read]')];
  await page.locator('#now').filter({ hasText: /Reading the prompt.*[1-9]\d* of \d+ tokens/ }).waitFor();
  const share = await page.locator('#now progress').evaluate((bar) => bar.value);
  assert.ok(share > 0 && share < 1, `${share}`);
  ends.pop()();
  ends.push(server.ask('On. [slow]', { max_tokens: 2000 }));
  await page.locator('#now').filter({ hasText: /Writing.*\/v1\/chat\/completions.*\d+ of at most 2,000 tokens/ }).waitFor();
  assert.ok((await page.locator('#now progress').evaluate((bar) => bar.value)) < 1);
  ends.push(server.ask('Next. [plain]'));
  await page.locator('#queue').filter({ hasText: '1 of 32 places' }).waitFor();
  await page.locator('.course').filter({ hasText: 'Written' }).locator('dd').first().filter({ hasText: /^\d+(\.\d)? tok\/s$/ }).waitFor();
  await page.locator('#gaps').filter({ hasText: '99th percentile' }).waitFor();
  const running = (await server.status()).running[0];
  await page.locator('#now').filter({ hasText: running.id }).waitFor();
  ends.forEach((end) => end());
  await server.settled();
  const newest = page.locator('#last tbody tr').first();
  await page.locator('#now').filter({ hasText: 'Nothing runs' }).waitFor();
  assert.match(await newest.textContent(), /cancelled/);
  assert.equal(await page.locator('#last tbody tr').count(), Math.min(20, (await server.status()).requests.length));
  assert.match(await page.locator('#pool').textContent(), /This engine has no expert pool/);
  assert.match(await page.locator('#memory').textContent(), /has allocated nothing/);
  assert.match(await page.locator('#rates-note').textContent(), /Replies are those of a script/);
});

test('the status is asked for about once a second, and seldom when nobody looks at the live view', async ({ page, server }) => {
  let polls = 0;
  page.on('request', (request) => (polls += request.url().endsWith('/ss/status') ? 1 : 0));
  await page.goto(`${server.url}/#live`);
  await page.locator('#served[data-state=up]').waitFor();
  polls = 0;
  await page.waitForTimeout(3500);
  assert.ok(polls >= 2 && polls <= 5, `${polls} polls`);
  await page.locator('#to-chat').click();
  await page.waitForTimeout(300);
  polls = 0;
  await page.waitForTimeout(3000);
  assert.ok(polls <= 1, `${polls} polls`);
});

test('a pool is drawn layer by layer, memory part by part, rates as courses', async ({ page, server }) => {
  await withPool(page);
  await page.goto(`${server.url}/#live`);
  await page.locator('.strip span').nth(47).waitFor();
  assert.match(await page.locator('.strip').getAttribute('aria-label'), /layer by layer: 0: 5%, 1: /);
  const colours = await page.locator('.strip span').evaluateAll((cells) => new Set(cells.map((cell) => getComputedStyle(cell).backgroundColor)).size);
  assert.ok(colours > 10, `${colours} colours`);
  assert.deepEqual(await page.locator('.ledger th').allTextContents(), ['trunk', 'slots', 'state', 'scratch']);
  assert.match(await page.locator('#memory .sum').textContent(), /^8\.5 GiB of 16\.0 GiB/);
  await page.locator('.course').filter({ hasText: 'Hit rate' }).filter({ hasText: '90.0%' }).waitFor();
  await page.locator('.course').filter({ hasText: 'Disk' }).filter({ hasText: /MiB\/s/ }).waitFor();
  await page.locator('.course').filter({ hasText: 'Device commands' }).filter({ hasText: /\d,\d{3}\/s/ }).waitFor();
});
