// Ollama's own JavaScript library: the native API, as its README shows it.

import assert from "node:assert/strict";

import { library, versionOf } from "../library.mjs";
import * as ask from "../questions.mjs";

const { Ollama } = library("ollama");

export const name = "ollama";
export const version = versionOf("ollama");

const SYSTEM = { role: "system", content: ask.SYSTEM };
const TOOL = {
  type: "function",
  function: {
    name: ask.TIDE_TOOL,
    description: ask.TIDE_DESCRIPTION,
    parameters: ask.jsonSchema(ask.TIDE_PARAMETERS),
  },
};

export const features = {
  chat,
  streaming,
  tools,
  structured,
  thinking,
  images,
  embeddings,
  list,
  show,
  pull,
  "unknown model": unknownModel,
  "bad request": badRequest,
  refused,
  cancel,
  ladder,
};

function at(place) {
  return new Ollama({ host: place });
}

function user(content) {
  return { role: "user", content };
}

async function chat(place, { models }) {
  const ollama = at(place);
  const messages = [SYSTEM, user(ask.QUESTION)];
  const first = await ollama.chat({ model: models.say, messages });
  messages.push(first.message, user(ask.SECOND_QUESTION));
  const second = await ollama.chat({ model: models.say, messages });
  return ask.twoTurns(turn(first), turn(second));
}

function turn(answer) {
  return { text: answer.message.content, stopped: answer.done_reason, promptTokens: answer.prompt_eval_count };
}

async function streaming(place, { models }) {
  const messages = [SYSTEM, user(ask.QUESTION)];
  const { pieces, last } = await readStream(at(place), { model: models.say, messages });
  return ask.streamed(pieces, last.done_reason, last.prompt_eval_count);
}

async function readStream(ollama, request) {
  const stream = await ollama.chat({ ...request, stream: true });
  const pieces = [];
  const thoughts = [];
  const calls = [];
  let last;
  for await (const part of stream) {
    if (part.message.content) pieces.push(part.message.content);
    if (part.message.thinking) thoughts.push(part.message.thinking);
    calls.push(...(part.message.tool_calls ?? []));
    last = part;
  }
  return { pieces, thoughts, calls, last };
}

async function tools(place, { models }) {
  const ollama = at(place);
  const messages = [user(ask.TIDE_QUESTION)];
  const request = { model: models.call, messages, tools: [TOOL] };
  const { message } = await ollama.chat(request);
  const call = onlyCall(message.tool_calls);
  messages.push(message, { role: "tool", tool_name: call.name, content: ask.TIDE_RESULT });
  const answer = await ollama.chat(request);
  const { calls } = await readStream(ollama, { ...request, messages: messages.slice(0, 1) });
  return ask.toolRound(call, answer.message.content, onlyCall(calls));
}

function onlyCall(calls) {
  assert.equal(calls?.length, 1, "not one tool call");
  return ask.toolCall(calls[0].function.name, calls[0].function.arguments);
}

async function structured(place, { models }) {
  const { message } = await at(place).chat({
    model: models.free,
    messages: [user(ask.CARGO_QUESTION)],
    format: ask.jsonSchema(ask.CARGO),
    options: { temperature: 0 },
  });
  return ask.fieldTypes(JSON.parse(message.content));
}

async function thinking(place, { models }) {
  const ollama = at(place);
  const request = { model: models.think, messages: [user(ask.THINKING_QUESTION)], think: true };
  const { message } = await ollama.chat(request);
  const { pieces, thoughts } = await readStream(ollama, request);
  return ask.thought(
    { thinking: message.thinking, text: message.content },
    { thinking: thoughts.join(""), text: pieces.join("") },
  );
}

async function images(place, { models, image }) {
  const messages = [{ ...user(ask.IMAGE_QUESTION), images: [Buffer.from(image, "base64")] }];
  const { message } = await at(place).chat({ model: models.sight, messages });
  return ask.seen(message.content);
}

async function embeddings(place, { models }) {
  const answer = await at(place).embed({ model: models.say, input: ask.EMBEDDED });
  return ask.vectors(answer.embeddings);
}

async function list(place, { models }) {
  const answer = await at(place).list();
  return ask.modelNames(answer.models.map((model) => model.name), models.say);
}

async function show(place, { models }) {
  const { details, capabilities, template } = await at(place).show({ model: models.say });
  assert.ok(details.family, "no family");
  return { family: details.family, capabilities, template };
}

async function pull(place, { models }) {
  const ollama = at(place);
  await deleteIfThere(ollama, models.pull);
  const stream = await ollama.pull({ model: models.pull, insecure: true, stream: true });
  const words = [];
  const layers = new Map();
  for await (const part of stream) {
    const word = part.status.split(" ")[0];
    if (!words.includes(word)) words.push(word);
    if (part.digest && part.total) layers.set(part.digest, part);
  }
  await ollama.delete({ model: models.pull });
  const largest = [...layers.values()].sort((a, b) => b.total - a.total)[0];
  assert.equal(words.at(-1), "success");
  return { statuses: words, largest_layer_complete: largest !== undefined && largest.completed === largest.total };
}

async function deleteIfThere(ollama, model) {
  try {
    await ollama.delete({ model });
  } catch (error) {
    if (error.status_code !== 404) throw error;
  }
}

function unknownModel(place) {
  return refusedChat(place, { model: ask.UNKNOWN_MODEL, messages: [user(ask.QUESTION)] });
}

function badRequest(place, { models }) {
  return refusedChat(place, {
    model: models.say,
    messages: [user(ask.QUESTION)],
    options: { temperature: "warm" },
  });
}

async function refused(place, { models, giant }) {
  return ask.refusal(await refusedChat(place, { model: models.small, messages: [user(giant)] }));
}

function refusedChat(place, request) {
  return ask.thrownBy(
    () => at(place).chat(request),
    (error) => ({ class: error.constructor.name, status: error.status_code, message: error.message }),
  );
}

// `abort()` ends every stream of a client; the loop that reads one then throws an AbortError, after what
// had already arrived.
async function cancel(place, { models }) {
  const ollama = at(place);
  const stream = await ollama.chat({ model: models.endless, messages: [user(ask.QUESTION)], stream: true });
  let pieces = 0;
  const reading = async () => {
    for await (const part of stream) {
      if (pieces === ask.PIECES_BEFORE_LEAVING) continue;
      if (part.message.content) pieces += 1;
      if (pieces === ask.PIECES_BEFORE_LEAVING) ollama.abort();
    }
  };
  await assert.rejects(reading, { name: "AbortError" });
  return ask.walkedAway(pieces);
}

async function ladder(place, { models, ladder }) {
  const ollama = at(place);
  const model = models.small;
  return ask.climb(
    ladder,
    async (messages) => (await ollama.chat({ model, messages })).message.content,
    async (messages) => (await readStream(ollama, { model, messages })).pieces.join(""),
  );
}
