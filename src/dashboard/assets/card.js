// One conversation as a card: the gauge, what it is about, and how full it is. Made once, then only changed.

import { el, mark, say } from './dom.js';
import { badge, gauge, setBadge, sparkline } from './gauge.js';
import { absolute, ago, count, deed, many, percent, rung, time } from './words.js';

/** Makes the card of a conversation; `set` shows another state of it. */
export function card(id, marks) {
  const hull = gauge(marks);
  const spark = sparkline();
  const title = el('h3', { dir: 'auto' });
  const link = el('a', { class: 'card-link', href: `#/c/${Number(id)}` }, title);
  const facts = el('span', { class: 'facts' });
  const when = time(null);
  const used = el('strong', { class: 'used' });
  const word = el('span', { class: 'rung-word' });
  const tokens = el('span', { class: 'tokens' });
  const left = el('span', { class: 'tokens' });
  const shape = badge('none');
  const done = el('span');
  const doing = el('span', { class: 'doing' }, shape, done);
  const writing = el('p', { class: 'writing', hidden: true, text: 'writing a checkpoint' });
  const node = el(
    'li',
    { class: 'card', 'data-conversation': id },
    hull.node,
    el('div', { class: 'card-load' }, used, el('span', { class: 'card-words' }, word, tokens, left)),
    link,
    el('p', { class: 'card-facts' }, facts, ' · ', when),
    writing,
    el('div', { class: 'card-foot' }, spark.node, doing),
  );

  function set(one, showUser) {
    const load = one.load;
    const full = load ? percent(load.usage) : null;
    const step = rung(full, marks);
    const sent = load && load.limit_tokens > 0 && load.action !== 'refused' ? (100 * load.sent_tokens) / load.limit_tokens : null;
    hull.set(full, sent, full === null ? 'Never counted' : `${load.usage} of the limit, ${step.word}`);
    mark(node, 'data-rung', step.name);
    mark(node, 'data-usage', full === null ? '' : full.toFixed(1));
    mark(node, 'data-action', load?.action ?? 'none');
    say(title, titleOf(one));
    title.classList.toggle('untitled', !one.title);
    say(
      facts,
      [
        showUser ? one.user : null,
        one.model ?? load?.model,
        many(one.messages, 'message'),
        one.branches > 1 ? many(one.branches, 'branch', 'branches') : null,
      ]
        .filter(Boolean)
        .join(' · '),
    );
    mark(when, 'datetime', one.updated_at);
    mark(when, 'title', absolute(one.updated_at));
    say(when, ago(one.updated_at));
    say(used, full === null ? '–' : `${full.toFixed(1)} %`);
    const saved = full >= marks.compression && sent !== null && sent <= 100 && load.receipt;
    say(word, saved ? 'brought under the line' : step.word);
    say(tokens, load ? `${load.arrived_tokens} / ${load.limit_tokens}` : 'no turn yet');
    mark(
      node,
      'title',
      load
        ? `${count(load.arrived_tokens)} tokens arrived, ${count(load.sent_tokens)} were sent, the limit is ${count(load.limit_tokens)} (${load.basis})`
        : null,
    );
    say(left, sent !== null && load.sent_tokens < load.arrived_tokens ? `${load.sent_tokens} sent` : '');
    setBadge(shape, load?.action ?? 'none');
    say(done, load ? deed(load) : '');
    doing.hidden = !load;
    writing.hidden = !one.writing_checkpoint;
    spark.set(one.recent ?? []);
  }
  return { node, link, set };
}

export function titleOf(one) {
  return one.title || (one.title === null && one.user ? `A conversation of ${one.user}` : `Conversation ${one.id}`);
}
