// How was it made? Command, versions, seeds, costs, settings.

const JOB_NAMES = {
  original: 'training on original labels (θ_O)', memorised: 'training on noisy labels (θ_M1, θ_M2)',
  frozen: 'training the head alone', generalisation: 'training on random halves',
  centroids: 'following examples through the layers', class_probes: 'probes for classes',
};

function madeSection() {
  const { made, left_out: leftOut, trained } = currentRun();
  const versions = { memloc: made.memloc, ...made.versions };
  const often = made.costs.some((cost) => cost.times > 1);
  const seconds = made.costs.reduce((sum, cost) => sum + (cost.seconds || 0), 0);
  return section('made', 'How was it made?', null,
    leftOut.length > 0 && h('div', { class: 'notice' }, leftOut.map((sentence) => h('p', {}, sentence))),
    figure('Make it again', `The command names ${trained ? 'task, model, seeds' : 'models, data'} and every setting that is not a default. The second one writes this page again.`,
      made.command && h('pre', { class: 'command', tabindex: '0' }, h('code', {}, made.command)),
      h('pre', { class: 'command', tabindex: '0' }, h('code', {}, made.report))),
    h('div', { class: 'two' },
      figure('What it took', `Computing time over all seeds: ${duration(seconds)}; what ran side by side is added up.`,
        made.costs.length ? h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Costs' }, h('table', { class: 'plain' },
          h('thead', {}, h('tr', {}, ['job', ...(often ? ['times'] : []), 'time', 'memory'].map((name, i) => h('th', { scope: 'col', class: i ? 'number' : null }, name)))),
          h('tbody', {}, made.costs.map((cost) => h('tr', {}, h('th', { scope: 'row' }, JOB_NAMES[cost.job] || cost.job.replace('states:', 'states of ')),
            often && h('td', { class: 'number' }, cost.times), h('td', { class: 'number' }, duration(cost.seconds)),
            h('td', { class: 'number' }, known(cost.megabytes) ? `${whole(cost.megabytes)} MB` : '–')))))) : h('p', {}, 'No costs are recorded.')),
      figure('With what', 'Versions of the programs, and the seeds.',
        h('table', { class: 'plain' }, h('tbody', {},
          Object.entries(versions).filter(([, value]) => value).map(([name, value]) => h('tr', {}, h('th', { scope: 'row' }, name), h('td', { class: 'number' }, value))),
          trained && h('tr', {}, h('th', { scope: 'row' }, 'seeds'), h('td', { class: 'number' }, made.seeds.join(', '))),
          h('tr', {}, h('th', { scope: 'row' }, 'written'), h('td', { class: 'number' }, new Date(made.written * 1000).toISOString().slice(0, 16).replace('T', ' ') + ' UTC')))))),
    h('details', { class: 'numbers' }, h('summary', {}, 'All settings'),
      h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Settings' }, h('table', { class: 'plain settings' }, h('tbody', {},
        made.settings.map(([name, value]) => h('tr', {}, h('th', { scope: 'row' }, h('code', {}, name)), h('td', {}, value))))))));
}

function duration(seconds) {
  if (!known(seconds)) return '–';
  if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}
