// Across tasks and models: centres of gravity, events, agreement, Table 2, the paper's claims.

function gridSection() {
  const { grid } = data;
  if (!grid) return null;
  return section('across', 'Across tasks and models', `${grid.title}.`,
    grid.notes.length > 0 && h('div', { class: 'notice' }, grid.notes.map((note) => h('p', {}, note))),
    centresFigure(grid),
    eventsScatterFigure(grid),
    agreementFigures(grid),
    tableTwoFigure(grid),
    claimsFigure(grid));
}

const runName = (run) => `${run.task} · ${run.model}`;

function chooseRunOf(row) {
  const index = data.runs.findIndex((run) => run.folder === row.folder);
  if (index >= 0) chooseRun(index);
}

// One row per task, ordered by the mean depth.
function centresFigure(grid) {
  if (!grid.centres.length) return null;
  const mean = (task) => {
    const values = grid.centres.filter((one) => grid.runs[one.run].task === task).map((one) => one.depth);
    return values.length ? values.reduce((a, b) => a + b) / values.length : 2;
  };
  const tasks = [...grid.tasks].sort((one, other) => mean(one) - mean(other));
  const shapes = grid.models.length > 1;
  return figure('Centre of gravity by task',
    'Where memorisation is centred, as a share of the depth (0 is the input, 1 the output), by technique; small '
    + 'ticks are seeds. Select a point to look at its run.',
    legend(grid.techniques.map((name) => ({ name, colour: techniqueColour(name) }))),
    shapes && legend(grid.models.map((name, i) => ({ name, colour: colour('muted'), shape: MARKS[i % MARKS.length] }))),
    chart((width) => drawCentres(grid, tasks, width)),
    numbersTable(['task', 'model', ...grid.techniques],
      grid.runs.map((run) => [run.task, run.model, ...grid.techniques.map((technique) => {
        const one = grid.centres.find((centre) => centre.run === run.run && centre.technique === technique);
        return one ? `${decimal(one.m_cog)} of ${run.layers}` : '–';
      })]), 'M-CoG by task, model and technique'));
}

function drawCentres(grid, tasks, width) {
  const longest = Math.max(...tasks.map((task) => task.length));
  const left = Math.min(width * 0.3, 18 + 6.6 * longest);
  const room = Math.max(4, Math.floor(left / 6.6) - 2);
  const [right, top, row, bottom] = [12, 8, Math.max(26, 12 + 7 * grid.models.length), 40];
  const height = top + tasks.length * row + bottom;
  const depths = grid.centres.flatMap((one) => [one.depth, ...one.seeds]);
  const [low, high] = [Math.min(0.4, ...depths) - 0.02, Math.max(0.6, ...depths) + 0.02];
  const x = linear(low, high, left, width - right);
  const words = `Centre of gravity by task: ${tasks.map((task) => {
    const values = grid.centres.filter((one) => grid.runs[one.run].task === task).map((one) => one.depth);
    return values.length ? `${task} ${decimal(Math.min(...values))} to ${decimal(Math.max(...values))}` : task;
  }).join(', ')} of the depth.`;
  const svg = frame(width, height, words, { role: 'group', 'data-centres': '' });
  for (let tick = Math.ceil(low * 10) / 10; tick <= high + 1e-9; tick += 0.1) {
    svg.append(s('line', { x1: x(tick), x2: x(tick), y1: top, y2: height - bottom, class: Math.abs(tick - 0.5) < 1e-9 ? 'rule half' : 'rule' }),
      label(x(tick), height - bottom + 18, tick.toFixed(1), { 'text-anchor': 'middle' }));
  }
  svg.append(label(width - right, height - 4, 'relative depth', { 'text-anchor': 'end', class: 'axis' }));
  tasks.forEach((task, i) => {
    const y = top + (i + 0.5) * row;
    svg.append(label(left - 10, y + 4, task.length > room ? `${task.slice(0, room - 1)}…` : task, { 'text-anchor': 'end', class: 'name' }),
      s('line', { x1: left, x2: width - right, y1: y + row / 2, y2: y + row / 2, class: 'rule faint' }));
    const there = grid.centres.filter((one) => grid.runs[one.run].task === task).sort((a, b) => a.depth - b.depth);
    there.forEach((one, k) => {
      const run = grid.runs[one.run];
      const place = grid.models.indexOf(run.model);
      const lane = grid.techniques.indexOf(one.technique) - (grid.techniques.length - 1) / 2;
      const at = y + (place - (grid.models.length - 1) / 2) * 7 + lane * 1.5; // equal ones stay visible
      const ink = techniqueColour(one.technique);
      if (one.seeds.length > 1) {
        one.seeds.forEach((depth) => svg.append(s('line', { x1: x(depth), x2: x(depth), y1: at - 4, y2: at + 4, stroke: ink, opacity: 0.6 })));
      }
      const point = s('g', { class: 'point', role: 'button', tabindex: '-1', 'data-key': `${i}-${k}`, 'data-row': i, 'data-column': k,
        'aria-label': `${runName(run)}, ${one.technique}: ${decimal(one.m_cog)} of ${run.layers}`, onclick: () => chooseRunOf(run) },
      mark(MARKS[place % MARKS.length], x(one.depth), at, 5, { fill: ink }));
      svg.append(explain(point, () => [runName(run), [[one.technique, `M-CoG ${decimal(one.m_cog)} of ${run.layers} layers`], ['relative depth', decimal(one.depth)]]]));
    });
  });
  return roving(svg);
}

const SCATTERS = [['crossing', 'mem_gen'], ['initiation', 'f1_90']];

function eventsScatterFigure(grid) {
  const depth = (run, event) => {
    const found = grid.events.find((one) => one.run === run.run && one.event === event);
    return found && known(found.depth) ? found.depth : null;
  };
  const panels = SCATTERS.map(([one, other]) => ({
    one, other,
    points: grid.runs.map((run) => ({ run, x: depth(run, one), y: depth(run, other) })).filter((p) => known(p.x) && known(p.y)),
    missing: grid.runs.filter((run) => !known(depth(run, one)) || !known(depth(run, other))).length,
  })).filter((panel) => panel.points.length);
  if (!panels.length) return null;
  return figure('Do centroids and probes see the same events?',
    'Each point is a run; on the diagonal both see the event at the same depth.',
    grid.models.length > 1 && legend(grid.models.map((name, i) => ({ name, colour: colour('clean'), shape: MARKS[i % MARKS.length] }))),
    h('div', { class: 'two' }, panels.map((panel) => h('div', { class: 'panel' },
      chart((width) => drawScatter(grid, panel, width)),
      panel.missing > 0 && h('p', { class: 'quiet' }, `Without a point, as an event is missing: ${plural(panel.missing, 'run')}.`)))),
    numbersTable(['run', ...Object.keys(EVENT_NAMES).map((name) => grid.in_print[name])],
      grid.runs.map((run) => [runName(run), ...Object.keys(EVENT_NAMES).map((name) => decimal(depth(run, name)))]),
      'Relative depth of events'));
}

function drawScatter(grid, { one, other, points }, width) {
  const size = Math.min(width, 380);
  const [left, right, top, bottom] = [48, 14, 12, 46];
  const x = linear(0, 1, left, size - right);
  const y = linear(0, 1, size - bottom, top);
  const [nameX, nameY] = [grid.in_print[one], grid.in_print[other]];
  const svg = frame(size, size, `${nameX} against ${nameY} for ${plural(points.length, 'run')}, as shares of the depth.`,
    { role: 'group', 'data-scatter': one });
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(s('line', { x1: left, x2: size - right, y1: y(tick), y2: y(tick), class: 'rule' }),
      s('line', { x1: x(tick), x2: x(tick), y1: top, y2: size - bottom, class: 'rule' }),
      label(left - 8, y(tick) + 4, tick, { 'text-anchor': 'end' }),
      label(x(tick), size - bottom + 18, tick, { 'text-anchor': 'middle' }));
  }
  svg.append(s('line', { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: 'rule half' }),
    label(size - right, size - 8, `${nameX} (depth)`, { 'text-anchor': 'end', class: 'axis' }),
    label(left + 6, top + 12, `${nameY} ↑`, { class: 'axis halo' }));
  const sorted = [...points].sort((a, b) => a.x - b.x || a.y - b.y);
  const used = new Map();
  sorted.forEach((point, k) => {
    const spot = `${point.x.toFixed(2)} ${point.y.toFixed(2)}`;
    const again = used.get(spot) || 0; // points in the same place stand beside each other
    used.set(spot, again + 1);
    const at = x(point.x) + again * 7;
    const shape = MARKS[grid.models.indexOf(point.run.model) % MARKS.length];
    const dot = s('g', { class: 'point', role: 'button', tabindex: '-1', 'data-key': `p${k}`, 'data-row': 0, 'data-column': k,
      'aria-label': `${runName(point.run)}: ${nameX} ${decimal(point.x)}, ${nameY} ${decimal(point.y)}`, onclick: () => chooseRunOf(point.run) },
    mark(shape, at, y(point.y), 5.5, { fill: colour('clean'), 'fill-opacity': 0.8, stroke: colour('bg') }));
    if (points.length <= 8 && !again) dot.append(label(at + (at > size - 90 ? -9 : 9), y(point.y) - 7, point.run.task.slice(0, 14), { class: 'small halo', 'text-anchor': at > size - 90 ? 'end' : 'start' }));
    svg.append(explain(dot, () => [runName(point.run), [[nameX, decimal(point.x)], [nameY, decimal(point.y)]]]));
  });
  return roving(svg);
}
