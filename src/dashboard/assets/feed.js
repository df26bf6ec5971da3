// The feed: what happened, newest first, as sentences. Kept for the whole session; the home view shows it.

import { el } from './dom.js';
import { badge } from './gauge.js';
import { GROUPS, group, sentence, time } from './words.js';

const KEPT = 200;

export class Feed {
  constructor() {
    this.seen = new Set(); // numbers
    this.only = null;
    this.list = el('ol', { id: 'feed', 'aria-label': 'Events, newest first' });
    this.none = el('p', { class: 'hint', text: 'Nothing has happened yet. Below 70 % a turn passes in silence.' });
    this.chips = el('div', { class: 'chips', role: 'group', 'aria-label': 'Show only' });
    this.node = el(
      'section',
      { class: 'feed', 'aria-labelledby': 'feed-title' },
      el('h2', { id: 'feed-title', text: 'Log' }),
      this.chips,
      this.none,
      this.list,
    );
    this.drawChips();
  }

  clear() {
    this.seen.clear();
    this.list.replaceChildren();
    this.drawChips();
  }

  /** Takes events from wherever they came; gives back those that were not known yet. */
  take(events) {
    const fresh = events.filter((event) => Number.isFinite(event.id) && !this.seen.has(event.id)).sort((a, b) => a.id - b.id);
    for (const event of fresh) {
      this.seen.add(event.id);
      if (event.kind === 'checkpoint.progress') this.dropOlderProgress(event);
      this.place(this.row(event));
    }
    while (this.list.children.length > KEPT) this.list.lastElementChild.remove();
    for (const id of this.seen)
      if (this.seen.size > 5 * KEPT) this.seen.delete(id);
      else break;
    if (fresh.length) this.drawChips();
    return fresh;
  }

  // Only the newest progress of a checkpoint says anything.
  dropOlderProgress(event) {
    for (const row of this.list.querySelectorAll('[data-kind="checkpoint.progress"]')) {
      if (row.dataset.of === String(event.conversation) && Number(row.dataset.event) < event.id) row.remove();
    }
  }

  // Nearly always at the top; an event of the overview may be older than one of the stream.
  place(row) {
    let before = this.list.firstElementChild;
    while (before && Number(before.dataset.event) > Number(row.dataset.event)) before = before.nextElementSibling;
    this.list.insertBefore(row, before);
  }

  row(event) {
    const kind = String(event.kind);
    const where = Number.isInteger(event.conversation) ? event.conversation : null;
    const inside = [
      badge(group(kind)),
      el('span', { class: 'said', dir: 'auto', text: sentence(event) }),
      el('span', { class: 'feed-when' }, where === null ? null : `conversation ${where} · `, time(event.at)),
    ];
    return el(
      'li',
      { 'data-kind': kind, 'data-event': event.id, 'data-of': event.conversation, hidden: this.hides(kind) },
      where === null ? el('span', { class: 'feed-row' }, ...inside) : el('a', { class: 'feed-row', href: `#/c/${where}` }, ...inside),
    );
  }

  hides(kind) {
    return this.only !== null && group(kind) !== this.only;
  }

  narrow(only) {
    this.only = only;
    for (const row of this.list.children) row.hidden = this.hides(row.dataset.kind);
    this.drawChips();
  }

  drawChips() {
    const there = new Set([...this.list.children].map((row) => group(row.dataset.kind)));
    const names = ['all', ...Object.keys(GROUPS).filter((name) => name !== 'other' || there.has('other'))];
    if (this.chips.children.length !== names.length) {
      this.chips.replaceChildren(
        ...names.map((name) =>
          el('button', {
            type: 'button',
            class: 'chip',
            'data-group': name,
            text: GROUPS[name] ?? 'All',
            onclick: () => this.narrow(name === 'all' ? null : name),
          }),
        ),
      );
    }
    for (const chip of this.chips.children) chip.setAttribute('aria-pressed', String(chip.dataset.group === (this.only ?? 'all')));
    const shown = [...this.list.children].some((row) => !row.hidden);
    this.none.hidden = shown;
    this.none.textContent = this.list.children.length
      ? 'Nothing of this kind yet.'
      : 'Nothing has happened yet. Below 70 % a turn passes in silence.';
  }
}
