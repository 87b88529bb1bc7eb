// Owns: the pictures of the page in docs/images: both views in both themes, over a server with a script;
// where SS_BROWSER_LIVE is the address of another server, its live view is shown.
// Invariants: a picture shows what the server said; none is larger than 150 KB.
import assert from 'node:assert/strict';
import { mkdirSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { open, say } from './chat.mjs';
import { test } from './harness.mjs';
import { Server } from './server.mjs';

const FOLDER = fileURLToPath(new URL('../../docs/images/', import.meta.url));
const MOST = 150 * 1024;

async function picture(page, name) {
  mkdirSync(FOLDER, { recursive: true });
  const path = `${FOLDER}${name}.png`;
  await page.screenshot({ path });
  assert.ok(statSync(path).size < MOST, `${name} has ${statSync(path).size} bytes`);
}

const THEMES = ['light', 'dark'];
const QUESTION = 'Two layers share 16 of 64 slots. Each needs 24 rows: how many rows do they take together?';

async function chat({ page, server }) {
  await open(page, server);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('Thinking').selectOption('medium');
  await page.getByRole('button', { name: 'Done' }).click();
  await say(page, QUESTION);
  await page.locator('.turn.model .after').waitFor();
  await page.locator('#talk').evaluate((talk) => (talk.scrollTop = 0));
  for (const colorScheme of THEMES) {
    await page.emulateMedia({ colorScheme });
    await picture(page, `page-chat-${colorScheme}`);
  }
}

/** The view of half a minute in which several clients ask. */
async function live({ page, server }) {
  await page.setViewportSize({ width: 1100, height: 960 });
  await page.goto(`${server.url}/#live`);
  const questions = ['Hi.', 'Say how water boils. [plain]', 'Is it one and counting?', 'Is it two and counting?', 'Tell me more. [slow]', 'Hi again.'];
  const ends = [];
  for (const words of questions) {
    ends.push(server.ask(words));
    await page.waitForTimeout(2500);
  }
  await page.waitForTimeout(15_000);
  for (const colorScheme of THEMES) {
    await page.emulateMedia({ colorScheme });
    await picture(page, `page-live-${colorScheme}`);
  }
  ends.forEach((end) => end());
  await server.settled();
}

/** Declares the pictures beside the tests. */
export function screenshots() {
  for (const [name, work, address] of [['chat', chat], ['live view', live, process.env.SS_BROWSER_LIVE]]) {
    test(`pictures of the ${name}`, async ({ page }) => {
      const server = address ? Server.at(address) : await Server.start();
      try {
        await work({ page, server });
      } finally {
        if (!address) await server.stop();
      }
    });
  }
}
