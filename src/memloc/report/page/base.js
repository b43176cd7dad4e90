// Building blocks: elements, numbers in print, bytes. Data becomes text nodes, never HTML.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

const h = (tag, properties, ...children) =>
  fill(document.createElement(tag), properties, children);
const s = (tag, properties, ...children) =>
  fill(document.createElementNS(SVG, tag), properties, children);

const known = (value) => value !== null && value !== undefined;
const percent = (share, digits = 0) =>
  known(share) ? `${(100 * share).toFixed(digits)}%` : '–';
const decimal = (value, digits = 2) => (known(value) ? value.toFixed(digits) : '–');
const whole = (value) => value.toLocaleString('en-GB');
const plural = (n, noun) => `${whole(n)} ${noun}${n === 1 ? '' : 's'}`;
const layerName = (layer) => (known(layer) ? `layer ${String(+layer.toFixed(1))}` : 'never');
const windowName = ([first, last]) =>
  first === last ? `layer ${first}` : `layers ${first}–${last}`;
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function joined(words) {
  if (words.length < 2) return words.join('');
  return `${words.slice(0, -1).join(', ')} and ${words[words.length - 1]}`;
}

function bytesOf(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

const bit = (bytes, start, index) => (bytes[start + (index >> 3)] >> (index & 7)) & 1;

const palette = new Map(); // of the theme that is shown

function colour(name) {
  if (!palette.has(name)) {
    palette.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return palette.get(name);
}

// A table with the numbers of a chart: for those who cannot see it, or want to copy them.
function numbersTable(head, rows, caption) {
  return h('details', { class: 'numbers' },
    h('summary', {}, 'The numbers as a table'),
    h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
      h('table', {},
        h('caption', { class: 'unseen' }, caption),
        h('thead', {}, h('tr', {}, head.map((name) => h('th', { scope: 'col' }, name)))),
        h('tbody', {}, rows.map((row) => h('tr', {}, row.map((cell, i) =>
          i ? h('td', {}, cell) : h('th', { scope: 'row' }, cell))))))));
}

function figure(title, lede, ...content) {
  return h('figure', { class: 'figure' },
    h('figcaption', {}, h('h3', {}, title), h('p', { class: 'lede' }, lede)), ...content);
}

function section(id, title, lede, ...content) {
  return h('section', { id, 'aria-labelledby': `${id}-title` },
    h('h2', { id: `${id}-title` }, title), lede && h('p', { class: 'lede' }, lede), ...content);
}

// A box to choose one of several options from; choose(place).
function chooser(name, options, chosen, choose) {
  const select = h('select', { 'data-choice': name, onchange: (event) => choose(+event.target.value) },
    options.map((option, i) => h('option', { value: i, selected: i === chosen }, option)));
  return h('label', { class: 'chooser' }, h('span', {}, name), select);
}
