// Light or dark. A plain script in the head, so that the page never flashes in the other one.
// Without a choice the system decides; choosing what the system would say anyway forgets the choice.
(() => {
  const KEY = 'loadline.theme';
  const root = document.documentElement;
  const system = matchMedia('(prefers-color-scheme: dark)');
  const read = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };
  const write = (value) => {
    try {
      value ? localStorage.setItem(KEY, value) : localStorage.removeItem(KEY);
    } catch {
      /* a private window: the choice lasts as long as the page */
    }
  };
  let chosen = read();

  function show() {
    if (chosen === 'light' || chosen === 'dark') root.dataset.theme = chosen;
    else delete root.dataset.theme;
    const dark = chosen ? chosen === 'dark' : system.matches;
    const button = document.getElementById('theme');
    if (!button) return;
    button.textContent = dark ? 'Light' : 'Dark';
    button.setAttribute('aria-label', dark ? 'Use light colours' : 'Use dark colours');
  }

  function toggle() {
    const dark = chosen ? chosen === 'dark' : system.matches;
    const next = dark ? 'light' : 'dark';
    chosen = (next === 'dark') === system.matches ? null : next;
    write(chosen);
    show();
  }

  show();
  system.addEventListener('change', show);
  document.addEventListener('DOMContentLoaded', () => {
    show();
    document.getElementById('theme').addEventListener('click', toggle);
  });
})();
