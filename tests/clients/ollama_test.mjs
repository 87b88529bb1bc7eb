// ollama (npm): chat, generate, and what it asks of the library.
import { Ollama } from "ollama";
import * as kit from "./kit.mjs";
const { MODEL, same, said } = kit;

const client = new Ollama({ host: kit.URL_ });
const TOOL = { type: "function", function: { name: "get_weather", description: "The weather.", parameters: kit.SCHEMA } };
const FEW = { num_predict: 40 };
const chat = (text, more = {}) => client.chat({ model: MODEL, messages: [{ role: "user", content: text }], ...more });

async function plain() {
  said((await chat(kit.ASK, { options: FEW })).message.content);
  said((await client.generate({ model: MODEL, prompt: kit.ASK, options: FEW })).response);
  same((await client.list()).models[0].model, MODEL);
  same((await client.ps()).models[0].model, MODEL);
  same((await client.show({ model: MODEL })).capabilities.includes("tools"), true);
}

async function streamed() {
  let [text, last] = ["", null];
  for await (const part of await chat(kit.ASK, { options: FEW, stream: true })) {
    text += part.message.content;
    last = part;
  }
  said(text);
  same(last.done, true);
}

async function tools() {
  const messages = [{ role: "user", content: kit.ASK_WEATHER }];
  const { message } = await client.chat({ model: MODEL, messages, tools: [TOOL] });
  const call = message.tool_calls[0].function;
  same([call.name, call.arguments], ["get_weather", { city: "Paris" }]);
  messages.push(message, { role: "tool", content: kit.RESULT, tool_name: call.name });
  said((await client.chat({ model: MODEL, messages, tools: [TOOL] })).message.content, kit.WEATHER);
}

async function thinking() {
  let [thought, text] = ["", ""];
  for await (const part of await chat(kit.ASK_THINK, { think: true, stream: true })) {
    thought += part.message.thinking ?? "";
    text += part.message.content;
  }
  same([thought, text], [kit.THOUGHT, kit.FOUR]);
}

async function abort() {
  const before = await kit.cancelledBefore();
  const stream = await chat(kit.ASK_ENDLESS, { stream: true });
  let count = 0;
  await kit.throws(Error, "abort", async () => {
    for await (const _ of stream) if (++count === 5) stream.abort();
  });
  await kit.isCancelled(before);
  await plain();
}

async function error() {
  await kit.throws(Error, "`options.num_ctx`", () => chat(kit.ASK, { options: { num_ctx: 2 ** 30 } }));
  await kit.throws(Error, "the script says so", async () => {
    for await (const _ of await chat(kit.ASK_FAIL, { stream: true }));
  });
}

await kit.run("ollama (npm)", { plain, streamed, tools, thinking, abort, error });
