// The labels as a list: what they are, and what to do with them.

const LONGEST = 1500; // characters of a text before somebody asks for all
const listPlace = h('ul', { class: 'labels', 'aria-label': 'Labels' });
const listPager = h('nav', { class: 'pager', 'aria-label': 'Pages of the list' });
const countPlace = h('p', { class: 'count', role: 'status' });
const opened = { text: new Set(), scores: new Set() };

const pictures = (text) => text.replace(/\r\n?/g, '\n').replace(/[\0-\x08\x0b-\x1f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0)));
const shortText = (text, most) => (text.length <= most ? text : `${text.slice(0, most).replace(/[\ud800-\udbff]$/, '')}…`);
const nameOf = (label) => data.classes[label];
const scoreWords = (value) => (known(value) ? (Number.isInteger(value) ? whole(value) : value.toFixed(3)) : '–');

function drawList() {
  const places = listed.slice(state.page * PAGE, (state.page + 1) * PAGE);
  if (!places.includes(state.current)) state.current = places[0] ?? null;
  listPlace.replaceChildren(...(places.length ? places.map(rowElement) : [
    h('li', { class: 'nothing' }, 'No label fits. ', h('button', { type: 'button', class: 'button', onclick: clearFilters }, 'Show all labels'))]));
  offerWholeTexts();
  countPlace.textContent = plural(listed.length, 'label');
  drawPager(listPager, { count: listed.length, size: PAGE, page: state.page, go: turnTo });
}

function turnTo(page) {
  state.page = page;
  state.current = null;
  drawList();
  markCurrent();
  document.getElementById('review').scrollIntoView();
}

// A button for each text that is cut; needs the list to be laid out.
function offerWholeTexts() {
  for (const text of listPlace.querySelectorAll('.label-text.cut')) {
    text.parentElement.querySelector('.whole').hidden = text.scrollHeight <= text.clientHeight + 1 && !text.dataset.cut;
  }
}

new ResizeObserver(offerWholeTexts).observe(listPlace);

function rowElement(i) {
  const texts = [['', rows.text[i]], ['', (rows.text_pair || [])[i]], ['Word', (rows.word || [])[i]]].filter(([, text]) => known(text));
  return paintRow(h('li', {
    class: 'label-row', 'data-place': i, 'data-row': rows.row[i], tabindex: i === state.current ? 0 : -1, 'aria-labelledby': `text-${i} given-${i}`,
  },
  h('div', { class: 'where' },
    h('span', { class: 'rank' }, h('span', { class: 'unseen' }, 'Rank '), whole(rows.rank[i])), scoreBar(rows.score[i]),
    h('span', { class: 'quiet' }, `row ${rows.row[i]}`)),
  h('div', { class: 'what' },
    h('div', { id: `text-${i}`, class: 'texts' }, texts.map(([name, text]) => textElement(i, name, text))),
    h('div', { class: 'line' },
      h('p', { id: `given-${i}`, class: 'given-suggested' }, labelPart('given', rows.label[i]),
        rows.suggested[i] === rows.label[i] ? h('span', { class: 'quiet' }, ', and the model agrees')
          : [h('span', { class: 'to', 'aria-hidden': 'true' }, ' → '), labelPart('suggested', rows.suggested[i])]),
      Object.keys(scores).length > 0 && scoresButton(i),
      choicesOf(i)),
    Object.keys(scores).length > 0 && scoresPart(i))), i);
}

const labelPart = (name, label) => h('span', {}, h('span', { class: 'quiet' }, `${name} `), h('bdi', { class: `class ${name}` }, pictures(nameOf(label))));

function textElement(i, name, text) {
  const all = opened.text.has(i);
  return h('div', {},
    h('p', { class: all ? 'label-text' : 'label-text cut', dir: 'auto', 'data-cut': !all && text.length > LONGEST },
      name && h('span', { class: 'quiet' }, `${name}: `), pictures(all ? text : shortText(text, LONGEST))),
    !all && h('button', { type: 'button', class: 'link whole', hidden: true, onclick: () => {
      opened.text.add(i);
      const row = rowOf(i);
      row.replaceWith(rowElement(i));
      markCurrent();
      rowOf(i).focus({ preventScroll: true });
    } }, `Show all ${whole(text.length)} characters`));
}

function scoreBar(score) {
  return h('span', { class: 'score' },
    s('svg', { width: 46, height: 8, 'aria-hidden': 'true' },
      s('rect', { width: 46, height: 8, rx: 4, class: 'score-ground' }),
      s('rect', { width: 46 * Math.min(1, Math.max(0, score ?? 0)), height: 8, rx: 4, class: 'score-bar' })),
    h('span', { class: 'unseen' }, 'score '), h('span', { class: 'score-value' }, decimal(score)));
}

function scoresButton(i) {
  const button = h('button', { type: 'button', class: 'link scores', 'aria-expanded': String(opened.scores.has(i)), 'aria-controls': `scores-${i}`, onclick: () => {
    const open = !opened.scores.delete(i);
    if (open) opened.scores.add(i);
    button.setAttribute('aria-expanded', String(open));
    document.getElementById(`scores-${i}`).hidden = !open;
  } }, 'Scores');
  return button;
}

const scoresPart = (i) => h('dl', { id: `scores-${i}`, class: 'single-scores', hidden: !opened.scores.has(i) },
  Object.entries(scores).map(([name, values]) => h('div', {}, h('dt', {}, spaced(name)), h('dd', {}, scoreWords(values[i])))));

// --- decisions --------------------------------------------------------------------------------

function choicesOf(i) {
  const preset = presetClass(i);
  const others = data.classes.map((_, label) => label).filter((label) => label !== rows.label[i]);
  const button = (kind, title) => h('button', { type: 'button', class: 'choice', 'data-kind': kind, onclick: () => {
    if ((decisions.get(i) || {}).kind === kind) {
      decide(i, undefined);
      changed(i);
    } else choose(i, kind);
  } }, title);
  return h('div', { class: 'choice-group', role: 'group', 'aria-label': 'Decision' },
    button('keep', 'Keep'),
    h('span', { class: 'relabel' }, button('relabel', 'Relabel'),
      h('select', { 'aria-label': 'New label', onchange: () => choose(i, 'relabel') },
        preset === null && h('option', { value: '', disabled: true, selected: true }, 'choose a class'),
        others.map((label) => h('option', { value: label, selected: label === preset }, pictures(nameOf(label)))))),
    button('drop', 'Drop'));
}

// Returns whether it was possible: no class may be chosen yet.
function choose(i, kind) {
  const select = rowOf(i).querySelector('select');
  if (kind === 'relabel' && select.value === '') {
    select.focus();
    return false;
  }
  decide(i, { kind, label: kind === 'relabel' ? +select.value : undefined });
  changed(i);
  return true;
}

const rowOf = (i) => listPlace.querySelector(`[data-place="${i}"]`);

// The row as it is decided.
function paintRow(row, i) {
  const { kind, label } = decisions.get(i) || {};
  row.dataset.decision = kind || '';
  for (const button of row.querySelectorAll('.choice')) button.setAttribute('aria-pressed', String(button.dataset.kind === kind));
  row.querySelector('select').value = kind === 'relabel' ? label : presetClass(i) ?? '';
  return row;
}

function changed(i) {
  const row = rowOf(i);
  if (row) paintRow(row, i);
  drawProgress();
  drawShown();
  redrawCharts();
  const { kind, label } = decisions.get(i) || { kind: 'undecided' };
  speak(`Row ${rows.row[i]}: ${kind}${kind === 'relabel' ? ` to ${nameOf(label)}` : ''}`, [progressWords()]);
}

// --- keys -------------------------------------------------------------------------------------

function markCurrent() {
  for (const row of listPlace.querySelectorAll('.label-row')) {
    const current = +row.dataset.place === state.current;
    row.setAttribute('tabindex', current ? '0' : '-1');
    if (current) row.setAttribute('aria-current', 'true');
    else row.removeAttribute('aria-current');
  }
  markOnMap();
}

listPlace.addEventListener('focusin', (event) => {
  const row = event.target.closest('.label-row');
  if (row && +row.dataset.place !== state.current) {
    state.current = +row.dataset.place;
    markCurrent();
  }
});

// To a row of the list, on whatever page it is.
function goTo(i) {
  const page = Math.floor(listed.indexOf(i) / PAGE);
  state.current = i;
  if (page !== state.page) {
    state.page = page;
    drawList();
  }
  markCurrent();
  const row = rowOf(i);
  row.focus({ preventScroll: true });
  row.scrollIntoView({ block: 'nearest' });
}

function move(step) {
  const to = listed[listed.indexOf(state.current) + step];
  if (known(to)) goTo(to);
}

function undoLast() {
  const place = undo();
  if (place === null) return;
  if (listed.includes(place)) goTo(place);
  changed(place);
}

const MOVES = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };
const DECIDES = { 1: 'keep', 2: 'relabel', r: 'relabel', 3: 'drop', d: 'drop' };

// Keys act where the list has the focus; j, k and U also where nothing has it.
document.addEventListener('keydown', (event) => {
  const { target } = event;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const there = state.current !== null;
  const inList = there && listPlace.contains(target);
  if (key === 'Escape') {
    hideTip();
    if (inList) rowOf(state.current).focus();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest('input, select')) return;
  if (!inList && (target !== document.body || key.startsWith('Arrow'))) return;
  const kind = event.shiftKey && key === 'k' ? 'keep' : DECIDES[key];
  if (key === 'u') undoLast();
  else if (inList && kind) {
    if (choose(state.current, kind)) move(1);
  } else if (there && key in MOVES) {
    if (inList) move(MOVES[key]);
    else goTo(state.current);
  } else return;
  event.preventDefault();
});
