// The picture: what is painted anew, what is only moved, and its legend.

import { $, el, fill, number } from './dom.js';
import { curveSpan, draw, frame, massShade, paintRegions, rgb, shade, valueRange, valueScale } from './draw.js';
import { S, input, output, titled } from './state.js';

const canvas = $('canvas'), handle = $('handle');

// The law as it was answered for, carried to where it is now.
export function lawEllipses() {
  const found = S.got.event, { view } = S;
  if (!found?.ellipses || !found.view) return null;
  const then = found.view, k = view.axes.map(i => then.sd[i] > 0 ? view.sd[i] / then.sd[i] : 1);
  return found.ellipses.map(e => ({
    weight: e.weight,
    mean: e.mean.map((m, a) => view.at[view.axes[a]] + k[a] * (m - then.at[view.axes[a]])),
    cov: e.cov.map((row, a) => row.map((c, b) => c * k[a] * k[b])),
  }));
}

export const whole = () => !S.view.layers;
const colouring = () => whole() ? S.view.colour : 'output';

export function model() {
  const { view, got } = S, line = view.axes.length === 1, style = getComputedStyle(document.documentElement);
  return {
    view, sheet: S.sheet, span: S.span, point: S.point, marked: whole() ? S.marked : -1, picture: got.picture, ellipses: lawEllipses(),
    theme: { ink: style.getPropertyValue('--ink'), soft: style.getPropertyValue('--soft'), paper: style.getPropertyValue('--paper') },
    labels: [input(view.axes[0]), line ? (whole() ? output(view.output) : null) : input(view.axes[1])],
    place: S.place, data: S.data, classes: S.palette.classes,
    pointValue: got.point?.outputs.find(o => o.output === view.output)?.value,
  };
}

export function paint(target) {
  const { picture } = S.got, mass = S.got.linear_models?.plane === picture?.plane ? S.got.linear_models?.drawn : null;
  return paintRegions(target, { ...S.view, colour: colouring() }, picture, mass, S.palette, S.span);
}

export function repaint() {
  const { picture } = S.got, mass = S.got.linear_models?.plane === picture?.plane ? S.got.linear_models?.drawn : null;
  if (colouring() === 'mass' && !mass && S.sheet?.massive) { redraw(); return; }  // the masses are on their way
  S.span = S.view.axes.length === 2 ? null : picture ? curveSpan(picture) : [0, 1];
  S.sheet = picture && canvas.clientWidth ? paint(canvas) : null;
  if (S.sheet) S.sheet.massive = Boolean(mass);
  legend();
  redraw();
}

// At most once a frame, however many answers and movements ask for it.
let frameAsked = 0;
export function redraw() {
  if (!frameAsked) frameAsked = requestAnimationFrame(() => { frameAsked = 0; drawNow(); });
}

function drawNow() {
  const { view } = S, line = view?.axes.length === 1;
  if (!view || !canvas.clientWidth) return;
  draw(canvas, model());
  const f = frame(canvas, view, S.span), x = f.X(view.at[view.axes[0]]), y = line ? f.top + f.h - 16 : f.Y(view.at[view.axes[1]]);
  handle.style.left = `${Math.min(Math.max(x, f.left), f.left + f.w)}px`;
  handle.style.top = `${Math.min(Math.max(y, f.top), f.top + f.h)}px`;
}

function bar(stops, low, high) {
  const strip = el('canvas', { width: 120, height: 10 }), ctx = strip.getContext('2d');
  for (let x = 0; x < 120; x++) { ctx.fillStyle = rgb(shade(stops, x / 119)); ctx.fillRect(x, 0, 1, 10); }
  return el('span', {}, low, strip, high);
}

function key(colour, text) {
  const swatch = el('span', { className: 'key' });
  swatch.style.background = colour;
  return el('span', {}, swatch, text);
}

export function legend() {
  const parts = [], { picture } = S.got, mass = S.got.linear_models?.drawn, { view, palette } = S, colour = colouring();
  if (picture && colour === 'output' && view.axes.length === 2) {
    const scale = valueScale(valueRange(picture, 2), palette), label = output(view.output);
    const at = v => number(whole() ? (v - label.shift) / label.scale : v, 3);
    parts.push(whole() ? titled(label) : `unit ${view.unit} of layer ${view.layers}, before it switches`, bar(scale.stops, at(scale.low), at(scale.high)));
  } else if (colour === 'mass') {
    const most = mass ? mass.reduce((a, b) => Math.max(a, b ?? 0), 0) : 0;
    if (most) parts.push('probability of the region', bar(palette.sequential, `≤ ${number(most * 1e-6, 2)}`, number(most, 3)));
    if (mass?.includes(null)) parts.push(key(rgb(massShade(null, 1, palette)), 'not seen'));
  } else if (picture && colour !== 'output') {
    for (const o of picture.outputs) if (!S.sheet?.won || S.sheet.won.has(o)) parts.push(key(rgb(palette.categories[o]), output(o).name));
  }
  if (!whole()) parts.push(el('span', {}, el('span', { className: 'key newest' }), 'cut by the last of these layers'));
  if (S.place?.points.length) parts.push(el('span', {}, el('span', { className: 'key side' }), 'in the event'));
  parts.push(el('span', {}, el('span', { className: 'key sigma' }), '1 and 2 standard deviations'));
  if (S.data) parts.push(el('span', {}, el('span', { className: 'key row' }), `${S.data.name}: ${S.data.rows.toLocaleString('en')} rows`));
  fill($('legend'), ...parts);
}
