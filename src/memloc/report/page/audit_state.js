// What is known of the labels, what was decided about them, and which of them are listed.

const data = JSON.parse(document.getElementById('data').textContent);
const { rows, scores } = data;
const count = rows.row.length;
const suspects = rows.suspect.reduce((sum, one) => sum + one, 0);

const PAGE = 25; // rows

const state = {
  show: suspects ? 'suspects' : 'all',
  given: -1,         // a class, by number, or any
  suggested: -1,
  search: '',
  sort: 'rank up',
  page: 0,
  current: null,     // place of the row that keys act on
};

// --- decisions --------------------------------------------------------------------------------

// By place: { kind: 'keep' | 'relabel' | 'drop', label: a class by number, if it is relabelled }
const decisions = new Map();
const past = []; // [place, decision before]
const KEY = `memloc-labels-${data.key}`;
let kept = true;     // whether the browser keeps decisions
let exported = true; // whether a file has all decisions

function readDecisions() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) || '[]');
    decisions.clear();
    for (const [place, kind, name] of found) {
      const label = data.classes.indexOf(name);
      if (kind === 'relabel' ? label >= 0 : kind === 'keep' || kind === 'drop') decisions.set(place, { kind, label });
    }
    localStorage.setItem(KEY, JSON.stringify(found));
  } catch {
    kept = false;
  }
}

function setDecision(place, decision) {
  if (decision) decisions.set(place, decision);
  else decisions.delete(place);
  exported = false;
  try {
    localStorage.setItem(KEY, JSON.stringify([...decisions].map(([i, { kind, label }]) => [i, kind, data.classes[label]])));
    kept = true;
  } catch {
    kept = false;
  }
}

function decide(place, decision) {
  past.push([place, decisions.get(place)]);
  setDecision(place, decision);
}

// The place of what was undone, or null.
function undo() {
  if (!past.length) return null;
  const [place, before] = past.pop();
  setDecision(place, before);
  return place;
}

const decidedSuspects = () => [...decisions.keys()].filter((place) => rows.suspect[place]).length;

// The class to relabel to before anybody chooses one: the suggestion, or the only other class.
function presetClass(place) {
  if (rows.suggested[place] !== rows.label[place]) return rows.suggested[place];
  return data.classes.length === 2 ? 1 - rows.label[place] : null;
}

// --- which rows -------------------------------------------------------------------------------

const SHOWN = {
  suspects: ['Suspects', (i) => rows.suspect[i]],
  undecided: ['Undecided', (i) => rows.suspect[i] && !decisions.has(i)],
  decided: ['Decided', (i) => decisions.has(i)],
  all: ['All labels', () => true],
};

const spaced = (name) => name.replaceAll('_', ' ');

// Name of the order: [title, value of a row]; words are sorted by the alphabet.
const ORDERS = {
  'rank up': ['most suspicious first', (i) => rows.rank[i]],
  'rank down': ['least suspicious first', (i) => rows.rank[i]],
  'row up': ['row of the file', (i) => rows.row[i]],
  'text up': ['text', (i) => rows.text[i]],
  'label up': ['given label', (i) => data.classes[rows.label[i]]],
  'suggested up': ['suggested label', (i) => data.classes[rows.suggested[i]]],
  ...Object.fromEntries(Object.entries(scores).flatMap(([name, values]) => [
    [`${name} up`, [`${spaced(name)}, lowest first`, (i) => values[i]]],
    [`${name} down`, [`${spaced(name)}, highest first`, (i) => values[i]]],
  ])),
};

const collator = new Intl.Collator('en', { numeric: true });
let searchable = null;

function searchTexts() {
  searchable ||= rows.row.map((row, i) =>
    [`#${row}`, ...['text', 'text_pair', 'word'].map((name) => (rows[name] || [])[i] ?? '')].join('\n').toLowerCase());
  return searchable;
}

let listed = []; // places; what is decided stays in the list until that is made again

function makeList() {
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = words.length ? searchTexts() : null;
  const [, shown] = SHOWN[state.show];
  listed = rows.row.map((_, i) => i).filter((i) => shown(i)
    && (state.given < 0 || rows.label[i] === state.given)
    && (state.suggested < 0 || rows.suggested[i] === state.suggested)
    && (!texts || words.every((word) => texts[i].includes(word))));
  const [, valueOf] = ORDERS[state.sort];
  const values = rows.row.map((_, i) => valueOf(i));
  const sign = state.sort.endsWith(' down') ? -1 : 1;
  listed.sort((one, other) => {
    const [a, b] = [values[one], values[other]];
    if (!known(a) || !known(b)) return known(a) ? -1 : known(b) ? 1 : rows.rank[one] - rows.rank[other];
    return sign * (typeof a === 'number' ? a - b : collator.compare(a, b)) || rows.rank[one] - rows.rank[other];
  });
}

// --- the file ---------------------------------------------------------------------------------

const cell = (value) => {
  const text = String(value ?? '');
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

// In the order of the user's file, without what was dropped.
function reviewedFile() {
  const texts = ['text', 'text_pair', 'word'].filter((name) => rows[name]);
  const lines = [['row', ...texts, 'label', 'given_label', 'suspect', 'decision'].join(',')];
  for (let i = 0; i < count; i++) {
    const { kind, label } = decisions.get(i) || { kind: 'undecided' };
    if (kind === 'drop') continue;
    const relabelled = kind === 'relabel';
    const doubted = relabelled || (kind === 'undecided' && rows.suspect[i]);
    lines.push([
      rows.row[i], ...texts.map((name) => rows[name][i]), data.classes[relabelled ? label : rows.label[i]],
      data.classes[rows.label[i]], doubted ? 'True' : 'False', kind,
    ].map(cell).join(','));
  }
  return `${lines.join('\n')}\n`;
}
