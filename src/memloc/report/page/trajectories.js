// How? Noisy examples on their way from the old class (1) to the new one (0), layer by layer.

const MOST_LINES = 500;
const PANELS = {
  memorised: ['As it is', 'nothing swapped'],
  bottom_swapped: ['Bottom half swapped', 'lower layers from the twin'],
  top_swapped: ['Top half swapped', 'upper layers from the twin'],
};
const EVENT_NAMES = {
  crossing: ['Crossing', 'noisy examples are on average nearer to their new class'],
  initiation: ['Classification initiation', 'the two classes are apart from here on'],
  mem_gen: ['mem≫gen', 'probes find the new label better than the original one'],
  f1_90: ['90% F1', 'probes are nearly as good as they get'],
};

function howSection() {
  const found = currentView().explanation || {};
  const models = Object.keys(PANELS).filter((model) => (found.centroids || {})[model]);
  if (!models.length && !found.events) return null;
  const domain = positionDomain(found.centroids || {});
  return section('how', 'How?', null,
    models.length > 0 && figure('The way of noisy examples through the layers',
      'At 0 an example looks like its new class, at 1 like its old one. Bands hold the middle 75%, thin lines are '
      + 'single examples; select one to find it in the table.',
      legend([
        { name: 'noisy examples', colour: colour('noisy') },
        { name: 'clean examples of the old class', colour: colour('old'), band: true },
        { name: 'clean examples of the new class', colour: colour('clean'), band: true },
      ]),
      h('div', { class: models.length > 1 ? 'three' : 'one' }, models.map((model) => {
        const [title, words] = PANELS[model];
        return h('div', { class: 'panel' }, h('h4', {}, title, h('span', { class: 'quiet block' }, words)),
          chart((width) => drawWays(model, found, domain, width), { follows: true }));
      })),
      waysNote(),
      numbersTable(['layer', ...models.flatMap((model) => [`${PANELS[model][0]}: noisy`, 'old class', 'new class'])],
        found.centroids[models[0]].noisy.mean.map((_, i) => [i + 1, ...models.flatMap((model) =>
          ['noisy', 'class_b', 'class_a'].map((group) => decimal((found.centroids[model][group] || { mean: [] }).mean[i])))]),
        'Mean positions by layer')),
    h('div', { class: 'two' },
      found.examples && crossingFigure(found.examples),
      found.events && eventsFigure(found.events.memorised || {}, (found.overlapping_crossings || {}).memorised || 0)));
}

// All means, and bands and nearly all single examples as far as these are on the page.
function positionDomain(centroids) {
  const groups = Object.values(centroids).flatMap((one) => Object.values(one));
  const means = groups.flatMap((group) => group.mean).filter(known);
  const { examples } = currentRun();
  const ways = examples ? Object.keys(PANELS).flatMap((model) => thinned(examples.example.map((_, i) => i))
    .flatMap((i) => wayOf(model, i) || [])).filter(known).sort((a, b) => a - b) : [];
  const most = [0.01, 0.99].map((share) => ways[Math.round(share * (ways.length - 1))]).filter(known);
  const wide = [...groups.flatMap((group) => [...group.low, ...group.high]).filter(known), ...most];
  return [Math.min(-0.2, ...means, ...wide.map((value) => Math.max(LOWEST, value))),
    Math.max(1.2, ...means, ...wide.map((value) => Math.min(HIGHEST, value)))];
}

function waysNote() {
  const { examples } = currentRun();
  if (!examples || !positionsOf('memorised') || examples.example.length <= MOST_LINES) return null;
  return h('p', { class: 'quiet' },
    `Thin lines: ${whole(MOST_LINES)} of ${whole(examples.example.length)} examples, evenly chosen; all can be selected in the table.`);
}

// At most so many, evenly chosen.
function thinned(list) {
  if (list.length <= MOST_LINES) return list;
  return Array.from({ length: MOST_LINES }, (_, i) => list[Math.floor((i * list.length) / MOST_LINES)]);
}

function drawWays(model, found, [low, high], width) {
  const n = currentRun().layers;
  const height = Math.min(330, Math.max(230, width * 0.8));
  const [left, right, top, bottom] = [34, 10, 46, 36];
  const x = linear(1, Math.max(2, n), left + 6, width - right - 6);
  const y = linear(low, high, height - bottom, top);
  const groups = found.centroids[model];
  const events = ((found.events || {})[model]) || {};
  const svg = frame(width, height, waysWords(model, groups, events), { 'data-ways': model });
  for (const value of [0, 0.5, 1]) {
    svg.append(s('line', { x1: left, x2: width - right, y1: y(value), y2: y(value), class: value === 0.5 ? 'rule half' : 'rule' }),
      label(left - 8, y(value) + 4, value, { 'text-anchor': 'end' }));
  }
  for (const layer of layerTicks(n, x(2) - x(1))) {
    svg.append(label(x(layer), height - bottom + 18, layer, { 'text-anchor': 'middle' }));
  }
  svg.append(label(width - right, height - 3, 'layer', { 'text-anchor': 'end', class: 'axis' }),
    label(0, height - 3, '↑ 0 new class, 1 old class', { class: 'axis' }));
  const inside = (value) => (known(value) ? y(Math.min(high, Math.max(low, value))) : null);
  const xs = Array.from({ length: n }, (_, i) => x(i + 1));
  for (const [group, ink, opacity] of [['class_b', 'old', 0.28], ['class_a', 'clean', 0.28], ['noisy', 'noisy', 0.16]]) {
    if (groups[group]) {
      svg.append(s('path', { d: bandOf(xs, groups[group].low.map(inside), groups[group].high.map(inside)), fill: colour(ink), opacity }));
    }
  }
  markEvent(svg, x, events.crossing, 'crossing', top, height - bottom, 20, width);
  markEvent(svg, x, events.initiation, 'classes apart', top, height - bottom, 36, width);
  if (groups.noisy) {
    svg.append(s('path', { d: lineOf(xs.map((at, i) => [at, inside(groups.noisy.mean[i])])), fill: 'none', stroke: colour('noisy'), 'stroke-width': 3, 'stroke-linejoin': 'round', class: 'mean' }));
    xs.forEach((at, i) => {
      if (known(groups.noisy.mean[i])) svg.append(s('circle', { cx: at, cy: inside(groups.noisy.mean[i]), r: n > 14 ? 2.5 : 3.6, fill: colour('noisy') }));
    });
  }
  highlight(svg, model, xs, inside);
  const canvas = drawLines(model, xs, y, { width, height, top, tall: height - bottom - top });
  crosshair(svg, {
    count: n, xOf: (i) => xs[i], top, bottom: height - bottom,
    content: (i) => [`Layer ${i + 1}`, [
      ['noisy examples', decimal((groups.noisy || { mean: [] }).mean[i])],
      ['old class', decimal((groups.class_b || { mean: [] }).mean[i])],
      ['new class', decimal((groups.class_a || { mean: [] }).mean[i])]]],
  });
  svg.addEventListener('click', (event) => pickWay(event, svg, model, xs, inside));
  return h('div', { class: 'layered' }, canvas, svg);
}

function waysWords(model, groups, events) {
  const means = groups.noisy ? groups.noisy.mean : [];
  const crossing = events.crossing && known(events.crossing.layer) ? `cross in ${layerName(events.crossing.layer)}` : 'do not cross';
  return `${PANELS[model][0]}: noisy examples go from ${decimal(means[0])} in the first to `
    + `${decimal(means[means.length - 1])} in the last layer (1 is the old class, 0 the new one) and ${crossing}.`;
}

function markEvent(svg, x, event, name, top, bottom, at, width) {
  if (!event || !known(event.layer)) return;
  const place = x(event.layer);
  const anchor = place < 50 ? 'start' : place > width - 50 ? 'end' : 'middle';
  svg.append(s('line', { x1: place, x2: place, y1: at + 4, y2: bottom, class: 'event', 'data-event': name }),
    label(place, at, name, { 'text-anchor': anchor, class: 'event-name halo' }));
}

// Thousands of lines: a canvas below the chart. Those that pass the filter stand out. A line that
// leaves the chart ends at its edge.
function drawLines(model, xs, y, { width, height, top, tall }) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const canvas = h('canvas', { width: Math.round(width * ratio), height: Math.round(height * ratio), 'aria-hidden': 'true' });
  const { examples } = currentRun();
  if (!examples || !positionsOf(model)) return canvas;
  const pen = canvas.getContext('2d');
  pen.scale(ratio, ratio);
  pen.rect(0, top, width, tall);
  pen.clip();
  const draw = (list, opacity) => {
    pen.strokeStyle = colour('noisy');
    pen.globalAlpha = opacity;
    pen.lineWidth = 0.8;
    for (const example of list) {
      const way = wayOf(model, example);
      if (!way) continue;
      pen.beginPath();
      way.forEach((value, i) => { if (known(value)) pen.lineTo(xs[i], y(value)); });
      pen.stroke();
    }
  };
  const all = examples.example.map((_, i) => i);
  const faint = Math.min(0.35, Math.max(0.08, 25 / Math.min(all.length, MOST_LINES)));
  if (isFiltered()) {
    draw(thinned(all), faint / 3);
    draw(thinned(filteredExamples()), Math.min(0.8, faint * 2));
  } else draw(thinned(all), faint);
  return canvas;
}

function highlight(svg, model, xs, inside) {
  const way = state.selected === null ? null : wayOf(model, state.selected);
  if (!way) return;
  const points = xs.map((at, i) => [at, inside(way[i])]);
  svg.append(s('path', { d: lineOf(points), class: 'selected-way under' }),
    s('path', { d: lineOf(points), class: 'selected-way', 'data-example': state.selected }));
}

// The nearest of the drawn lines, at the nearest layer.
function pickWay(event, svg, model, xs, inside) {
  const { examples } = currentRun();
  if (!examples || !positionsOf(model)) return;
  const box = svg.getBoundingClientRect();
  const px = event.clientX - box.left;
  const py = event.clientY - box.top;
  const layer = xs.reduce((best, at, i) => (Math.abs(at - px) < Math.abs(xs[best] - px) ? i : best), 0);
  const candidates = thinned(isFiltered() ? filteredExamples() : examples.example.map((_, i) => i));
  let nearest = null;
  for (const example of candidates) {
    const way = wayOf(model, example);
    if (!way || !known(way[layer])) continue;
    const distance = Math.abs(inside(way[layer]) - py);
    if (distance < 14 && (!nearest || distance < nearest.distance)) nearest = { example, distance };
  }
  if (nearest) selectExample(nearest.example === state.selected ? null : nearest.example);
}

function crossingFigure(found) {
  const crossing = (exampleView().ways || {}).crossing;
  const selectable = Boolean(crossing);
  const shares = selectable ? crossingShares(crossing) : [...found.crossing_shares, found.never_cross];
  const words = `Share of noisy examples that cross for good in each layer: ${shares.map((share, i) =>
    `${i < shares.length - 1 ? `layer ${i + 1}` : 'never'} ${percent(share)}`).join(', ')}.`;
  return figure('Where single examples cross for good',
    `From this layer on, an example stays nearer to its new class.${selectable ? ' Select a bar to see the examples.' : ''}`,
    chart((width) => drawCrossings(shares, words, selectable, width), { follows: true }));
}

// Of the examples of the table, so that a bar is as high as what it selects.
function crossingShares(crossing) {
  const counts = Array(currentRun().layers + 1).fill(0);
  for (const layer of crossing) counts[known(layer) ? layer - 1 : counts.length - 1] += 1;
  return counts.map((count) => count / crossing.length);
}

function drawCrossings(shares, words, selectable, width) {
  const [left, top, tall, bottom] = [6, 22, 130, 36];
  const n = shares.length;
  const gap = 26; // between the last layer and "never"
  const step = (width - left - gap) / n;
  const most = Math.max(...shares, 0.01);
  const svg = frame(width, top + tall + bottom, words, { role: selectable ? 'group' : 'img', 'data-crossings': '' });
  const ticks = new Set(layerTicks(n - 1, step));
  shares.forEach((share, i) => {
    const never = i === n - 1;
    const layer = never ? null : i + 1;
    const at = left + i * step + (never ? gap : 0);
    const tallness = (share / most) * tall;
    const chosen = state.crossing && state.crossing.layer === layer;
    const bar = s('g', {
      class: chosen ? 'cell chosen' : 'cell', role: selectable ? 'button' : null, tabindex: selectable ? (chosen ? '0' : '-1') : null,
      'data-key': selectable ? `bar-${i}` : null, 'data-row': 0, 'data-column': i, 'aria-pressed': selectable ? String(Boolean(chosen)) : null,
      'aria-label': `${never ? 'never' : `layer ${layer}`}: ${percent(share)} of the examples`,
      onclick: selectable ? () => change({ crossing: chosen ? null : { layer }, page: 0 }) : null,
    },
    s('rect', { x: at, y: top, width: step, height: tall + 20, fill: 'transparent' }),
    s('rect', { x: at + step * 0.12, y: top + tall - tallness, width: step * 0.76, height: Math.max(1, tallness), rx: 2, fill: never ? colour('neutral') : colour('noisy') }));
    if (step >= 26) bar.append(label(at + step / 2, top + tall - tallness - 6, percent(share), { 'text-anchor': 'middle', class: 'small' }));
    if (never || ticks.has(layer)) bar.append(label(never ? Math.min(at + step / 2, width - 18) : at + step / 2, top + tall + 18, never ? 'never' : layer, { 'text-anchor': 'middle' }));
    explain(bar, () => [never ? 'Never' : `Layer ${layer}`, [`${percent(share, 1)} of the noisy examples`]]);
    svg.append(bar);
  });
  return selectable ? roving(svg) : svg;
}

function eventsFigure(events, overlapping) {
  const rows = Object.keys(EVENT_NAMES).filter((name) => events[name]);
  if (!rows.length) return null;
  return figure('Events', 'When what happens, averaged over the seeds in which it does.',
    h('table', { class: 'plain' }, h('tbody', {}, rows.map((name) => {
      const event = events[name];
      const [title, words] = EVENT_NAMES[name];
      const seeds = event.per_seed.length;
      const notes = event.missing ? [`missing in ${event.missing} of ${seeds}`] : [];
      if (name === 'crossing' && overlapping) {
        notes.push(`classes still overlap there${overlapping < seeds ? ` in ${overlapping} of ${seeds}` : ''}`);
      }
      const note = notes.length ? ` (${notes.join('; ')})` : '';
      return h('tr', {}, h('th', { scope: 'row' }, title, h('span', { class: 'quiet block' }, words)),
        h('td', { class: 'number' }, known(event.layer) ? layerName(event.layer) + note : 'never'));
    }))));
}
