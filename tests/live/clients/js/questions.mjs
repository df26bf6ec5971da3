// What every client asks, and how an answer becomes something that can be compared.
//
// Each library has its own words for a tool or a schema; the questions, the names and the shape of what
// is reported are the same, so that two columns of the matrix can be read side by side.

import assert from "node:assert/strict";

import { library } from "./library.mjs";

const { z } = library("zod");

export const SYSTEM = "You are the harbour master. Answer in one sentence.";
export const QUESTION = "What is the weather at sea today?";
export const SECOND_QUESTION = "And tomorrow?";

export const TIDE_QUESTION = "When is high tide in Brest?";
export const TIDE_TOOL = "get_tide";
export const TIDE_DESCRIPTION = "Tells when the next high tide is.";
export const TIDE_PARAMETERS = z.object({ harbour: z.string().describe("The name of the harbour") });
export const TIDE_RESULT = "High tide at 16:42.";

// The example keeps a small model short: each token that has to fit a schema is slow.
export const CARGO_QUESTION = 'The boat Marie carries 12 crates. Answer like this: {"boat": "Anna", "crates": 7}';
export const CARGO = z.object({ boat: z.string(), crates: z.int() });

export const THINKING_QUESTION = "Which is heavier, the anchor or the chain?";
export const IMAGE_QUESTION = "What is in the picture?";
export const EMBEDDED = ["a calm sea", "a strong wind from the west"];
export const UNKNOWN_MODEL = "no-such-model";
export const PIECES_BEFORE_LEAVING = 3;

export function jsonSchema(schema) {
  return z.toJSONSchema(schema);
}

// What was said in two turns, how they ended, and how long their prompts were.
export function twoTurns(first, second) {
  for (const turn of [first, second]) {
    assert.notEqual(turn.text, "");
    assert.equal(turn.stopped, "stop");
    assert.ok(turn.promptTokens > 0, "no prompt tokens were told");
  }
  assert.ok(second.promptTokens > first.promptTokens, "the second prompt is not longer than the first");
  return {
    text: first.text,
    second_text: second.text,
    stopped: second.stopped,
    prompt_tokens: [first.promptTokens, second.promptTokens],
  };
}

// `pieces` are the texts as they came, without the empty ones.
export function streamed(pieces, stopped, promptTokens) {
  assert.ok(pieces.length > 1, "the answer came in one piece");
  assert.equal(stopped, "stop");
  assert.ok(promptTokens > 0, "no prompt tokens were told");
  return { text: pieces.join(""), pieces: pieces.length, stopped, prompt_tokens: promptTokens };
}

export function toolCall(name, given) {
  assert.equal(name, TIDE_TOOL);
  assert.deepEqual(given, { harbour: "Brest" });
  return { name, arguments: given };
}

export function toolRound(call, text, streamedCall) {
  assert.notEqual(text, "");
  return { call, text, streamed_call: streamedCall };
}

// The names and types only: what a real model writes into the fields is not ours to compare.
export function fieldTypes(parsed) {
  const cargo = CARGO.parse(parsed);
  const names = Object.keys(cargo).sort();
  return { fields: Object.fromEntries(names.map((name) => [name, typeName(cargo[name])])) };
}

function typeName(value) {
  return Number.isInteger(value) ? "integer" : typeof value;
}

export function thought(plain, fromStream) {
  for (const answer of [plain, fromStream]) {
    assert.ok(answer.thinking, "there is no thinking");
    assert.ok(answer.text, "there is no answer");
  }
  return { ...plain, streamed_thinking: fromStream.thinking, streamed_text: fromStream.text };
}

export function seen(text) {
  assert.notEqual(text, "");
  return { text };
}

export function vectors(list) {
  const rows = list.map((vector) => Array.from(vector));
  assert.equal(rows.length, EMBEDDED.length);
  assert.ok(rows.every((row) => row.length === rows[0].length && row.length > 0), "the vectors differ in length");
  const beginnings = rows.map((row) => row.slice(0, 2).map((component) => Number(component.toFixed(4))));
  return { count: rows.length, length: rows[0].length, beginnings };
}

// Ollama names a model with its tag, even if it was asked for without.
export function modelNames(names, expected) {
  const sorted = [...names].sort();
  assert.ok(sorted.includes(expected) || sorted.includes(`${expected}:latest`), `${expected} is not in the list`);
  return { names: sorted };
}

// What `call` throws; it is a failure if it does not. `describe` makes {class, status, message} of it.
export async function thrownBy(call, describe) {
  let told;
  try {
    await call();
  } catch (error) {
    told = describe(error);
    assert.ok(told.status >= 400, `no HTTP error: ${error}`);
  }
  assert.ok(told, "it was answered and not refused");
  return told;
}

export function walkedAway(pieces) {
  assert.equal(pieces, PIECES_BEFORE_LEAVING);
  return { pieces };
}

// Loadline's refusal must tell the user what was counted and what would have fitted.
export function refusal(told) {
  assert.match(told.message, /has \d+ tokens/);
  assert.match(told.message, /limit is \d+/);
  return told;
}

// One conversation, a turn for each message, every third of them streamed. `plain` and `stream` take
// the messages so far and give the text of the answer.
export async function climb(messages, plain, stream) {
  const history = [];
  for (const [index, content] of messages.entries()) {
    history.push({ role: "user", content });
    const text = await ((index + 1) % 3 === 0 ? stream(history) : plain(history));
    assert.notEqual(text, "", `answer ${index + 1} is empty`);
    history.push({ role: "assistant", content: text });
  }
  return { answers: history.length / 2, empty: 0 };
}
