// Where? E[size, layer] of techniques that change windows of layers; cells filter the examples.

function whereSection() {
  const view = currentView();
  const maps = view.maps || [];
  const techniques = (view.techniques || []).filter((one) => one.layer_weights.some(known));
  if (!maps.length && !techniques.length) return null;
  const selectable = maps.some((map) => undoneBy(map.technique));
  return section('where', 'Where?', null,
    maps.length > 0 && h('p', { class: 'lede' },
      'Layers are replaced in windows of neighbouring ones. What the model then no longer knows depends on these ',
      'layers. ', ...maps.map((map) => map.about && `${capital(map.technique)}: ${map.about} `)),
    maps.length > 0 && h('div', { class: maps.length > 1 ? 'two' : 'one' }, maps.map((map) =>
      heatFigure(map, selectable))),
    techniques.length > 0 && profilesFigure(techniques));
}

function heatFigure(map, selectable) {
  const n = map.matrix.length;
  const best = wasTried(map, 1) ? strongest(map.matrix[0]) : null;
  const { part } = currentRun();
  const name = capital(map.technique) + (part ? ` of ${part}` : '');
  const words = [
    `${name}: share of memorisation undone, by the number of layers replaced (rows) and layer (columns).`,
    best && `One layer alone undoes at most ${percent(Math.min(1, best.value))} (layer ${best.layer}).`,
  ].filter(Boolean).join(' ');
  return figure(name,
    [`Per cent of memorisation undone when ${part ? `the ${part} of ` : ''}so many neighbouring layers are replaced, this one among them.`,
      ` 100% = ${percent(Math.max(0, map.undone))} of the ${currentRun().noisy_labels}, which ${part ? 'those of ' : ''}all layers undo.`,
      map.tried.length < n && ` Pale rows were not tried: they lie between the sizes that were (${map.tried.join(', ')}).`,
      known(map.clean_error) && ` ${cleanWords(map, map.clean_error)} on average, ${cleanWords(map, map.full_clean_error)} by all layers.`,
      selectable && ' Select a cell to see which examples.'].filter(Boolean).join(''),
    chart((width) => drawHeat(map, width, words), { follows: true }),
    numbersTable(['layers replaced', ...Array.from({ length: n }, (_, i) => `layer ${i + 1}`)],
      map.matrix.map((row, i) => [i + 1, ...row.map((value) => (wasTried(map, i + 1) ? '' : '≈ ') + percent(value))]).reverse(),
      `${name}: share undone`));
}

const wasTried = (map, size) => map.tried.includes(size);

function strongest(row) {
  let best = null;
  row.forEach((value, i) => {
    if (known(value) && (!best || value > best.value)) best = { value, layer: i + 1 };
  });
  return best;
}

function drawHeat(map, width, words) {
  const n = map.matrix.length;
  const [left, top, bottom] = [34, 4, 58];
  const step = (width - left) / n;
  const tall = Math.min(40, Math.max(13, step * 0.8));
  const height = top + n * tall + bottom;
  const svg = frame(width, height, words, { role: 'group', 'data-map': map.technique });
  const example = exampleMarks(map);
  for (let row = 0; row < n; row++) {
    const size = n - row;
    const y = top + row * tall;
    if (tall >= 15 || size % 2 === 0 || n < 12) {
      svg.append(label(left - 10, y + tall / 2 + 4, size, { 'text-anchor': 'end', class: tall < 15 ? 'small' : null }));
    }
    for (let column = 0; column < n; column++) {
      svg.append(heatCell(map, { row, column, size, layer: column + 1 },
        { x: left + column * step, y, step, tall }, example));
    }
  }
  const under = top + n * tall;
  for (const layer of layerTicks(n, step)) {
    svg.append(label(left + (layer - 0.5) * step, under + 16, layer, { 'text-anchor': 'middle' }));
  }
  svg.append(label(width, under + 34, 'layer', { 'text-anchor': 'end', class: 'axis' }),
    label(0, under + 34, '↑ layers replaced', { class: 'axis' }),
    heatLegend(width / 2, under + 44, Math.min(150, width * 0.35)));
  outlineSmallest(svg, example, { left, top, step, tall, n });
  return roving(svg);
}

function heatCell(map, at, box, example) {
  const value = map.matrix[at.size - 1][at.column];
  const { fill: shade, ink } = known(value) ? heat(value) : { fill: 'none', ink: colour('muted') };
  const selected = state.cell && state.cell.technique === map.technique
    && state.cell.size === at.size && state.cell.layer === at.layer;
  const tried = wasTried(map, at.size);
  const content = () => cellWords(map, at, value);
  const cell = s('g', {
    class: selected ? 'cell chosen' : 'cell', role: 'button', tabindex: selected ? '0' : '-1',
    'data-key': `${at.row}-${at.column}`, 'data-row': at.row, 'data-column': at.column,
    'aria-pressed': String(Boolean(selected)),
    'aria-label': `${plural(at.size, 'layer')} replaced, layer ${at.layer} among them: `
      + `${tried ? '' : 'about '}${percent(value)} undone${tried ? '' : ', not tried'}`,
    onclick: () => chooseCell(map, at),
  });
  const inset = box.step > 16 ? 1 : 0.5;
  cell.append(s('rect', {
    x: box.x + inset, y: box.y + inset, width: Math.max(1, box.step - 2 * inset),
    height: Math.max(1, box.tall - 2 * inset), rx: box.step > 16 ? 3 : 1, fill: shade,
    stroke: known(value) ? null : colour('line'), opacity: tried ? null : 0.45,
  }));
  if (box.step >= 30 && known(value) && tried) {
    cell.append(label(box.x + box.step / 2, box.y + box.tall / 2 + 4, Math.round(value * 100),
      { 'text-anchor': 'middle', fill: ink, class: 'cell-value' }));
  }
  if (example && example.cells.has(`${at.size}-${at.layer}`)) {
    const corner = box.step >= 30;
    cell.append(s('circle', {
      cx: corner ? box.x + box.step - 8 : box.x + box.step / 2,
      cy: corner ? box.y + 8 : box.y + box.tall / 2, r: Math.min(3.2, box.step / 4), fill: ink,
      class: 'undoes',
    }));
  }
  return explain(cell, content);
}

// Labels that the model never knew are not lost.
function cleanWords(map, error) {
  if (!known(map.own_clean_error)) return `${percent(error, 1)} of clean wrong`;
  return `${percent(known(error) ? Math.max(0, error - map.own_clean_error) : null, 1)} of clean lost`;
}

// The windows behind a cell, with their errors.
function cellWords(map, at, value) {
  if (!wasTried(map, at.size)) {
    return [`Layer ${at.layer} in ${plural(at.size, 'layer')}: about ${percent(value)} undone`,
      ['not tried: between the nearest sizes that were']];
  }
  const windows = map.windows.filter(([first, last]) =>
    last - first + 1 === at.size && first <= at.layer && at.layer <= last);
  const most = 8;
  const rows = windows.slice(0, most).map(([first, last, noisy, clean]) => [windowName([first, last]),
    `${percent(map.undone > 0 ? (noisy - map.own_error) / map.undone : null)} undone, ${cleanWords(map, clean)}`]);
  if (windows.length > most) rows.push(`and ${windows.length - most} more windows`);
  return [`Layer ${at.layer} in ${plural(at.size, 'layer')}: ${percent(value)} undone`, rows];
}

function chooseCell(map, at) {
  const { cell } = state;
  const same = cell && cell.technique === map.technique && cell.size === at.size && cell.layer === at.layer;
  const windows = windowsOf(map.technique, at.size, at.layer);
  if (same || !windows.length) change({ cell: null, page: 0 });
  else change({ cell: { technique: map.technique, ...at, windows, only: windows.length === 1 ? windows[0] : null }, page: 0 });
}

// Where the selected example is undone: cells with such a window, and the smallest window.
function exampleMarks(map) {
  const undone = state.selected === null ? null : undoneBy(map.technique);
  if (!undone) return null;
  const cells = new Set();
  undone.windows.forEach(([first, last], i) => {
    if (!undoes(undone, i, state.selected)) return;
    for (let layer = first; layer <= last; layer++) cells.add(`${last - first + 1}-${layer}`);
  });
  const smallest = undone.smallest[state.selected];
  return { cells, smallest: smallest < 0 ? null : undone.windows[smallest] };
}

function outlineSmallest(svg, example, { left, top, step, tall, n }) {
  if (!example || !example.smallest) return;
  const [first, last] = example.smallest;
  svg.append(s('rect', {
    x: left + (first - 1) * step, y: top + (n - (last - first + 1)) * tall,
    width: (last - first + 1) * step, height: tall, rx: 4, class: 'smallest',
  }));
}

function heatLegend(middle, y, width) {
  const group = s('g', { 'aria-hidden': 'true' });
  const steps = 30;
  for (let i = 0; i < steps; i++) {
    group.append(s('rect', {
      x: middle - width / 2 + (i * width) / steps, y, width: width / steps + 0.6, height: 8,
      fill: heat(i / (steps - 1)).fill,
    }));
  }
  group.append(label(middle - width / 2 - 6, y + 8, '0%', { 'text-anchor': 'end', class: 'small' }),
    label(middle + width / 2 + 6, y + 8, '100% undone', { class: 'small' }));
  return group;
}
