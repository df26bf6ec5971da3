// The keyboard: letters that work anywhere but in a field, and arrows among the cards.

/** `act`: search(), back(), items() → elements that j and k walk over. */
export function listen(act) {
  const help = document.getElementById('keys');
  const showHelp = () => {
    if (!help.open) help.showModal();
  };
  document.getElementById('help').addEventListener('click', showHelp);

  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const typing = event.target.matches('input, textarea, select');
    if (event.key === 'Escape') return act.back(event);
    if (typing) return;
    const does = {
      '/': act.search,
      '?': showHelp,
      j: () => step(act.items(), 1),
      k: () => step(act.items(), -1),
      t: () => document.getElementById('theme').click(),
    }[event.key];
    if (does) {
      event.preventDefault();
      does();
    } else if (event.key.startsWith('Arrow') && event.target.matches('.card-link')) {
      event.preventDefault();
      overCards(event.target, event.key);
    }
  });
}

function step(items, way) {
  const now = items.findIndex((item) => item === document.activeElement || item.contains(document.activeElement));
  const next = items[now < 0 ? (way > 0 ? 0 : items.length - 1) : Math.min(Math.max(now + way, 0), items.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: 'nearest' });
}

// Left and right go by order, up and down to the nearest card of the next row.
function overCards(from, key) {
  const links = [...document.querySelectorAll('.card-link')];
  if (key === 'ArrowLeft' || key === 'ArrowRight') return step(links, key === 'ArrowRight' ? 1 : -1);
  const here = from.closest('.card').getBoundingClientRect();
  const way = key === 'ArrowDown' ? 1 : -1;
  let best = null;
  for (const link of links) {
    const there = link.closest('.card').getBoundingClientRect();
    const down = (there.top - here.top) * way;
    if (down < 10) continue;
    const far = down * 4 + Math.abs(there.left - here.left);
    if (!best || far < best.far) best = { far, link };
  }
  best?.link.focus();
  best?.link.scrollIntoView({ block: 'nearest' });
}
