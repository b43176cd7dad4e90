// When? Weights of the layers at several epochs of training, and whether their centre moves.

const OVER_TIME = {
  weight: { line: 'M-CoG', lede: 'The stronger the colour, the larger the weight of the layer.' },
  position: { line: 'crossing', lede: 'The stronger the colour, the nearer noisy examples are to their new class.' },
};

function whenSection() {
  const found = currentView().over_time;
  if (!found || !found.epochs.length) return null;
  const enough = percent(found.enough);
  return section('when', 'When?',
    'The same model on its way through training, compared with the twin of the same epoch. '
    + `Epochs at which fewer than ${enough} of the noisy labels are stored in the layers are marked “not yet”: `
    + 'weights would be chance there, so they are left out.',
    found.words.map((sentence) => h('p', { class: 'further' }, sentence)),
    h('div', { class: found.techniques.length > 2 ? 'three' : 'two' },
      found.techniques.map((one) => overTimeFigure(found, one))),
    overTimeNumbers(found));
}

function overTimeFigure(found, one) {
  const { line, lede } = OVER_TIME[one.measure];
  const title = capital(one.technique);
  const there = one.centres.map((centre, i) => [found.epochs[i].epoch, centre]).filter(([, centre]) => known(centre));
  const [first, last] = [there[0], there[there.length - 1]];
  const words = `${title} over training time: layers by epochs. ${first
    ? `${line} ${decimal(first[1])} at epoch ${first[0]}, ${decimal(last[1])} at epoch ${last[0]}.`
    : `No ${line}.`}`;
  return figure(title, `${lede} The line is the ${line === 'M-CoG' ? 'centre of gravity (M-CoG)' : 'layer in which they cross'}.`,
    chart((width) => drawOverTime(found, one, width, words)));
}

function drawOverTime(found, one, width, words) {
  const n = currentRun().layers;
  const columns = found.epochs.length;
  const [left, right, top, bottom] = [30, 8, 6, 44];
  const step = (width - left - right) / columns;
  const tall = Math.min(30, Math.max(9, 260 / n));
  const under = top + n * tall;
  const svg = frame(width, under + bottom, words, { role: 'group', 'data-over-time': one.technique });
  const y = (layer) => under - (layer - 0.5) * tall;
  const most = Math.max(...one.values.flat().filter(known), 0) || 1;
  for (const layer of layerTicks(n, tall, 16)) {
    svg.append(label(left - 8, y(layer) + 4, layer, { 'text-anchor': 'end', class: 'small' }));
  }
  const every = Math.max(1, Math.ceil(30 / step));
  found.epochs.forEach((at, column) => {
    const x = left + column * step;
    // From the last one back, so that the end of the training always has its number.
    if ((columns - 1 - column) % every === 0) {
      svg.append(label(x + step / 2, under + 16, at.epoch, { 'text-anchor': 'middle' }));
    }
    one.values[column].forEach((value, i) => svg.append(overTimeCell(one, at, {
      value, level: known(value) ? (one.measure === 'position' ? 1 - value : value / most) : null,
      layer: i + 1, row: n - 1 - i, column, x, y: y(i + 1) - tall / 2, step, tall,
    })));
  });
  notYet(svg, one, { left, step, middle: (top + under) / 2 });
  svg.append(label(width - right, under + 36, 'epoch', { 'text-anchor': 'end', class: 'axis' }), label(0, under + 36, '↑ layer', { class: 'axis' }));
  const points = one.centres.map((centre, column) => [left + (column + 0.5) * step, known(centre) ? y(centre) : null]);
  svg.append(s('path', { d: lineOf(points), class: 'centre-line under' }), s('path', { d: lineOf(points), class: 'centre-line' }));
  points.forEach(([x, at]) => { if (known(at) && step >= 10) svg.append(s('circle', { cx: x, cy: at, r: 3.5, class: 'centre-point' })); });
  return roving(svg);
}

// One name for each stretch of epochs without weights; upright where it is narrow.
function notYet(svg, one, { left, step, middle: y }) {
  const missing = one.values.map((layers) => layers.every((value) => !known(value)));
  for (let from = 0; from < missing.length; from++) {
    if (!missing[from]) continue;
    let to = from;
    while (missing[to + 1]) to++;
    const x = left + ((from + to + 1) / 2) * step;
    const narrow = (to - from + 1) * step < 56;
    svg.append(label(x + (narrow ? 4 : 0), y, 'not yet', {
      class: 'small not-yet', 'text-anchor': 'middle', transform: narrow ? `rotate(-90 ${x + 4} ${y})` : null,
    }));
    from = to;
  }
}

function overTimeCell(one, at, cell) {
  const there = known(cell.level);
  const value = there ? decimal(cell.value, 3) : 'not yet';
  const inset = cell.step > 10 ? 0.75 : 0.25;
  const rect = s('rect', {
    x: cell.x + inset, y: cell.y + inset, width: Math.max(1, cell.step - 2 * inset), height: Math.max(1, cell.tall - 2 * inset),
    rx: cell.step > 16 ? 2 : 0, fill: there ? heat(cell.level).fill : 'transparent',
  });
  const content = () => [`Epoch ${at.epoch}, layer ${cell.layer}`, [
    [one.measure, value],
    [OVER_TIME[one.measure].line, known(one.centres[cell.column]) ? decimal(one.centres[cell.column]) : '–'],
    ['noisy labels given', percent(at.memorised)], ['stored in the layers', percent(at.in_layers)],
  ]];
  return explain(s('g', {
    class: 'cell', role: 'img', tabindex: '-1', 'data-key': `${cell.row}-${cell.column}`, 'data-row': cell.row, 'data-column': cell.column,
    'aria-label': `epoch ${at.epoch}, layer ${cell.layer}: ${one.measure} ${value}`,
  }, rect), content);
}

function overTimeNumbers(found) {
  const lines = found.techniques.map((one) => [one, `${one.technique}: ${OVER_TIME[one.measure].line}`]);
  return numbersTable(
    ['epoch', 'noisy labels given', 'stored in the layers', 'clean labels', 'validation', ...lines.map(([, name]) => name)],
    found.epochs.map((at, i) => [at.epoch, percent(at.memorised), percent(at.in_layers), percent(at.clean_accuracy),
      percent(at.validation_accuracy), ...lines.map(([one]) => decimal(one.centres[i]))]),
    'Memorisation over training time');
}
