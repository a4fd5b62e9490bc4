'use strict';
const D = JSON.parse(document.getElementById('data').textContent);
const bytes = s => Uint8Array.from(atob(s), c => c.charCodeAt(0));
const raw = bytes(D.places), W = bytes(D.weights);
const P = D.wide ? new Uint16Array(raw.buffer) : raw;
const T = D.steps, H = D.heads.length, K = D.top, M = D.memory;
const memory = D.kind === 'memory';
let head = 0, time = Math.min(T - 1, Math.floor(T / 2));
const $ = id => document.getElementById(id);
const at = (t, h, k) => (t * H + h) * K + k;
const frameOf = (t, place) => memory ? t - place : place;
function paint(canvas, h) {
  canvas.width = memory ? T : M; canvas.height = memory ? M : T;
  const c = canvas.getContext('2d'), image = c.createImageData(canvas.width, canvas.height), px = image.data;
  px.fill(255);
  for (let t = 0; t < T; t++) for (let k = 0; k < K; k++) {
    const i = at(t, h, k), v = 255 - W[i], p = P[i];
    const x = memory ? t : p, y = memory ? M - 1 - p : t, j = 4 * (y * canvas.width + x);
    px[j] = px[j + 1] = px[j + 2] = v;
  }
  c.putImageData(image, 0, 0);
}
const sheet = new Image();
function thumb(canvas, frame) {
  canvas.width = D.width || 8; canvas.height = D.height || 8;
  const c = canvas.getContext('2d');
  if (D.sheet && frame >= 0 && sheet.complete)
    c.drawImage(sheet, (frame % D.columns) * D.width, Math.floor(frame / D.columns) * D.height, D.width, D.height, 0, 0, D.width, D.height);
}
const name = f => D.labels ? (D.labels[f] ?? f) : f;
function show() {
  paint($('main'), head);
  const c = $('main').getContext('2d');
  c.fillStyle = 'rgba(29,111,184,.45)';
  if (memory) c.fillRect(time, 0, Math.max(1, T / 600), M); else c.fillRect(0, time, M, 1);
  $('maincap').textContent = 'head ' + D.heads[head] + (memory ? ': time across, frames back upwards' : ': attended position across, position downwards');
  $('nowcap').textContent = (memory ? 'frame ' : 'position ') + name(time);
  thumb($('now'), time);
  $('seencap').textContent = 'head ' + D.heads[head] + ' looks at';
  $('seen').replaceChildren(...Array.from({length: K}, (_, k) => {
    const i = at(time, head, k), f = frameOf(time, P[i]), box = document.createElement('div'), cv = document.createElement('canvas');
    if (D.sheet) { thumb(cv, f); box.append(cv); }
    box.append((memory ? 'frame ' : '') + name(f) + ': ' + (W[i] / 2.55).toFixed(0) + ' %');
    box.style.opacity = .35 + .65 * W[i] / 255;
    return box;
  }));
  [...$('grid').children].forEach((d, i) => d.classList.toggle('on', i === head));
}
function move(e) {
  const r = e.target.getBoundingClientRect();
  const u = memory ? (e.clientX - r.left) / r.width : (e.clientY - r.top) / r.height;
  time = Math.max(0, Math.min(T - 1, Math.floor(u * T))); show();
}
$('main').addEventListener('mousemove', move);
$('maximum').src = D.maximum; if (memory) $('maximum').addEventListener('mousemove', move);
D.heads.forEach((label, h) => {
  const box = document.createElement('div'), cv = document.createElement('canvas');
  paint(cv, h); box.append(cv, label); box.onclick = () => { head = h; show(); };
  if (memory) cv.addEventListener('mousemove', move);
  $('grid').append(box);
});
document.addEventListener('keydown', e => {
  const d = {ArrowLeft: -1, ArrowRight: 1}[e.key], h = {ArrowUp: -1, ArrowDown: 1}[e.key];
  if (d) { time = Math.max(0, Math.min(T - 1, time + d)); show(); e.preventDefault(); }
  if (h && document.activeElement === $('main')) { head = (head + h + H) % H; show(); e.preventDefault(); }
});
if (D.sheet) { sheet.onload = show; sheet.src = D.sheet; }
show();
