// The layer weights of all techniques on one axis, and their centres of gravity.

const hiddenTechniques = new Set();

function profilesFigure(techniques) {
  const names = techniques.map((one) => one.name);
  const draw = chart((width) =>
    drawProfiles(techniques.filter((one) => !hiddenTechniques.has(one.name)), width));
  const toggles = h('ul', { class: 'legend', 'aria-label': 'Techniques to show' }, techniques.map((one) =>
    h('li', {}, h('button', {
      type: 'button', class: 'toggle', 'aria-pressed': String(!hiddenTechniques.has(one.name)),
      onclick: (event) => {
        const hide = !hiddenTechniques.has(one.name);
        if (hide) hiddenTechniques.add(one.name);
        else hiddenTechniques.delete(one.name);
        event.currentTarget.setAttribute('aria-pressed', String(!hide));
        redrawCharts();
      },
    }, swatch({ colour: techniqueColour(one.name) }), one.name))));
  const n = currentRun().layers;
  return figure('Layer weights by technique',
    'How much each layer matters, relative to the strongest layer of each technique; below, the centre of '
    + 'gravity (M-CoG), where the weight is balanced, with its 95% interval (thick) and the range in which it can '
    + 'lie (thin): windows of many layers contain every layer.',
    toggles, draw,
    numbersTable(['layer', ...names],
      [...Array.from({ length: n }, (_, i) => [i + 1, ...techniques.map((one) => decimal(one.layer_weights[i], 3))]),
        ['M-CoG', ...techniques.map(centreWords)],
        ['95% interval', ...techniques.map((one) => endsWords(one.m_cog_interval))],
        ['possible range', ...techniques.map((one) => endsWords(one.m_cog_range))]],
      'Layer weights'));
}

function centreWords(one) {
  if (!known(one.m_cog)) return 'none';
  return decimal(one.m_cog) + (known(one.m_cog_spread) ? ` ± ${decimal(one.m_cog_spread)}` : '');
}

function endsWords(ends) {
  return ends ? ends.map((end) => decimal(end, Number.isInteger(end) ? 0 : 2)).join(' to ') : 'none';
}

function drawProfiles(techniques, width) {
  const n = currentRun().layers;
  const [left, right, top, tall, row] = [50, 16, 12, 230, 30];
  const strip = top + tall + 54;
  const height = strip + techniques.length * row + 12;
  const x = linear(0.5, n + 0.5, left, width - right);
  const y = linear(0, 1, top + tall, top);
  const words = techniques.map((one) =>
    `${one.name}: strongest in layer ${strongest(one.layer_weights)?.layer ?? '–'}, M-CoG ${centreWords(one)} of a possible ${endsWords(one.m_cog_range)}`);
  const svg = frame(width, height, `Layer weights. ${words.join('; ')}.`);
  for (const value of [0, 0.5, 1]) {
    svg.append(s('line', { x1: left, x2: width - right, y1: y(value), y2: y(value), class: 'rule' }),
      label(left - 8, y(value) + 4, value, { 'text-anchor': 'end' }));
  }
  for (const layer of layerTicks(n, x(2) - x(1))) {
    svg.append(label(x(layer), top + tall + 18, layer, { 'text-anchor': 'middle' }));
  }
  svg.append(label(width - right, top + tall + 34, 'layer', { 'text-anchor': 'end', class: 'axis' }));
  svg.append(label(0, strip + 4, 'M-CoG', { class: 'axis' }));
  techniques.forEach((one, i) => {
    const ink = techniqueColour(one.name);
    const most = Math.max(...one.layer_weights.filter(known)) || 1;
    const points = one.layer_weights.map((weight, k) => [x(k + 1), known(weight) ? y(Math.max(0, weight) / most) : null]);
    one.layer_weights_spread.forEach((spread, k) => {
      if (!known(spread) || !known(one.layer_weights[k])) return;
      const [low, high] = [-1, 1].map((sign) => y(Math.min(1.03, Math.max(0, (one.layer_weights[k] + sign * spread) / most))));
      svg.append(s('line', { x1: x(k + 1), x2: x(k + 1), y1: low, y2: high, stroke: ink, opacity: 0.35, 'stroke-width': 4 }));
    });
    svg.append(s('path', { d: lineOf(points), fill: 'none', stroke: ink, 'stroke-width': 2.2, 'stroke-linejoin': 'round', 'data-profile': one.name }));
    points.forEach(([px, py]) => { if (known(py)) svg.append(s('circle', { cx: px, cy: py, r: n > 14 ? 2.5 : 3.4, fill: ink })); });
    centreRow(svg, one, ink, x, strip + i * row, left, width - right);
  });
  return crosshair(svg, {
    count: n, xOf: (i) => x(i + 1), top, bottom: top + tall,
    content: (i) => [`Layer ${i + 1}`, techniques.map((one) => [one.name,
      decimal(one.layer_weights[i], 3) + (known(one.layer_weights_spread[i]) ? ` ± ${decimal(one.layer_weights_spread[i], 3)}` : '')])],
  });
}

function centreRow(svg, one, ink, x, y, left, right) {
  svg.append(s('line', { x1: left, x2: right, y1: y, y2: y, class: 'rule' }));
  if (!known(one.m_cog)) {
    svg.append(label(left, y - 7, `${one.name}: no layer has any weight`, { class: 'small halo' }));
    return;
  }
  for (const [ends, thick] of [[one.m_cog_range, 2], [one.m_cog_interval, 6]]) {
    if (ends) {
      svg.append(s('line', { x1: x(ends[0]), x2: x(ends[1]), y1: y, y2: y, stroke: ink, 'stroke-width': thick, opacity: 0.35, class: 'centre-range' }));
    }
  }
  one.m_cog_per_seed.forEach((centre) => {
    if (known(centre) && one.m_cog_per_seed.length > 1) {
      svg.append(s('line', { x1: x(centre), x2: x(centre), y1: y - 6, y2: y + 6, stroke: ink, 'stroke-width': 1.5, class: 'seed-centre' }));
    }
  });
  const end = x(one.m_cog) > right - 270;
  svg.append(s('circle', { cx: x(one.m_cog), cy: y, r: 5, fill: ink, class: 'centre' }),
    label(x(one.m_cog) + (end ? -12 : 12), y - 7, `${one.name} ${centreWords(one)} (${endsWords(one.m_cog_range)} possible)`,
      { class: 'small halo', 'text-anchor': end ? 'end' : 'start' }));
}
