// Owns: servers for the tests: each on a port of its own, with the script beside this file.
// Invariants: what was started is ended, whatever the test comes to.
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';

const SCRIPT = fileURLToPath(new URL('script.json', import.meta.url));

/** The command that starts a server; it takes `--script` and `--port`. */
const COMMAND = (process.env.SS_BROWSER_SERVER ?? '').split(' ').filter(Boolean);

const started = new Set();
process.on('exit', () => started.forEach((child) => child.kill('SIGKILL')));

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A port that nobody has. */
export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

export class Server {
  constructor(port, key, child) {
    this.port = port;
    this.key = key;
    this.child = child;
    this.url = `http://127.0.0.1:${port}`;
  }

  /** Starts a server and waits until it answers. */
  static async start({ port, key } = {}) {
    if (!COMMAND.length) throw new Error('SS_BROWSER_SERVER is not set; run scripts/test-browser.sh');
    port ??= await freePort();
    const more = key ? ['--api-key', key] : [];
    const child = spawn(COMMAND[0], [...COMMAND.slice(1), '--script', SCRIPT, '--port', String(port), ...more], {
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    started.add(child);
    const server = new Server(port, key, child);
    for (let tries = 0; tries < 200; tries += 1) {
      if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode}`);
      if (await fetch(`${server.url}/health`).then((response) => response.ok, () => false)) return server;
      await sleep(50);
    }
    throw new Error('the server does not answer');
  }

  /** A server that somebody else runs. */
  static at(url) {
    const server = new Server(Number(new URL(url).port), process.env.SS_API_KEY, null);
    return Object.assign(server, { url: url.replace(/\/$/, '') });
  }

  /** Ends it. */
  async stop() {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGKILL');
    await gone;
    started.delete(this.child);
  }

  headers() {
    return this.key ? { authorization: `Bearer ${this.key}` } : {};
  }

  /** What it says of itself. */
  async status() {
    return (await fetch(`${this.url}/ss/status`, { headers: this.headers() })).json();
  }

  /** Waits until nothing runs; gives what it says then. */
  async settled() {
    for (let tries = 0; tries < 200; tries += 1) {
      const status = await this.status();
      if (!status.running.length) return status;
      await sleep(25);
    }
    throw new Error('requests go on and on');
  }

  /** Asks as another client would; gives what ends it. */
  ask(words, more = {}) {
    const control = new AbortController();
    fetch(`${this.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...this.headers() },
      body: JSON.stringify({ messages: [{ role: 'user', content: words }], stream: true, ...more }),
      signal: control.signal,
    }).then((response) => response.text()).catch(() => {});
    return () => control.abort();
  }
}
