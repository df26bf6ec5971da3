// What the operator looks at first: is the upstream there, which mode, does the store write, and what it all added up to.

import { el, say, section, table } from './dom.js';
import { badge } from './gauge.js';
import { action, bytes, count, many } from './words.js';

/** The strip below the header. It stays on every view. */
export function statusStrip(host) {
  const item = (id) => {
    const lamp = el('span', { class: 'lamp', 'aria-hidden': 'true' });
    const text = el('span');
    const node = el('span', { class: 'status', id }, lamp, text);
    host.append(node);
    return (state, words, title) => {
      node.dataset.state = state;
      say(text, words);
      node.title = title ?? '';
    };
  };
  const upstream = item('upstream');
  const mode = item('mode');
  const store = item('store');
  const live = item('live');
  return {
    overview(o) {
      const all = o.upstreams ?? [];
      const up = all.filter((one) => one.up).length;
      if (all.length > 1) {
        const state = up === all.length ? 'good' : up > 0 ? 'odd' : 'bad';
        upstream(state, `${up} of ${all.length} Ollamas are up`, all.map(member).join('\n'));
      } else {
        upstream(
          o.upstream.up ? 'good' : 'bad',
          o.upstream.up ? `Ollama ${o.upstream.version ?? ''} is up` : 'Ollama is down',
          o.upstream.url,
        );
      }
      mode(
        o.mode === 'enforce' ? 'good' : 'odd',
        o.mode === 'enforce' ? 'Enforcing the line' : 'Observing only, nothing is changed',
        `Loadline ${o.version}`,
      );
      const s = o.store;
      store(
        s.healthy ? 'good' : 'bad',
        s.healthy ? `Store healthy${s.waiting_changes > 20 ? `, ${count(s.waiting_changes)} waiting` : ''}` : 'Store in trouble',
        `${many(s.commits, 'commit')}, ${count(s.failed_commits)} failed, the last took ${s.last_commit_ms} ms; ${bytes(s.size_bytes)} used, ${bytes(s.free_bytes)} free`,
      );
    },
    state({ poll, stream, retryInS }) {
      if (poll === 'lost') live('bad', 'Reconnecting: Loadline does not answer');
      else if (stream === 'waiting') live('odd', `Reconnecting the log in ${retryInS} s`);
      else if (poll === 'fine' && stream === 'fine') live('good', 'Live');
      else live('odd', 'Connecting');
    },
  };
}

/** One of several upstreams, in words. */
function member(one) {
  const state = one.draining ? 'being drained' : one.up ? 'up' : 'down';
  return `${one.url} · ${state} · ${many(one.in_flight, 'chat')} in flight`;
}

/** What is wrong right now, as one sentence; null when nothing is. */
export function alarm(o) {
  if (!o.store.healthy) return 'The store cannot write. Chats are refused until it can, so that nothing is lost.';
  if (!o.upstream.up) return o.upstream.error ?? `Ollama does not answer at ${o.upstream.url}.`;
  return null;
}

/** The totals since the server started. */
export function totals() {
  const turnCount = el('dd');
  const byAction = el('dd', { class: 'by-action' });
  const actions = ['none', 'checkpoint', 'compression', 'rollover', 'refused'].map((name) => {
    const number = el('b');
    byAction.append(
      el(
        'span',
        { class: 'by', 'data-total': name, title: action(name) },
        badge(name),
        number,
        el('span', { class: 'by-name', text: ` ${action(name)}` }),
      ),
    );
    return [name, number];
  });
  const figure = (id, name) => {
    const value = el('dd', { id });
    const note = el('dd', { class: 'note' });
    return { value, note, node: el('div', { class: 'figure' }, el('dt', { text: name }), value, note) };
  };
  const saved = figure('total-saved', 'Tokens saved');
  const prefill = figure('total-prefill', 'Prefill avoided');
  const recalled = figure('total-recalled', 'Tokens recalled');
  const compared = figure('total-compared', 'Counts compared');
  const node = el(
    'dl',
    { class: 'totals' },
    el('div', { class: 'figure wide' }, el('dt', { text: 'Turns of everybody, since the start' }), turnCount, byAction),
    saved.node,
    prefill.node,
    recalled.node,
    compared.node,
  );

  function set(o) {
    const t = o.totals;
    say(turnCount, count(Object.values(t.turns).reduce((sum, n) => sum + n, 0)));
    for (const [name, number] of actions) say(number, count(t.turns[name] ?? 0));
    say(saved.value, count(t.tokens_saved));
    say(saved.note, 'of history that did not have to leave');
    say(prefill.value, count(t.prefill_tokens_avoided));
    say(prefill.note, 'tokens Ollama did not read again');
    say(recalled.value, count(t.tokens_recalled));
    say(recalled.note, 'brought back from the archive');
    say(compared.value, count(t.counts_compared));
    const wrong = t.exact_mismatches + t.overflows + t.cut_by_upstream;
    compared.node.classList.toggle('danger', wrong > 0);
    say(
      compared.note,
      wrong === 0
        ? 'all as Ollama reported them'
        : `${many(t.exact_mismatches, 'mismatch', 'mismatches')}, ${many(t.overflows, 'overflow')}, ${count(t.cut_by_upstream)} cut by Ollama`,
    );
  }
  return { node, set };
}

/** The models that were met, and where their windows came from. */
export function models() {
  const place = el('div', { class: 'table-wrap models' });
  const none = el('p', { class: 'hint', text: 'No model has been asked for yet.' });
  const upstream = el('p', { class: 'hint' });
  const others = el('ul', { class: 'hint upstreams' });
  const node = section('models', 'Upstream and models', upstream, others, none, place);
  let shown = '';

  function set(o) {
    const all = o.upstreams ?? [];
    others.replaceChildren(...(all.length > 1 ? all.map((one) => el('li', { text: member(one) })) : []));
    others.hidden = all.length < 2;
    say(
      upstream,
      `${o.upstream.url} · ${o.upstream.up ? `Ollama ${o.upstream.version ?? ''}` : 'down'} · ${many(o.totals.in_flight, 'request')} in flight · ${many(o.totals.checkpoints_under_way, 'checkpoint')} under way`,
    );
    const text = JSON.stringify(o.models);
    if (text === shown) return;
    shown = text;
    none.hidden = o.models.length > 0;
    place.hidden = o.models.length === 0;
    place.replaceChildren(
      table('Models and their windows', ['Model', '#Window', 'From', '#Limit', '#Trained for', 'Tokenizer', 'Count'], o.models.map(row)),
    );
  }
  return { node, set };
}

function row(model) {
  const cell = (name, text, more) => el('td', { 'data-name': name, class: more ?? null, text: text ?? '–' });
  return el(
    'tr',
    { 'data-model': model.name },
    el('th', { scope: 'row' }, model.name, el('span', { class: 'note', text: ` ${model.architecture ?? ''}` })),
    cell('Window', count(model.window), 'number'),
    cell('From', model.window_from),
    cell('Limit', count(model.limit), 'number'),
    cell('Trained for', count(model.trained_window), 'number'),
    cell('Tokenizer', model.tokenizer),
    el(
      'td',
      { 'data-name': 'Count' },
      el('span', { class: `basis ${model.basis}`, text: model.basis }),
      model.note ? el('span', { class: 'note', text: ` ${model.note}` }) : null,
    ),
  );
}
