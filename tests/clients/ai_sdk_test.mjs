// The AI SDK with its provider for OpenAI's API.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import * as kit from "./kit.mjs";
const { same, said } = kit;

const provider = createOpenAICompatible({ name: "slotstream", baseURL: `${kit.URL_}/v1`, includeUsage: true });
const model = provider(kit.MODEL);
const settings = { model, maxRetries: 0 };
const EFFORT = { providerOptions: { slotstream: { reasoningEffort: "low" } } };

async function plain() {
  const reply = await generateText({ ...settings, prompt: kit.ASK, maxOutputTokens: 40 });
  said(reply.text);
  same(reply.usage.outputTokens > 0, true);
}

async function streamed() {
  const reply = streamText({ ...settings, prompt: kit.ASK, maxOutputTokens: 40 });
  let text = "";
  for await (const piece of reply.textStream) text += piece;
  said(text);
  same((await reply.usage).outputTokens > 0, true);
}

async function tools() {
  const asked = [];
  const weather = tool({
    description: "The weather.",
    inputSchema: jsonSchema(kit.SCHEMA),
    execute: async (input) => (asked.push(input), kit.RESULT),
  });
  const more = { prompt: kit.ASK_WEATHER, tools: { get_weather: weather }, stopWhen: stepCountIs(3) };
  said((await generateText({ ...settings, ...more })).text, kit.WEATHER);
  said(await streamText({ ...settings, ...more }).text, kit.WEATHER);
  same(asked, [{ city: "Paris" }, { city: "Paris" }]);
}

async function thinking() {
  const whole = await generateText({ ...settings, ...EFFORT, prompt: kit.ASK_THINK });
  same([whole.reasoningText, whole.text], [kit.THOUGHT, kit.FOUR]);
  const pieces = streamText({ ...settings, ...EFFORT, prompt: kit.ASK_THINK });
  same([await pieces.reasoningText, await pieces.text], [kit.THOUGHT, kit.FOUR]);
}

async function abort() {
  const before = await kit.cancelledBefore();
  const leaving = new AbortController();
  const reply = streamText({ ...settings, prompt: kit.ASK_ENDLESS, abortSignal: leaving.signal });
  let count = 0;
  for await (const _ of reply.textStream) if (++count === 5) leaving.abort();
  await kit.isCancelled(before);
  await plain();
}

async function error() {
  // It checks most settings itself; how many strings may stop a reply is the server's to say.
  const stopSequences = Array.from({ length: 17 }, (_, at) => `stop ${at}`);
  const refusal = await kit.throws(APICallError, "`stop` holds 17 strings", () =>
    generateText({ ...settings, prompt: kit.ASK, stopSequences }));
  same(refusal.statusCode, 400);
  const errors = [];
  const reply = streamText({ ...settings, prompt: kit.ASK_FAIL, onError: ({ error }) => errors.push(error) });
  for await (const _ of reply.textStream);
  same(errors.length, 1);
  same(JSON.stringify(errors[0]?.message ?? errors[0]).includes("the script says so"), true);
}

await kit.run("ai + @ai-sdk/openai-compat.", { plain, streamed, tools, thinking, abort, error });
