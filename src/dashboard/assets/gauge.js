// The load gauge: a ship from the side, with the load line painted on her hull and the water where the context stands.
// Below it, the shapes that stand for what was done, and the sparkline. Everything is drawn once and then only moved.

import { mark, svg } from './dom.js';

const KEEL = 132; // where 0 % is
const LINE = 46; // where 100 % is: the deck is a little above, as on a real ship
const HULL =
  'M10 28H214Q240 26 270 14Q256 48 250 82Q249 96 257 104Q262 118 250 128Q244 132 232 132H56Q40 132 34 118Q28 100 22 82Q14 60 10 28Z';
const HOUSE =
  'M24 28V10H20V6H60V10H56V28ZM32 6V1H42V6ZM236 26V9M74 28V17H96V28ZM99 28V21H121V28ZM124 28V17H146V28ZM149 28V13H171V28ZM174 28V21H196V28Z';
const COMB = 158; // where the comb of marks stands

const depth = (percent) => KEEL - ((KEEL - LINE) * Math.min(Math.max(percent, -4), 124)) / 100;

/** Makes a gauge; `set` moves it. */
export function gauge(marks) {
  const back = svg('path', { class: 'sea', d: swell(0) });
  const front = svg('path', { class: 'sea near', d: swell(35) });
  const surface = svg('path', { class: 'surface', d: crest(35) });
  const farSea = svg('g', { class: 'tide' }, back);
  const nearSea = svg('g', { class: 'tide' }, front, surface);
  const sent = svg('path', { class: 'sent-line', d: 'M12 0H252' });
  const sentLevel = svg('g', { class: 'tide' }, sent);
  const node = svg(
    'svg',
    { class: 'gauge', viewBox: '0 -6 280 150', role: 'img' },
    farSea,
    svg('path', { class: 'house', d: HOUSE }),
    svg('path', { class: 'hull', d: HULL }),
    nearSea,
    sentLevel,
    comb(marks),
  );
  let shown;

  function set(used, sentPercent, label) {
    mark(node, 'aria-label', label);
    const move = `translateY(${depth(used ?? -4).toFixed(2)}px)`;
    if (move !== shown) {
      farSea.style.transform = move;
      nearSea.style.transform = move;
      if (shown !== undefined) stir(node);
      shown = move;
    }
    const less = used !== null && sentPercent !== null && used - sentPercent >= 1;
    sentLevel.style.transform = `translateY(${depth(less ? sentPercent : 0).toFixed(2)}px)`;
    sent.classList.toggle('gone', !less);
  }
  return { node, set };
}

/** The marks as on a hull: a comb with teeth to both sides, and the disc at the line that must never be passed. */
function comb(marks) {
  const group = svg('g', { class: 'marks', 'aria-hidden': 'true' });
  const teeth = [
    [marks.told, -1],
    [marks.checkpoint, 1],
    [marks.compression, -1],
    [marks.rollover, 1],
  ];
  group.append(svg('path', { d: `M${COMB} ${depth(marks.rollover)}V${depth(marks.told)}` }));
  for (const [at, side] of teeth) {
    const y = depth(at);
    group.append(
      svg('path', { d: `M${COMB} ${y}h${side * 17}` }),
      svg('text', { x: COMB + side * 20, y: y + 3.2, 'text-anchor': side < 0 ? 'end' : 'start', text: String(at) }),
    );
  }
  const y = depth(marks.rollover);
  group.append(svg('circle', { cx: 96, cy: y, r: 9.5 }), svg('path', { d: `M78 ${y}h36` }));
  for (let at = 0; at <= 60; at += 20) {
    group.append(svg('path', { class: 'draught', d: `M${COMB - 4} ${depth(at)}h8` }));
  }
  return group;
}

function stir(node) {
  node.classList.remove('stirred');
  void node.getBoundingClientRect(); // so that the animation starts anew
  node.classList.add('stirred');
}

function crest(phase) {
  let path = `M${-90 + phase} 0`;
  for (let x = -90 + phase; x < 380; x += 70) path += `q17.5 -3.4 35 0t35 0`;
  return path;
}

function swell(phase) {
  return `${crest(phase)}V180H${-90 + phase}Z`;
}

/** A small drawing of the last turns, against the line. */
export function sparkline() {
  const line = svg('polyline', { class: 'spark' });
  const dot = svg('circle', { class: 'spark-end', r: 2.4 });
  const limit = svg('path', { class: 'spark-limit' });
  const node = svg('svg', { class: 'sparkline', viewBox: '0 0 120 30', role: 'img', preserveAspectRatio: 'none' }, limit, line, dot);
  return {
    node,
    set(recent) {
      const values = recent.slice(-40);
      mark(node, 'aria-label', values.length ? `The last ${values.length} turns, now ${values.at(-1)} %` : 'No turns yet');
      const top = Math.max(110, Math.min(150, ...[Math.max(0, ...values)]));
      const y = (value) => 28 - (26 * Math.min(value, top)) / top;
      const x = (index) => (values.length < 2 ? 116 : 2 + (114 * index) / (values.length - 1));
      mark(line, 'points', values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(' '));
      mark(limit, 'd', `M0 ${y(100).toFixed(1)}H120`);
      if (values.length) {
        mark(dot, 'cx', x(values.length - 1));
        mark(dot, 'cy', y(values.at(-1)));
      }
      dot.classList.toggle('gone', values.length === 0);
    },
  };
}

const SHAPES = {
  none: 'M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0',
  checkpoint: 'M0 -6L6 0L0 6L-6 0Z',
  compression: 'M-6 -5H6L0 6Z',
  rollover: 'M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0M-8 0H8',
  refused: 'M-5 -5L5 5M5 -5L-5 5',
};

/** The shape of an action, so that it is known without its colour. */
export function shape(action, x = 0, y = 0, scale = 1) {
  return svg('path', {
    class: `shape ${action in SHAPES ? action : 'none'}`,
    d: SHAPES[action] ?? SHAPES.none,
    transform: `translate(${x} ${y}) scale(${scale})`,
  });
}

/** The same as a small picture for a line of text. */
export function badge(action) {
  return svg('svg', { class: 'badge', viewBox: '-9 -9 18 18', 'aria-hidden': 'true' }, shape(action));
}

/** Changes the shape in a badge. */
export function setBadge(node, action) {
  if (node.dataset.shape === action) return;
  node.dataset.shape = action;
  node.replaceChildren(shape(action));
}
