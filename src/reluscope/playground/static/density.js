// The density of an output, with the part that is in the event filled.

import { $, number, say } from './dom.js';
import { ticks } from './draw.js';
import { S, output, shown, titled } from './state.js';

const LEFT = 10, RIGHT = 10, TOP = 8, BOTTOM = 36;

export function density(found) {
  const canvas = $('density'), d = found?.density;
  const none = !d || d.error || !d.t?.length;
  canvas.hidden = none;
  say($('density-note'), none ? '' : note(d));
  if (none || !canvas.clientWidth) return;
  const ratio = devicePixelRatio || 1, style = getComputedStyle(document.documentElement), css = k => style.getPropertyValue(k).trim();
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  const ctx = canvas.getContext('2d'), w = canvas.clientWidth - LEFT - RIGHT, h = canvas.clientHeight - TOP - BOTTOM;
  ctx.scale(ratio, ratio);
  const low = d.t[0], high = d.t[d.t.length - 1], top = 1.08 * Math.max(...d.p, 1e-300);
  const X = t => LEFT + (t - low) / (high - low) * w, Y = p => TOP + h * (1 - p / top);
  const curve = () => {
    ctx.beginPath();
    ctx.moveTo(X(low), Y(0));
    if (d.kind === 'exact') d.t.forEach((t, i) => ctx.lineTo(X(t), Y(d.p[i])));
    else d.p.forEach((p, i) => { ctx.lineTo(X(d.t[i]), Y(p)); ctx.lineTo(X(d.t[i + 1]), Y(p)); });
    ctx.lineTo(X(high), Y(0));
  };
  curve();
  ctx.fillStyle = css('--rule');
  ctx.fill();
  for (const [a, b] of tail(d) ?? []) {
    ctx.save();
    ctx.beginPath();
    const x = X(Math.max(a ?? low, low)), x1 = X(Math.min(b ?? high, high));
    ctx.rect(x, TOP, Math.max(0, x1 - x), h);
    ctx.clip();
    curve();
    ctx.fillStyle = css('--c2');
    ctx.fill();
    ctx.restore();
  }
  curve();
  ctx.strokeStyle = css('--ink');
  ctx.lineWidth = 1.4;
  ctx.stroke();
  const most = Math.max(...d.atoms.map(a => a[1]), 1e-300);
  for (const [v, mass] of d.atoms) {
    ctx.strokeStyle = ctx.fillStyle = css('--c3');
    ctx.lineWidth = 2;
    ctx.beginPath();
    ctx.moveTo(X(v), Y(0));
    ctx.lineTo(X(v), TOP + h * (1 - 0.9 * mass / most));
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(X(v), TOP + h * (1 - 0.9 * mass / most), 3, 0, 7);
    ctx.fill();
  }
  axis(ctx, X, low, high, h, css, output(d.output));
}

const tail = d => S.place && d.output === S.view.output ? S.place.output : null;

function note(d) {
  const parts = [d.kind === 'exact' ? 'Exact density' : `Histogram of ${d.draws.toLocaleString('en')} draws`];
  const part = tail(d);
  if (part?.length) parts.push('coloured: in the event');
  else if (part === null && S.view.event) parts.push('the event depends on more than this output, so no part is coloured');
  if (d.atoms.length) parts.push(`stems: single values, the heaviest with probability ${number(Math.max(...d.atoms.map(a => a[1])), 3)}`);
  return parts.join('; ') + '.';
}

function axis(ctx, X, low, high, h, css, label) {
  ctx.fillStyle = css('--soft');
  ctx.fillRect(LEFT, TOP + h, ctx.canvas.clientWidth - LEFT - RIGHT, 1);
  ctx.font = '12px system-ui, sans-serif';
  ctx.textAlign = 'center';
  ctx.textBaseline = 'top';
  const ends = [shown(label, low), shown(label, high)];
  for (const [t, text] of ticks(Math.min(...ends), Math.max(...ends), 5)) {
    const x = X(t * label.scale + label.shift);
    if (x < LEFT + 8 || x > ctx.canvas.clientWidth - RIGHT - 8) continue;
    ctx.fillRect(x, TOP + h, 1, 4);
    ctx.fillText(text, x, TOP + h + 5);
  }
  ctx.fillStyle = css('--ink');
  ctx.fillText(titled(label), LEFT + (ctx.canvas.clientWidth - LEFT - RIGHT) / 2, TOP + h + 21);
}
