// The bar at the bottom: what is selected, and how to clear it.

const selectionPlace = document.getElementById('selection');

function drawSelection() {
  const parts = [];
  if (state.cell) parts.push(cellPart());
  if (state.crossing) {
    parts.push(h('span', { class: 'part' }, known(state.crossing.layer)
      ? `Crosses for good in layer ${state.crossing.layer}` : 'Never crosses for good'));
  }
  if (state.search) parts.push(h('span', { class: 'part' }, 'Text has ', h('bdi', { class: 'words' }, `“${state.search.slice(0, 40)}”`)));
  if (state.selected !== null) {
    const number = currentRun().examples.example[state.selected];
    parts.push(h('span', { class: 'part' }, `Example ${number} is marked in the charts`));
  }
  const there = parts.length > 0;
  selectionPlace.hidden = !there;
  document.body.classList.toggle('selecting', there);
  if (!there) {
    selectionPlace.replaceChildren();
    return;
  }
  const focused = selectionPlace.contains(document.activeElement) ? document.activeElement.getAttribute('data-focus') : null;
  selectionPlace.replaceChildren(
    h('div', { class: 'parts' }, parts),
    h('div', { class: 'actions' },
      isFiltered() && h('strong', {}, `${whole(shownRows.length)} of ${plural(currentRun().examples.example.length, 'example')}`),
      h('a', { href: '#examples', class: 'button' }, 'Show in the table'),
      h('button', { type: 'button', class: 'button', 'data-focus': 'clear', onclick: clearAll }, 'Clear')));
  if (focused) selectionPlace.querySelector(`[data-focus="${focused}"]`)?.focus({ preventScroll: true });
}

// A cell of E stands for several windows: any of them, or one.
function cellPart() {
  const { technique, size, layer, windows, only } = state.cell;
  const undone = undoneBy(technique);
  const one = (index) => h('button', {
    type: 'button', class: 'chip', 'aria-pressed': String(only === index), 'data-focus': `window ${index}`,
    onclick: () => change({ cell: { ...state.cell, only: index }, page: 0 }),
  }, index === null ? `any of ${windows.length}` : windowName(undone.windows[index]));
  const what = windows.length === 1
    ? `Undone by ${technique} ${windowName(undone.windows[windows[0]])}`
    : `Undone by ${technique} ${plural(size, 'layer')}, layer ${layer} among them:`;
  return h('span', { class: 'part' }, what,
    windows.length > 1 && h('span', { class: 'chips', role: 'group', 'aria-label': 'Windows' }, one(null), windows.map(one)));
}
