// The page as a whole: its parts, the choice of run and seed, themes, printing.

const content = document.getElementById('content');
const bar = document.getElementById('bar');

const SECTIONS = [
  ['found', 'Summary', headline], ['training', 'Training', trainingSection], ['where', 'Where', whereSection],
  ['when', 'When', whenSection], ['how', 'How', howSection], ['examples', 'Examples', examplesSection], ['across', 'Across runs', gridSection],
  ['made', 'Reproduce', madeSection],
];

function drawPage() {
  hideTip();
  forgetCharts();
  const parts = SECTIONS.map(([id, name, draw]) => [id, name, draw()]).filter(([, , part]) => part);
  content.replaceChildren(...(data.pending.length ? [unfinished()] : []), ...parts.map(([, , part]) => part));
  drawBar(parts);
  drawTable();
  drawSelection();
  redrawCharts();
}

function drawBar(parts) {
  const run = currentRun();
  bar.replaceChildren(h('div', { class: 'bar-inner' },
    h('span', { class: 'brand' }, 'memloc'),
    h('nav', { 'aria-label': 'Parts of this page' }, parts.map(([id, name]) => h('a', { href: `#${id}` }, name))),
    h('div', { class: 'choices' },
      data.runs.length > 1 && chooser('Run', data.runs.map(nameOfResult), state.run, chooseRun),
      run.views.length > 1 && chooser('Seed', run.views.map((view) => view.label), state.view, chooseView),
      themeButton())));
}

const nameOfResult = (run) => (run.task ? `${run.task} · ${run.model}` : `${run.folder} · ${run.model}`)
  + (run.part ? ` · ${run.part}` : '')
  + (data.runs.filter((one) => one.task === run.task && one.model === run.model).length > 1 ? ` (${run.folder})` : '');

function chooser(name, options, chosen, choose) {
  const select = h('select', { 'data-choice': name, onchange: (event) => choose(+event.target.value) },
    options.map((option, i) => h('option', { value: i, selected: i === chosen }, option)));
  return h('label', { class: 'chooser' }, h('span', {}, name), select);
}

function chooseRun(index) {
  Object.assign(state, { run: index, view: 0, cell: null, crossing: null, search: '', page: 0, selected: null, sort: { column: 'example', down: false } });
  drawPage();
  bar.querySelector('[data-choice="Run"]')?.focus({ preventScroll: true });
  document.getElementById('found').scrollIntoView();
}

function chooseView(index) {
  Object.assign(state, { view: index, cell: null, crossing: null });
  drawPage();
  bar.querySelector('[data-choice="Seed"]')?.focus({ preventScroll: true });
}

onChange(() => {
  hideTip();
  drawTable();
  drawSelection();
  followSelection();
  const search = document.getElementById('search');
  if (search && search.value.trim() !== state.search) search.value = state.search;
});

document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  if (!tip.hidden) hideTip();
  else if (isFiltered() || state.selected !== null) clearAll();
});

// --- a run that is not finished ---------------------------------------------------------------

const RELOAD_EVERY = 5000; // milliseconds, and as long after somebody touched the page

const unfinished = () => h('div', { class: 'notice', id: 'unfinished', role: 'status' },
  h('strong', {}, `Still computing: ${data.pending.join(', ')}.`),
  h('p', {}, 'This page updates itself when the run ends. If the run was stopped, the same command completes it.'));

if (data.pending.length) {
  let touched = 0;
  for (const kind of ['pointermove', 'pointerdown', 'wheel', 'scroll', 'keydown']) {
    addEventListener(kind, () => { touched = Date.now(); }, { passive: true });
  }
  setInterval(() => {
    if (Date.now() - touched > RELOAD_EVERY) location.reload();
  }, RELOAD_EVERY);
}

// --- themes -----------------------------------------------------------------------------------

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

// --- printing ---------------------------------------------------------------------------------

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

applyTheme();
document.getElementById('foot').append(
  `Written by memloc ${data.memloc}. Method: Dankers & Titov (2024), Generalisation First, Memorisation Second?`);
drawPage();
