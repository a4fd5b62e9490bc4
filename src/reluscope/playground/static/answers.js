// Answers of the server as numbers and tables beside the picture.

import { $, badge, el, errorLines, fill, interval, number, plural, say, value } from './dom.js';
import { density } from './density.js';
import { legend, redraw, repaint } from './picture.js';
import { S, input, output, shown, spread, titled } from './state.js';

export const answered = {
  picture(found) {
    say($('note'), found.stopped ? `Only ${plural(found.count, 'region')} are drawn (${found.stopped}); zoom in to see all.` : '');
    if (typeof S.got.point?.region !== 'number') S.marked = -1;
    S.data = found.data ?? null;
    repaint();
    regionsLine();
  },
  event(found) {
    if (found.place) S.place = found.place.error ? null : found.place;
    probability(found.answer);
    legend();
    redraw();
    density(S.got.outputs);
    if (!S.live && !found.answer.error) $('spoken').textContent = `Probability ${value(found.answer)}, ${interval(found.answer)}, ${found.answer.guarantee}`;
  },
  outputs: moments,
  linear_models(found) {
    heaviest(found);
    regionsLine();
    if (S.view.colour === 'mass') repaint();
  },
  code(found) { $('python').textContent = found.python; },
  point: pointPanel,
};

export const failed = {
  picture(text) { S.sheet = null; S.marked = -1; S.place = null; say($('note'), text); regionsLine(); redraw(); },
  event(text) { probability({ error: text }); },
  outputs(text) { fill($('moments-badge')); fill($('moments'), reason(text)); density(null); },
  linear_models(text) { fill($('heaviest'), reason(text)); regionsLine(); },
  point(text) { say($('problem'), text); },
  code(text) { say($('problem'), text); },
};

// A reason that stands beside the event already is not said again.
const reason = text => el('p', { className: 'reason' }, text === S.got.event?.answer?.error ? 'Not worked out, for the reason above.' : text);

// The event has changed: its number is not known until the answer is here.
export function forgetEvent() {
  S.place = S.got.event && null;
  fill($('probability'), '…');
  fill($('probability-more'), 'not worked out yet');
  say($('event-error'), '');
  legend();
}

function probability(a) {
  $('event-error').hidden = !a.error;
  fill($('event-error'), ...(a.error ? errorLines(a.error) : []));
  $('event').setAttribute('aria-invalid', String(Boolean(a.error)));
  if (a.error) { S.place = null; fill($('probability'), '—'); fill($('probability-more')); return; }
  fill($('probability'), value(a), ' ', badge(a.guarantee, a.level));
  const rows = S.data && a.rows !== undefined ? `${a.rows.toLocaleString('en')} of ${plural(S.data.rows, 'row')} of ${S.data.name}` : '';
  fill($('probability-more'), [interval(a), a.method, a.note?.replace(/^exact: [^;]*;? ?/, ''), rows].filter(Boolean).join('; '));
}

function moments(f) {
  const inUnits = (a, o, turn) => {
    const ends = ['value', 'lower', 'upper'].map(k => a[k] === null ? null : turn(output(o), a[k])), [v, l, u] = ends;
    return { value: v, lower: l === null || u === null ? l : Math.min(l, u), upper: l === null || u === null ? u : Math.max(l, u) };
  };
  const cell = a => el('td', { className: 'n' }, value(a), el('br'), el('span', { className: 'soft' }, interval(a)));
  fill($('moments-badge'), badge(f.guarantee, f.level));
  fill($('moments'), el('table', {},
    el('thead', {}, el('tr', {}, el('th', {}, 'output'), el('th', { className: 'n' }, 'mean'), el('th', { className: 'n' }, 'standard deviation'))),
    el('tbody', {}, ...f.rows.map(r => el('tr', {}, el('td', {}, titled(output(r.output))), cell(inUnits(r.mean, r.output, shown)), cell(inUnits(r.sd, r.output, spread)))))));
  density(f);
}

function heaviest(f) {
  const row = (r, i) => {
    const mark = () => { S.marked = f.plane === S.got.picture?.plane ? r.region : -1; for (const t of $('heaviest').querySelectorAll('tr')) t.classList.toggle('marked', t === line); redraw(); };
    const place = r.region >= 0 ? el('button', { type: 'button', 'aria-label': `Show region ${i} in the picture`, onclick: mark }, 'show') : 'not in view';
    const line = el('tr', {}, el('td', { className: 'n' }, value({ ...r, value: r.mass }, 4), el('br'), el('span', { className: 'soft' }, interval({ ...r, value: r.mass }))),
      el('td', { className: 'rule' }, r.rule), el('td', {}, place));
    return line;
  };
  fill($('heaviest'), el('table', {},
    el('thead', {}, el('tr', {}, el('th', { className: 'n' }, 'probability'), el('th', {}, 'linear model'), el('th', {}, el('span', { className: 'unseen' }, 'place')))),
    el('tbody', {}, ...f.rows.map(row))),
  el('p', { className: 'soft small' }, `All but these together: at most ${number(f.others, 2)}. Method: ${f.method}.`));
}

function regionsLine() {
  const f = S.got.linear_models, { picture } = S.got, parts = [];
  if (picture) parts.push(`${plural(picture.count, 'region')}${picture.stopped ? ' or more' : ''} in view${picture.older ? `, cut by the first ${plural(S.view.layers, 'layer')}` : ''}. `);
  if (f) parts.push(`${f.complete ? `The inputs lie in ${plural(f.regions, 'region')}` : `${plural(f.regions, 'region')} were found; at most ${number(f.remainder, 2)} of the probability lies in others`}. The most probable:`);
  fill($('regions-badge'), f ? badge(f.guarantee, f.level) : null);
  fill($('regions'), ...parts);
}

const quantity = (label, v, digits = 6) => `${label.name} = ${number(shown(label, v), digits)}${label.unit ? ` ${label.unit}` : ''}`;

function pointPanel(found) {
  S.marked = typeof found.region === 'number' && found.plane === S.got.picture?.plane ? found.region : -1;
  $('point').hidden = false;
  const many = found.C.length > 12, { view } = S;
  const order = found.C.map((_, i) => i).sort((a, b) => many ? Math.abs(found.C[b]) * view.sd[b] - Math.abs(found.C[a]) * view.sd[a] : a - b);
  const rows = order.slice(0, 12).map(i => el('tr', {}, el('td', {}, input(i).name), el('td', { className: 'n' }, number(found.C[i]))));
  fill($('point-body'),
    el('p', {}, found.at.map((v, k) => quantity(input(view.axes[k]), v, 4)).join(', '), ' gives ',
      found.outputs.map(o => quantity(output(o.output), o.value)).join(', '), found.more ? ` … (${found.more} more)` : ''),
    el('p', {}, 'Probability of its region: ', found.mass.error || `${value(found.mass)} ${interval(found.mass)} `,
      found.mass.error ? null : badge(found.mass.guarantee, found.mass.level)),
    el('ul', { className: 'plain' }, ...found.pattern.map(line => el('li', {}, line))),
    el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, `y[${found.output}] there, by the network’s own inputs`), el('th', { className: 'n' }, 'coefficient'))),
      el('tbody', {}, el('tr', {}, el('td', {}, 'constant'), el('td', { className: 'n' }, number(found.d))), ...rows)),
    found.C.length > 12 ? el('p', { className: 'soft small' }, `The 12 of ${found.C.length} inputs whose spread moves it most.`) : null);
  redraw();
}

// What is under the pointer, from the picture that is there already.
export { quantity };
