// Owns: the pictures of the page in docs/images: both views in both themes, over a server with a script.
// Invariants: a picture shows what the server said; none is larger than 150 KB.
import assert from 'node:assert/strict';
import { mkdirSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { open, say } from './chat.mjs';
import { test } from './harness.mjs';

const FOLDER = fileURLToPath(new URL('../../docs/images/', import.meta.url));
const MOST = 150 * 1024;

async function picture(page, name) {
  mkdirSync(FOLDER, { recursive: true });
  const path = `${FOLDER}${name}.png`;
  await page.screenshot({ path });
  assert.ok(statSync(path).size < MOST, `${name} has ${statSync(path).size} bytes`);
}

/** Declares the pictures beside the tests. */
export function screenshots() {
  for (const theme of ['light', 'dark']) {
    test(`pictures of the ${theme} theme`, async ({ page, server }) => {
      await page.emulateMedia({ colorScheme: theme });
      await server.settled();
      await open(page, server);
      await page.getByRole('button', { name: 'Settings' }).click();
      await page.getByLabel('Thinking').selectOption('medium');
      await page.getByRole('button', { name: 'Done' }).click();
      await say(page, 'Two layers share 16 of 64 slots. Each needs 24 rows: how many rows do they take together?');
      await page.locator('.turn.model .after').waitFor();
      await page.locator('#talk').evaluate((talk) => (talk.scrollTop = 0));
      await picture(page, `page-chat-${theme}`);
      await page.locator('#to-live').click();
      const ends = [];
      for (const words of ['Hi.', 'Tell me. [plain]', 'On. [slow]', 'Next. [plain]']) {
        ends.push(server.ask(words));
        await page.waitForTimeout(1500);
      }
      await page.waitForTimeout(6000);
      await picture(page, `page-live-${theme}`);
      ends.forEach((end) => end());
      await server.settled();
    });
  }
}
