// The page as a whole: its parts, the choice of run and seed.

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

applyTheme();
document.getElementById('foot').append(
  `Written by memloc ${data.memloc}. Method: Dankers & Titov (2024), Generalisation First, Memorisation Second?`);
drawPage();
