// Owns: the browser, a fresh page for each test, and what every page must hold: no request elsewhere, no message in the console.
// Refuses: a test that passes while its page complains.
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

/** Chromium reaches for Google's hosts at its start unless it is told not to. */
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync', '--force-color-profile=srgb'];
const PLACES = [process.env.SS_CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

const tests = [];

/** Declares a test; `expect.console` is a pattern of console messages that belong to it. */
export function test(name, work, expect = {}) {
  tests.push({ name, work, expect });
}

/** Runs the tests whose name holds `only`; tells how many failed. */
export async function run(server, only = '') {
  const executablePath = PLACES.find((place) => place && existsSync(place));
  if (!executablePath) throw new Error('there is no Chromium here; set SS_CHROMIUM to its path');
  const folder = mkdtempSync(join(tmpdir(), 'slotstream-browser-'));
  const browser = await chromium.launchPersistentContext(folder, { executablePath, args: FLAGS, headless: true });
  let failed = 0;
  for (const { name, work, expect } of tests.filter((each) => each.name.includes(only))) {
    const began = performance.now();
    const told = await attempt(browser.browser() ?? browser, server, work, expect);
    failed += told ? 1 : 0;
    console.log(`${told ? 'FAILED' : 'ok'}  ${name} (${Math.round(performance.now() - began)} ms)`);
    if (told) console.log(told.replace(/^/gm, '        '));
  }
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
  return failed;
}

/** Runs a test on a page of its own; tells what went wrong. */
async function attempt(browser, server, work, expect) {
  const context = await browser.newContext({ viewport: { width: 1100, height: 760 }, permissions: ['clipboard-read', 'clipboard-write'] });
  context.setDefaultTimeout(10_000);
  const page = await context.newPage();
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(`the page failed: ${error.message}`));
  page.on('console', (message) => {
    const { url } = message.location();
    if (!['error', 'warning'].includes(message.type()) || expect.console?.test(message.text())) return;
    complaints.push(`console ${message.type()}: ${message.text()} ${url}`);
  });
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (!['127.0.0.1', ''].includes(url.hostname)) complaints.push(`asked elsewhere: ${request.url()}`);
  });
  try {
    await work({ page, server, context });
  } catch (error) {
    complaints.unshift(error.stack ?? String(error));
  } finally {
    await context.close();
  }
  return complaints.join('\n');
}
