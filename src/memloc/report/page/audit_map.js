// The data map: how sure the model was of each label during the training, and how much that changed.

const MOST_POINTS = 3000;

// All suspects, the most suspicious first, and as many others as there is room for, evenly chosen.
function pointsOfMap() {
  const { confidence, variability } = scores;
  const there = rows.row.map((_, i) => i).filter((i) => known(confidence[i]) && known(variability[i]));
  const doubted = there.filter((i) => rows.suspect[i]).sort((a, b) => rows.rank[a] - rows.rank[b]).slice(0, MOST_POINTS);
  const others = there.filter((i) => !rows.suspect[i]);
  const room = Math.min(others.length, MOST_POINTS - doubted.length);
  return { doubted, others: Array.from({ length: room }, (_, k) => others[Math.floor((k * others.length) / room)]), all: there.length };
}

const mapped = scores.confidence && scores.variability ? pointsOfMap() : null;
let mapScales = null;

function mapFigure() {
  if (!mapped) return null;
  const { doubted, others, all } = mapped;
  const drawn = doubted.length + others.length;
  return figure('Data map',
    'How sure the model was of each given label during the training, and how much that changed. Wrong labels are often at the bottom left. Select a point to go to its label.',
    h('div', { class: 'map-legend' }, legend([
      { name: 'suspect', colour: colour('noisy'), shape: 'diamond' }, { name: 'decided', colour: colour('good'), shape: 'diamond' }, { name: 'other label', colour: colour('neutral'), shape: 'square' }])),
    chart(drawMap),
    drawn < all && h('p', { class: 'quiet' }, doubted.length < suspects
      ? `The ${whole(doubted.length)} most suspicious of ${whole(all)} labels.`
      : `All ${plural(doubted.length, 'suspect')} and ${whole(others.length)} of the ${whole(all - doubted.length)} other labels, evenly chosen.`));
}

function drawMap(width) {
  const { confidence, variability } = scores;
  const height = Math.min(320, Math.max(230, width * 0.78));
  const [left, right, top, bottom] = [30, 8, 26, 38];
  const drawn = [...mapped.others, ...mapped.doubted];
  const most = (values, least) => drawn.reduce((high, i) => Math.max(high, values[i]), least);
  const [wide, tall] = [most(variability, 0.1), most(confidence, 1)];
  const x = linear(0, wide, left + 6, width - right - 6);
  const y = linear(0, tall, height - bottom - 6, top + 6);
  mapScales = { x, y };
  const svg = frame(width, height, `Data map of ${plural(drawn.length, 'label')}, ${plural(mapped.doubted.length, 'suspect')} among them: confidence against variability. The list can be sorted by both.`, { 'data-datamap': '' });
  for (const value of [0, 0.5, 1]) {
    svg.append(s('line', { x1: left, x2: width - right, y1: y(value), y2: y(value), class: 'rule' }),
      label(left - 6, y(value) + 4, value, { 'text-anchor': 'end' }));
  }
  for (const value of [0, wide / 2, wide]) {
    svg.append(label(x(value), height - bottom + 16, decimal(value), { 'text-anchor': value === wide ? 'end' : value ? 'middle' : 'start' }));
  }
  svg.append(label(0, 14, '↑ confidence', { class: 'axis' }), label(width - right, height - 4, 'variability →', { 'text-anchor': 'end', class: 'axis' }));
  const dots = (places, kind, size) => places.map((i) => shapeOf(kind, x(variability[i]), y(confidence[i]), size)).join('');
  const path = (name, places, kind, size) => s('path', { d: dots(places, kind, size), class: `dots ${name}` });
  svg.append(path('others', mapped.others, 'square', 1.5),
    path('doubted', mapped.doubted.filter((i) => !decisions.has(i)), 'diamond', 3),
    path('decided', drawn.filter((i) => decisions.has(i)), 'diamond', 3),
    s('circle', { r: 7, class: 'current-point', visibility: 'hidden' }));
  svg.addEventListener('pointermove', (event) => {
    const i = nearestPoint(event, svg, drawn);
    svg.classList.toggle('pointing', i !== null);
    if (i === null) hideTip();
    else {
      showTip(shortText(pictures(rows.text[i]), 120), [['given', pictures(nameOf(rows.label[i]))], ['suggested', pictures(nameOf(rows.suggested[i]))],
        ['confidence', decimal(confidence[i])], ['variability', decimal(variability[i])]], event.clientX, event.clientY);
    }
  });
  svg.addEventListener('pointerleave', hideTip);
  svg.addEventListener('click', (event) => {
    const i = nearestPoint(event, svg, drawn);
    if (i === null) return;
    if (!listed.includes(i)) clearFilters();
    goTo(i);
  });
  placeRing(svg);
  return svg;
}

// Within a finger's width; the last drawn, which is on top, wins.
function nearestPoint(event, svg, drawn) {
  const box = svg.getBoundingClientRect();
  const [px, py] = [event.clientX - box.left, event.clientY - box.top];
  let [nearest, closest] = [null, event.pointerType === 'touch' ? 20 : 9];
  for (const i of drawn) {
    const distance = Math.hypot(mapScales.x(scores.variability[i]) - px, mapScales.y(scores.confidence[i]) - py);
    if (distance <= closest) [nearest, closest] = [i, distance];
  }
  return nearest;
}

function placeRing(svg) {
  const ring = svg.querySelector('.current-point');
  const i = state.current;
  const there = i !== null && known(scores.confidence[i]) && known(scores.variability[i]);
  ring.setAttribute('visibility', there ? 'visible' : 'hidden');
  if (!there) return;
  ring.setAttribute('cx', mapScales.x(scores.variability[i]));
  ring.setAttribute('cy', mapScales.y(scores.confidence[i]));
}

function markOnMap() {
  const svg = document.querySelector('[data-datamap]');
  if (svg) placeRing(svg);
}
