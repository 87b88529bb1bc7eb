// What the tests of JavaScript's clients need; see kit.py.
import assert from "node:assert/strict";

export const URL_ = process.env.SS_URL;
export const MODEL = process.env.SS_MODEL_NAME;
export const SCRIPTED = process.env.SS_SCRIPTED === "1";
const CASES = (process.env.SS_CASES ?? "").split(" ").filter(Boolean);

export const HELLO = "Hello from slotstream: \u{1f469}\u200d\u{1f469}\u200d\u{1f467}, é and \u{1f1eb}\u{1f1f7}.";
export const WEATHER = "It is 17 degrees in Paris. \u{1f469}\u200d\u{1f469}\u200d\u{1f467} é";
export const RESULT = "17 degrees";
export const ASK = "Tell me a story about a fox.";
export const ASK_WEATHER = "What is the weather in Paris?";
export const ASK_THINK = "What is 2 + 2? Please think about it.";
export const ASK_ENDLESS = "Please count without end.";
export const ASK_FAIL = "Please fail midway.";
export const THOUGHT = "Two and two make four.";
export const FOUR = "It is 4.";
export const SCHEMA = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

export const same = (found, expected) => assert.deepEqual(found, expected);

/** A reply's text. */
export function said(text, expected = HELLO) {
  if (SCRIPTED) same(text, expected);
  else assert.ok(text?.trim(), "the reply is empty");
}

const status = async () => (await fetch(`${URL_}/ss/status`)).json();

export const cancelledBefore = async () => (await status()).totals.cancelled;

/** The server must notice within a second that its client is gone. */
export async function isCancelled(before) {
  const until = performance.now() + 1000;
  while (performance.now() < until) {
    const now = await status();
    if (now.totals.cancelled > before && now.active_requests === 0) return;
    await new Promise((done) => setTimeout(done, 20));
  }
  throw new Error("a second after the client left its request was not cancelled");
}

/** Something must be thrown, of this class, with these words in it. */
export async function throws(kind, words, work) {
  try {
    await work();
  } catch (error) {
    assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error}`);
    assert.ok(String(error?.message ?? error).includes(words), `${error?.message} lacks ${words}`);
    return error;
  }
  throw new Error("nothing was thrown");
}

export async function run(client, cases) {
  let failed = false;
  for (const [name, work] of Object.entries(cases)) {
    if (CASES.length && !CASES.includes(name)) continue;
    const start = performance.now();
    try {
      await work();
      console.log(`ok    ${client.padEnd(28)} ${name.padEnd(10)} ${(performance.now() - start).toFixed(0).padStart(6)} ms`);
    } catch (error) {
      failed = true;
      console.error(error);
      console.log(`FAIL  ${client.padEnd(28)} ${name.padEnd(10)} ${error}`);
    }
  }
  process.exit(failed ? 1 : 0);
}
