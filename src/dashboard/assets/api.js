// Talking to the server. The token lives in sessionStorage and travels in a header, never in an address.

const KEY = 'loadline.token';
const LONGEST_EVENT = 1_000_000; // characters; a stream that sends more without an end of event is not ours

let token = null;
try {
  token = sessionStorage.getItem(KEY);
} catch {
  /* no storage: the token lasts as long as the page */
}
let onSignedOut = () => {};

/** Why the server did not give what was asked; `status` 0 means that it did not answer at all. */
export class Trouble extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export const signedIn = () => token !== null;

/** What to do when a token stops working, wherever that is noticed. */
export const whenSignedOut = (then) => {
  onSignedOut = then;
};

export function keepToken(value) {
  token = value;
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    /* as above */
  }
}

export function forgetToken() {
  token = null;
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    /* as above */
  }
}

/** Reads JSON. */
export async function get(path, { params, signal, as } = {}) {
  const answer = await ask(path, { params, signal, as });
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Trouble(0, 'Loadline answered with something that is not JSON.');
  }
}

/** Saves an export as a file. A link cannot carry the token, so the bytes are fetched first. */
export async function download(path, fallbackName) {
  const answer = await ask(path);
  const named = /filename="?([^";]+)"?/.exec(answer.headers.get('content-disposition') ?? '');
  const link = document.createElement('a');
  link.href = URL.createObjectURL(await answer.blob());
  link.download = (named ? named[1] : fallbackName).replace(/[^\w.-]+/g, '-');
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Server-sent events after a number, one object each. Ends when the server ends it; null is yielded when the connection stands. */
export async function* events(after, signal) {
  const headers = { accept: 'text/event-stream' };
  if (after !== null) headers['last-event-id'] = String(after);
  const answer = await ask('/loadline/events', { headers, signal });
  yield null;
  let rest = '';
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop();
      if (rest.length > LONGEST_EVENT) throw new Trouble(0, 'An event without an end.');
      for (const block of blocks) {
        const event = parse(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parse(block) {
  const data = [];
  for (const line of block.split(/\r?\n/)) if (line.startsWith('data:')) data.push(line.slice(5).trimStart());
  if (data.length === 0) return null;
  try {
    return JSON.parse(data.join('\n'));
  } catch {
    return null;
  }
}

async function ask(path, { params, signal, headers = {}, as } = {}) {
  const used = as ?? token;
  const query = params ? `?${new URLSearchParams(params)}` : '';
  let answer;
  try {
    answer = await fetch(path + query, {
      headers: { ...headers, authorization: `Bearer ${used}` },
      signal,
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
      referrerPolicy: 'no-referrer',
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Trouble(0, 'Loadline does not answer.');
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && as === undefined && used === token) onSignedOut();
  throw new Trouble(answer.status, await reason(answer));
}

async function reason(answer) {
  if (answer.status === 403) return 'This token may not read here: it lacks the scope “read”.';
  try {
    const body = await answer.json();
    if (typeof body.error === 'string') return body.error;
  } catch {
    /* not JSON: the number has to do */
  }
  return `Loadline answered ${answer.status}.`;
}
