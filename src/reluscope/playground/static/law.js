// Controls of the law: which one, its mean and spread in the shown inputs, and the values of the others.

import { $, el, fill } from './dom.js';
import { change, moved, rest } from './questions.js';
import { KINDS, LAW, S, input, own, shown, spread, titled } from './state.js';

const MOST_SLIDERS = 6, MOST_ROWS = 400;
const digits = v => Number(v.toPrecision(5));
const tidy = (v, unit) => Math.abs(v) < 1e-9 * unit ? 0 : v;  // rounding of a mean, not a value

export function controls() {
  const { net, view } = S, several = net.inputs.length > 2;
  const kinds = net.own ? [['own', 'the network’s own: ' + net.law]] : [];
  kinds.push(['shown', several ? 'Gaussian in the two shown inputs, the others fixed' : 'Gaussian']);
  if (several) kinds.push(['all', 'Gaussian in all inputs']);
  fill($('vary'), ...kinds.map(([value, text]) => el('label', {}, el('input', {
    type: 'radio', name: 'vary', value, checked: view.vary === value,
    onchange() { view.vary = value; lawNote(); change(KINDS); },
  }), ' ', text)));
  fill($('sliders'), ...view.axes.flatMap(i => [slider(i, 'at'), slider(i, 'sd')]));
  const others = net.inputs.map((_, i) => i).filter(i => !view.axes.includes(i));
  $('held').hidden = !others.length;
  fill($('held-sliders'), ...others.slice(0, MOST_SLIDERS).map(i => slider(i, 'at', true)));
  $('others').hidden = !others.length;
  if ($('others').open) otherRows();
  lawNote();
}

// The network's own law keeps its shape: it is moved and stretched as a whole.
export function lawNote() {
  const { view, first } = S, as = (a, b) => a.every((v, i) => v === b[i]);
  const where = as(view.at, first.at), wide = as(view.sd, first.sd);
  const moved = [where ? '' : 'moved', wide ? '' : 'stretched'].filter(Boolean).join(' and ');
  $('law-note').textContent = view.vary === 'own' && moved ? `The law has its own shape, ${moved}.` : '';
  $('home').hidden = where && wide;
}

export function home() {
  S.view.at = S.first.at.slice();
  S.view.sd = S.first.sd.slice();
  controls();
  change(KINDS);
}

function put(i, what, value, held) {
  S.view[what][i] = value;
  lawNote();
  return held ? ['picture', ...LAW] : LAW;
}

function slider(i, what, held = false) {
  const { view, first } = S, label = input(i), sd = what === 'sd', unit = first.sd[i];
  const text = sd ? `standard deviation of ${label.name}` : held ? `value of ${label.name}` : `mean of ${label.name}`;
  const place = () => sd ? Math.log10(view.sd[i] / unit) : view.at[i];
  const read = () => digits(sd ? spread(label, view.sd[i]) : shown(label, tidy(view.at[i], unit)));
  const range = el('input', { type: 'range', 'aria-label': text });
  Object.assign(range, sd ? { min: -2, max: 1, step: 0.01 } : { min: first.at[i] - 4 * unit, max: first.at[i] + 4 * unit, step: unit / 100 });
  range.value = place();
  const box = el('input', { type: 'number', step: 'any', value: read(), 'aria-label': `${text}, as a number`, id: `${what}-${i}` });
  range.addEventListener('input', () => { const kinds = put(i, what, sd ? unit * 10 ** Number(range.value) : Number(range.value), held); box.value = read(); moved(kinds); });
  range.addEventListener('change', rest);
  box.addEventListener('change', () => {
    const value = box.value === '' ? NaN : sd ? Number(box.value) * Math.abs(label.scale) : own(label, Number(box.value));
    if (!Number.isFinite(value) || (sd && value <= 0)) { box.value = read(); return; }
    change(put(i, what, value, held));
    range.value = place();
  });
  return el('div', { className: 'slider' }, el('span', { title: `${text}${label.unit ? `, ${label.unit}` : ''}` }, sd ? `± ${titled(label)}` : titled(label)), range, box);
}

export function otherRows() {
  const { net, view } = S;
  const cell = (i, what) => {
    const label = input(i), sd = what === 'sd', read = () => digits(sd ? spread(label, view.sd[i]) : shown(label, view.at[i]));
    return el('input', {
      type: 'number', step: 'any', value: read(), 'aria-label': `${sd ? 'standard deviation' : 'value'} of ${label.name}`,
      onchange(e) {
        const value = e.target.value === '' ? NaN : sd ? Number(e.target.value) * Math.abs(label.scale) : own(label, Number(e.target.value));
        if (!Number.isFinite(value) || (sd && (value < 0 || (value === 0 && view.vary === 'own')))) { e.target.value = read(); return; }
        change(put(i, what, value, true));
      },
    });
  };
  const others = net.inputs.map((_, i) => i).filter(i => !view.axes.includes(i)).slice(0, MOST_ROWS);
  fill($('rows'), el('p', { className: 'soft small' }, 'Name, value (and mean), standard deviation.'),
    ...others.map(i => el('div', { className: 'slider' }, el('span', {}, titled(input(i))), cell(i, 'at'), cell(i, 'sd'))));
}

// The boxes and sliders of the shown inputs follow the handle.
export function follow() {
  for (const i of S.view.axes) {
    const box = $(`at-${i}`);
    if (!box) continue;
    box.value = digits(shown(input(i), tidy(S.view.at[i], S.first.sd[i])));
    box.previousSibling.value = S.view.at[i];
  }
  lawNote();
}
