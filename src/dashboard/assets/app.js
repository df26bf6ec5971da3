// The beginning: signing in, which view the address asks for, and who is told when something changes.

import { forgetToken, get, keepToken, signedIn, whenSignedOut } from './api.js';
import { openConversation } from './conversation.js';
import { el } from './dom.js';
import { Feed } from './feed.js';
import { openHome } from './home.js';
import { listen } from './keys.js';
import { Live } from './live.js';
import { openSearch } from './search.js';
import { alarm, statusStrip } from './status.js';
import { openTurn } from './turn.js';
import { ageSeconds, sentence, tickTimes, trustClock } from './words.js';

const $ = (id) => document.getElementById(id);
const LOUD = ['compression', 'rollover', 'refused'];
const TOAST_MS = 6000;
const NEWS_S = 20; // older events are history, not news

const strip = statusStrip($('status'));
const feed = new Feed();
const ctx = { host: $('view'), feed, overview: null, live: null, showAll };
let view = null;
let cameFrom = null; // the conversation one comes back from, to find its card again
let fed = false;
const scrolled = new Map();

const live = (ctx.live = new Live({
  overview(overview, restarted) {
    trustClock(overview.now);
    ctx.overview = overview;
    if (restarted) {
      feed.clear();
      fed = false;
    }
    strip.overview(overview);
    warn(alarm(overview));
    heed(overview.events, fed);
    fed = true;
    if (view) view.overview(overview);
    else route();
  },
  events(list) {
    heed(
      list.filter((event) => live.all || event.user === ctx.overview?.caller.user),
      true,
    );
  },
  state(state) {
    strip.state(state);
  },
}));

function heed(events, news) {
  const fresh = feed.take(events);
  if (!news) return;
  const loud = fresh.filter((event) => LOUD.includes(event.kind) && ageSeconds(event.at) < NEWS_S);
  if (loud.length) toast(loud.at(-1));
  if (fresh.some((event) => LOUD.includes(event.kind) || String(event.kind).startsWith('checkpoint'))) live.refresh();
}

function showAll(all) {
  live.all = all;
  feed.clear();
  fed = false;
  live.refresh();
}

let toastTimer;
function toast(event) {
  const where = Number.isInteger(event.conversation) ? event.conversation : null;
  $('toast').replaceChildren(
    el(
      'div',
      { class: 'toast', 'data-kind': event.kind },
      el('span', { text: sentence(event) }),
      where === null ? null : el('a', { href: `#/c/${where}`, text: `Conversation ${where}` }),
    ),
  );
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => $('toast').replaceChildren(), TOAST_MS);
}

function warn(text) {
  if ($('alarm').textContent !== (text ?? '')) $('alarm').textContent = text ?? '';
  $('alarm').hidden = text === null;
}

// ——— the address ———

const VIEWS = [
  [/^#\/c\/(\d+)\/t\/(\d+)$/, (id, turn) => [`Turn ${turn}`, openTurn(ctx, id, turn), id]],
  [/^#\/c\/(\d+)\/m\/(\d+)$/, (id, message) => [`Conversation ${id}`, openConversation(ctx, id, message), id]],
  [/^#\/c\/(\d+)$/, (id) => [`Conversation ${id}`, openConversation(ctx, id, null), id]],
  [/^#\/search$/, () => ['Search', openSearch(ctx, $('search')), null]],
  [/^/, () => ['Conversations', openHome(ctx), null]],
];

let at = null;
function route() {
  if (!signedIn() || !ctx.overview) return;
  const hash = location.hash || '#/';
  if (at !== null) scrolled.set(at, scrollY);
  view?.close();
  ctx.host.replaceChildren();
  const [pattern, open] = VIEWS.find(([one]) => one.test(hash));
  const [name, opened, conversation] = open(...pattern.exec(hash).slice(1).map(Number));
  view = opened;
  document.title = `${name} · Loadline`;
  scrollTo(0, scrolled.get(hash) ?? 0);
  if (at !== null && !view.keepsFocus) settleFocus(hash);
  at = hash;
  if (conversation !== null) cameFrom = conversation;
}

function settleFocus(hash) {
  const card = hash === '#/' && cameFrom !== null ? ctx.host.querySelector(`[data-conversation="${cameFrom}"] .card-link`) : null;
  (card ?? ctx.host.querySelector('h1'))?.focus({ preventScroll: true });
}

// ——— signing in and out ———

function showGate(said) {
  live.stop();
  view?.close();
  view = null;
  at = null;
  ctx.overview = null;
  ctx.host.replaceChildren();
  $('toast').replaceChildren();
  feed.clear();
  fed = false;
  scrolled.clear();
  warn(null);
  $('search').value = '';
  for (const id of ['search-form', 'sign-out', 'status']) $(id).hidden = true;
  $('gate').hidden = false;
  $('gate-said').textContent = said;
  document.title = 'Sign in · Loadline';
  $('token').focus();
}

function enter() {
  $('gate').hidden = true;
  $('gate-said').textContent = '';
  $('token').value = '';
  for (const id of ['search-form', 'sign-out', 'status']) $(id).hidden = false;
  ctx.host.replaceChildren(el('p', { class: 'hint', text: 'Reading the marks…' }));
  live.start();
}

async function signIn(token) {
  if (!/^[\x21-\x7e]+$/.test(token)) return 'That does not look like a token: one begins with ll_ and has no spaces.';
  try {
    await get('/loadline/overview', { params: { limit: 1, events: 0 }, as: token });
  } catch (error) {
    return error.status === 401 ? 'Loadline does not know this token. It may have been revoked or mistyped.' : error.message;
  }
  keepToken(token);
  enter();
  return '';
}

$('gate-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  $('sign-in').disabled = true;
  $('gate-said').textContent = await signIn($('token').value.trim());
  $('sign-in').disabled = false;
});
$('sign-out').addEventListener('click', () => {
  forgetToken();
  showGate('You are signed out.');
});
whenSignedOut(() => {
  forgetToken();
  showGate('Your token is not accepted any more. Sign in again.');
});

// ——— search, keys, the clock ———

$('search-form').addEventListener('submit', (event) => {
  event.preventDefault();
  searching();
});
$('search').addEventListener('input', searching);
function searching() {
  if (location.hash !== '#/search') location.hash = '#/search';
  else view?.typed?.();
}

function back(event) {
  if (event.target === $('search')) $('search').blur();
  if (view?.parent) location.hash = view.parent;
}
listen({
  search: () => {
    if (signedIn()) {
      $('search').focus();
      $('search').select();
    }
  },
  back,
  items: () => (view ? [...document.querySelectorAll(view.keys)] : []),
});

// The skip link must not become an address of ours.
$('skip').addEventListener('click', (event) => {
  event.preventDefault();
  $('main').focus();
});
addEventListener('hashchange', route);
setInterval(tickTimes, 5000);
if (signedIn()) enter();
else showGate('');
