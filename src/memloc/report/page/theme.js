// Light and dark, by the system or the button, and light on paper. Every page has a `drawPage`.

const prefersDark = matchMedia('(prefers-color-scheme: dark)');
const remembered = (() => {
  try { return localStorage.getItem('memloc-theme'); } catch { return null; }
})();
let theme = remembered === 'light' || remembered === 'dark' ? remembered : null;

const shownTheme = () => theme || (prefersDark.matches ? 'dark' : 'light');

function applyTheme(name = shownTheme()) {
  document.documentElement.dataset.theme = name;
  palette.clear();
}

function themeButton() {
  const other = () => (shownTheme() === 'dark' ? 'light' : 'dark');
  const button = h('button', { type: 'button', class: 'theme', id: 'theme' });
  const write = () => {
    button.textContent = other() === 'dark' ? '☾ Dark' : '☀ Light';
    button.setAttribute('aria-label', `Change to the ${other()} theme`);
  };
  button.addEventListener('click', () => {
    theme = other();
    try { localStorage.setItem('memloc-theme', theme); } catch { /* files may have no storage */ }
    applyTheme();
    drawPage();
    document.getElementById('theme').focus();
  });
  write();
  return button;
}

prefersDark.addEventListener('change', () => {
  applyTheme();
  drawPage();
});

window.addEventListener('beforeprint', () => {
  printing = true;
  applyTheme('light');
  drawPage();
});
window.addEventListener('afterprint', () => {
  printing = false;
  applyTheme();
  drawPage();
});
