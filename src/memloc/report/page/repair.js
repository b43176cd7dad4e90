// The page of a repair: the sentences, the table of the exam, and the same as dots with intervals.

const data = JSON.parse(document.getElementById('data').textContent);
const content = document.getElementById('content');
const twin = data.candidates.find((one) => one.candidate === 'twin');
const nameOf = (measure) => data.heads[2 + data.measures.indexOf(measure)];
const meaningOf = (name) => data.legend.find(([key]) => key === name)[1];

function drawPage() {
  hideTip();
  forgetCharts();
  content.replaceChildren(foundPart(), tablePart(), figurePart(), madePart());
  document.getElementById('bar').replaceChildren(h('div', { class: 'bar-inner' }, h('span', { class: 'brand' }, 'memloc'),
    h('div', { class: 'choices' }, themeButton())));
  redrawCharts();
}

function foundPart() {
  const [first, ...others] = data.findings;
  const facts = [plural(data.suspects, 'suspect'), plural(data.kept, 'kept example'), `seed ${data.seed}`, `written: ${data.candidate}`];
  return h('section', { id: 'found', class: 'headline', 'aria-label': 'What was found' },
    h('h1', {}, h('span', {}, data.model), ' on ', h('span', {}, data.task), ', repaired'),
    h('p', { class: 'facts' }, facts.join(' · ')),
    h('p', { class: 'finding' }, first),
    others.map((sentence) => h('p', { class: 'further' }, sentence)));
}

// --- the table --------------------------------------------------------------------------------

function tablePart() {
  const rowsOf = (repairs) => data.candidates.filter((one) => one.repairs === repairs).map(tableRow);
  return section('exam', 'Is it gone, or only hidden?',
    'The exam of all candidates. Below each share is its 95% interval, where there are enough examples for one. '
    + 'A share marked ▲ is above the twin’s: more is left of the wrong labels than in a model that never saw them. “-” is not known.',
    h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Exam of all candidates' }, h('table', { class: 'exam' },
      h('thead', {}, h('tr', {}, data.heads.map((head, i) => h('th', { scope: 'col', class: i > 1 ? 'number' : null }, head)))),
      h('tbody', {}, rowsOf(true)),
      h('tbody', { class: 'controls' }, h('tr', { class: 'group' }, h('th', { colspan: data.heads.length, scope: 'rowgroup' }, h('span', {}, 'For comparison'))), rowsOf(false)))),
    h('div', { class: 'two' }, meanings('Measures', data.legend), meanings('Candidates', data.made_of)));
}

function tableRow(one) {
  const [name, layers, ...cells] = one.cells;
  const best = one.candidate === data.best;
  const written = one.candidate === data.candidate;
  const marks = [best && 'best', written && !best && 'written', one.repairs && (one.passes ? 'passes' : 'does not pass')];
  return h('tr', { 'data-candidate': name, class: best ? 'best' : null },
    h('th', { scope: 'row' }, name, h('span', { class: 'below' }, marks.filter(Boolean).join(' · '))),
    h('td', {}, layers),
    cells.map((cell, i) => {
      const above = one.traces.includes(data.measures[i]);
      return h('td', { class: above ? 'number above' : 'number', 'data-measure': data.measures[i] }, above && '▲ ', cell,
        h('span', { class: 'below' }, data.measures[i] && one.shares[i].interval));
    }));
}

const meanings = (title, pairs) => h('div', { class: 'meanings' }, h('h3', {}, title),
  h('dl', {}, pairs.map(([name, what]) => h('div', {}, h('dt', {}, name), h('dd', {}, what)))));

// --- the figure -------------------------------------------------------------------------------

const figurePart = () => section('figure', 'What is left of the wrong labels',
  'Shares of suspects with 95% intervals; less is better. The dashed line is the twin’s share. Hollow dots are for comparison.',
  h('div', { class: 'two' }, data.panels.map((measure) =>
    figure(capital(nameOf(measure)), `${capital(meaningOf(nameOf(measure)))}.`, chart((width) => drawPanel(measure, width))))));

function drawPanel(measure, width) {
  const [left, right, top, tall] = [146, 22, 8, 30];
  const place = data.measures.indexOf(measure);
  const under = top + tall * data.candidates.length;
  const x = linear(0, 1, left, width - right);
  const svg = frame(width, under + 24, `${capital(nameOf(measure))}: ${data.candidates.map((one) => `${one.candidate} ${wordsOf(one, place)}`).join('; ')}`, { 'data-panel': measure });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(s('line', { x1: x(share), x2: x(share), y1: top, y2: under, class: 'rule' }),
      label(x(share), under + 18, percent(share), { 'text-anchor': 'middle', class: 'small' }));
  }
  const reference = twin && twin.shares[place].value;
  if (known(reference)) svg.append(s('line', { x1: x(reference), x2: x(reference), y1: top, y2: under, class: 'event' }));
  data.candidates.forEach((one, i) => {
    const y = top + tall * (i + 0.5);
    const { value, low, high } = one.shares[place];
    svg.append(label(left - 16, y + 4, one.candidate, { 'text-anchor': 'end', class: one.candidate === data.best ? 'name best' : 'name' }));
    if (!known(value)) {
      svg.append(label(left + 6, y + 4, 'not known', { class: 'small halo' }));
      return;
    }
    const kind = one.candidate === data.best ? 'best' : one.repairs ? 'repair' : 'control';
    svg.append(explain(s('g', { class: `share ${kind}`, 'data-candidate': one.candidate },
      s('rect', { x: left - 8, y: y - tall / 2, width: width - left, height: tall, class: 'reach' }),
      known(low) && known(high) && s('line', { x1: x(low), x2: x(high), y1: y, y2: y }),
      s('circle', { cx: x(value), cy: y, r: 5 })), () => [one.candidate, [[nameOf(measure), wordsOf(one, place)]]]));
  });
  return svg;
}

function wordsOf(one, place) {
  const { value, interval } = one.shares[place];
  if (!known(value)) return 'not known';
  return one.cells[2 + place] + (interval ? ` (${interval})` : '');
}

// --- how it was made --------------------------------------------------------------------------

const madePart = () => section('made', 'How it was made',
  'The model is in the folder of this page. README.md has the code that loads it, exam.parquet all numbers, and repair.json all settings.',
  data.commands.map((command) => h('pre', { class: 'command', tabindex: '0' }, h('code', {}, command))));

applyTheme();
document.getElementById('foot').append(`Written by memloc ${data.memloc}.`);
drawPage();
