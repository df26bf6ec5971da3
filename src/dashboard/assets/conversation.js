// One conversation: its curve, the turns where something was done, its snapshots, and its messages.

import { Trouble, download, get } from './api.js';
import { titleOf } from './card.js';
import { curve } from './curve.js';
import { el, empty, number, say, section, table } from './dom.js';
import { badge } from './gauge.js';
import { messageList } from './messages.js';
import { count, deed, many, time } from './words.js';

const PAGE = 1000;
const MOST_TURNS = 10_000;
const LISTED = 60; // turns in the table below the curve

export function openConversation(ctx, id, wanted) {
  const abort = new AbortController();
  const marks = ctx.overview?.marks ?? { told: 70, checkpoint: 80, compression: 95, rollover: 100 };
  const title = el('h1', { tabindex: '-1', dir: 'auto', text: `Conversation ${id}` });
  const facts = el('p', { class: 'hint' });
  const writing = el('p', { class: 'writing', hidden: true, text: 'writing a checkpoint' });
  const drawing = curve(marks, (turn) => {
    location.hash = `#/c/${id}/t/${turn}`;
  });
  const noTurns = empty(
    'No turn has been counted yet.',
    el('p', { text: 'The curve begins with the first answer that passes through here.' }),
  );
  const done = el('div');
  const snapshots = el('div');
  const system = el('div');
  const messages = messageList(id);
  let turns = [];
  let busy = false;
  let seen = null;

  const up = wanted === null ? '#/' : '#/search';
  const back = el('a', { class: 'back', href: up, text: wanted === null ? '← All conversations' : '← What was found' });
  ctx.host.append(
    back,
    el(
      'div',
      { class: 'view-head' },
      el('div', null, title, facts, writing),
      exportButton('Export the conversation', `/api/conversations/${id}/export`, `conversation-${id}.jsonl`, 'export-conversation'),
    ),
    section('load', 'Load, turn by turn', noTurns, drawing.node),
    el('div', { class: 'pair' }, section('done', 'What was done', done), section('snapshots', 'Snapshots', snapshots)),
    system,
    messages.node,
  );

  function trouble(error) {
    if (abort.signal.aborted || !(error instanceof Trouble)) return;
    ctx.host.replaceChildren(
      back,
      empty(error.status === 404 ? 'There is no such conversation, or it is somebody else’s.' : error.message),
    );
  }

  async function readAbout() {
    const about = await get(`/api/conversations/${id}`, { signal: abort.signal });
    say(title, titleOf(about));
    say(
      facts,
      [
        about.model,
        many(about.messages, 'message'),
        many(about.branches, 'branch', 'branches'),
        many(about.checkpoints, 'checkpoint'),
        about.imported_from ? `imported from ${about.imported_from.provider ?? 'elsewhere'}, ${about.imported_from.session}` : null,
      ]
        .filter(Boolean)
        .join(' · '),
    );
    if (system.childElementCount === 0 && about.system?.length) {
      system.append(
        el(
          'details',
          { class: 'system' },
          el('summary', { text: 'System prompt' }),
          about.system.map((text) => el('div', { class: 'words', dir: 'auto', text })),
        ),
      );
    }
  }

  // The last known turn is read again too: its answer may have been under way.
  async function readTurns() {
    let after = turns.length > 1 ? turns.at(-2).turn : null;
    const known = new Map(turns.map((turn) => [turn.turn, turn]));
    do {
      const params = { limit: PAGE };
      if (after !== null) params.after = after;
      const page = await get(`/api/conversations/${id}/load`, { params, signal: abort.signal });
      for (const turn of page.turns) known.set(turn.turn, turn);
      after = page.turns.length ? page.next : null;
    } while (after !== null && known.size < MOST_TURNS);
    turns = [...known.values()];
    noTurns.hidden = turns.length > 0;
    drawing.node.hidden = turns.length === 0;
    drawing.set(turns);
    done.replaceChildren(doneTable(id, turns));
  }

  async function readSnapshots() {
    const list = (await get(`/api/conversations/${id}/snapshots`, { signal: abort.signal })).snapshots;
    snapshots.replaceChildren(
      list.length
        ? snapshotTable(list)
        : el('p', { class: 'hint', text: 'None yet. A rollover keeps the whole conversation in one before anything is left out.' }),
    );
  }

  async function refresh() {
    if (busy) return;
    busy = true;
    try {
      await Promise.all([readAbout(), readTurns(), readSnapshots()]);
    } catch (error) {
      // What is already shown stays while the server is away; what was deleted does not.
      if (turns.length === 0 || error.status === 404) trouble(error);
    } finally {
      busy = false;
    }
  }

  function overview(o) {
    const mine = o.conversations.find((one) => one.id === id);
    writing.hidden = !mine?.writing_checkpoint;
    const state = mine ? `${mine.load?.turn} ${mine.load?.status} ${mine.messages} ${mine.snapshots}` : null;
    if (seen !== null && state !== null && state !== seen) refresh().then(messages.refresh);
    // It may have been deleted; one that was not used for long may only be missing in the list.
    if (seen !== null && state === null) refresh();
    if (state !== null) seen = state;
  }

  noTurns.hidden = true;
  refresh();
  messages.load(wanted);
  if (ctx.overview) overview(ctx.overview);
  return { overview, keys: '.message', parent: up, close: () => abort.abort() };
}

function exportButton(text, path, name, id) {
  const button = el('button', { type: 'button', id, text });
  button.addEventListener('click', async () => {
    button.disabled = true;
    try {
      await download(path, name);
      button.textContent = text;
    } catch (error) {
      button.textContent = `${text}: ${error.message}`;
    } finally {
      button.disabled = false;
    }
  });
  return button;
}

function doneTable(id, turns) {
  const acted = turns.filter((turn) => turn.action !== 'none');
  if (acted.length === 0) return el('p', { class: 'hint', text: 'Nothing had to be done: every turn went as it came.' });
  const rows = acted
    .slice(-LISTED)
    .reverse()
    .map((turn) =>
      el(
        'tr',
        { 'data-action': turn.action },
        el('th', { scope: 'row' }, el('a', { href: `#/c/${id}/t/${turn.turn}`, text: `Turn ${turn.turn}` })),
        el('td', null, badge(turn.action), deed(turn)),
        number(`${count(turn.arrived_tokens)} → ${count(turn.sent_tokens)}`),
        el('td', null, time(turn.at)),
      ),
    );
  const caption =
    acted.length > LISTED ? `The last ${LISTED} of ${acted.length} turns; the curve has them all` : 'Turns where something was done';
  return el('div', { class: 'table-wrap tall', tabindex: '0' }, table(caption, ['Turn', 'Done', '#Tokens', 'When'], rows));
}

function snapshotTable(list) {
  const newest = [...list].sort((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at));
  const rows = newest.map((one) =>
    el(
      'tr',
      { 'data-snapshot': one.id },
      el('th', { scope: 'row' }, time(one.created_at), el('span', { class: 'note', text: ` ${one.reason}` })),
      number(count(one.messages)),
      number(`${count(one.tokens)} / ${count(one.limit_tokens)}`),
      el('td', null, exportButton('Export', `/api/snapshots/${encodeURIComponent(one.id)}/export`, `${one.id}.jsonl`)),
    ),
  );
  return el('div', { class: 'table-wrap tall', tabindex: '0' }, table('Snapshots', ['Made', '#Messages', '#Tokens', ''], rows));
}
