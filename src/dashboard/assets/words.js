// How numbers, times, rungs and events are said to people. Nothing here touches the page, except `time`, which makes one element.

import { el } from './dom.js';

const whole = new Intl.NumberFormat('en');
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

/** 211111 → "211,111"; what is not known → "–". */
export const count = (n) => (Number.isFinite(n) ? whole.format(n) : '–');

/** "1 message", "2 messages". */
export const many = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;

/** "72.4%" → 72.4. */
export const percent = (usage) => {
  const n = Number.parseFloat(usage);
  return Number.isFinite(n) ? n : null;
};

/** 1234567 → "1.2 MB". */
export function bytes(n) {
  if (!Number.isFinite(n)) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let step = 0;
  while (n >= 1000 && step < units.length - 1) {
    n /= 1000;
    step += 1;
  }
  return `${n.toFixed(n < 10 && step > 0 ? 1 : 0)} ${units[step]}`;
}

// The server's clock may differ from this machine's; ages are told by the server's.
let skewMs = 0;
export function trustClock(serverNow) {
  const at = Date.parse(serverNow);
  if (Number.isFinite(at)) skewMs = Date.now() - at;
}

export function ago(at) {
  const then = Date.parse(at);
  if (!Number.isFinite(then)) return '–';
  const seconds = Math.max(0, Math.round((Date.now() - skewMs - then) / 1000));
  if (seconds < 5) return 'now';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  const days = Math.floor(seconds / 86400);
  return days === 1 ? 'yesterday' : `${count(days)} days ago`;
}

export const ageSeconds = (at) => (Date.now() - skewMs - Date.parse(at)) / 1000;

export function absolute(at) {
  const then = Date.parse(at);
  return Number.isFinite(then) ? clock.format(then) : '';
}

/** A <time> that says how long ago; `tickTimes` keeps it right. */
export function time(at) {
  return el('time', { datetime: at ?? '', title: absolute(at), 'data-ago': true, text: ago(at) });
}

export function tickTimes() {
  for (const node of document.querySelectorAll('time[data-ago]')) {
    const text = ago(node.dateTime);
    if (node.textContent !== text) node.textContent = text;
  }
}

/** Which rung a percentage stands on. The word is always shown beside the colour. */
export function rung(used, marks) {
  if (used === null) return { name: 'unknown', word: 'never counted' };
  if (used >= marks.rollover) return { name: 'rollover', word: 'over the line' };
  if (used >= marks.compression) return { name: 'compression', word: 'at compression' };
  if (used >= marks.checkpoint) return { name: 'checkpoint', word: 'at checkpoint' };
  if (used >= marks.told) return { name: 'told', word: 'told' };
  return { name: 'clear', word: 'clear' };
}

const ACTIONS = {
  none: 'nothing to do',
  checkpoint: 'checkpoint due',
  compression: 'compressed',
  rollover: 'rolled over',
  refused: 'refused',
};
/** A rung of the ladder, in two or three words. */
export const action = (name) => ACTIONS[name] ?? String(name);

/** What became of a turn. In observe mode what would have been done is told, and nothing is. */
export function deed(turn) {
  if (turn.status === 'failed') return 'failed';
  if (turn.action === null || turn.action === undefined) return 'never counted';
  if (turn.action === 'none') return turn.receipt ? 'sent behind earlier notes' : 'sent as it came';
  if (turn.action === 'refused' && turn.status !== 'refused') return 'would have been refused';
  const compacted = turn.action === 'compression' || turn.action === 'rollover';
  return compacted && !turn.receipt && turn.status === 'complete' ? `would have been ${action(turn.action)}` : action(turn.action);
}

/** 2, 5 → "messages 2–5". */
export function range(span) {
  if (!Array.isArray(span)) return '';
  const [first, last] = span;
  return first === last ? `message ${first}` : `messages ${first}–${last}`;
}

/** [4, 5, [32, 43]] → "4, 5, 32–43". */
export const ranges = (list) =>
  list.map((one) => (Array.isArray(one) ? (one[0] === one[1] ? one[0] : `${one[0]}–${one[1]}`) : one)).join(', ');

const SENTENCES = {
  warning: (e) => warning(String(e.text ?? '')),
  refused: (e) => `Refused: ${count(e.tokens)} tokens cannot be brought under ${count(e.limit)}. Everything is stored.`,
  'checkpoint.started': (e) => `Began a checkpoint of ${range(e.messages)}${e.model ? `, written by ${e.model}` : ''}.`,
  'checkpoint.progress': (e) => `Checkpoint under way: ${e.done} of ${e.of} parts.`,
  'checkpoint.deferred': (e) =>
    `Checkpoint put off ${e.times === 1 ? 'once' : `${e.times} times`} to let a chat pass; ${e.done} of ${e.of} parts done.`,
  'checkpoint.failed': (e) => `Checkpoint failed: ${e.reason}`,
  'checkpoint.waited': (e) =>
    `A request waited ${e.seconds} s for its checkpoint, ${e.written ? 'and went on with it' : 'then went on without it'}.`,
  'checkpoint.written': (e) => `Checkpoint of ${range(e.messages)} written${e.author ? ` by ${e.author}` : ''}: ${count(e.tokens)} tokens.`,
  compression: (e) => `Compressed at ${e.usage}: ${count(e.tokens_before)} tokens became ${count(e.tokens_after)}.`,
  rollover: (e) =>
    `Rolled over at ${e.usage}: ${count(e.tokens_before)} tokens became ${count(e.tokens_after)}. ${many(e.messages, 'message')} kept in a snapshot.`,
};

/** An event as a sentence. A kind nobody knows yet is shown plainly, with its fields. */
export function sentence(event) {
  const known = SENTENCES[event.kind];
  if (known) return known(event);
  const known_already = ['id', 'at', 'kind', 'conversation', 'user'];
  const rest = Object.entries(event)
    .filter(([name]) => !known_already.includes(name))
    .map(([name, value]) => `${name} ${typeof value === 'object' ? JSON.stringify(value) : value}`);
  return `${event.kind}${rest.length ? `: ${rest.join(', ')}` : ''}`.slice(0, 400);
}

function warning(text) {
  const found = /^(INFO|WARNING|CRITICAL): Context at ([\d.]+%) \((\d+)\/(\d+) tokens\)(?: - (.*))?$/s.exec(text);
  if (!found) return text;
  const [, , usage, tokens, limit, then] = found;
  return `Context at ${usage}, ${count(Number(tokens))} of ${count(Number(limit))} tokens.${then ? ` ${then}.` : ''}`;
}

/** The groups that the feed can be narrowed to. */
export const GROUPS = {
  warning: 'Told',
  checkpoint: 'Checkpoints',
  compression: 'Compression',
  rollover: 'Rollovers',
  refused: 'Refused',
  other: 'Other',
};
export function group(kind) {
  const first = String(kind).split('.')[0];
  return first in GROUPS ? first : 'other';
}
