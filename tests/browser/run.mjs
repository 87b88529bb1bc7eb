// Owns: the tests of the page that the server shows to browsers, in headless Chromium over a server with a script.
// Usage: node run.mjs [--screenshots] [words of a test's name]; SS_BROWSER_SERVER is the command that starts a server.
import { run } from './harness.mjs';
import { Server } from './server.mjs';
import './chat.mjs';
import './live.mjs';
import './looks-test.mjs';
import { screenshots } from './screenshots.mjs';

const words = process.argv.slice(2).filter((word) => word !== '--screenshots');
if (process.argv.includes('--screenshots')) screenshots();

const server = await Server.start();
const failed = await run(server, words.join(' '));
await server.stop();
if (failed) console.log(`${failed} failed`);
process.exit(failed ? 1 : 0);
