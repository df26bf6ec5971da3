// Search over every stored message. The words stay in memory: an address is kept by histories and logs.

import { Trouble, get } from './api.js';
import { el, say } from './dom.js';
import { many, time } from './words.js';

const PAUSE_MS = 250;
const MOST = 50;

export function openSearch(ctx, box) {
  const title = el('h1', { tabindex: '-1', text: 'Search' });
  const note = el('p', { class: 'hint', role: 'status' });
  const results = el('ol', { id: 'results' });
  ctx.host.append(el('a', { class: 'back', href: '#/', text: '← All conversations' }), title, note, results);
  let abort = new AbortController();
  let timer;

  async function search() {
    abort.abort();
    abort = new AbortController();
    const words = box.value.trim();
    if (words === '') {
      results.replaceChildren();
      say(note, 'Type some words. Whatever was said to a model here can be found again, also what no longer fits into its window.');
      return;
    }
    try {
      const { results: found } = await get('/api/conversations/search', { params: { q: words, limit: MOST }, signal: abort.signal });
      results.replaceChildren(...found.map((one) => row(one, ctx.overview)));
      say(
        note,
        found.length === 0
          ? 'Nothing found. Fewer or shorter words may help.'
          : found.length === MOST
            ? `The best ${MOST} places`
            : many(found.length, 'place'),
      );
    } catch (error) {
      if (error instanceof Trouble) {
        results.replaceChildren();
        say(note, error.message);
      }
    }
  }
  const typed = () => {
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE_MS);
  };
  if (document.activeElement === box) typed();
  else search();
  return {
    overview() {},
    keys: '#results a',
    parent: '#/',
    keepsFocus: true,
    typed,
    close() {
      clearTimeout(timer);
      abort.abort();
    },
  };
}

function row(one, overview) {
  const known = overview?.conversations.find((conversation) => conversation.id === one.conversation_id);
  return el(
    'li',
    null,
    el(
      'a',
      { href: `#/c/${Number(one.conversation_id)}/m/${Number(one.message_id)}` },
      el(
        'span',
        { class: 'result-head' },
        el('b', { dir: 'auto', text: known?.title || `Conversation ${one.conversation_id}` }),
        el('span', { text: one.role }),
        time(one.created_at),
      ),
      el('span', { class: 'excerpt', dir: 'auto' }, marked(one.marked ?? one.excerpt)),
    ),
  );
}

/** "a «found» b" as text and <mark> elements. */
function marked(text) {
  return text.split(/«([^«»]*)»/).map((piece, index) => (index % 2 ? el('mark', { text: piece }) : piece));
}
