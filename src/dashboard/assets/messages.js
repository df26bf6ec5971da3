// The messages of a conversation, oldest first, a page at a time. When one of them is wanted, pages are read until it is found.

import { Trouble, get } from './api.js';
import { el, longText, say, section } from './dom.js';
import { time } from './words.js';

const PAGE = 200;
const MOST_PAGES = 10; // to look for one message; beyond that the list starts at the message itself

export function messageList(conversation) {
  const list = el('ol', { class: 'messages', id: 'messages' });
  const more = el('button', {
    type: 'button',
    id: 'more-messages',
    hidden: true,
    text: 'Load more',
    onclick: () => next().catch(complain),
  });
  const note = el('p', { class: 'hint', role: 'status' });
  const node = section('messages', 'Messages', note, list, more);
  const path = `/api/conversations/${conversation}/messages`;
  let last = null;
  let ended = false;

  async function next(after = last) {
    more.disabled = true;
    const params = { full: 'true', limit: PAGE };
    if (after !== null) params.after = after;
    try {
      const page = await get(path, { params });
      for (const message of page) if (!row(message.id)) list.append(article(message));
      ended = page.length < PAGE;
      if (page.length) last = page.at(-1).id;
      more.hidden = ended;
      say(note, list.children.length ? '' : 'No messages are stored yet.');
    } finally {
      more.disabled = false;
    }
  }

  const row = (id) => list.querySelector(`[data-message="${Number(id)}"]`);

  /** Reads the first page, or as many as it takes to show the wanted message. */
  async function load(wanted) {
    await next();
    if (wanted === null) return;
    for (let page = 1; page < MOST_PAGES && !ended && !row(wanted); page += 1) {
      say(note, `Looking for the message, ${list.children.length} read…`);
      await next();
    }
    if (!row(wanted) && !ended) {
      list.replaceChildren();
      await next(wanted - 1);
      say(note, 'The message is far into the conversation, so the list starts there.');
    }
    if (!row(wanted)) await readBranch(wanted);
    show(row(wanted));
  }

  /** A message of an earlier version: one that was edited or asked for again. */
  async function readBranch(wanted) {
    const page = await get(path, { params: { full: 'true', limit: PAGE, to: wanted } }).catch(() => []);
    if (!page.some((message) => message.id === wanted)) return;
    list.replaceChildren(...page.map(article));
    more.hidden = true;
    ended = false;
    say(note, 'This is in an earlier version of the conversation, which went on differently.');
  }

  function show(found) {
    if (!found) {
      say(note, 'That message is in an earlier version of this conversation, or was deleted.');
      return;
    }
    found.classList.add('wanted');
    found.querySelector('.folded')?.nextElementSibling.click();
    found.scrollIntoView({ block: 'center' });
    found.focus({ preventScroll: true });
  }

  /** Reads what is new, but only for someone who has read to the end. */
  const refresh = () => (ended ? next().catch(() => {}) : Promise.resolve());

  function complain(error) {
    if (error instanceof Trouble) say(note, error.message);
  }
  return { node, load: (wanted) => load(wanted).catch(complain), refresh };
}

function article(message) {
  const about = [
    message.tool_name,
    message.images?.length ? `${message.images.length} images` : null,
    message.status && message.status !== 'complete' ? message.status : null,
  ].filter(Boolean);
  return el(
    'li',
    { class: 'message', 'data-message': message.id, 'data-role': message.role, tabindex: '-1' },
    el(
      'p',
      { class: 'message-head' },
      el('b', { text: message.role }),
      el('span', { text: [`no. ${message.seq}`, ...about].join(' · ') }),
      time(message.created_at),
    ),
    message.thinking
      ? el('details', null, el('summary', { text: 'Thinking' }), el('div', { class: 'words', dir: 'auto', text: message.thinking }))
      : null,
    message.content ? longText(message.content) : el('p', { class: 'hint', text: 'No text.' }),
    message.tool_calls
      ? el(
          'details',
          null,
          el('summary', { text: 'Tool calls' }),
          el('pre', { class: 'words', text: JSON.stringify(message.tool_calls, null, 2) }),
        )
      : null,
  );
}
