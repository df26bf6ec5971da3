// Making elements. All text goes in as text nodes: what users and models wrote can never become markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An HTML element. `text` sets its text, `onclick` and the like listen, everything else is an attribute; null and false are left out. */
export function el(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'text') node.textContent = value;
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Writes a text only when it differs, so that a screen reader is not told the same twice. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** The same for an attribute; null takes it away. */
export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** A section under its heading. */
export function section(id, title, ...children) {
  return el('section', { 'aria-labelledby': `${id}-title` }, el('h2', { id: `${id}-title`, text: title }), ...children);
}

/** A table; a heading that begins with # stands over numbers. `rows` are <tr>, `more` goes below them. */
export function table(caption, headings, rows, more) {
  const heads = headings.map((text) =>
    text.startsWith('#')
      ? el('th', { scope: 'col', class: 'number', text: text.slice(1) })
      : el(text ? 'th' : 'td', { scope: text ? 'col' : null, text }),
  );
  return el(
    'table',
    null,
    el('caption', { class: 'unseen', text: caption }),
    el('thead', null, el('tr', null, heads)),
    el('tbody', null, rows),
    more,
  );
}

/** A number in a table. */
export const number = (text) => el('td', { class: 'number', text });

/** A sentence on an empty place, with what to do about it. */
export function empty(title, ...children) {
  return el('div', { class: 'empty' }, el('p', { class: 'empty-title', text: title }), ...children);
}

/** A command to copy, shown as one line. */
export function command(text) {
  return el('pre', { class: 'command', tabindex: '0' }, el('code', { text }));
}

/** A text that may be very long: folded after some lines, with a button that opens it. */
export function longText(text, limit = 900) {
  const body = el('div', { class: 'words', dir: 'auto', text });
  const lines = text.split('\n', 20).length;
  if (text.length <= limit && lines < 16) return body;
  body.classList.add('folded');
  const button = el('button', { type: 'button', class: 'quiet more', 'aria-expanded': 'false', text: 'Show all of it' });
  button.addEventListener('click', () => {
    const folded = body.classList.toggle('folded');
    button.textContent = folded ? 'Show all of it' : 'Show less';
    button.setAttribute('aria-expanded', String(!folded));
  });
  return el('div', null, body, button);
}
