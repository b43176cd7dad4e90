// Which examples? A table to search and sort, linked with the charts.

const CLAMPED = 80; // characters that two lines have room for
const small = matchMedia('screen and (max-width: 760px)');
const pageSize = () => (small.matches ? 8 : 20);

function columnsOfTable() {
  const { examples } = currentRun();
  const view = exampleView();
  const crossing = (view.ways || {}).crossing;
  const columns = [{ key: 'example', title: 'No.', of: (i) => examples.example[i] }];
  if (examples.text) {
    columns.push({ key: 'text', title: 'Text', of: (i) => examples.text[i] },
      { key: 'original', title: 'Original label', of: (i) => examples.original_label[i] },
      { key: 'label', title: 'Label as trained', of: (i) => examples.label[i] });
  }
  if (crossing) {
    columns.push({ key: 'crossing', title: 'Crosses in', number: true, of: (i) => crossing[i], print: (value) => (known(value) ? `layer ${value}` : 'never') });
  }
  for (const technique of Object.keys(view.undone || {})) {
    const undone = undoneBy(technique);
    columns.push({
      key: `undone ${technique}`, title: `Undone by ${technique}`, number: true,
      // The smallest window: first by size, then from the bottom.
      of: (i) => (undone.smallest[i] < 0 ? null : undone.smallest[i]),
      print: (value, i) => (known(value) ? windowName(undone.windows[value]) : bit(undone.memorised, 0, i) ? 'no window' : 'not memorised'),
    });
  }
  if (examples.counterfactual) {
    columns.push({ key: 'counterfactual', title: 'Counterfactual memorisation', number: true, of: (i) => examples.counterfactual[i], print: (value) => decimal(value) });
  }
  return columns;
}

const tablePlace = h('div', { class: 'examples-table' });
const countPlace = h('p', { class: 'count', role: 'status' });
const pagerPlace = h('nav', { class: 'pager', 'aria-label': 'Pages of the table' });

function examplesSection() {
  const { examples } = currentRun();
  if (!examples) return null;
  const search = h('input', {
    type: 'search', id: 'search', placeholder: 'Search texts and labels', value: state.search, autocomplete: 'off', spellcheck: 'false',
    oninput: (event) => change({ search: event.target.value.trim(), page: 0 }),
  });
  search.value = state.search;
  return section('examples', 'Which examples?',
    `${joined([`Every example with ${currentRun().noisy_labels}`, ...tableWords()])}. Select one to see it in the charts.`
    + ' No. is its row in the data, counted from 0.',
    h('div', { class: 'tools' },
      h('label', { for: 'search', class: 'unseen' }, 'Search the examples'), search,
      h('label', { class: 'sorter' }, 'Sort by ', sorter()), countPlace),
    tablePlace, pagerPlace);
}

// Only what the table has columns for.
function tableWords() {
  const view = exampleView();
  return [
    (view.ways || {}).crossing && 'the layer after which it stays with its new class',
    Object.keys(view.undone || {}).length > 0 && 'the smallest window of layers whose replacement undoes it',
    currentRun().examples.counterfactual && 'how much its label owes to being seen (counterfactual memorisation)',
  ].filter(Boolean);
}

// The headings of the table are hidden on small screens: the same as a list.
function sorter() {
  return h('select', {
    onchange: (event) => {
      const [column, down] = JSON.parse(event.target.value);
      change({ sort: { column, down }, page: 0 });
    },
  }, columnsOfTable().flatMap((column) => [false, true].map((down) => h('option', {
    value: JSON.stringify([column.key, down]),
    selected: state.sort.column === column.key && state.sort.down === down,
  }, `${column.title} ${down ? '↓' : '↑'}`))));
}

const collator = new Intl.Collator('en', { numeric: true });

function sortedExamples(found, columns) {
  const column = columns.find((one) => one.key === state.sort.column) || columns[0];
  const values = new Map(found.map((i) => [i, column.of(i)]));
  const sign = state.sort.down ? -1 : 1;
  return found.sort((one, other) => {
    const [a, b] = [values.get(one), values.get(other)];
    if (!known(a) || !known(b)) return known(a) ? -1 : known(b) ? 1 : one - other;
    const order = typeof a === 'number' ? a - b : collator.compare(a, b);
    return order ? sign * order : one - other;
  });
}

small.addEventListener('change', () => change({ page: 0 }));

let shownRows = [];

function drawTable() {
  const run = currentRun();
  if (!run.examples) return;
  const columns = columnsOfTable();
  const found = sortedExamples(filteredExamples(), columns);
  const pages = Math.max(1, Math.ceil(found.length / pageSize()));
  state.page = Math.min(Math.max(0, state.page), pages - 1);
  shownRows = found;
  const rows = found.slice(state.page * pageSize(), (state.page + 1) * pageSize());
  const focused = document.activeElement && tablePlace.contains(document.activeElement)
    ? document.activeElement.getAttribute('data-focus') : null;
  tablePlace.replaceChildren(h('table', { class: 'examples' },
    h('caption', { class: 'unseen' }, 'Noisy examples'),
    h('thead', {}, h('tr', {}, columns.map(headCell))),
    h('tbody', { onkeydown: moveBetweenRows }, rows.flatMap((i) => exampleRows(i, columns)))));
  if (focused) {
    const again = tablePlace.querySelector(`[data-focus="${focused}"]`);
    if (again) again.focus({ preventScroll: true });
  }
  const total = run.examples.example.length;
  countPlace.textContent = found.length === total
    ? plural(total, 'example') : `${whole(found.length)} of ${plural(total, 'example')}`;
  drawPager(pagerPlace, { count: found.length, size: pageSize(), page: state.page, go: (page) => change({ page }) });
}

function headCell(column) {
  const sorted = state.sort.column === column.key;
  return h('th', { scope: 'col', class: column.number ? 'number' : null, 'aria-sort': sorted ? (state.sort.down ? 'descending' : 'ascending') : 'none' },
    h('button', {
      type: 'button', 'data-focus': `sort ${column.key}`,
      onclick: () => change({ sort: { column: column.key, down: sorted ? !state.sort.down : false }, page: 0 }),
    }, column.title, h('span', { class: 'arrow', 'aria-hidden': 'true' }, sorted ? (state.sort.down ? ' ↓' : ' ↑') : '')));
}

function exampleRows(i, columns) {
  const chosen = state.selected === i;
  const cells = columns.map((column) => {
    const value = column.of(i);
    const text = column.print ? column.print(value, i) : value;
    if (column.key === 'example') {
      return h('td', { class: 'first' }, h('button', {
        type: 'button', class: 'pick', 'aria-pressed': String(chosen), 'data-focus': `row ${i}`, 'data-pick': i,
        'aria-label': `Example ${value}`,
      }, value));
    }
    if (column.key === 'text') return h('td', { class: 'text' }, h('div', { class: 'clamp', dir: 'auto' }, String(text ?? '').slice(0, 400)));
    return h('td', { class: column.number ? 'number' : null, 'data-label': column.title }, h('bdi', { class: 'clamp' }, text ?? '–'));
  });
  const row = h('tr', {
    class: chosen ? 'chosen' : null, 'data-example': i,
    onclick: () => selectExample(chosen ? null : i, { scroll: false }),
  }, cells);
  return chosen ? [row, detailRow(i, columns.length)] : [row];
}

function detailRow(i, width) {
  const run = currentRun();
  const { examples } = run;
  const full = (examples.cut || {})[i];
  const facts = Object.keys(exampleView().undone || {}).map((technique) => {
    const undone = undoneBy(technique);
    const count = undone.windows.filter((_, window) => undoes(undone, window, i)).length;
    return `${capital(technique)}: ${count} of ${plural(undone.windows.length, 'window')} undo it.`;
  });
  return h('tr', { class: 'detail' }, h('td', { colspan: width },
    examples.text && examples.text[i].length > CLAMPED && h('p', { class: 'full-text', dir: 'auto', tabindex: '0' }, examples.text[i]),
    known(full) && h('p', { class: 'quiet' }, `The first ${whole([...examples.text[i]].length)} of ${whole(full)} characters.`),
    h('div', { class: 'detail-facts' }, smallWay(i), facts.length > 0 && h('p', {}, facts.join(' ')))));
}

// The way of one example, small, beside its text.
function smallWay(i) {
  const models = Object.keys(PANELS).map((model) => [model, wayOf(model, i)]).filter(([, way]) => way);
  if (!models.length) return null;
  const [width, height] = [230, 92];
  const n = currentRun().layers;
  const x = linear(1, Math.max(2, n), 30, width - 8);
  const y = linear(-0.4, 1.4, height - 16, 6);
  const words = models.map(([model, way]) => `${PANELS[model][0].toLowerCase()}: from ${decimal(way.find(known))} to ${decimal(way[n - 1])}`);
  const svg = frame(width, height, `Way of this example, ${words.join('; ')}.`);
  for (const value of [0, 1]) {
    svg.append(s('line', { x1: 30, x2: width - 8, y1: y(value), y2: y(value), class: 'rule' }),
      label(26, y(value) + 4, value ? 'old' : 'new', { 'text-anchor': 'end', class: 'small' }));
  }
  const styles = { memorised: [colour('noisy'), null], bottom_swapped: [colour('neutral'), '6 3'], top_swapped: [colour('neutral'), '1.5 3'] };
  for (const [model, way] of models) {
    const [ink, dash] = styles[model];
    svg.append(s('path', {
      d: lineOf(way.map((value, k) => [x(k + 1), known(value) ? y(Math.min(1.4, Math.max(-0.4, value))) : null])),
      fill: 'none', stroke: ink, 'stroke-width': model === 'memorised' ? 2.5 : 1.6, 'stroke-dasharray': dash,
    }));
  }
  return h('div', { class: 'small-way' }, svg, legend(models.map(([model]) =>
    ({ name: PANELS[model][0].toLowerCase(), colour: styles[model][0], dash: styles[model][1] }))));
}

function moveBetweenRows(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const from = event.target.closest('[data-pick]');
  if (!step || !from) return;
  const all = [...tablePlace.querySelectorAll('[data-pick]')];
  const to = all[all.indexOf(from) + step];
  if (to) {
    event.preventDefault();
    to.focus();
  }
}

// From anywhere on the page; the table turns to the page that has it.
function selectExample(example, { scroll = true } = {}) {
  const place = example === null ? -1 : shownRows.indexOf(example);
  change({ selected: example, page: place < 0 ? state.page : Math.floor(place / pageSize()) });
  if (scroll && example !== null && place < 0) speak('This example is not among those shown in the table', []);
}
