// Did it memorise and generalise? Accuracy over the epochs.

const CURVE_STYLES = {
  'memorised noisy': { name: 'noisy labels', colour: 'noisy', width: 2.5 },
  'memorised clean': { name: 'clean labels', colour: 'clean', width: 2.5 },
  'memorised validation': { name: 'validation', colour: 'neutral', width: 2 },
  'original validation': { name: 'validation, twin with original labels', colour: 'neutral', dash: '2 4', width: 2 },
  'frozen noisy': { name: 'noisy labels, head only', colour: 'noisy', dash: '2 4', width: 2 },
};

const curveStyle = (line) => CURVE_STYLES[`${line.state} ${line.split}`];

function trainingSection() {
  const { curves } = currentView();
  if (!curves || !curves.lines.length) return null;
  const epochs = curves.near_ceiling.filter(known);
  const last = (line) => line.accuracy[line.accuracy.length - 1];
  const words = `Accuracy over ${curves.end} epochs; at the end ${joined(curves.lines.map((line) =>
    `${curveStyle(line).name} ${percent(last(line))}`))}.`;
  const marks = epochs.length
    ? ' The first mark is θ_M1, the epoch at which all labels had just been learned; the second θ_M2, the end.'
    : ' The mark is θ_M2, the end; the accuracy that marks θ_M1 was never reached.';
  return section('training', 'Did it memorise, did it generalise?', null,
    figure('Learning curves',
      `A model that memorises first learns the clean labels, then the noisy ones too.${marks}`,
      legend(curves.lines.map((line) => {
        const style = curveStyle(line);
        return { name: style.name, colour: colour(style.colour), dash: style.dash };
      })),
      chart((width) => drawCurves(curves, width, words)),
      numbersTable(['epoch', ...curves.lines.map((line) => curveStyle(line).name)],
        curves.lines[0].epoch.map((epoch, i) =>
          [epoch, ...curves.lines.map((line) => decimal(line.accuracy[i], 3))]),
        'Accuracy by epoch')),
    currentRun().map && mapFigure(currentRun().map));
}

// --- the memorisation map ---------------------------------------------------------------------

const GROUPS = { clean: 'clean labels', noisy: 'noisy labels' };

function mapFigure(map) {
  const words = `Memorisation map of ${plural(map.total, 'training example')}. ${Object.entries(GROUPS).map(([group, name]) =>
    `${capital(name)}: mean probability ${decimal(map[group].seen_mean)} if seen, ${decimal(map[group].held_out_mean)} if held out`).join('; ')}.`;
  const some = map.total > map.shown ? ` The map shows ${whole(map.shown)} of ${plural(map.total, 'example')}, evenly chosen.` : '';
  return figure('Memorisation map',
    'Each point is a training example: how likely its label is for models that did not see it (to the right) and for models '
    + `that did (upwards). Examples far above the diagonal are memorised.${some}`,
    legend(Object.entries(GROUPS).map(([group, name]) => ({ name, colour: colour(group), shape: 'circle' }))),
    chart((width) => drawMap(map, width, words)),
    numbersTable(['mean probability of the label', ...Object.values(GROUPS)],
      [['if it was seen', ...Object.keys(GROUPS).map((group) => decimal(map[group].seen_mean, 3))],
        ['if it was held out', ...Object.keys(GROUPS).map((group) => decimal(map[group].held_out_mean, 3))]],
      'Memorisation map'));
}

function drawMap(map, width, words) {
  const [left, right, top, bottom] = [44, 14, 12, 40];
  const side = Math.min(420, width - left - right);
  const x = linear(0, 1, left, left + side);
  const y = linear(0, 1, top + side, top);
  const svg = frame(width, top + side + bottom, words, { 'data-memorisation-map': '' });
  for (const value of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(s('line', { x1: left, x2: left + side, y1: y(value), y2: y(value), class: 'rule' }),
      s('line', { x1: x(value), x2: x(value), y1: top, y2: top + side, class: 'rule' }),
      label(left - 8, y(value) + 4, value, { 'text-anchor': 'end' }),
      label(x(value), top + side + 18, value, { 'text-anchor': 'middle' }));
  }
  svg.append(s('line', { x1: x(0), x2: x(1), y1: y(0), y2: y(1), class: 'rule half' }));
  // One path per group: a point is a line without length, and its round end the dot.
  for (const group of Object.keys(GROUPS)) {
    const { seen, held_out: heldOut } = map[group];
    svg.append(s('path', {
      d: seen.map((value, i) => `M${x(heldOut[i]).toFixed(1)},${y(value).toFixed(1)}h0`).join(''), fill: 'none', stroke: colour(group),
      'stroke-width': 6, 'stroke-linecap': 'round', opacity: map.shown > 800 ? 0.35 : 0.6, 'data-group': group,
    }));
  }
  svg.append(label(left + side, top + side + 36, 'probability if held out →', { 'text-anchor': 'end', class: 'axis' }),
    label(0, top + side + 36, '↑ probability if seen', { class: 'axis' }));
  return svg;
}

function drawCurves(curves, width, words) {
  const height = Math.min(340, Math.max(220, width * 0.36));
  const [left, right, top, bottom] = [44, 14, 30, 34];
  const x = linear(1, Math.max(2, curves.end), left, width - right);
  const y = linear(0, 1, height - bottom, top);
  const svg = frame(width, height, words);
  for (const value of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(s('line', { x1: left, x2: width - right, y1: y(value), y2: y(value), class: 'rule' }),
      label(left - 8, y(value) + 4, percent(value), { 'text-anchor': 'end' }));
  }
  const every = Math.max(1, Math.ceil(curves.end / Math.max(4, (width - left) / 60) / 5) * 5);
  for (let epoch = 1; epoch <= curves.end; epoch++) {
    if (epoch === 1 || epoch % every === 0) {
      svg.append(label(x(epoch), height - bottom + 18, epoch, { 'text-anchor': 'middle' }));
    }
  }
  svg.append(label(width - right, height - 2, 'epoch', { 'text-anchor': 'end', class: 'axis' }));
  const epochs = curves.near_ceiling.filter(known);
  const mean = epochs.reduce((sum, epoch) => sum + epoch, 0) / epochs.length;
  for (const epoch of epochs.length > 1 ? epochs : []) {
    svg.append(s('line', { x1: x(epoch), x2: x(epoch), y1: top, y2: top + 6, class: 'event' }));
  }
  const mark = (epoch, name, anchor) => svg.append(
    s('line', { x1: x(epoch), x2: x(epoch), y1: top - 4, y2: height - bottom, class: 'event' }),
    label(x(epoch), top - 10, name, { 'text-anchor': anchor, class: 'event-name' }));
  // Both names in full if there is room between them, else without the epoch, which the axis has.
  const close = epochs.length > 0 && x(curves.end) - x(mean) < 150;
  const name = (state, epoch) => (close ? state : `${state}, epoch ${+epoch.toFixed(1)}`);
  if (epochs.length) mark(mean, name('θ_M1', mean), close ? 'end' : 'middle');
  if (!close || x(curves.end) - x(mean) > 40) mark(curves.end, name('θ_M2', curves.end), 'end');
  else mark(curves.end, '', 'end');
  for (const line of curves.lines) {
    const style = curveStyle(line);
    const xs = line.epoch.map(x);
    if (line.range) {
      svg.append(s('path', {
        d: bandOf(xs, line.range[0].map(y), line.range[1].map(y)),
        fill: colour(style.colour), opacity: 0.14,
      }));
    }
    svg.append(s('path', {
      d: lineOf(xs.map((at, i) => [at, y(line.accuracy[i])])), fill: 'none',
      stroke: colour(style.colour), 'stroke-width': style.width, 'stroke-dasharray': style.dash,
      'stroke-linejoin': 'round', 'stroke-linecap': 'round', 'data-curve': `${line.state} ${line.split}`,
    }));
  }
  return crosshair(svg, {
    count: curves.lines[0].epoch.length, xOf: (i) => x(curves.lines[0].epoch[i]), top, bottom: height - bottom,
    content: (i) => [`Epoch ${curves.lines[0].epoch[i]}`,
      curves.lines.map((line) => [curveStyle(line).name, percent(line.accuracy[i], 1)])],
  });
}

// Names with a sample of how they are drawn.
