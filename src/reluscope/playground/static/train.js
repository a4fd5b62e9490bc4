// A small network learns while one looks on: a few epochs, then the exact regions, boundary and probabilities anew.

import { $, badge, fill, interval, number, pause, say, value } from './dom.js';
import { change, idle } from './questions.js';
import { ask } from './server.js';
import { KINDS, S } from './state.js';

let trainer = null, going = false, history = [];

const settings = () => ({
  data: $('train-data').value, hidden: $('train-hidden').value.split(/[^0-9]+/).filter(Boolean).map(Number),
  rate: Number($('train-rate').value), noise: Number($('train-noise').value), seed: Number($('train-seed').value),
});

export const training = () => S.net?.key.startsWith('train-');

export function showTraining() {
  $('training').hidden = !training();
  if (!training()) stop();
}

export function stop() {
  going = false;
  $('train-go').textContent = 'Train';
  $('train-go').setAttribute('aria-pressed', 'false');
}

export async function begin(show) {
  stop();
  try {
    const found = await ask('train', { settings: settings(), epochs: 0 });
    trainer = found.state.trainer;
    history = [];
    show(found.opened);
    told(found.state);
    say($('train-problem'), '');
  } catch (error) { say($('train-problem'), error.message); }
}

async function step(epochs) {
  const found = await ask('train', { trainer, epochs });
  if (!training() || found.state.trainer !== trainer) return;
  S.net.key = found.key;
  told(found.state);
  change(KINDS);
}

function told(state) {
  history.push(state.loss);
  fill($('train-state'), `Epoch ${state.epoch.toLocaleString('en')}: loss ${number(state.loss, 3)}, ${number(100 * state.wrong, 3)} % of the rows wrong. `,
    `Probability of an error on new rows: ${value(state.error)} ${interval(state.error)} `, badge(state.error.guarantee, state.error.level));
  const canvas = $('train-loss'), ctx = canvas.getContext('2d'), top = Math.max(...history);
  canvas.width = 240;
  canvas.height = 40;
  ctx.beginPath();
  history.forEach((loss, i) => ctx[i ? 'lineTo' : 'moveTo'](4 + 232 * i / Math.max(history.length - 1, 1), 36 - 32 * loss / top));
  ctx.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue('--c1');
  ctx.lineWidth = 2;
  ctx.stroke();
}

async function run() {
  while (going && training()) {
    try { await step(Number($('train-pace').value)); } catch (error) { say($('train-problem'), error.message); stop(); return; }
    while (!idle() && going) await pause(15);
  }
}

export function wireTraining(show) {
  $('train-go').addEventListener('click', () => {
    if (going) { stop(); return; }
    going = true;
    $('train-go').textContent = 'Pause';
    $('train-go').setAttribute('aria-pressed', 'true');
    run();
  });
  $('train-step').addEventListener('click', () => { stop(); step(1).catch(error => say($('train-problem'), error.message)); });
  for (const id of ['train-data', 'train-hidden', 'train-rate', 'train-noise', 'train-seed']) $(id).addEventListener('change', () => begin(show));
  $('train-again').addEventListener('click', () => begin(show));
}
