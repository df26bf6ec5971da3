// Vercel's AI SDK: `generateText`, `streamText` and `embedMany`, with the provider for whatever speaks as
// OpenAI does. Where an answer is a plain text it is asked for once more with the provider that speaks
// Ollama's native API.

import assert from "node:assert/strict";

import { library, versionOf } from "../library.mjs";
import * as ask from "../questions.mjs";

const { embedMany, generateText, Output, stepCountIs, streamText, tool } = library("ai");
const { createOpenAICompatible } = library("@ai-sdk/openai-compatible");
const { createOllama } = library("ollama-ai-provider-v2");

export const name = "ai";
export const version = `${versionOf("ai")} (${withVersions("@ai-sdk/openai-compatible", "ollama-ai-provider-v2")})`;

const NO_SUCH_CALL = "the AI SDK has no such call";
// The name under which options for the provider are given.
const PROVIDER = "loadline";

export const features = {
  chat,
  streaming,
  tools,
  structured,
  thinking,
  images,
  embeddings,
  list: NO_SUCH_CALL,
  show: NO_SUCH_CALL,
  pull: NO_SUCH_CALL,
  "unknown model": unknownModel,
  "bad request": badRequest,
  refused,
  cancel,
  ladder,
};

function withVersions(...names) {
  return names.map((name) => `${name} ${versionOf(name)}`).join(", ");
}

function at(place) {
  return createOpenAICompatible({
    name: PROVIDER,
    baseURL: `${place}/v1`,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
}

function native(place) {
  return createOllama({ baseURL: `${place}/api` });
}

function generate(request) {
  return generateText({ ...request, maxRetries: 0 });
}

function user(content) {
  return { role: "user", content };
}

async function chat(place, { models }) {
  const model = at(place)(models.say);
  const system = ask.SYSTEM;
  const messages = [user(ask.QUESTION)];
  const first = await generate({ model, system, messages });
  messages.push(...first.response.messages, user(ask.SECOND_QUESTION));
  const second = await generate({ model, system, messages });
  const other = await generate({ model: native(place)(models.say), system, prompt: ask.QUESTION });
  assert.notEqual(other.text, "");
  return { ...ask.twoTurns(turn(first), turn(second)), ollama_provider_text: other.text };
}

function turn(answer) {
  return { text: answer.text, stopped: answer.finishReason, promptTokens: answer.usage.inputTokens };
}

async function streaming(place, { models }) {
  const request = { system: ask.SYSTEM, prompt: ask.QUESTION };
  const main = await readStream({ ...request, model: at(place)(models.say) });
  const other = await readStream({ ...request, model: native(place)(models.say) });
  assert.notEqual(other.pieces.length, 0);
  return {
    ...ask.streamed(main.pieces, main.stopped, main.usage.inputTokens),
    ollama_provider_text: other.pieces.join(""),
    ollama_provider_pieces: other.pieces.length,
  };
}

// `textStream` leaves errors out, so the full stream is read.
async function readStream(request) {
  const result = streamText({ ...request, maxRetries: 0, onError: () => {} });
  const pieces = [];
  const thoughts = [];
  const calls = [];
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta" && part.text) pieces.push(part.text);
    if (part.type === "reasoning-delta") thoughts.push(part.text);
    if (part.type === "tool-call") calls.push(part);
  }
  return { pieces, thoughts, calls, stopped: await result.finishReason, usage: await result.usage };
}

// The SDK runs the tool and sends its result by itself, when it may take a second step.
async function tools(place, { models }) {
  const description = ask.TIDE_DESCRIPTION;
  const inputSchema = ask.TIDE_PARAMETERS;
  const request = { model: at(place)(models.call), prompt: ask.TIDE_QUESTION };
  const answer = await generate({
    ...request,
    tools: { [ask.TIDE_TOOL]: tool({ description, inputSchema, execute: async () => ask.TIDE_RESULT }) },
    stopWhen: stepCountIs(2),
  });
  const { calls } = await readStream({
    ...request,
    tools: { [ask.TIDE_TOOL]: tool({ description, inputSchema }) },
  });
  return ask.toolRound(onlyCall(answer.steps[0].toolCalls), answer.text, onlyCall(calls));
}

function onlyCall(calls) {
  assert.equal(calls.length, 1, "not one tool call");
  return ask.toolCall(calls[0].toolName, calls[0].input);
}

async function structured(place, { models }) {
  const { output } = await generate({
    model: at(place)(models.free),
    prompt: ask.CARGO_QUESTION,
    output: Output.object({ schema: ask.CARGO }),
    temperature: 0,
  });
  return ask.fieldTypes(output);
}

async function thinking(place, { models }) {
  const request = { model: at(place)(models.think), prompt: ask.THINKING_QUESTION };
  const { reasoningText, text } = await generate(request);
  const { pieces, thoughts } = await readStream(request);
  return ask.thought(
    { thinking: reasoningText, text },
    { thinking: thoughts.join(""), text: pieces.join("") },
  );
}

async function images(place, { models, image }) {
  const content = [
    { type: "text", text: ask.IMAGE_QUESTION },
    { type: "image", image: Buffer.from(image, "base64") },
  ];
  const { text } = await generate({ model: at(place)(models.sight), messages: [user(content)] });
  return ask.seen(text);
}

async function embeddings(place, { models }) {
  const model = at(place).embeddingModel(models.say);
  const answer = await embedMany({ model, values: ask.EMBEDDED, maxRetries: 0 });
  return ask.vectors(answer.embeddings);
}

function unknownModel(place) {
  return refusedChat({ model: at(place)(ask.UNKNOWN_MODEL), prompt: ask.QUESTION });
}

// The SDK checks what it knows and hands on what it does not: the options for the provider.
function badRequest(place, { models }) {
  return refusedChat({
    model: at(place)(models.say),
    prompt: ask.QUESTION,
    providerOptions: { [PROVIDER]: { temperature: "warm" } },
  });
}

async function refused(place, { models, giant }) {
  return ask.refusal(await refusedChat({ model: at(place)(models.small), prompt: giant }));
}

function refusedChat(request) {
  return ask.thrownBy(
    () => generate(request),
    (error) => ({ class: error.name, status: error.statusCode, message: error.message }),
  );
}

async function cancel(place, { models }) {
  const leaving = new AbortController();
  const request = { model: at(place)(models.endless), prompt: ask.QUESTION, abortSignal: leaving.signal };
  const { fullStream } = streamText({ ...request, maxRetries: 0, onError: () => {} });
  let pieces = 0;
  let aborted = false;
  for await (const part of fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "abort") aborted = true;
    if (leaving.signal.aborted) continue;
    if (part.type === "text-delta" && part.text) pieces += 1;
    if (pieces === ask.PIECES_BEFORE_LEAVING) leaving.abort();
  }
  assert.ok(aborted, "the stream ended without a word that it was aborted");
  return ask.walkedAway(pieces);
}

async function ladder(place, { models, ladder }) {
  const model = at(place)(models.small);
  return ask.climb(
    ladder,
    async (messages) => (await generate({ model, messages })).text,
    async (messages) => (await readStream({ model, messages })).pieces.join(""),
  );
}
