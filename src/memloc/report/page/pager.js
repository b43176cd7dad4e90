// Long lists are shown in pages: buttons that turn them.

function drawPager(place, { count, size, page, go }) {
  const pages = Math.max(1, Math.ceil(count / size));
  const button = (name, title, to, off) => h('button', { type: 'button', 'data-focus': name, disabled: off, onclick: () => go(to) }, title);
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute('data-focus') : null;
  place.hidden = pages < 2;
  place.replaceChildren(
    button('first', 'First', 0, page === 0),
    button('back', 'Back', page - 1, page === 0),
    h('span', {}, `${whole(page * size + 1)}–${whole(Math.min(count, (page + 1) * size))} of ${whole(count)}`),
    button('next', 'Next', page + 1, page >= pages - 1),
    button('last', 'Last', pages - 1, page >= pages - 1));
  if (focused) (place.querySelector(`[data-focus="${focused}"]:not(:disabled)`) || place.querySelector('button:not(:disabled)'))?.focus({ preventScroll: true });
}
