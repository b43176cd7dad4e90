// What is selected: by whom it can be changed, and who wants to know.

const data = JSON.parse(document.getElementById('data').textContent);

const state = {
  run: 0,            // which result
  view: 0,           // which seed, or all
  cell: null,        // { technique, row, column, size, layer, windows: [index], only: index | null }
  crossing: null,    // { layer: number | null }
  search: '',
  sort: { column: 'example', down: false },
  page: 0,
  selected: null,    // place of an example
};

const listeners = new Set();

function onChange(listener) {
  listeners.add(listener);
}

const currentRun = () => data.runs[state.run];
const currentView = () => currentRun().views[state.view];
// Large pages have single examples for all seeds together only.
const exampleView = () => (currentView().undone || currentView().ways ? currentView() : currentRun().views[0]);

function change(values) {
  Object.assign(state, values);
  for (const listener of listeners) listener();
}

function clearFilter() {
  change({ cell: null, crossing: null, search: '', page: 0 });
}

function clearAll() {
  change({ cell: null, crossing: null, search: '', page: 0, selected: null });
}

// --- which examples -------------------------------------------------------------------------

const decoded = new WeakMap();

function undoneBy(technique) {
  const found = (exampleView().undone || {})[technique];
  if (!found) return null;
  if (!decoded.has(found)) {
    const n = currentRun().examples.example.length;
    decoded.set(found, {
      windows: found.windows,
      smallest: found.smallest,
      bits: bytesOf(found.bits),
      memorised: bytesOf(found.memorised),
      stride: Math.ceil(n / 8),
      index: new Map(found.windows.map(([a, b], i) => [`${a}-${b}`, i])),
    });
  }
  return decoded.get(found);
}

const undoes = (undone, window, example) => bit(undone.bits, window * undone.stride, example) === 1;

// The windows of a size that contain a layer, as places in the list of windows.
function windowsOf(technique, size, layer) {
  const undone = undoneBy(technique);
  if (!undone) return [];
  const found = [];
  undone.windows.forEach(([first, last], i) => {
    if (last - first + 1 === size && first <= layer && layer <= last) found.push(i);
  });
  return found;
}

function chosenWindows() {
  const { cell } = state;
  return cell === null ? [] : cell.only === null ? cell.windows : [cell.only];
}

const searchable = new WeakMap();

function searchTexts(examples) {
  if (!searchable.has(examples)) {
    searchable.set(examples, examples.example.map((number, i) => [
      `#${number}`, (examples.text || [])[i], (examples.label || [])[i], (examples.original_label || [])[i],
    ].join('\n').toLowerCase()));
  }
  return searchable.get(examples);
}

// Does an example pass the filters of the heat maps and the crossing chart, and the search?
function filteredExamples() {
  const { examples } = currentRun();
  if (!examples) return [];
  const undone = state.cell ? undoneBy(state.cell.technique) : null;
  const windows = chosenWindows();
  const crossing = (exampleView().ways || {}).crossing;
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = words.length ? searchTexts(examples) : null;
  const found = [];
  for (let i = 0; i < examples.example.length; i++) {
    if (undone && !windows.some((window) => undoes(undone, window, i))) continue;
    if (state.crossing && crossing && crossing[i] !== state.crossing.layer) continue;
    if (texts && !words.every((word) => texts[i].includes(word))) continue;
    found.push(i);
  }
  return found;
}

const isFiltered = () => state.cell !== null || state.crossing !== null || state.search !== '';

// --- positions of single examples -------------------------------------------------------------

const LOWEST = -1;
const HIGHEST = 2;
const STEPS = 254;

function positionsOf(model) {
  const ways = exampleView().ways;
  if (!ways || !ways.positions || !ways.positions[model]) return null;
  if (!decoded.has(ways)) decoded.set(ways, new Map());
  const cache = decoded.get(ways);
  if (!cache.has(model)) cache.set(model, bytesOf(ways.positions[model]));
  return cache.get(model);
}

function wayOf(model, example) {
  const positions = positionsOf(model);
  if (!positions) return null;
  const n = currentRun().layers;
  const way = [];
  for (let layer = 0; layer < n; layer++) {
    const step = positions[example * n + layer];
    way.push(step === 255 ? null : LOWEST + (step / STEPS) * (HIGHEST - LOWEST));
  }
  return way.every((value) => value === null) ? null : way;
}
