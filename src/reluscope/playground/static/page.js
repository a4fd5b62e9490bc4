// The page: opening networks, and what its buttons and menus do. Text from networks and users only ever becomes text nodes.

import { $, el, fill, pause, say } from './dom.js';
import { forgetEvent } from './answers.js';
import { density } from './density.js';
import { dropping } from './drop.js';
import { savePng, saveSvg } from './export.js';
import { controls, home, otherRows } from './law.js';
import { redraw, repaint, whole } from './picture.js';
import { pointers, zoom } from './pointers.js';
import { change, nothingAsked } from './questions.js';
import { ask, heartbeat } from './server.js';
import { link, remembered, restore } from './share.js';
import { KINDS, S } from './state.js';
import { begin as beginTraining, showTraining, training, wireTraining } from './train.js';

const SIGMAS = 3.5, TYPING = 300, PLANE = KINDS.filter(k => k !== 'outputs');

function choose(select, options, value) {
  fill(select, ...options.map(([v, text]) => el('option', { value: v, selected: String(v) === String(value) }, text)));
}

function toolbar() {
  const { net, view } = S, hidden = net.widths.length - 2, kinds = [['output', 'value of an output']];
  if (net.winners) kinds.push(['largest', 'which output is largest'], ['smallest', 'which output is smallest']);
  kinds.push(['mass', 'probability of the region']);
  choose($('colour'), kinds, view.colour);
  choose($('output'), net.outputs.slice(0, 1000).map((l, o) => [o, l.name]), view.output);
  for (const label of document.querySelectorAll('.axis')) label.hidden = net.inputs.length < 3;
  [0, 1].forEach(k => choose($(`axis${k}`), net.inputs.map((l, i) => [i, l.name]), view.axes[k]));
  $('layers-label').hidden = hidden < 2 || view.axes.length < 2;
  Object.assign($('layers'), { min: 1, max: Math.max(hidden, 1), value: view.layers || hidden });
  layerTools();
}

function layerTools() {
  const { net, view } = S, hidden = net.widths.length - 2;
  $('layers-text').textContent = whole() ? `all ${hidden}` : `first ${view.layers} of ${hidden}`;
  $('colour-label').hidden = !whole();
  $('output-label').hidden = !whole() || net.outputs.length === 1;
  $('unit-label').hidden = whole();
  if (!whole()) choose($('unit'), Array.from({ length: net.widths[view.layers + 1] }, (_, u) => [u, `unit ${u} of layer ${view.layers}`]), view.unit);
}

function fit() {
  const { view, first } = S;
  view.lower = view.axes.map(i => view.at[i] - SIGMAS * (view.sd[i] || first.sd[i]));
  view.upper = view.axes.map(i => view.at[i] + SIGMAS * (view.sd[i] || first.sd[i]));
}

function newPlane() {
  S.marked = -1;
  change(PLANE);
}

function show(found, state = null, keep = false) {
  const before = keep && S.view;
  nothingAsked();
  Object.assign(S, { net: found, view: structuredClone(found.view), first: structuredClone(found.view), got: {}, place: null, data: null, point: null, sheet: null, marked: -1 });
  if (before) for (const key of ['axes', 'event', 'output', 'colour']) S.view[key] = before[key];
  if (before) fit();
  if (state) restore(state);
  for (const id of ['probability', 'probability-more', 'moments', 'moments-badge', 'heaviest', 'regions', 'regions-badge', 'python']) fill($(id));
  density(null);
  say($('event-error'), '');
  const entry = training() ? 'training' : found.key;
  if (![...$('network').options].some(o => o.value === entry)) $('network').append(el('option', { value: entry }, found.title));
  $('network').value = entry;
  $('title').textContent = found.title;
  $('about').textContent = found.about;
  document.title = `${found.title} – Reluscope playground`;
  $('event').value = S.view.event;
  fill($('hints'), 'Such as ', ...found.hints.flatMap((text, i) => [i ? ' ' : '', el('button', { type: 'button', className: 'hint', onclick() { $('event').value = text; typed(); } }, text)]));
  $('point').hidden = true;
  $('others').open = false;
  say($('note'), '');
  showTraining();
  toolbar();
  controls();
  repaint();
  change(KINDS);
}

let opening = 0;

// Of several networks asked for in haste, the last one counts.
async function open(name, question, kind, keep = false, state = null) {
  const mine = ++opening;
  for (;;) try {
    const found = await ask(name, question, kind);
    if (mine === opening) show(found, state, keep);
    return true;
  } catch (error) {
    if (mine !== opening) return false;
    say($('problem'), error.message);
    if (error.status !== 503 || name !== 'open') return false;
    await pause(800);  // code is being compiled on first use
  }
}

// What is typed counts at once: the number of the last event goes, the new one is asked for after a pause.
let typing = 0;
function typed(wait = 0) {
  clearTimeout(typing);
  const text = $('event').value.trim();
  if (text === S.view.event) return;
  S.view.event = text;
  forgetEvent();
  redraw();
  typing = setTimeout(() => change(['event', 'code']), wait);
}

async function copied(text, note, fallback) {
  try { await navigator.clipboard.writeText(text); note.textContent = 'copied'; } catch { fallback(); }
  setTimeout(() => { note.textContent = ''; }, 4000);
}

function wireTools() {
  $('network').addEventListener('change', e => e.target.value === 'training' ? beginTraining(show) : open('open', { network: e.target.value }));
  $('reset').addEventListener('click', () => training() ? beginTraining(show) : open('open', { network: S.net.key }));
  $('colour').addEventListener('change', e => { S.view.colour = e.target.value; S.sheet = null; change(['picture', 'linear_models']); });
  $('output').addEventListener('change', e => { S.view.output = Number(e.target.value); change(KINDS.filter(k => k !== 'code')); });
  $('layers').addEventListener('input', e => {
    const k = Number(e.target.value);
    S.view.layers = k === S.net.widths.length - 2 ? 0 : k;
    S.view.unit = 0;
    layerTools();
    change(['picture']);
  });
  $('unit').addEventListener('change', e => { S.view.unit = Number(e.target.value); change(['picture']); });
  [0, 1].forEach(k => $(`axis${k}`).addEventListener('change', e => {
    const { view } = S, chosen = Number(e.target.value);
    if (view.axes[1 - k] === chosen) view.axes[1 - k] = view.axes[k];
    view.axes[k] = chosen;
    Object.assign(S, { point: null, sheet: null, place: null });
    S.got = {};
    $('point').hidden = true;
    fit(); toolbar(); controls(); newPlane();
  }));
  $('in').addEventListener('click', () => zoom(1 / 1.5));
  $('out').addEventListener('click', () => zoom(1.5));
  $('fit').addEventListener('click', () => { fit(); newPlane(); });
  $('png').addEventListener('click', savePng);
  $('svg').addEventListener('click', saveSvg);
  $('share').addEventListener('click', () => copied(link(), $('shared'), () => { history.replaceState(null, '', link()); $('shared').textContent = 'the link is in the address bar'; }));
}

function wire() {
  wireTools();
  $('event').addEventListener('input', () => typed(TYPING));
  $('event').addEventListener('change', () => typed());
  $('others').addEventListener('toggle', () => { if ($('others').open) otherRows(); });
  $('home').addEventListener('click', home);
  $('copy').addEventListener('click', () => copied($('python').textContent, $('copied'), () => {
    document.querySelector('details:has(#python)').open = true;
    getSelection().selectAllChildren($('python'));
    $('copied').textContent = 'selected: copy it with the keyboard';
  }));
  new ResizeObserver(() => { if (S.view) { repaint(); density(S.got.outputs); } }).observe($('canvas'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { redraw(); density(S.got.outputs); });
  dropping(open, () => S.net.key);
  wireTraining(show);
  pointers();
}

async function begin() {
  const start = S.palette = await ask('start', {});
  S.server = start.server;
  heartbeat();
  const options = start.examples.map(name => [`example-${name}`, name]);
  if (start.given) options.unshift([start.given.key, start.given.title]);
  options.push(['training', 'train one here…']);
  choose($('network'), options, options[0][0]);
  choose($('train-data'), start.sets.map(name => [name, name]), 'moons');
  wire();
  const state = remembered();
  if (state && await open('open', { network: state.network }, 'application/json', false, state)) return;
  const lost = state ? `The link is about ${state.title ?? 'a network'}, which is not open here: start reluscope playground with its file, then follow the link again.` : '';
  await open('open', { network: options[0][0] });
  if (lost) say($('problem'), lost);
}

begin().catch(error => { if (error.status !== 0) say($('problem'), error.message); });
