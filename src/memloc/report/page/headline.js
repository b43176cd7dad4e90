// What was found: sentences and key figures.

function headline() {
  const run = currentRun();
  const [first, ...others] = run.words;
  const what = run.task
    ? [h('span', {}, run.model), ' on ', h('span', {}, run.task)]
    : [h('span', {}, run.model)];
  const facts = [
    plural(run.layers, 'layer'),
    run.part && `${run.part} alone`,
    known(run.n_examples) && plural(run.n_examples, 'example'),
    known(run.n_noisy) && `${whole(run.n_noisy)} with ${run.noisy_labels}`,
    run.n_validation > 0 && `${whole(run.n_validation)} more held out for validation`,
    run.trained && plural(run.made.seeds.length, 'seed'),
  ].filter(Boolean).join(' · ');
  return h('section', { id: 'found', class: 'headline', 'aria-label': 'What was found' },
    h('h1', {}, what),
    h('p', { class: 'facts' }, facts),
    first && h('p', { class: 'finding' }, first),
    others.map((sentence) => h('p', { class: 'further' }, sentence)),
    run.caveats.length > 0 && h('div', { class: 'notice', role: 'note' },
      h('strong', {}, 'Caution'), run.caveats.map((sentence) => h('p', {}, sentence))),
    run.figures.length > 0 && keyFigures(run.figures));
}

function keyFigures(figures) {
  return h('ul', { class: 'figures', 'aria-label': 'Key figures' }, figures.map((one, i) => {
    const button = h('button', { type: 'button', class: 'key-figure', 'aria-describedby': `meaning-${i}` },
      h('span', { class: 'value' }, one.value), h('span', { class: 'name' }, one.label));
    explain(button, () => [capital(one.label), [one.meaning]]);
    return h('li', {}, button, h('span', { id: `meaning-${i}`, class: 'meaning' }, one.meaning));
  }));
}
