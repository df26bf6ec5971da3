// The main view: the totals, every conversation as a ship at its draught, the log, and the models.

import { command, el, empty } from './dom.js';
import { card } from './card.js';
import { models, totals } from './status.js';
import { percent } from './words.js';

const STEP = 50;
const MOST = 200;
const HOLD_MS = 5000; // while a pointer moves over the cards they keep their places, so that nobody clicks the wrong one

let order = 'latest';

export function openHome(ctx) {
  const cards = new Map();
  const sums = totals();
  const shelf = models();
  const grid = el('ul', { class: 'grid', id: 'conversations' });
  let nothing = el('div', { hidden: true });
  const more = el('button', {
    type: 'button',
    id: 'more-conversations',
    hidden: true,
    text: 'Show more',
    onclick: () => {
      ctx.live.limit += STEP;
      ctx.live.refresh();
    },
  });
  const everybody = el('input', { type: 'checkbox', role: 'switch', id: 'everybody', onchange: () => ctx.showAll(everybody.checked) });
  const everybodyLabel = el('label', { class: 'switch', hidden: true }, everybody, el('span', { text: 'everybody’s' }));
  const orderBy = el(
    'select',
    {
      id: 'order',
      onchange: () => {
        order = orderBy.value;
        heldUntil = 0;
        draw(ctx.overview);
      },
    },
    el('option', { value: 'latest', text: 'last used first' }),
    el('option', { value: 'fullest', text: 'fullest first' }),
  );
  orderBy.value = order;
  let heldUntil = 0;
  grid.addEventListener('pointermove', () => {
    heldUntil = Date.now() + HOLD_MS;
  });
  grid.addEventListener('pointerleave', () => {
    heldUntil = 0;
  });

  ctx.host.append(
    el('h1', { class: 'unseen', tabindex: '-1', text: 'Conversations and their load' }),
    sums.node,
    el(
      'div',
      { class: 'columns' },
      el(
        'section',
        { class: 'fleet', 'aria-labelledby': 'fleet-title' },
        el(
          'div',
          { class: 'section-head' },
          el('h2', { id: 'fleet-title', text: 'Conversations' }),
          everybodyLabel,
          el('label', { class: 'order' }, el('span', { class: 'unseen', text: 'Order' }), orderBy),
        ),
        legend(ctx.overview?.marks),
        nothing,
        grid,
        more,
      ),
      ctx.feed.node,
    ),
    shelf.node,
  );

  function draw(overview) {
    if (!overview) return;
    sums.set(overview);
    shelf.set(overview);
    everybodyLabel.hidden = !overview.caller.sees_all;
    everybody.checked = ctx.live.all;
    const list = sorted(overview.conversations);
    if (list.length === 0 && nothing.id !== 'welcome') {
      const node = welcome(overview);
      nothing.replaceWith(node);
      nothing = node;
    }
    nothing.hidden = list.length > 0;
    orderBy.hidden = list.length === 0;
    more.hidden = overview.conversations.length < ctx.live.limit || ctx.live.limit >= MOST;
    const alive = new Set(list.map((one) => one.id));
    for (const [id, known] of cards)
      if (!alive.has(id)) {
        known.node.remove();
        cards.delete(id);
      }
    for (const one of list) {
      if (!cards.has(one.id)) {
        const made = card(one.id, overview.marks);
        cards.set(one.id, made);
        grid.append(made.node);
      }
      cards.get(one.id).set(one, ctx.live.all);
    }
    if (Date.now() > heldUntil) settle(list);
  }

  // Puts the cards in order by moving as few as possible, and gives the focus back if its card moved.
  function settle(list) {
    const focused = grid.contains(document.activeElement) ? document.activeElement : null;
    list.forEach((one, index) => {
      const node = cards.get(one.id).node;
      if (grid.children[index] !== node) grid.insertBefore(node, grid.children[index] ?? null);
    });
    if (focused && document.activeElement !== focused) focused.focus({ preventScroll: true });
  }

  draw(ctx.overview);
  return { overview: draw, keys: '.card-link', close() {} };
}

function sorted(conversations) {
  if (order !== 'fullest') return conversations;
  return [...conversations].sort((a, b) => (percent(b.load?.usage) ?? -1) - (percent(a.load?.usage) ?? -1));
}

function legend(marks) {
  const m = marks ?? { told: 70, checkpoint: 80, compression: 95, rollover: 100 };
  const item = (at, text) => el('li', null, el('b', { text: `${at} %` }), ` ${text}`);
  return el(
    'ul',
    { class: 'ladder', 'aria-label': 'The marks on the hull' },
    item(m.told, 'you are told'),
    item(m.checkpoint, 'checkpoint'),
    item(m.compression, 'compression'),
    item(m.rollover, 'rollover'),
  );
}

function welcome(o) {
  const model = o.models[0]?.name ?? 'llama3.2';
  const line = o.auth_required
    ? `curl ${location.origin}/api/chat -H "Authorization: Bearer $TOKEN" -d '{"model":"${model}","messages":[{"role":"user","content":"Ahoy"}]}'`
    : `OLLAMA_HOST=${location.host} ollama run ${model}`;
  const node = empty(
    'No ship in harbour yet.',
    el('p', {
      text: 'Point a client here instead of at Ollama, and change nothing else. Its conversations appear on this page by themselves.',
    }),
    command(line),
    el(
      'p',
      { class: 'hint' },
      'OpenAI clients use ',
      el('code', { text: `${location.origin}/v1` }),
      ' as their base address, Anthropic clients ',
      el('code', { text: location.origin }),
      o.auth_required ? '; your token is their API key.' : '.',
    ),
  );
  node.id = 'welcome';
  return node;
}
