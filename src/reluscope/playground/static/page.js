// The page's state, its controls and its questions to the server. Text from networks and users only ever becomes text nodes.

import { curveSpan, draw, frame, massShade, paintRegions, rgb, shade, valueRange, valueScale } from './draw.js';

const $ = id => document.getElementById(id);
const canvas = $('canvas'), handle = $('handle');
const page = Array.from(crypto.getRandomValues(new Uint8Array(12)), b => b.toString(16).padStart(2, '0')).join('');
const SIGMAS = 3.5, LIVE_PAUSE = 120, SETTLE = 350, QUICK = 250;

let palette, net, view, first;                       // colours; the open network; its view, and the one it began with
let got = {};                                        // the last answer of each kind
let point = null, marked = -1, sheet = null, span = null, live = false, settle = 0, turn = 0, running = false, lastAsked = 0;
const KINDS = ['picture', 'event', 'outputs', 'linear_models', 'point', 'code'], LAW = ['event', 'outputs', 'linear_models', 'point', 'code'];
const dirty = new Set(), took = {}, asks = {};       // what is to be asked; how long each kind took, and when it was asked, in ms

// -- small things ---------------------------------------------------------------------------------------------------

function el(tag, values = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(values)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (key in made && key !== 'list') made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter(c => c !== null));
  return made;
}

const fill = (node, ...children) => node.replaceChildren(...children.filter(c => c !== null));
const number = (x, digits = 6) => x === null || x === undefined ? '∞' : String(Number(x.toPrecision(digits))).replaceAll('-', '−');
const plural = (n, noun) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;
const badge = (kind, level) => el('span', { className: `badge ${kind}` }, level ? `${kind} ${Number((100 * level).toPrecision(6))} %` : kind);

function say(node, text) {
  node.hidden = !text;
  node.textContent = text || '';
}

function interval(a) {
  const width = a.lower === null || a.upper === null ? null : a.upper - a.lower;
  const tight = width !== null && width <= 1e-6 * Math.abs(a.value);
  if (tight) return width > 0 ? `± ${number(width / 2, 1)}` : '± 0';
  return `in [${a.lower === null ? '−∞' : number(a.lower)}, ${number(a.upper)}]`;
}

// As many digits as the interval supports, and one more: two at least, six at most.
function value(a) {
  const width = a.lower === null || a.upper === null ? Infinity : a.upper - a.lower;
  const digits = width > 0 ? Math.ceil(Math.log10(Math.abs(a.value) / width)) + 1 : 6;
  return number(a.value, Math.min(6, Math.max(2, digits || 2)));
}

// -- questions ------------------------------------------------------------------------------------------------------

async function ask(name, body, kind = 'application/json') {
  const slow = setTimeout(() => say($('busy'), 'working…'), 500);
  const slower = setTimeout(() => say($('busy'), 'working… (code is compiled on first use, which takes a while once)'), 5000);
  try {
    const answer = await fetch(`api/${name}`, {
      method: 'POST', headers: { 'Content-Type': kind }, body: kind === 'application/json' ? JSON.stringify(body) : body,
    }).catch(() => { throw Object.assign(new Error('The server has stopped. Start `reluscope playground` again; the numbers shown are out of date.'), { status: 0 }); });
    const found = await answer.json().catch(() => ({ error: 'the server gave no answer' }));
    if (!answer.ok) throw Object.assign(new Error(found.error), { status: answer.status });
    return found;
  } finally {
    clearTimeout(slow);
    clearTimeout(slower);
    $('busy').hidden = true;
  }
}

// What the polygons depend on, to tell whether two answers are about the same ones.
const planeOf = v => JSON.stringify([v.axes, v.lower, v.upper, v.at.filter((_, i) => !v.axes.includes(i))]);
const pause = ms => new Promise(done => setTimeout(done, ms));

// One question at a time; while it is under way, newer ones replace those that wait.
async function pump() {
  if (running) return;
  running = true;
  document.body.setAttribute('aria-busy', 'true');
  try {
    for (;;) {
      // While something moves, only what is quick is asked, in turns; the rest waits until it rests.
      const ready = KINDS.filter(k => dirty.has(k) && (!live || k === 'picture' || k === 'event' || (k !== 'code' && took[k] < QUICK)));
      const kind = live ? ready.sort((a, b) => (asks[a] ?? 0) - (asks[b] ?? 0))[0] : ready[0];
      if (!kind) break;
      if (live) await pause(Math.max(0, lastAsked + LIVE_PAUSE - performance.now()));
      lastAsked = asks[kind] = performance.now();
      dirty.delete(kind);
      if (kind === 'point' && !point) continue;
      const methods = ['outputs', 'linear_models'].map(k => got[k]?.asked ?? 'auto');
      const asked = { page, turn: ++turn, network: net.key, view: { ...view, live }, point, methods };
      try {
        const found = await ask(kind, asked);
        took[kind] = performance.now() - lastAsked;
        // An answer about another network, plane or place is stale.
        if (asked.network !== net.key || String(asked.view.axes) !== String(view.axes)) continue;
        if (kind === 'point' && String(asked.point) !== String(point)) continue;
        got[kind] = Object.assign(found, { plane: planeOf(asked.view) });
        shows[kind](found);
      } catch (error) {
        if (error.status === 409) continue;
        if (error.status === 503) { dirty.add(kind); await pause(800); continue; }
        if (error.status === undefined) throw error;
        if (asked.network !== net.key) continue;
        got[kind] = null;
        fails[kind](error.message);
      }
    }
  } finally {
    running = false;
    document.body.setAttribute('aria-busy', String(live));
  }
}

function change(kinds) {
  for (const kind of kinds) dirty.add(kind);
  say($('problem'), '');
  redraw();
  pump();
}

// While something moves, answers may be rough; when it rests, they are asked for again.
function moved() {
  live = true;
  clearTimeout(settle);
  settle = setTimeout(rest, SETTLE);
  change(LAW);
}

function rest() {
  clearTimeout(settle);
  if (!live) return;
  live = false;
  change(LAW);
}

// -- pictures -------------------------------------------------------------------------------------------------------

function lawEllipses() {
  if (view.vary === 'own' || !live) return got.event?.ellipses;
  const [i, j] = view.axes, v = k => view.sd[k] ** 2;  // before the server has answered
  return [{ weight: 1, mean: view.axes.map(k => view.at[k]), cov: view.axes.length === 1 ? [[v(i)]] : [[v(i), 0], [0, v(j)]] }];
}

function repaint() {
  const { picture } = got, mass = got.linear_models?.plane === picture?.plane ? got.linear_models?.drawn : null;
  if (view.colour === 'mass' && !mass && sheet?.massive) { redraw(); return; }  // the masses are on their way
  span = view.axes.length === 2 ? null : picture ? curveSpan(picture) : [0, 1];
  sheet = picture && canvas.clientWidth ? paintRegions(canvas, view, picture, mass, palette, span) : null;
  if (sheet) sheet.massive = Boolean(mass);
  legend();
  redraw();
}

function redraw() {
  if (!view || !canvas.clientWidth) return;
  const style = getComputedStyle(document.documentElement), line = view.axes.length === 1;
  draw(canvas, {
    view, sheet, span, point, marked, picture: got.picture, ellipses: lawEllipses(),
    theme: { ink: style.getPropertyValue('--ink'), soft: style.getPropertyValue('--soft') },
    names: [net.names[view.axes[0]], line ? 'output' : net.names[view.axes[1]]],
    limit: Array.isArray(got.event?.limit) ? got.event.limit : null,
    pointValue: got.point?.outputs.find(o => o.name === `y[${view.output}]`)?.value,
  });
  const f = frame(canvas, view, span), x = f.X(view.at[view.axes[0]]), y = line ? f.top + f.h - 16 : f.Y(view.at[view.axes[1]]);
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

function legend() {
  const parts = [], { picture } = got, mass = got.linear_models?.drawn;
  if (picture && view.colour === 'output' && view.axes.length === 2) {
    const scale = valueScale(valueRange(picture, 2), palette);
    parts.push(`y[${view.output}]`, bar(scale.stops, number(scale.low, 3), number(scale.high, 3)));
  } else if (view.colour === 'mass') {
    const most = mass ? mass.reduce((a, b) => Math.max(a, b ?? 0), 0) : 0;
    if (most) parts.push('probability of the region', bar(palette.sequential, `≤ ${number(most * 1e-6, 2)}`, number(most, 3)));
    if (mass?.includes(null)) parts.push(key(rgb(massShade(null, 1, palette)), 'not seen'));
  } else if (picture && view.colour !== 'output') {
    for (const o of picture.outputs) if (!sheet?.won || sheet.won.has(o)) parts.push(key(rgb(palette.categories[o]), `y[${o}]`));
  }
  if (Array.isArray(got.event?.limit) && got.event.limit.length) parts.push(el('span', {}, el('span', { className: 'key limit' }), 'limit of the event'));
  parts.push(el('span', {}, el('span', { className: 'key sigma' }), '1 and 2 standard deviations'));
  fill($('legend'), ...parts);
}

// -- answers --------------------------------------------------------------------------------------------------------

const shows = {
  picture(found) {
    say($('note'), found.stopped ? `Only ${plural(found.count, 'region')} are drawn (${found.stopped}); zoom in to see all.` : '');
    if (typeof got.point?.region !== 'number') marked = -1;
    repaint();
    regionsLine();
  },
  event(found) {
    probability(found.answer);
    legend();
    redraw();
    if (!live && !found.answer.error) $('spoken').textContent = `Probability ${value(found.answer)}, ${interval(found.answer)}, ${found.answer.guarantee}`;
  },
  outputs: moments,
  linear_models(found) {
    heaviest(found);
    regionsLine();
    if (view.colour === 'mass') repaint();
  },
  code(found) { $('python').textContent = found.python; },
  point(found) {
    marked = typeof found.region === 'number' && found.plane === got.picture?.plane ? found.region : -1;
    $('point').hidden = false;
    const name = i => net.names[i], many = found.C.length > 12;
    const order = found.C.map((_, i) => i).sort((a, b) => many ? Math.abs(found.C[b]) * view.sd[b] - Math.abs(found.C[a]) * view.sd[a] : a - b);
    const rows = order.slice(0, 12).map(i => el('tr', {}, el('td', {}, name(i)), el('td', { className: 'n' }, number(found.C[i]))));
    fill($('point-body'),
      el('p', {}, found.at.map((v, k) => `${name(view.axes[k])} = ${number(v, 4)}`).join(', '), ' gives ',
        found.outputs.map(o => `${o.name} = ${number(o.value)}`).join(', '), found.more ? ` … (${found.more} more)` : ''),
      el('p', {}, 'Probability of its region: ', found.mass.error || `${value(found.mass)} ${interval(found.mass)} `,
        found.mass.error ? null : badge(found.mass.guarantee, found.mass.level)),
      el('ul', { className: 'plain' }, ...found.pattern.map(line => el('li', {}, line))),
      el('table', {}, el('thead', {}, el('tr', {}, el('th', {}, `y[${found.output}] there`), el('th', { className: 'n' }, 'coefficient'))),
        el('tbody', {}, el('tr', {}, el('td', {}, 'constant'), el('td', { className: 'n' }, number(found.d))), ...rows)),
      found.C.length > 12 ? el('p', { className: 'soft small' }, `The 12 of ${found.C.length} inputs whose spread moves it most.`) : null);
    redraw();
  },
};

const fails = {
  picture(text) { sheet = null; marked = -1; say($('note'), text); regionsLine(); redraw(); },
  event(text) { say($('problem'), text); },
  outputs(text) { fill($('moments-badge')); fill($('moments'), reason(text)); },
  linear_models(text) { fill($('heaviest'), reason(text)); regionsLine(); },
  point(text) { say($('problem'), text); },
  code(text) { say($('problem'), text); },
};

// A reason that stands beside the event already is not said again.
const reason = text => el('p', { className: 'reason' }, text === got.event?.answer.error ? 'Not worked out, for the reason above.' : text);

function probability(a) {
  say($('event-error'), a.error);
  $('event').setAttribute('aria-invalid', String(Boolean(a.error)));
  if (a.error) { fill($('probability'), '—'); fill($('probability-more')); return; }
  fill($('probability'), value(a), ' ', badge(a.guarantee, a.level));
  fill($('probability-more'), [interval(a), a.method, a.note].filter(Boolean).join('; '));
}

function moments(f) {
  const cell = a => el('td', { className: 'n' }, number(a.value), el('br'), el('span', { className: 'soft' }, interval(a)));
  fill($('moments-badge'), badge(f.guarantee, f.level));
  fill($('moments'), el('table', {},
    el('thead', {}, el('tr', {}, el('th', {}, 'output'), el('th', { className: 'n' }, 'mean'), el('th', { className: 'n' }, 'standard deviation'))),
    el('tbody', {}, ...f.rows.map(r => el('tr', {}, el('td', {}, r.name), cell(r.mean), cell(r.sd))))));
}

function heaviest(f) {
  const row = (r, i) => {
    const mark = () => { marked = f.plane === got.picture?.plane ? r.region : -1; for (const t of $('heaviest').querySelectorAll('tr')) t.classList.toggle('marked', t === line); redraw(); };
    const place = r.region >= 0 ? el('button', { type: 'button', 'aria-label': `Show region ${i} in the picture`, onclick: mark }, 'show') : 'not in view';
    const line = el('tr', {}, el('td', { className: 'n' }, number(r.mass, 4), el('br'), el('span', { className: 'soft' }, interval({ ...r, value: r.mass }))),
      el('td', { className: 'rule' }, r.rule), el('td', {}, place));
    return line;
  };
  fill($('heaviest'), el('table', {},
    el('thead', {}, el('tr', {}, el('th', { className: 'n' }, 'probability'), el('th', {}, 'linear model'), el('th'))),
    el('tbody', {}, ...f.rows.map(row))),
  el('p', { className: 'soft small' }, `All others together: at most ${number(f.others, 2)}. Method: ${f.method}.`));
}

function regionsLine() {
  const f = got.linear_models, { picture } = got, parts = [];
  if (picture) parts.push(`${plural(picture.count, 'region')}${picture.stopped ? ' or more' : ''} in view. `);
  if (f) parts.push(`${f.complete ? `The inputs lie in ${plural(f.regions, 'region')}` : `${plural(f.regions, 'region')} were found; at most ${number(f.remainder, 2)} of the probability lies in others`}. The most probable:`);
  fill($('regions-badge'), f ? badge(f.guarantee, f.level) : null);
  fill($('regions'), ...parts);
}

// -- controls -------------------------------------------------------------------------------------------------------

function choose(select, options, value) {
  fill(select, ...options.map(([v, text]) => el('option', { value: v, selected: String(v) === String(value) }, text)));
}

// The law as a Gaussian, from where it is.
function gaussian() {
  if (view.vary !== 'own') return;
  view.vary = net.inputs > 2 ? 'all' : 'shown';
  controls();
  $('law-note').textContent = 'Now a Gaussian of independent inputs with the same means and standard deviations.';
}

function controls() {
  const several = net.inputs > 2;
  const kinds = net.own ? [['own', 'the network’s own: ' + net.law]] : [];
  kinds.push(['shown', several ? 'Gaussian in the two shown inputs, the others held' : 'Gaussian']);
  if (several) kinds.push(['all', 'Gaussian in all inputs']);
  fill($('vary'), ...kinds.map(([value, text]) => el('label', {}, el('input', {
    type: 'radio', name: 'vary', value, checked: view.vary === value,
    onchange() { view.vary = value; if (value === 'own') restore(); $('law-note').textContent = ''; controls(); change(KINDS); },
  }), ' ', text)));
  fill($('sliders'), ...view.axes.flatMap(i => [slider(i, 'at'), slider(i, 'sd')]));
  $('others').hidden = !several;
  if ($('others').open) otherRows();
}

function restore() {
  for (const i of view.axes) view.at[i] = first.at[i];
  view.sd = first.sd.slice();
}

function slider(i, what) {
  const name = net.names[i], sd = what === 'sd', unit = first.sd[i];
  const text = sd ? `sd of ${name}` : `mean of ${name}`;
  const place = () => sd ? Math.log10(view.sd[i] / unit) : view.at[i];
  const put = value => { gaussian(); view[what][i] = value; };
  const range = el('input', { type: 'range', 'aria-label': text });
  Object.assign(range, sd ? { min: -2, max: 1, step: 0.01 } : { min: first.at[i] - 4 * unit, max: first.at[i] + 4 * unit, step: unit / 100 });
  range.value = place();
  const box = el('input', { type: 'number', step: 'any', value: Number(view[what][i].toPrecision(5)), 'aria-label': `${text}, as a number`, id: `${what}-${i}` });
  range.addEventListener('input', () => { put(sd ? unit * 10 ** Number(range.value) : Number(range.value)); box.value = Number(view[what][i].toPrecision(5)); moved(); });
  range.addEventListener('change', rest);
  box.addEventListener('change', () => {
    const value = box.value === '' ? NaN : Number(box.value);
    if (!Number.isFinite(value) || (sd && value <= 0)) { box.value = Number(view[what][i].toPrecision(5)); return; }
    put(value); range.value = place(); change(LAW);
  });
  return el('div', { className: 'slider' }, el('span', { title: text }, sd ? `± ${name}` : name), range, box);
}

function otherRows() {
  const cell = (i, what) => el('input', {
    type: 'number', step: 'any', value: Number(view[what][i].toPrecision(5)), 'aria-label': `${what === 'sd' ? 'standard deviation' : 'value'} of ${net.names[i]}`,
    onchange(e) {
      const value = e.target.value === '' ? NaN : Number(e.target.value);
      if (!Number.isFinite(value) || (what === 'sd' && value < 0)) { e.target.value = view[what][i]; return; }
      if (what === 'sd') gaussian();
      view[what][i] = value;
      change(what === 'at' ? KINDS : LAW);
    },
  });
  const others = net.names.map((_, i) => i).filter(i => !view.axes.includes(i)).slice(0, 400);
  fill($('rows'), el('p', { className: 'soft small' }, 'Name, value of the plane (and mean), standard deviation.'),
    ...others.map(i => el('div', { className: 'slider' }, el('span', {}, net.names[i]), cell(i, 'at'), cell(i, 'sd'))));
}

function toolbar() {
  const kinds = [['output', 'value of an output']];
  if (net.winners) kinds.push(['largest', 'which output is largest'], ['smallest', 'which output is smallest']);
  kinds.push(['mass', 'probability of the region']);
  choose($('colour'), kinds, view.colour);
  choose($('output'), Array.from({ length: Math.min(net.outputs, 1000) }, (_, o) => [o, `y[${o}]`]), view.output);
  $('output-label').hidden = net.outputs === 1;
  for (const label of document.querySelectorAll('.axis')) label.hidden = net.inputs < 3;
  [0, 1].forEach(k => choose($(`axis${k}`), net.names.map((n, i) => [i, n]), view.axes[k]));
}

function fit() {
  view.lower = view.axes.map(i => view.at[i] - SIGMAS * (view.sd[i] || first.sd[i]));
  view.upper = view.axes.map(i => view.at[i] + SIGMAS * (view.sd[i] || first.sd[i]));
}

function zoom(by, centre) {
  const middle = centre ?? view.lower.map((lo, k) => (lo + view.upper[k]) / 2);
  const lower = view.lower.map((lo, k) => middle[k] + (lo - middle[k]) * by), upper = view.upper.map((hi, k) => middle[k] + (hi - middle[k]) * by);
  if (lower.every((lo, k) => upper[k] - lo > 1e-9 * Math.max(Math.abs(lo), Math.abs(upper[k]), 1e-30))) Object.assign(view, { lower, upper });
  newPlane();
}

function newPlane() {
  marked = -1;
  change(KINDS.filter(k => k !== 'outputs'));
}

function show(found) {
  net = found;
  view = structuredClone(found.view);
  first = structuredClone(found.view);
  dirty.clear();
  got = {};
  point = sheet = null;
  marked = -1;
  live = false;
  for (const id of ['probability', 'probability-more', 'moments', 'moments-badge', 'heaviest', 'regions', 'regions-badge', 'python']) fill($(id));
  say($('event-error'), '');
  if (![...$('network').options].some(o => o.value === found.key)) $('network').append(el('option', { value: found.key }, found.title));
  $('network').value = found.key;
  $('title').textContent = found.title;
  $('about').textContent = found.about;
  document.title = `${found.title} – Reluscope playground`;
  $('event').value = view.event;
  $('point').hidden = true;
  $('others').open = false;
  $('law-note').textContent = '';
  say($('note'), '');
  toolbar();
  controls();
  repaint();
  change(KINDS);
}

let opening = 0;

// Of several networks asked for in haste, the last one counts.
async function open(name, question, kind) {
  const mine = ++opening;
  for (;;) try {
    const found = await ask(name, question, kind);
    if (mine === opening) show(found);
    return;
  } catch (error) {
    if (mine !== opening) return;
    say($('problem'), error.message);
    if (error.status !== 503 || name !== 'open') return;
    await pause(800);  // code is being compiled on first use
  }
}

function wire() {
  $('network').addEventListener('change', e => open('open', { network: e.target.value }));
  $('reset').addEventListener('click', () => open('open', { network: net.key }));
  $('file').addEventListener('change', e => {
    const file = e.target.files[0];
    if (file) open(`load?name=${encodeURIComponent(file.name)}`, file, 'application/octet-stream').finally(() => { e.target.value = ''; });
  });
  $('colour').addEventListener('change', e => { view.colour = e.target.value; sheet = null; change(['picture', 'linear_models']); });
  $('output').addEventListener('change', e => { view.output = Number(e.target.value); change(['picture', 'linear_models', 'point']); });
  [0, 1].forEach(k => $(`axis${k}`).addEventListener('change', e => {
    const chosen = Number(e.target.value);
    if (view.axes[1 - k] === chosen) view.axes[1 - k] = view.axes[k];
    view.axes[k] = chosen;
    point = got.point = null;
    $('point').hidden = true;
    sheet = got.picture = got.event = null;
    fit(); toolbar(); controls(); newPlane();
  }));
  $('in').addEventListener('click', () => zoom(1 / 1.5));
  $('out').addEventListener('click', () => zoom(1.5));
  $('fit').addEventListener('click', () => { fit(); newPlane(); });
  let typed = 0;
  const event = () => { clearTimeout(typed); if (view.event !== $('event').value) { view.event = $('event').value; change(['event', 'code']); } };
  $('event').addEventListener('input', () => { clearTimeout(typed); typed = setTimeout(event, 450); });
  $('event').addEventListener('change', event);
  $('others').addEventListener('toggle', () => { if ($('others').open) otherRows(); });
  $('copy').addEventListener('click', async () => {
    try { await navigator.clipboard.writeText($('python').textContent); $('copied').textContent = 'copied'; } catch {
      document.querySelector('details:has(#python)').open = true;
      getSelection().selectAllChildren($('python'));
      $('copied').textContent = 'selected: copy it with the keyboard';
    }
    setTimeout(() => { $('copied').textContent = ''; }, 4000);
  });
  new ResizeObserver(() => { if (view) repaint(); }).observe(canvas);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  pointers();
}

function pointers() {
  const at = e => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
  let holding = false, pressed = null;
  const place = values => {
    gaussian();
    view.axes.forEach((i, k) => { if (Number.isFinite(values[k])) view.at[i] = Math.min(Math.max(values[k], view.lower[k]), view.upper[k]); });
    for (const i of view.axes) if ($(`at-${i}`)) { $(`at-${i}`).value = Number(view.at[i].toPrecision(5)); $(`at-${i}`).previousSibling.value = view.at[i]; }
    moved();
  };
  handle.addEventListener('pointerdown', e => { holding = true; handle.setPointerCapture(e.pointerId); });
  handle.addEventListener('pointermove', e => { if (holding) place(frame(canvas, view, span).back(...at(e)).slice(0, view.axes.length)); });
  for (const end of ['pointerup', 'pointercancel']) handle.addEventListener(end, () => { if (holding) { holding = false; rest(); } });
  const look = u => {
    point = u;
    got.point = null;
    marked = -1;
    change(['point']);
  };
  handle.addEventListener('keydown', e => {
    if (e.key === 'Enter') { e.preventDefault(); look(view.axes.map(i => view.at[i])); }
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[e.key];
    if (!way) return;
    e.preventDefault();
    const share = e.shiftKey ? 0.1 : 0.02;
    place(view.axes.map((i, k) => view.at[i] + way[k] * share * (view.upper[k] - view.lower[k])));
  });
  canvas.addEventListener('pointerdown', e => { pressed = { from: at(e), lower: view.lower, upper: view.upper, moved: false, mouse: e.pointerType === 'mouse' }; });
  canvas.addEventListener('pointermove', e => {
    if (!pressed?.mouse || !(e.buttons & 1)) return;
    const f = frame(canvas, view, span), d = at(e).map((p, k) => p - pressed.from[k]);
    if (!pressed.moved && Math.hypot(...d) < 5) return;
    pressed.moved = true;
    const step = view.axes.map((_, k) => -d[k] / (k ? f.sy : f.sx));
    view.lower = pressed.lower.map((v, k) => v + step[k]);
    view.upper = pressed.upper.map((v, k) => v + step[k]);
    marked = -1;
    dirty.add('picture');
    moved();
  });
  canvas.addEventListener('pointerup', e => {
    const done = pressed;
    pressed = null;
    if (!done || done.moved) return;
    const u = frame(canvas, view, span).back(...at(e)).slice(0, view.axes.length);
    if (u.some((v, k) => v < view.lower[k] || v > view.upper[k])) return;
    look(u);
  });
  canvas.addEventListener('pointercancel', () => { pressed = null; });
}

async function begin() {
  const start = await ask('start', {});
  palette = start;
  const options = start.examples.map(name => [`example-${name}`, name]);
  if (start.given) options.unshift([start.given.key, start.given.title]);
  choose($('network'), options, options[0][0]);
  wire();
  await open('open', { network: options[0][0] });
}

begin().catch(error => say($('problem'), error.message));
