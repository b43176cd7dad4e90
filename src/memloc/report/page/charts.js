// Charts: drawn for the width they have, again when it or the theme changes.

const charts = new Set();
const PRINT_WIDTH = 680;
let printing = false;

// A place for a chart; draw(width) returns the element to show. One that follows the selection is
// drawn again when that changes.
function chart(draw, { follows = false } = {}) {
  const place = h('div', { class: 'chart' });
  const entry = { place, draw, width: 0, follows };
  charts.add(entry);
  watcher.observe(place);
  return place;
}

// On paper the page is narrower than most screens, and still has its columns.
function printWidth(place) {
  const columns = place.closest('.three') ? 3 : place.closest('.two') ? 2 : 1;
  return Math.floor((PRINT_WIDTH - 24 * (columns - 1)) / columns);
}

function drawChart(entry) {
  const width = printing ? printWidth(entry.place) : entry.place.clientWidth;
  if (!width) return;
  entry.width = width;
  const active = document.activeElement;
  const focus = entry.place.contains(active) ? active.getAttribute('data-key') : null;
  entry.place.replaceChildren(entry.draw(width));
  if (focus !== null) {
    const again = entry.place.querySelector(`[data-key="${focus}"]`);
    if (again) { setCurrent(again); again.focus({ preventScroll: true }); }
  }
}

const watcher = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const entry = [...charts].find((one) => one.place === target);
    if (entry && entry.place.clientWidth !== entry.width && !printing) drawChart(entry);
  }
});

function redrawCharts(which = () => true) {
  for (const entry of charts) {
    if (entry.place.isConnected && which(entry)) drawChart(entry);
  }
}

let planned = false;

// After the next frame, so that typing into the search never waits for charts.
function followSelection() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => setTimeout(() => {
    planned = false;
    redrawCharts((entry) => entry.follows);
  }));
}

function forgetCharts() {
  watcher.disconnect();
  charts.clear();
}

const linear = (low, high, from, to) => (value) =>
  from + ((value - low) / (high - low || 1)) * (to - from);

// Every layer if there is room for its number, else every second, third, ...
function layerTicks(n, step, room = 22) {
  const every = Math.max(1, Math.ceil(room / step));
  const layers = [];
  for (let layer = 1; layer <= n; layer++) {
    if ((layer - 1) % every === 0) layers.push(layer);
  }
  return layers;
}

function frame(width, height, label, properties = {}) {
  return s('svg', {
    width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label,
    class: 'plot', ...properties,
  });
}

function label(x, y, text, properties = {}) {
  return s('text', { x, y, ...properties }, text);
}

function lineOf(points) {
  let path = '';
  let pen = 'M';
  for (const [x, y] of points) {
    if (known(x) && known(y) && Number.isFinite(y)) {
      path += `${pen}${x.toFixed(1)},${y.toFixed(1)}`;
      pen = 'L';
    } else pen = 'M';
  }
  return path;
}

function bandOf(xs, lows, highs) {
  const there = xs.map((x, i) => i).filter((i) => known(lows[i]) && known(highs[i]));
  const up = there.map((i) => `${xs[i].toFixed(1)},${highs[i].toFixed(1)}`);
  const down = there.reverse().map((i) => `${xs[i].toFixed(1)},${lows[i].toFixed(1)}`);
  return up.length ? `M${up.join('L')}L${down.join('L')}Z` : '';
}

function rgb(text) {
  const hex = text.replace('#', '');
  return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

function luminance(parts) {
  const [r, g, b] = parts.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// The one sequential scale; black or white, whichever is readable on it.
function heat(level) {
  const stops = [0, 1, 2, 3, 4, 5].map((i) => rgb(colour(`heat-${i}`)));
  const place = Math.min(1, Math.max(0, level)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place));
  const mixed = stops[low].map((part, i) =>
    Math.round(part + (stops[low + 1][i] - part) * (place - low)));
  return paint(mixed);
}

function paint(parts) {
  return { fill: `rgb(${parts.join(',')})`, ink: luminance(parts) > 0.179 ? '#000' : '#fff' };
}

// Correlations: positive ones on the same scale, negative ones towards orange.
function heatOfCorrelation(value) {
  if (value >= 0) return heat(value);
  const [from, to] = [rgb(colour('heat-0')), rgb(colour('negative'))];
  const share = Math.min(1, -value);
  return paint(from.map((part, i) => Math.round(part + (to[i] - part) * share)));
}

const techniqueColour = (name) => data.colours[name] || colour('ink');

const MARKS = ['circle', 'square', 'triangle', 'diamond', 'cross', 'down'];

function shapeOf(kind, x, y, r) {
  return {
    square: `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
    triangle: `M${x},${y - 1.2 * r}L${x + 1.15 * r},${y + r}H${x - 1.15 * r}Z`,
    down: `M${x},${y + 1.2 * r}L${x + 1.15 * r},${y - r}H${x - 1.15 * r}Z`,
    diamond: `M${x},${y - 1.35 * r}L${x + 1.35 * r},${y}L${x},${y + 1.35 * r}L${x - 1.35 * r},${y}Z`,
    cross: `M${x - r},${y - r / 3}h${2 * r / 3}v${-2 * r / 3}h${2 * r / 3}v${2 * r / 3}h${2 * r / 3}v${2 * r / 3}h${-2 * r / 3}v${2 * r / 3}h${-2 * r / 3}v${-2 * r / 3}h${-2 * r / 3}Z`,
  }[kind];
}

function mark(kind, x, y, size, properties) {
  return kind === 'circle'
    ? s('circle', { cx: x, cy: y, r: size, ...properties })
    : s('path', { d: shapeOf(kind, x, y, size), ...properties });
}

function legend(items) {
  return h('ul', { class: 'legend' }, items.map((item) => h('li', {}, swatch(item), item.name)));
}

function swatch({ colour: ink, dash, shape, band }) {
  const svg = s('svg', { width: 22, height: 12, 'aria-hidden': 'true' });
  if (shape) svg.append(mark(shape, 11, 6, 4.5, { fill: ink }));
  else if (band) svg.append(s('rect', { x: 1, y: 1, width: 20, height: 10, rx: 2, fill: ink, opacity: 0.35 }));
  else svg.append(s('line', { x1: 1, x2: 21, y1: 6, y2: 6, stroke: ink, 'stroke-width': 3, 'stroke-dasharray': dash, 'stroke-linecap': dash ? 'butt' : 'round' }));
  return svg;
}
