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
  const kept = Math.min(6, Math.max(2, digits || 6));
  return `in [${a.lower === null ? '−∞' : number(outward(a.lower, kept, -1), kept)}, ${a.upper === null ? '∞' : number(outward(a.upper, kept, 1), kept)}]`;
}

// The next number of so many digits, down (way −1) or up: an end of an interval is never rounded into it.
function outward(x, digits, way) {
  const near = Number(x.toPrecision(digits));
  return way * (x - near) <= 0 ? near : Number((near + way * 10 ** (Math.floor(Math.log10(Math.abs(x))) - digits + 1)).toPrecision(digits));
}

// As many digits as the interval supports, and one more: two at least, six (or `most`) at most.
export function value(a, most = 6) {
  const width = a.lower === null || a.upper === null ? Infinity : a.upper - a.lower;
  const digits = width > 0 ? Math.ceil(Math.log10(Math.abs(a.value) / width)) + 1 : most;
  return number(a.value, Math.min(most, Math.max(2, digits || 2)));
}

// An event's error: the sentence, and below it the event with a caret at the place, in a fixed font.
export function errorLines(text) {
  const at = text.indexOf('\n');
  if (at < 0) return [text];
  return [text.slice(0, at).replace(/^event: /, ''), el('pre', { className: 'caret' }, text.slice(at + 1).replace(/^ {4}/gm, ''))];
}
