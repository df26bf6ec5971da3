// The receipt of one turn: what the prompt was made of, what became of each message, and what left instead of it.

import { Trouble, get } from './api.js';
import { el, empty, longText, mark, number, say, section, table } from './dom.js';
import { badge } from './gauge.js';
import { absolute, count, deed, many, range, ranges, time } from './words.js';

const PARTS = {
  system: 'System prompt',
  rollover: 'Rollover summary',
  checkpoint: 'Checkpoint',
  recalled: 'Recalled',
  verbatim: 'Verbatim',
  cleaned: 'Cleaned',
  template: 'Template',
  tools: 'Tools',
};
const FATES = {
  verbatim: ['Verbatim', 'left exactly as they came'],
  recalled: ['Recalled', 'brought back from the archive for this turn, as quotations'],
  cleaned: ['Cleaned', 'left without what has no use any more'],
  summarised: ['Summarised', 'left as part of a summary; the originals are stored'],
  archived: ['Archived', 'not in this prompt; stored word for word'],
  kept: ['Kept', 'stored, and sent to nobody'],
};

export function openTurn(ctx, conversation, turn) {
  const abort = new AbortController();
  const up = `#/c/${conversation}`;
  const title = el('h1', { tabindex: '-1', text: `Turn ${turn}` });
  const receipt = el('div', { id: 'receipt' });
  ctx.host.append(el('a', { class: 'back', href: up, text: '← The conversation' }), title, receipt);

  let unfinished = false;
  async function read() {
    try {
      const found = await get(`/loadline/turns/${turn}`, { signal: abort.signal });
      receipt.replaceChildren(...draw(found));
      unfinished = found.finished_at === null;
    } catch (error) {
      if (error instanceof Trouble && !unfinished)
        receipt.replaceChildren(empty(error.status === 404 ? 'There is no such turn, or it is somebody else’s.' : error.message));
    }
  }
  read();
  // A turn whose answer is still under way is read again until it has ended.
  return {
    overview() {
      if (unfinished) read();
    },
    keys: '#receipt summary',
    parent: up,
    close: () => abort.abort(),
  };
}

function draw(t) {
  const fates = groups(t.messages);
  const earlier = el('button', { type: 'button', id: 'earlier' });
  let lowest = t.messages[0]?.place ?? null;
  const offer = (n) => {
    earlier.hidden = !(n > 0);
    say(earlier, `Show ${many(Math.min(n, 500), 'earlier message')}`);
  };
  earlier.addEventListener('click', async () => {
    earlier.disabled = true;
    try {
      const page = await get(`/loadline/turns/${t.turn}`, { params: { before: lowest } });
      fates.add(page.messages);
      lowest = page.messages[0]?.place ?? lowest;
      offer(page.messages.length ? page.earlier : 0);
    } catch (error) {
      say(earlier, error.message);
    } finally {
      earlier.disabled = false;
    }
  });
  offer(t.earlier);
  return [
    summary(t),
    t.receipt === null ? wholePassage(t) : bar(t),
    t.notes.length ? section('notes', 'What left instead', t.notes.map(note)) : null,
    section('fates', 'What became of each message', earlier, fates.node),
    t.system.length
      ? section(
          'system',
          'System prompt',
          t.system.map((text) => el('div', { class: 'leaf' }, longText(text))),
        )
      : null,
    section('answer', 'The answer', answer(t)),
  ].filter(Boolean);
}

function summary(t) {
  const fact = (name, ...value) => el('div', { class: 'figure' }, el('dt', { text: name }), ...value);
  const agrees =
    t.reported_tokens === null || t.reported_tokens === undefined
      ? 'Ollama has not reported a count'
      : t.reported_tokens === t.sent_tokens
        ? 'Ollama counted the same'
        : `Ollama counted ${count(t.reported_tokens)}`;
  return el(
    'dl',
    { class: 'totals' },
    fact(
      'Done',
      el('dd', { 'data-action': t.action ?? 'none', class: 'with-badge' }, badge(t.action ?? 'none'), deed(t)),
      el('dd', { class: 'note', text: `${t.dialect}, ${t.model}, ${t.status}` }),
    ),
    fact(
      'Arrived',
      el('dd', { text: count(t.arrived_tokens) }),
      el('dd', { class: 'note', text: t.usage === null ? 'not counted' : `${t.usage} of ${count(t.limit_tokens)}` }),
    ),
    fact('Sent', el('dd', { text: count(t.sent_tokens) }), el('dd', { class: 'note', text: t.sent_tokens === null ? 'nothing left' : `${t.basis}; ${agrees}` })),
    fact('When', el('dd', null, time(t.at)), el('dd', { class: 'note', text: absolute(t.at) })),
  );
}

function wholePassage(t) {
  const said = () => {
    if (t.status === 'refused') return 'This turn was refused: it could not be brought under the line. Everything in it is stored.';
    if (t.status === 'failed') return 'The upstream failed: there is no answer. Everything in it is stored.';
    if (t.arrived_tokens === null) return 'This turn ended before it was counted. Everything in it is stored.';
    if (t.status === 'cancelled' && t.answer === null && t.action !== 'none')
      return 'The client went away before the answer began, so there is no receipt. Everything in it is stored.';
    return 'Everything went as it came. Nothing was summarised, archived or changed.';
  };
  return el('p', { class: 'plain', text: said() });
}

// The bar of parts. It must add up to what was sent, and says so when it does not.
function bar(t) {
  const sum = t.parts.reduce((total, part) => total + part.tokens, 0);
  const strip = el('div', {
    class: 'parts',
    role: 'img',
    'aria-label': t.parts.map((part) => `${nameOf(part)} ${part.tokens}`).join(', '),
  });
  for (const part of t.parts) {
    const piece = el('span', { class: 'part', 'data-part': part.what, title: `${nameOf(part)}: ${count(part.tokens)} tokens` });
    piece.style.flexGrow = String(Math.max(part.tokens, sum / 250));
    strip.append(piece);
  }
  const rows = t.parts.map((part) =>
    el(
      'tr',
      null,
      el(
        'th',
        { scope: 'row' },
        el('span', { class: 'part swatch', 'data-part': part.what, 'aria-hidden': 'true' }),
        nameOf(part),
        el('span', { class: 'note', text: ` ${about(part)}` }),
      ),
      number(count(part.tokens)),
      number(`${sum ? ((100 * part.tokens) / sum).toFixed(1) : '0.0'} %`),
    ),
  );
  const total = el(
    'tr',
    { class: 'sum' },
    el('th', { scope: 'row', text: sum === t.sent_tokens ? 'Sent' : `Sum (but ${count(t.sent_tokens)} were sent)` }),
    number(count(sum)),
    number('100 %'),
  );
  return section(
    'parts',
    'What the prompt was made of',
    strip,
    el('div', { class: 'part-table' }, table('Parts of the prompt', ['Part', '#Tokens', '#Share'], rows, el('tfoot', null, total))),
  );
}

const nameOf = (part) => PARTS[part.what] ?? String(part.what);

function about(part) {
  const bits = [];
  if (part.level) bits.push(`level ${part.level}`);
  if (part.author) bits.push(`by ${part.author}`);
  if (part.covers) bits.push(`for ${range(part.covers)}`);
  if (part.messages?.length) bits.push(`messages ${ranges(part.messages)}`);
  if (part.message) bits.push(`message ${part.message}`);
  return bits.join(', ');
}

function note(one) {
  return el(
    'article',
    { class: 'leaf', 'data-note': one.what },
    el('p', { class: 'message-head' }, el('b', { text: PARTS[one.what] ?? one.what }), el('span', { text: about(one) })),
    longText(one.text),
  );
}

// The messages by what became of them. The texts are put in when a message is opened: there may be thousands.
function groups(messages) {
  const node = el('div', { class: 'fates' });
  const lists = new Map();
  function add(more) {
    for (const message of more) {
      if (!lists.has(message.fate)) lists.set(message.fate, fateSection(message.fate));
      const { list } = lists.get(message.fate);
      const row = messageRow(message);
      let before = list.firstElementChild;
      if (!before || Number(list.lastElementChild.dataset.number) < message.number) before = null;
      while (before && Number(before.dataset.number) < message.number) before = before.nextElementSibling;
      list.insertBefore(row, before);
    }
    const order = [...Object.keys(FATES), ...[...lists.keys()].filter((fate) => !(fate in FATES))];
    node.replaceChildren(...order.filter((fate) => lists.has(fate)).map((fate) => lists.get(fate).node));
    for (const { list, size } of lists.values()) say(size, count(list.children.length));
  }
  add(messages);
  return { node, add };
}

function fateSection(fate) {
  const [name, meaning] = FATES[fate] ?? [fate, ''];
  const list = el('ol');
  const size = el('span', { class: 'number' });
  return {
    list,
    size,
    node: el(
      'section',
      { class: 'fate', 'data-group': fate },
      el('h3', null, el('span', { class: 'part swatch', 'data-part': fate, 'aria-hidden': 'true' }), `${name} `, size),
      el('p', { class: 'hint', text: meaning }),
      list,
    ),
  };
}

function messageRow(message) {
  const extra = [message.tool_name, message.images ? many(message.images, 'image') : null].filter(Boolean).join(', ');
  const inside = el('div', { class: 'inside' });
  const box = el(
    'details',
    null,
    el(
      'summary',
      null,
      el('span', { class: 'no', text: String(message.number) }),
      el('b', { text: message.role }),
      el('span', { class: 'glimpse', dir: 'auto', text: message.text.slice(0, 160) || extra || 'no text' }),
    ),
    inside,
  );
  box.addEventListener('toggle', () => {
    if (!box.open || inside.childElementCount) return;
    inside.append(
      el('p', { class: 'message-head' }, time(message.at), extra ? el('span', { text: extra }) : null),
      el('div', { class: 'words', dir: 'auto', text: message.text }),
    );
    if (message.cut) inside.append(el('p', { class: 'hint', text: 'Cut here. The whole text is in the export.' }));
    if (message.tool_calls) inside.append(el('pre', { class: 'words', text: JSON.stringify(message.tool_calls, null, 2) }));
  });
  const row = el('li', { 'data-number': message.number }, box);
  mark(row, 'data-fate', message.fate);
  return row;
}

function answer(t) {
  if (t.answer === null)
    return el('p', { class: 'hint', text: t.action === 'refused' ? 'None: the turn was refused.' : 'None has been stored.' });
  return el(
    'article',
    { class: 'leaf' },
    el('p', { class: 'message-head' }, el('b', { text: t.answer.role }), el('span', { text: t.answer.status }), time(t.answer.at)),
    longText(t.answer.text),
    t.answer.cut ? el('p', { class: 'hint', text: 'Cut here. The whole text is in the export.' }) : null,
  );
}
