// The curve of a conversation: what arrived and what was sent, turn after turn, under the line and its marks.
// One slider for the keyboard, one invisible column a turn for the pointer, one line of text that says where one stands.

import { el, mark, svg } from './dom.js';
import { shape } from './gauge.js';
import { absolute, count, deed } from './words.js';

const SPANS = [60, 250, Infinity]; // how many turns one look takes in
const HIGHEST = 1.25; // of the limit; a giant above it is drawn at the edge, or it would flatten all the others

/** Makes the curve; `open(turn)` is called when one is chosen. */
export function curve(marks, open) {
  let turns = [];
  let at = -1; // the turn one stands on
  let first = 0;
  let span = Infinity;
  let place; // how the last drawing turned a turn into a point

  const picture = svg('svg', { class: 'curve-picture', 'aria-hidden': 'true' });
  const cursor = svg('g', { class: 'cursor' });
  const readout = el('p', { class: 'readout' });
  const slider = el('div', { id: 'curve', role: 'slider', tabindex: '0', 'aria-label': 'Turns', 'aria-valuemin': '1' }, picture);
  const spans = el('div', { class: 'chips', role: 'group', 'aria-label': 'How many turns' });
  const earlier = el('button', { type: 'button', class: 'chip', text: '← earlier', onclick: () => shift(-1) });
  const later = el('button', { type: 'button', class: 'chip', text: 'later →', onclick: () => shift(1) });
  const node = el('div', { class: 'curve' }, el('div', { class: 'curve-head' }, key(), spans), slider, readout);
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(slider);

  slider.addEventListener('keydown', (event) => {
    const page = Math.max(1, Math.round(shown().length / 10));
    const steps = {
      ArrowLeft: -1,
      ArrowDown: -1,
      ArrowRight: 1,
      ArrowUp: 1,
      PageDown: -page,
      PageUp: page,
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key in steps) go(at + steps[event.key]);
    else if (event.key === 'Enter' && turns[at]) open(turns[at].turn);
    else return;
    event.preventDefault();
  });
  picture.addEventListener('pointermove', (event) => {
    const i = under(event);
    if (i !== null) point(i);
  });
  picture.addEventListener('click', (event) => {
    const i = under(event);
    if (i !== null) {
      point(i);
      open(turns[i].turn);
    }
  });

  const under = (event) => (event.target.dataset?.index === undefined ? null : Number(event.target.dataset.index));
  const shown = () => turns.slice(first, first + span);

  /** Shows these turns. Who looked at the end goes on looking at the end. */
  function set(list) {
    const atEnd = at < 0 || at === turns.length - 1;
    const viewAtEnd = first + span >= turns.length;
    const fresh = turns.length === 0;
    turns = list;
    if (fresh) span = SPANS.find((width) => width >= list.length || width >= slider.clientWidth / 6) ?? Infinity;
    if (atEnd) at = list.length - 1;
    if (viewAtEnd && Number.isFinite(span)) first = Math.max(0, list.length - span);
    draw();
  }

  function go(index) {
    const to = Math.min(Math.max(index, 0), turns.length - 1);
    if (to < first || to >= first + span) {
      first = Math.max(0, Math.min(to - Math.floor(span / 2), turns.length - span));
      at = to;
      draw();
    } else point(to);
  }

  function shift(way) {
    first = Math.max(0, Math.min(first + way * Math.floor(span / 2), turns.length - span));
    at = Math.min(Math.max(at, first), first + span - 1);
    draw();
  }

  function look(width) {
    span = width;
    first = Number.isFinite(span) ? Math.max(0, Math.min(at - Math.floor(span / 2), turns.length - span)) : 0;
    draw();
  }

  function drawSpans() {
    const useful = SPANS.filter((width) => !Number.isFinite(width) || width < turns.length);
    spans.hidden = useful.length < 2;
    spans.replaceChildren(
      earlier,
      later,
      ...useful.map((width) =>
        el('button', {
          type: 'button',
          class: 'chip',
          'aria-pressed': String(width === span),
          text: Number.isFinite(width) ? `${width} turns` : 'all',
          onclick: () => look(width),
        }),
      ),
    );
    earlier.disabled = first === 0;
    later.disabled = first + span >= turns.length;
  }

  function draw() {
    const width = Math.floor(slider.clientWidth);
    if (width < 50 || turns.length === 0) return;
    const height = width < 560 ? 250 : 320;
    const box = { left: 44, right: width - 50, top: 16, bottom: height - 26 };
    const view = shown();
    const limit = Math.max(1, ...view.map((turn) => turn.limit_tokens));
    const top = Math.min(HIGHEST * limit, Math.max(limit * 1.08, ...view.map((turn) => turn.arrived_tokens * 1.04)));
    const step = (box.right - box.left) / Math.max(1, view.length - 1);
    const x = (index) => (view.length === 1 ? (box.left + box.right) / 2 : box.left + (index - first) * step);
    const y = (tokens) => box.bottom - ((box.bottom - box.top) * Math.min(tokens, top)) / top;
    place = { x, y, box, step };
    picture.setAttribute('viewBox', `0 0 ${width} ${height}`);
    picture.setAttribute('height', height);
    picture.replaceChildren(
      ...grid(view, first, place, top, marks),
      ...lines(view, first, place),
      ...signs(view, first, place),
      cursor,
      ...columns(view, first, place),
    );
    mark(slider, 'aria-valuemax', turns.length);
    drawSpans();
    point(at);
  }

  function point(index) {
    const turn = turns[index];
    if (!turn) return;
    at = index;
    const text = `Turn ${turn.turn}, ${index + 1} of ${turns.length}: ${count(turn.arrived_tokens)} tokens arrived (${turn.usage}), ${count(turn.sent_tokens)} sent, limit ${count(turn.limit_tokens)}; ${deed(turn)}${turn.status === 'complete' ? '' : `, ${turn.status}`}`;
    mark(slider, 'aria-valuenow', index + 1);
    mark(slider, 'aria-valuetext', text);
    readout.replaceChildren(
      el('b', { text: `Turn ${turn.turn}` }),
      el('span', { text: absolute(turn.at) }),
      el('span', { text: `${count(turn.arrived_tokens)} arrived · ${turn.usage}` }),
      el('span', { text: `${count(turn.sent_tokens)} sent of ${count(turn.limit_tokens)}` }),
      el('span', { text: deed(turn) }),
      el('button', { type: 'button', class: 'quiet', id: 'open-turn', text: 'Open the receipt', onclick: () => open(turn.turn) }),
    );
    if (!place) return;
    const { x, y, box } = place;
    cursor.replaceChildren(
      svg('path', { d: `M${x(index)} ${box.top}V${box.bottom}` }),
      svg('circle', { cx: x(index), cy: y(turn.arrived_tokens), r: 4 }),
      svg('circle', { class: 'of-sent', cx: x(index), cy: y(turn.sent_tokens ?? 0), r: 4 }),
    );
  }

  return { node, set, focus: () => slider.focus() };
}

// The axes, and the marks as steps: another model in the same conversation has another limit.
function grid(view, first, { x, y, box, step }, top, marks) {
  const parts = [];
  const last = view.at(-1).limit_tokens;
  let above = Infinity; // names keep a line's distance, however near their marks are
  for (const [name, percent] of Object.entries(marks)) {
    let path = '';
    view.forEach((turn, i) => {
      const h = y((turn.limit_tokens * percent) / 100).toFixed(1);
      const left = view.length === 1 ? box.left : Math.max(box.left, box.left + (i - 0.5) * step);
      path += `${i === 0 ? 'M' : 'V'}${i === 0 ? `${box.left} ` : ''}${h}H${Math.min(box.right, left + step).toFixed(1)}`;
    });
    above = Math.min(y((last * percent) / 100) + 3.5, above - 12);
    parts.push(
      svg('path', { class: `level ${name}`, d: path }),
      svg('text', { class: `level-name ${name}`, x: box.right + 7, y: above, text: `${percent} %` }),
    );
  }
  for (const tokens of ticks(top)) {
    parts.push(
      svg('path', { class: 'tick', d: `M${box.left - 4} ${y(tokens)}H${box.left}` }),
      svg('text', { class: 'axis', x: box.left - 7, y: y(tokens) + 3.5, 'text-anchor': 'end', text: short(tokens) }),
    );
  }
  parts.push(svg('path', { class: 'frame', d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` }));
  const every = Math.max(1, Math.ceil(view.length / Math.max(2, Math.floor((box.right - box.left) / 90))));
  for (let i = 0; i < view.length; i += every) {
    parts.push(svg('text', { class: 'axis', x: x(first + i), y: box.bottom + 17, 'text-anchor': 'middle', text: String(first + i + 1) }));
  }
  return parts;
}

function lines(view, first, { x, y, box }) {
  const points = (of) => view.map((turn, i) => `${i === 0 ? 'M' : 'L'}${x(first + i).toFixed(1)} ${y(of(turn) ?? 0).toFixed(1)}`).join('');
  const sent = points((turn) => turn.sent_tokens);
  const ends = `L${x(first + view.length - 1).toFixed(1)} ${box.bottom}L${x(first).toFixed(1)} ${box.bottom}Z`;
  return [
    svg('path', { class: 'sent-area', d: sent + ends }),
    svg('path', { class: 'arrived', d: points((turn) => turn.arrived_tokens) }),
    svg('path', { class: 'sent', d: sent }),
  ];
}

function signs(view, first, { x, y, step }) {
  const scale = step < 3 ? 0.7 : 1;
  return view
    .map((turn, i) =>
      turn.action === 'none' ? null : shape(turn.action, x(first + i).toFixed(1), y(turn.arrived_tokens).toFixed(1), scale),
    )
    .filter(Boolean);
}

function columns(view, first, { x, box, step }) {
  const wide = Math.max(step, 1);
  return view.map((turn, i) =>
    svg('rect', {
      class: 'column',
      'data-turn': turn.turn,
      'data-index': first + i,
      'data-action': turn.action,
      x: view.length === 1 ? box.left : x(first + i) - wide / 2,
      y: box.top,
      width: view.length === 1 ? box.right - box.left : wide,
      height: box.bottom - box.top,
    }),
  );
}

function key() {
  const item = (name, text) =>
    el(
      'li',
      null,
      svg(
        'svg',
        { class: 'badge', viewBox: '-9 -9 18 18', 'aria-hidden': 'true' },
        name === 'arrived' || name === 'sent' ? svg('path', { class: name, d: 'M-8 0H8' }) : shape(name),
      ),
      text,
    );
  return el(
    'ul',
    { class: 'key', 'aria-label': 'What the drawing shows' },
    item('arrived', 'arrived'),
    item('sent', 'sent'),
    item('checkpoint', 'checkpoint'),
    item('compression', 'compression'),
    item('rollover', 'rollover'),
    item('refused', 'refused'),
  );
}

function ticks(top) {
  const rough = top / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough);
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, i) => i * step);
}

const short = (n) => (n >= 10_000 ? `${Math.round(n / 1000)}k` : n >= 1000 ? `${(n / 1000).toFixed(1).replace('.0', '')}k` : String(n));
