// Small things: elements made of text nodes only, numbers as people read them.

export const $ = id => document.getElementById(id);

export function el(tag, values = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(values)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (key in made && key !== 'list') made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter(c => c !== null));
  return made;
}

export const fill = (node, ...children) => node.replaceChildren(...children.filter(c => c !== null));

export function say(node, text) {
  node.hidden = !text;
  node.textContent = text || '';
}

export const number = (x, digits = 6) => x === null || x === undefined ? '∞' : String(Number(x.toPrecision(digits))).replaceAll('-', '−');
export const plural = (n, noun) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;
export const badge = (kind, level) => el('span', { className: `badge ${kind}` }, level ? `${kind} ${Number((100 * level).toPrecision(6))} %` : kind);
export const pause = ms => new Promise(done => setTimeout(done, ms));

export function interval(a) {
  const width = a.lower === null || a.upper === null ? null : a.upper - a.lower;
  const tight = width !== null && width <= 1e-6 * Math.abs(a.value);
  if (tight) return width > 0 ? `± ${number(width / 2, 1)}` : '± 0';
  const digits = width > 0 ? Math.ceil(Math.log10(Math.max(Math.abs(a.lower), Math.abs(a.upper)) / width)) + 2 : 6;
  const end = v => number(v, Math.min(6, Math.max(2, digits || 6)));
  return `in [${a.lower === null ? '−∞' : end(a.lower)}, ${a.upper === null ? '∞' : end(a.upper)}]`;
}

// As many digits as the interval supports, and one more: two at least, six at most.
export function value(a) {
  const width = a.lower === null || a.upper === null ? Infinity : a.upper - a.lower;
  const digits = width > 0 ? Math.ceil(Math.log10(Math.abs(a.value) / width)) + 1 : 6;
  return number(a.value, Math.min(6, Math.max(2, digits || 2)));
}

// An event's error: the sentence, and below it the event with a caret at the place, in a fixed font.
export function errorLines(text) {
  const at = text.indexOf('\n');
  if (at < 0) return [text];
  return [text.slice(0, at).replace(/^event: /, ''), el('pre', { className: 'caret' }, text.slice(at + 1).replace(/^ {4}/gm, ''))];
}
