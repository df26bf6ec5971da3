// OpenAI's JavaScript library, pointed at `/v1`: chat completions, and the Responses API where an answer
// is a plain text.

import assert from "node:assert/strict";

import { library, versionOf } from "../library.mjs";
import * as ask from "../questions.mjs";

const { OpenAI } = library("openai");
const { zodFunction, zodResponseFormat } = library("openai/helpers/zod");

export const name = "openai";
export const version = versionOf("openai");

const SYSTEM = { role: "system", content: ask.SYSTEM };
const TOOL = zodFunction({
  name: ask.TIDE_TOOL,
  description: ask.TIDE_DESCRIPTION,
  parameters: ask.TIDE_PARAMETERS,
});
const NO_SUCH_CALL = "OpenAI's API has no such call";

export const features = {
  chat,
  streaming,
  tools,
  structured,
  thinking,
  images,
  embeddings,
  list,
  show: NO_SUCH_CALL,
  pull: NO_SUCH_CALL,
  "unknown model": unknownModel,
  "bad request": badRequest,
  refused,
  cancel,
  ladder,
};

function at(place) {
  return new OpenAI({ baseURL: `${place}/v1`, apiKey: "unused", maxRetries: 0, timeout: 120_000 });
}

function user(content) {
  return { role: "user", content };
}

async function chat(place, { models }) {
  const openai = at(place);
  const model = models.say;
  const messages = [SYSTEM, user(ask.QUESTION)];
  const first = await openai.chat.completions.create({ model, messages });
  messages.push(first.choices[0].message, user(ask.SECOND_QUESTION));
  const second = await openai.chat.completions.create({ model, messages });
  const response = await openai.responses.create({ model, instructions: ask.SYSTEM, input: ask.QUESTION });
  assert.equal(response.status, "completed");
  assert.notEqual(response.output_text, "");
  return { ...ask.twoTurns(turn(first), turn(second)), responses_text: response.output_text };
}

function turn({ choices: [choice], usage }) {
  return { text: choice.message.content, stopped: choice.finish_reason, promptTokens: usage.prompt_tokens };
}

async function streaming(place, { models }) {
  const openai = at(place);
  const model = models.say;
  const messages = [SYSTEM, user(ask.QUESTION)];
  const request = { model, messages, stream_options: { include_usage: true } };
  const { pieces, stopped, usage } = await readStream(openai, request);
  const response = await readResponse(openai, { model, instructions: ask.SYSTEM, input: ask.QUESTION });
  return {
    ...ask.streamed(pieces, stopped, usage.prompt_tokens),
    responses_text: response.pieces.join(""),
    responses_pieces: response.pieces.length,
  };
}

async function readStream(openai, request) {
  const stream = await openai.chat.completions.create({ ...request, stream: true });
  const pieces = [];
  const thoughts = [];
  let stopped;
  let usage;
  for await (const chunk of stream) {
    const choice = chunk.choices[0];
    if (choice?.delta.content) pieces.push(choice.delta.content);
    if (choice?.delta.reasoning) thoughts.push(choice.delta.reasoning);
    stopped = choice?.finish_reason ?? stopped;
    usage = chunk.usage ?? usage;
  }
  return { pieces, thoughts, stopped, usage };
}

async function readResponse(openai, request) {
  const stream = await openai.responses.create({ ...request, stream: true });
  const pieces = [];
  let completed;
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") pieces.push(event.delta);
    if (event.type === "response.completed") completed = event.response;
  }
  assert.equal(completed?.status, "completed");
  assert.notEqual(pieces.length, 0);
  return { pieces };
}

async function tools(place, { models }) {
  const openai = at(place);
  const messages = [user(ask.TIDE_QUESTION)];
  const request = { model: models.call, messages, tools: [TOOL] };
  const { message } = (await openai.chat.completions.create(request)).choices[0];
  const call = onlyCall(message);
  messages.push(message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: ask.TIDE_RESULT });
  const answer = await openai.chat.completions.create(request);
  const stream = openai.chat.completions.stream({ ...request, messages: messages.slice(0, 1) });
  const streamedCall = onlyCall(await stream.finalMessage());
  return ask.toolRound(call, answer.choices[0].message.content, streamedCall);
}

function onlyCall({ tool_calls: calls }) {
  assert.equal(calls?.length, 1, "not one tool call");
  return ask.toolCall(calls[0].function.name, JSON.parse(calls[0].function.arguments));
}

async function structured(place, { models }) {
  const completion = await at(place).chat.completions.parse({
    model: models.free,
    messages: [user(ask.CARGO_QUESTION)],
    response_format: zodResponseFormat(ask.CARGO, "cargo"),
    temperature: 0,
  });
  return ask.fieldTypes(completion.choices[0].message.parsed);
}

// OpenAI's own models do not show their thinking; Ollama gives it in a field that the library hands on.
async function thinking(place, { models }) {
  const openai = at(place);
  const request = { model: models.think, messages: [user(ask.THINKING_QUESTION)] };
  const { message } = (await openai.chat.completions.create(request)).choices[0];
  const { pieces, thoughts } = await readStream(openai, request);
  return ask.thought(
    { thinking: message.reasoning, text: message.content },
    { thinking: thoughts.join(""), text: pieces.join("") },
  );
}

async function images(place, { models, image }) {
  const content = [
    { type: "text", text: ask.IMAGE_QUESTION },
    { type: "image_url", image_url: { url: `data:image/png;base64,${image}` } },
  ];
  const completion = await at(place).chat.completions.create({ model: models.sight, messages: [user(content)] });
  return ask.seen(completion.choices[0].message.content);
}

async function embeddings(place, { models }) {
  const answer = await at(place).embeddings.create({ model: models.say, input: ask.EMBEDDED });
  return ask.vectors(answer.data.map((entry) => entry.embedding));
}

async function list(place, { models }) {
  const names = [];
  for await (const model of at(place).models.list()) names.push(model.id);
  return ask.modelNames(names, models.say);
}

function unknownModel(place) {
  return refusedChat(place, { model: ask.UNKNOWN_MODEL, messages: [user(ask.QUESTION)] });
}

function badRequest(place, { models }) {
  return refusedChat(place, { model: models.say, messages: [user(ask.QUESTION)], temperature: "warm" });
}

async function refused(place, { models, giant }) {
  return ask.refusal(await refusedChat(place, { model: models.small, messages: [user(giant)] }));
}

function refusedChat(place, request) {
  return ask.thrownBy(
    () => at(place).chat.completions.create(request),
    (error) => ({ class: error.constructor.name, status: error.status, message: error.message }),
  );
}

// Leaving the loop is how a stream is cancelled.
async function cancel(place, { models }) {
  const request = { model: models.endless, messages: [user(ask.QUESTION)], stream: true };
  const stream = await at(place).chat.completions.create(request);
  let pieces = 0;
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta.content) pieces += 1;
    if (pieces === ask.PIECES_BEFORE_LEAVING) break;
  }
  assert.ok(stream.controller.signal.aborted, "leaving the loop did not end the request");
  return ask.walkedAway(pieces);
}

async function ladder(place, { models, ladder }) {
  const openai = at(place);
  const model = models.small;
  return ask.climb(
    ladder,
    async (messages) => (await openai.chat.completions.create({ model, messages })).choices[0].message.content,
    async (messages) => (await readStream(openai, { model, messages })).pieces.join(""),
  );
}
