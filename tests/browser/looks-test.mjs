// Owns: tests of the page's looks: contrast in both themes, narrow windows, motion.
import assert from 'node:assert/strict';
import { answered, open, say } from './chat.mjs';
import { test } from './harness.mjs';
import { withPool } from './live.mjs';
import { faintTexts, sticksOut } from './looks.mjs';

const THEMES = ['light', 'dark'];

async function legible(page, where, within) {
  const { count, faint } = await faintTexts(page, within);
  assert.ok(count > 3, `${where}: ${count} texts`);
  assert.deepEqual(faint, [], where);
}

for (const theme of THEMES) {
  test(`every text is legible in the ${theme} theme`, async ({ page, server }) => {
    await page.emulateMedia({ colorScheme: theme });
    await withPool(page);
    await open(page, server);
    await legible(page, 'the empty chat');
    await say(page, 'Show me. [code]');
    await answered(page);
    await legible(page, 'the chat');
    await page.getByRole('button', { name: 'New conversation' }).click();
    await say(page, 'Break it. [break]');
    await page.locator('#problem').filter({ hasText: 'lost' }).waitFor();
    await legible(page, 'a failure');
    await page.getByRole('button', { name: 'Settings' }).click();
    await legible(page, 'the settings', '#settings');
    await page.keyboard.press('Escape');
    await page.evaluate(() => byId('key').showModal());
    await legible(page, 'the key', '#key');
    await page.keyboard.press('Escape');
    const end = server.ask('On. [slow]');
    await page.locator('#to-live').click();
    await page.locator('#now').filter({ hasText: 'Writing' }).waitFor();
    await page.evaluate(() => banner('This server asks for a key.', true));
    await legible(page, 'the live view');
    end();
  });
}

test('the theme follows the system until it is chosen, and the choice is remembered', async ({ page, server }) => {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMedia({ colorScheme: 'light' });
  await open(page, server);
  const light = await ground();
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await ground();
  assert.notEqual(light, dark);
  await page.getByRole('button', { name: 'Theme: auto' }).click();
  assert.equal(await ground(), light);
  await page.reload();
  assert.equal(await ground(), light);
  await page.getByRole('button', { name: 'Theme: light' }).click();
  await page.emulateMedia({ colorScheme: 'light' });
  assert.equal(await ground(), dark);
  await page.getByRole('button', { name: 'Theme: dark' }).click();
  assert.equal(await ground(), light);
});

test('a window of 360 px holds everything', async ({ page, server }) => {
  await page.setViewportSize({ width: 360, height: 740 });
  await withPool(page);
  await open(page, server);
  assert.deepEqual(await sticksOut(page), [], 'the empty chat');
  await say(page, `${'A long word: '}${'x'.repeat(200)} [code]`);
  await answered(page);
  assert.deepEqual(await sticksOut(page), [], 'the chat');
  await page.getByRole('button', { name: 'Settings' }).click();
  assert.deepEqual(await sticksOut(page), [], 'the settings');
  await page.keyboard.press('Escape');
  const end = server.ask('On. [slow]');
  await page.locator('#to-live').click();
  await page.locator('#now').filter({ hasText: 'Writing' }).waitFor();
  await page.locator('#last td').first().waitFor();
  assert.deepEqual(await sticksOut(page), [], 'the live view');
  end();
});

test('nothing moves for those who want no motion', async ({ page, server }) => {
  await page.emulateMedia({ reducedMotion: 'reduce' });
  await open(page, server);
  await say(page, 'On. [slow]');
  await page.locator('.turn.model > .text').filter({ hasText: 'and on' }).waitFor();
  assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
  await page.keyboard.press('Escape');
  await server.settled();
});

test('the page runs its own scripts and no others', async ({ page, server }) => {
  const response = await page.goto(server.url);
  const policy = response.headers()['content-security-policy'];
  assert.match(policy, /script-src( 'sha256-[^']+')+; style-src 'sha256-/);
  assert.ok(!policy.includes('unsafe'), policy);
  const kept = await page.evaluate(() => {
    const script = document.createElement('script');
    try {
      script.textContent = 'window.broken = 1';
      document.body.append(script);
      document.body.innerHTML = '<p>no</p>';
    } catch {
      // Trusted types refuse it.
    }
    return [window.broken, document.getElementById('composer') !== null];
  });
  assert.deepEqual(kept, [undefined, true]);
}, { console: /Content Security Policy|TrustedScript|TrustedHTML/ });
