// The page on which labels are reviewed: what was found, tools, progress, the file.

const content = document.getElementById('content');
const bar = document.getElementById('bar');
const progressPlace = h('div', { class: 'progress' });
const filterPlace = h('div', { class: 'tools' });
const noticePlace = h('div', { role: 'status' });
const undoButton = h('button', { type: 'button', class: 'button', id: 'undo', onclick: undoLast }, 'Undo');

function drawPage() {
  hideTip();
  forgetCharts();
  content.replaceChildren(headlinePart(), reviewPart(), filePart());
  bar.replaceChildren(h('div', { class: 'bar-inner' }, h('span', { class: 'brand' }, 'memloc'), progressPlace,
    h('div', { class: 'choices' }, undoButton,
      h('button', { type: 'button', class: 'button main', id: 'export', onclick: exportFile }, 'Export CSV'), themeButton())));
  drawFilters();
  drawShown();
  drawProgress();
  drawList();
  redrawCharts();
  markCurrent();
}

// --- what was found ---------------------------------------------------------------------------

function headlinePart() {
  const [first, ...others] = data.sentences;
  const facts = [data.name, data.model, plural(data.examples, 'label'), `${whole(data.classes.length)} classes`, known(data.epochs) && plural(data.epochs, 'epoch')];
  return h('section', { id: 'found', class: 'headline', 'aria-label': 'What was found' },
    h('h1', {}, first),
    h('p', { class: 'facts' }, facts.filter(Boolean).join(' · ')),
    others.length > 0 && h('p', { class: 'finding' }, others.map((sentence) => `${sentence}. `)),
    h('p', { class: 'further' }, `Go through ${suspects ? 'the suspects' : 'the labels'}, the most suspicious first. Decide for each: keep the given label, give the example another one, or drop it. `
      + `Then export your decisions as ${data.file}. Your own file is never changed.`),
    noticePlace);
}

// --- the list and what is beside it -----------------------------------------------------------

function reviewPart() {
  return h('section', { id: 'review', 'aria-labelledby': 'review-title' },
    h('h2', { id: 'review-title', class: 'unseen' }, 'Labels to review'),
    h('div', { class: 'review' },
      h('div', { class: 'list' }, filterPlace, h('div', { class: 'shown' }, shownPlace, countPlace), listPlace, listPager),
      h('div', { class: 'side' }, mapFigure(), keysPart())));
}

const KEYS = [
  [['↓', 'j'], 'next label'], [['↑', 'k'], 'previous label'], [['1', 'Shift+K'], 'keep'], [['2', 'R'], 'relabel'],
  [['3', 'D'], 'drop'], [['U'], 'undo'],
];

const keysPart = () => h('div', { class: 'keys' }, h('h3', {}, 'Keys'),
  h('p', { class: 'quiet' }, 'They work when a label is selected: press j, or click one. A decision moves on to the next label.'),
  h('dl', {}, KEYS.map(([keys, what]) => h('div', {},
    h('dt', {}, keys.map((key, i) => [i > 0 && ' or ', h('kbd', {}, key)])), h('dd', {}, what)))));

const search = h('input', {
  type: 'search', id: 'search', placeholder: 'Search texts, or #row', autocomplete: 'off', spellcheck: 'false',
  oninput: () => change({ search: search.value.trim() }),
});

function drawFilters() {
  const classes = ['any class', ...data.classes.map(pictures)];
  const orders = Object.keys(ORDERS);
  search.value = state.search;
  filterPlace.replaceChildren(
    h('label', { for: 'search', class: 'unseen' }, 'Search the texts'), search,
    chooser('Given', classes, state.given + 1, (place) => change({ given: place - 1 })),
    chooser('Suggested', classes, state.suggested + 1, (place) => change({ suggested: place - 1 })),
    chooser('Sort by', orders.map((order) => ORDERS[order][0]), orders.indexOf(state.sort), (place) => change({ sort: orders[place] })));
}

const chips = Object.keys(SHOWN).map((name) => h('button', { type: 'button', class: 'chip', 'data-show': name, onclick: () => change({ show: name }) }));
const shownPlace = h('div', { class: 'chips', role: 'group', 'aria-label': 'Which labels' }, chips);

function drawShown() {
  const counts = { suspects, undecided: suspects - decidedSuspects(), decided: decisions.size, all: count };
  for (const chip of chips) {
    const name = chip.dataset.show;
    chip.textContent = `${SHOWN[name][0]} ${whole(counts[name])}`;
    chip.setAttribute('aria-pressed', String(state.show === name));
  }
}

function change(values) {
  Object.assign(state, values, { page: 0, current: null });
  makeList();
  drawList();
  drawShown();
  markCurrent();
}

function clearFilters() {
  change({ show: 'all', given: -1, suggested: -1, search: '' });
  drawFilters();
}

// --- progress ---------------------------------------------------------------------------------

function progressWords() {
  if (!suspects) return `${plural(decisions.size, 'label')} decided`;
  const others = decisions.size - decidedSuspects();
  return `${whole(decidedSuspects())} of ${plural(suspects, 'suspect')} decided${others ? `, and ${plural(others, 'other label')}` : ''}`;
}

function drawProgress() {
  undoButton.disabled = !past.length;
  progressPlace.replaceChildren(h('span', { id: 'progress' }, progressWords()),
    suspects ? h('progress', { max: suspects, value: decidedSuspects(), 'aria-labelledby': 'progress' }) : '');
  noticePlace.replaceChildren(kept ? '' : h('p', { class: 'notice' },
    'This browser does not keep your decisions. Export them before you close or reload this page.'));
}

// --- the file ---------------------------------------------------------------------------------

const code = (name) => h('code', {}, name);

const filePart = () => h('section', { id: 'file', 'aria-labelledby': 'file-title' },
  h('h2', { id: 'file-title' }, 'After the export'),
  h('p', { class: 'lede' }, code(data.file), ' has one row per label that you did not drop. Column ', code('label'), ' is the label you decided on, ', code('given_label'),
    ' the one in your file. ', code('suspect'), ' is True for labels you changed and for suspects you did not decide.'),
  h('p', { class: 'lede' }, 'This command finds the layers in which those labels are memorised:'),
  h('pre', { class: 'command', tabindex: '0' }, code(data.command)));

function exportFile() {
  const address = URL.createObjectURL(new Blob([reviewedFile()], { type: 'text/csv;charset=utf-8' }));
  h('a', { href: address, download: data.file }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  exported = true;
  speak(`${data.file} was exported`, []);
}

addEventListener('beforeunload', (event) => {
  if (!kept && !exported) event.preventDefault();
});

// Decisions in another window of the same page.
addEventListener('storage', (event) => {
  if (event.key !== KEY) return;
  readDecisions();
  drawPage();
});

readDecisions();
makeList();
state.current = listed.find((i) => !decisions.has(i)) ?? null;
state.page = Math.max(0, Math.floor(listed.indexOf(state.current) / PAGE));
applyTheme();
document.getElementById('foot').append(`Written by memloc ${data.memloc}.`);
drawPage();
