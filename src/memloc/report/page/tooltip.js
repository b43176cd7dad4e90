// One tooltip for everything, and the two ways to reach it: pointer and keyboard.

const tip = document.getElementById('tip');
const spoken = document.getElementById('spoken');

// Content: a title and rows of [name, value] or of a single sentence.
function showTip(title, rows, x, y) {
  tip.replaceChildren(
    h('strong', {}, title),
    ...rows.map((row) => Array.isArray(row)
      ? h('div', { class: 'tip-row' }, h('span', {}, row[0]), h('span', {}, row[1]))
      : h('p', {}, row)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, x + 14), document.documentElement.clientWidth - width - 8);
  const below = y + 18;
  const top = below + height > window.innerHeight - 8 ? Math.max(8, y - height - 14) : below;
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}

function hideTip() {
  tip.hidden = true;
}

function speak(title, rows) {
  spoken.textContent = [title, ...rows.map((row) => (Array.isArray(row) ? row.join(': ') : row))]
    .join('. ');
}

const middle = (element) => {
  const box = element.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
};

// Show a tooltip on an element, when the pointer is on it and when it has the focus.
function explain(element, content) {
  element.addEventListener('pointermove', (event) => {
    showTip(...content(), event.clientX, event.clientY);
  });
  element.addEventListener('pointerleave', hideTip);
  element.addEventListener('focus', () => {
    if (element.matches(':focus-visible')) showTip(...content(), ...middle(element));
  });
  element.addEventListener('blur', hideTip);
  element.addEventListener('click', (event) => {
    if (event.pointerType === 'touch') showTip(...content(), event.clientX, event.clientY);
  });
  return element;
}

document.addEventListener('pointerdown', hideTip);

// Many small things in a chart are one stop of the Tab key; arrows go from one to the next.
// Elements carry data-row and data-column; Enter and Space act.
function setCurrent(element) {
  const group = element.closest('[data-roving]');
  if (!group) return;
  for (const one of group.querySelectorAll('[data-key][tabindex="0"]')) {
    one.setAttribute('tabindex', '-1');
  }
  element.setAttribute('tabindex', '0');
}

function roving(group) {
  group.setAttribute('data-roving', '');
  const first = group.querySelector('[data-key]');
  if (first && !group.querySelector('[data-key][tabindex="0"]')) first.setAttribute('tabindex', '0');
  group.addEventListener('keydown', (event) => {
    const from = event.target.closest('[data-key]');
    if (!from) return;
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key in steps) {
      event.preventDefault();
      const [down, right] = steps[event.key];
      const row = +from.dataset.row + down;
      const column = +from.dataset.column + right;
      const to = group.querySelector(`[data-row="${row}"][data-column="${column}"]`);
      if (to) { setCurrent(to); to.focus(); }
    } else if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      from.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    }
  });
  return group;
}

// A line through a chart at the nearest of several places along x.
function crosshair(svg, { count, xOf, top, bottom, content, start = 0 }) {
  const line = s('line', { y1: top, y2: bottom, class: 'crosshair', visibility: 'hidden' });
  svg.append(line);
  let at = start;
  const show = (index, x, y) => {
    at = Math.min(count - 1, Math.max(0, index));
    line.setAttribute('x1', xOf(at));
    line.setAttribute('x2', xOf(at));
    line.setAttribute('visibility', 'visible');
    showTip(...content(at), x, y);
  };
  const hide = () => {
    line.setAttribute('visibility', 'hidden');
    hideTip();
  };
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    let nearest = 0;
    for (let i = 1; i < count; i++) {
      if (Math.abs(xOf(i) - x) < Math.abs(xOf(nearest) - x)) nearest = i;
    }
    show(nearest, event.clientX, event.clientY);
  });
  svg.addEventListener('pointerleave', hide);
  const showAt = (index) => {
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    show(index, box.left + xOf(Math.min(count - 1, Math.max(0, index))) * scale, box.top + top);
    speak(...content(at));
  };
  svg.setAttribute('tabindex', '0');
  svg.addEventListener('focus', () => { if (svg.matches(':focus-visible')) showAt(at); });
  svg.addEventListener('blur', hide);
  svg.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      event.preventDefault();
      showAt(at + step);
    }
  });
  return svg;
}
