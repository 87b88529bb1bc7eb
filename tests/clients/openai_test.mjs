// openai (npm): chat completions, and responses where the two differ.
import OpenAI from "openai";
import * as kit from "./kit.mjs";
const { MODEL, same, said } = kit;

const client = new OpenAI({ baseURL: `${kit.URL_}/v1`, apiKey: "unused", maxRetries: 0 });
const TOOL = { type: "function", function: { name: "get_weather", parameters: kit.SCHEMA } };
const ask = (text, more = {}, options = {}) =>
  client.chat.completions.create({ model: MODEL, messages: [{ role: "user", content: text }], ...more }, options);

async function plain() {
  const reply = await ask(kit.ASK, { max_tokens: 40 });
  said(reply.choices[0].message.content);
  said((await client.responses.create({ model: MODEL, input: kit.ASK, max_output_tokens: 40 })).output_text);
  same((await client.models.list()).data[0].id, MODEL);
}

async function streamed() {
  let [text, usage] = ["", null];
  for await (const chunk of await ask(kit.ASK, { max_tokens: 40, stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage;
  }
  said(text);
  same(usage.completion_tokens > 0, true);
  const asked = { model: MODEL, input: kit.ASK, max_output_tokens: 40, stream: true };
  let [told, last] = ["", null];
  for await (last of await client.responses.create(asked)) {
    if (last.type === "response.output_text.delta") told += last.delta;
  }
  same(["response.completed", "response.incomplete"].includes(last.type), true);
  same(last.response.output[0].content[0].text, told);
  said(told);
}

async function tools() {
  const messages = [{ role: "user", content: kit.ASK_WEATHER }];
  const settings = { model: MODEL, tools: [TOOL] };
  const made = await client.chat.completions.stream({ ...settings, messages }).finalMessage();
  const call = made.tool_calls[0];
  same([call.function.name, JSON.parse(call.function.arguments)], ["get_weather", { city: "Paris" }]);
  messages.push(made, { role: "tool", tool_call_id: call.id, content: kit.RESULT });
  said((await client.chat.completions.create({ ...settings, messages })).choices[0].message.content, kit.WEATHER);
}

async function thinking() {
  const { message } = (await ask(kit.ASK_THINK, { reasoning_effort: "low" })).choices[0];
  same([message.reasoning_content, message.content], [kit.THOUGHT, kit.FOUR]);
  let [thought, text] = ["", ""];
  for await (const chunk of await ask(kit.ASK_THINK, { reasoning_effort: "low", stream: true })) {
    thought += chunk.choices[0].delta.reasoning_content ?? "";
    text += chunk.choices[0].delta.content ?? "";
  }
  same([thought, text], [kit.THOUGHT, kit.FOUR]);
}

async function abort() {
  const before = await kit.cancelledBefore();
  const stream = await ask(kit.ASK_ENDLESS, { stream: true });
  let count = 0;
  for await (const _ of stream) if (++count === 5) break;
  stream.controller.abort();
  await kit.isCancelled(before);
  await plain();
}

async function error() {
  const refusal = await kit.throws(OpenAI.BadRequestError, "`max_tokens` must be", () => ask(kit.ASK, { max_tokens: 0 }));
  same([refusal.param, refusal.code], ["max_tokens", "invalid_request_error"]);
  await kit.throws(OpenAI.APIError, "the script says so", async () => {
    for await (const _ of await ask(kit.ASK_FAIL, { stream: true }));
  });
}

await kit.run("openai (npm)", { plain, streamed, tools, thinking, abort, error });
