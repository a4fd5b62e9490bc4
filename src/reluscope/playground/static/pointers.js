// Mouse, touch and keys on the picture: the handle moves the law; wheel, pinch and dragging move the view; a click asks, hovering tells.

import { $, el, fill } from './dom.js';
import { quantity } from './answers.js';
import { frame, inEvent, regionAt, valueAt } from './draw.js';
import { follow } from './law.js';
import { whole } from './picture.js';
import { change, moved, rest } from './questions.js';
import { LAW, S, input, output } from './state.js';

const canvas = $('canvas'), handle = $('handle'), tip = $('tip');
const PLANE = ['picture', 'event', 'linear_models', 'code'], WHEEL = 0.0015;

const at = e => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
const back = p => frame(canvas, S.view, S.span).back(...p).slice(0, S.view.axes.length);
const inView = u => u.every((v, k) => v >= S.view.lower[k] && v <= S.view.upper[k]);

export function zoom(by, centre, lively = false) {
  const { view } = S, middle = centre ?? view.lower.map((lo, k) => (lo + view.upper[k]) / 2);
  const lower = view.lower.map((lo, k) => middle[k] + (lo - middle[k]) * by), upper = view.upper.map((hi, k) => middle[k] + (hi - middle[k]) * by);
  const fits = lower.every((lo, k) => upper[k] - lo > 1e-9 * Math.max(Math.abs(lo), Math.abs(upper[k]), 1e-30) && upper[k] - lo < 1e12);
  if (fits) Object.assign(view, { lower, upper });
  S.marked = -1;
  (lively ? moved : change)(PLANE);
}

function placeLaw(values) {
  const { view } = S;
  view.axes.forEach((i, k) => { if (Number.isFinite(values[k])) view.at[i] = Math.min(Math.max(values[k], view.lower[k]), view.upper[k]); });
  follow();
  moved(LAW);
}

function look(u) {
  S.point = u;
  S.got.point = null;
  S.marked = -1;
  change(['point']);
}

function theHandle() {
  let holding = false;
  handle.addEventListener('pointerdown', e => { holding = true; handle.setPointerCapture(e.pointerId); });
  handle.addEventListener('pointermove', e => { if (holding) placeLaw(back(at(e))); });
  for (const end of ['pointerup', 'pointercancel']) handle.addEventListener(end, () => { if (holding) { holding = false; rest(); } });
  handle.addEventListener('keydown', e => {
    const { view } = S;
    if (e.key === 'Enter') { e.preventDefault(); look(view.axes.map(i => view.at[i])); }
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[e.key];
    if (!way) return;
    e.preventDefault();
    const share = e.shiftKey ? 0.1 : 0.02;
    placeLaw(view.axes.map((i, k) => view.at[i] + way[k] * share * (view.upper[k] - view.lower[k])));
  });
}

// One pointer drags the view (a mouse) or scrolls the page (a finger); two fingers pinch.
function theView() {
  const down = new Map();
  let begin = null, pressed = null;
  const pan = (from, to) => {
    const f = frame(canvas, S.view, S.span);
    const step = S.view.axes.map((_, k) => -(to[k] - from[k]) / (k ? f.sy : f.sx));
    S.view.lower = pressed.lower.map((v, k) => v + step[k]);
    S.view.upper = pressed.upper.map((v, k) => v + step[k]);
    S.marked = -1;
    moved(PLANE);
  };
  const pinch = () => {
    const [a, b] = [...down.values()], gap = Math.hypot(a[0] - b[0], a[1] - b[1]), middle = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
    if (!begin) { begin = { gap, lower: S.view.lower, upper: S.view.upper, centre: back(middle) }; return; }
    Object.assign(S.view, { lower: begin.lower, upper: begin.upper });
    zoom(begin.gap / Math.max(gap, 1), begin.centre, true);
  };
  canvas.addEventListener('pointerdown', e => {
    down.set(e.pointerId, at(e));
    pressed = down.size === 1 ? { from: at(e), lower: S.view.lower, upper: S.view.upper, moved: false, mouse: e.pointerType === 'mouse' } : null;
  });
  canvas.addEventListener('pointermove', e => {
    if (down.has(e.pointerId)) down.set(e.pointerId, at(e));
    if (down.size === 2) { e.preventDefault(); pinch(); return; }
    if (!pressed?.mouse || !(e.buttons & 1)) return;
    if (!pressed.moved && Math.hypot(...at(e).map((p, k) => p - pressed.from[k])) < 5) return;
    pressed.moved = true;
    pan(pressed.from, at(e));
  });
  canvas.addEventListener('pointerup', e => {
    const done = pressed;
    down.delete(e.pointerId);
    if (down.size < 2) begin = null;
    pressed = null;
    if (!done || done.moved) { rest(); return; }
    const u = back(at(e));
    if (inView(u)) look(u);
  });
  canvas.addEventListener('pointercancel', e => { down.delete(e.pointerId); begin = pressed = null; });
  canvas.addEventListener('touchmove', e => { if (e.touches.length > 1) e.preventDefault(); }, { passive: false });
  canvas.addEventListener('wheel', e => {
    const u = back(at(e));
    if (!inView(u)) return;
    e.preventDefault();
    zoom(Math.exp(WHEEL * e.deltaY * (e.deltaMode === 1 ? 20 : 1)), u, true);
  }, { passive: false });
}

function told(u) {
  const { picture } = S.got, { view } = S, i = picture ? regionAt(picture, u) : -1, lines = [];
  lines.push(u.map((v, k) => quantity(input(view.axes[k]), v, 4)).join(', '));
  if (i >= 0) for (const [k, o] of picture.outputs.entries()) {
    const y = valueAt(picture, i, k, u);
    lines.push(whole() ? quantity(output(o), y, 4) : `unit ${view.unit} of layer ${view.layers}: ${Number(y.toPrecision(4))}`);
  }
  if (S.place && whole()) lines.push(inEvent(S.place, u) ? 'in the event' : 'not in the event');
  return lines;
}

function hovering() {
  let asked = 0;
  const hide = () => { tip.hidden = true; cancelAnimationFrame(asked); };
  canvas.addEventListener('pointermove', e => {
    if (e.pointerType !== 'mouse' || e.buttons) { hide(); return; }
    const spot = at(e), u = back(spot);
    if (!inView(u)) { hide(); return; }
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(() => {
      fill(tip, ...told(u).map(line => el('div', {}, line)));
      tip.hidden = false;
      const wide = tip.offsetWidth, high = tip.offsetHeight;
      tip.style.left = `${spot[0] + 14 + wide > canvas.clientWidth ? spot[0] - 10 - wide : spot[0] + 14}px`;
      tip.style.top = `${spot[1] + 14 + high > canvas.clientHeight ? spot[1] - 10 - high : spot[1] + 14}px`;
    });
  });
  canvas.addEventListener('pointerleave', hide);
}

export function pointers() { theHandle(); theView(); hovering(); }
