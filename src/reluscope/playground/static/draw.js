// Draws the regions, the law, the event and the data on a canvas (or on what records for an SVG file). It knows nothing of the server.

const LEFT = 58, RIGHT = 12, TOP = 10, BOTTOM = 46;
const EDGE = '#1c2330', NEWEST = '#c2410c';

export const rgb = c => `rgb(${c[0]} ${c[1]} ${c[2]})`;

export function shade(stops, t) {
  const at = Math.min(Math.max(t, 0), 1) * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2), part = at - low;
  return stops[low].map((v, k) => Math.round(v * (1 - part) + stops[low + 1][k] * part));
}

// Pixels of the plotting area, and both ways between them and the inputs.
export function frame(canvas, view, span) {
  const w = canvas.clientWidth - LEFT - RIGHT, h = canvas.clientHeight - TOP - BOTTOM;
  const [x0, x1] = [view.lower[0], view.upper[0]], [y0, y1] = span ?? [view.lower[1], view.upper[1]];
  const sx = w / (x1 - x0), sy = -h / (y1 - y0);
  return { left: LEFT, top: TOP, w, h, sx, sy, x0, x1, y0, y1, X: x => LEFT + (x - x0) * sx, Y: y => TOP + (y - y1) * sy,
    back: (px, py) => [x0 + (px - LEFT) / sx, y1 + (py - TOP) / sy] };
}

// The part of a convex polygon (flat x, y, ...) where a x + b y + c >= 0.
export function clip(shape, a, b, c) {
  const out = [], n = shape.length;
  for (let i = 0; i < n; i += 2) {
    const j = (i + 2) % n, p = a * shape[i] + b * shape[i + 1] + c, q = a * shape[j] + b * shape[j + 1] + c;
    if (p >= 0) out.push(shape[i], shape[i + 1]);
    if ((p > 0 && q < 0) || (p < 0 && q > 0)) {
      const t = p / (p - q);
      out.push(shape[i] + t * (shape[j] - shape[i]), shape[i + 1] + t * (shape[j + 1] - shape[i + 1]));
    }
  }
  return out;
}

const shapeOf = (picture, i) => picture.points.slice(2 * picture.offsets[i], 2 * picture.offsets[i + 1]);

// The region that a point of the plane lies in, or -1.
export function regionAt(picture, u) {
  for (let i = 0; i < picture.count; i++) {
    if (u.length === 1) { if (picture.points[2 * i] <= u[0] && u[0] <= picture.points[2 * i + 1]) return i; continue; }
    if (inConvex(picture.points, picture.offsets[i], picture.offsets[i + 1], u)) return i;
  }
  return -1;
}

function inConvex(points, start, stop, [x, y]) {
  let side = 0;
  for (let v = start; v < stop; v++) {
    const w = v + 1 < stop ? v + 1 : start;
    const turn = (points[2 * w] - points[2 * v]) * (y - points[2 * v + 1]) - (points[2 * w + 1] - points[2 * v + 1]) * (x - points[2 * v]);
    if (turn * side < 0) return false;
    if (turn) side = Math.sign(turn);
  }
  return true;
}

// Whether a point of the plane is in the event.
export function inEvent(place, u) {
  if (u.length === 1) { for (let i = 0; i < place.points.length; i += 2) if (place.points[i] <= u[0] && u[0] <= place.points[i + 1]) return true; return false; }
  for (let i = 0; i + 1 < place.offsets.length; i++) if (inConvex(place.points, place.offsets[i], place.offsets[i + 1], u)) return true;
  return false;
}

// Lowest and highest value of the shown output over all regions in view.
export function valueRange(picture, axes) {
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < picture.count; i++) for (let v = picture.offsets[i]; v < picture.offsets[i + 1]; v++) {
    const y = valueAt(picture, i, 0, picture.points.slice(axes * v, axes * v + axes));
    if (y < low) low = y;
    if (y > high) high = y;
  }
  return [low, high];
}

export function valueAt(picture, i, o, u) {
  const m = picture.outputs.length, k = u.length, base = (i * m + o) * k;
  let y = picture.d[i * m + o];
  for (let a = 0; a < k; a++) y += picture.C[base + a] * u[a];
  return y;
}

// Blue to red around zero where values have both signs, else violet to yellow between the ends.
export function valueScale(range, palette) {
  const [low, high] = range, top = Math.max(-low, high) || 1;
  if (low < 0 && high > 0) return { low: -top, high: top, stops: palette.diverging };
  return high > low ? { low, high, stops: palette.sequential } : { low: low - 1, high: low + 1, stops: palette.diverging };
}

export const massShade = (mass, most, palette) =>
  mass === null ? [150, 150, 150] : shade(palette.sequential, 1 + Math.log10(Math.max(mass, 1e-300) / Math.max(most, 1e-300)) / 6);

function path(ctx, f, shape) {
  ctx.beginPath();
  for (let i = 0; i < shape.length; i += 2) ctx[i ? 'lineTo' : 'moveTo'](f.X(shape[i]), f.Y(shape[i + 1]));
  ctx.closePath();
}

function fillShape(ctx, f, shape, style) {
  path(ctx, f, shape);
  ctx.fillStyle = ctx.strokeStyle = style;
  ctx.lineWidth = 0.8;
  ctx.fill();
  ctx.stroke();
}

// An affine function on a polygon is a linear gradient: exact, not pixels.
function gradient(ctx, f, picture, i, shape, scale) {
  const values = [];
  for (let v = 0; v < shape.length; v += 2) values.push(valueAt(picture, i, 0, [shape[v], shape[v + 1]]));
  const low = Math.min(...values), high = Math.max(...values), part = y => (y - scale.low) / (scale.high - scale.low);
  const colour = y => rgb(shade(scale.stops, part(y)));
  const gx = picture.C[2 * i] / f.sx, gy = picture.C[2 * i + 1] / f.sy, g2 = gx * gx + gy * gy;
  if (!(high - low > 1e-6 * (scale.high - scale.low)) || !g2) return colour((low + high) / 2);
  const v = 2 * values.indexOf(low), px = f.X(shape[v]), py = f.Y(shape[v + 1]), r = (high - low) / g2;
  const made = ctx.createLinearGradient(px, py, px + gx * r, py + gy * r);
  made.addColorStop(0, colour(low));
  for (let k = 0; k < scale.stops.length; k++) {
    const y = scale.low + (scale.high - scale.low) * k / (scale.stops.length - 1);
    if (y > low && y < high) made.addColorStop((y - low) / (high - low), colour(y));
  }
  made.addColorStop(1, colour(high));
  return made;
}

function winners(ctx, f, picture, i, shape, palette, sign, won) {
  const m = picture.outputs.length;
  for (let o = m - 1; o >= 0; o--) {  // of equal outputs the first counts, so it is painted last
    let part = shape;
    for (let j = 0; j < m && part.length >= 6; j++) if (j !== o) {
      const at = k => sign * (picture.C[2 * (i * m + o) + k] - picture.C[2 * (i * m + j) + k]);
      part = clip(part, at(0), at(1), sign * (picture.d[i * m + o] - picture.d[i * m + j]));
    }
    if (part.length < 6) continue;
    fillShape(ctx, f, part, rgb(palette.categories[o]));
    won.add(o);
  }
}

// The regions on a canvas of their own, kept while only the law moves.
export function paintRegions(canvas, view, picture, mass, palette, span) {
  const ratio = devicePixelRatio || 1, sheet = document.createElement('canvas');
  sheet.width = canvas.clientWidth * ratio;
  sheet.height = canvas.clientHeight * ratio;
  sheet.of = { lower: view.lower.slice(), upper: view.upper.slice() };
  const ctx = sheet.getContext('2d'), f = frame(canvas, view, span);
  ctx.scale(ratio, ratio);
  const won = regionsInto(ctx, f, view, picture, mass, palette);
  if (won.size) sheet.won = won;
  return sheet;
}

function within(ctx, f) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(f.left, f.top, f.w, f.h);
  ctx.clip();
}

export function regionsInto(ctx, f, view, picture, mass, palette) {
  const won = new Set(), most = mass ? mass.reduce((a, b) => Math.max(a, b ?? 0), 0) : 0;
  within(ctx, f);
  if (view.axes.length === 1) paintCurve(ctx, f, view, picture, mass, most, palette);
  else {
    const scale = view.colour === 'output' ? valueScale(valueRange(picture, 2), palette) : null;
    for (let i = 0; i < picture.count; i++) {
      const shape = shapeOf(picture, i);
      if (view.colour === 'output') fillShape(ctx, f, shape, gradient(ctx, f, picture, i, shape, scale));
      else if (view.colour === 'mass') fillShape(ctx, f, shape, rgb(mass ? massShade(mass[i], most, palette) : [200, 200, 200]));
      else winners(ctx, f, picture, i, shape, palette, view.colour === 'smallest' ? -1 : 1, won);
    }
    edges(ctx, f, picture, picture.older ? NEWEST : EDGE, picture.older ? 1.2 : 0.7);
    if (picture.older) edges(ctx, f, picture.older, EDGE, 1.1);
  }
  ctx.restore();
  return won;
}

function edges(ctx, f, picture, colour, width) {
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.globalAlpha = picture.count > 1500 ? 0.35 : 0.6;
  ctx.lineWidth = picture.count > 1500 ? 0.4 : width;
  for (let i = 0; i < picture.count; i++) { path(ctx, f, shapeOf(picture, i)); ctx.stroke(); }
  ctx.restore();
}

function paintCurve(ctx, f, view, picture, mass, most, palette) {
  for (let i = 0; i < picture.count && mass; i++) {
    ctx.fillStyle = rgb(massShade(mass[i], most, palette));
    ctx.globalAlpha = 0.45;
    ctx.fillRect(f.X(picture.points[2 * i]), f.top, (picture.points[2 * i + 1] - picture.points[2 * i]) * f.sx, f.h);
  }
  ctx.globalAlpha = 1;
  for (let o = 0; o < picture.outputs.length; o++) {
    ctx.strokeStyle = ctx.fillStyle = picture.outputs.length > 1 ? rgb(palette.categories[o]) : '#1d6fb8';
    ctx.lineWidth = 2.4;
    ctx.beginPath();
    for (let i = 0; i < picture.count; i++) for (const x of [picture.points[2 * i], picture.points[2 * i + 1]])
      ctx[i || x !== picture.points[0] ? 'lineTo' : 'moveTo'](f.X(x), f.Y(valueAt(picture, i, o, [x])));
    ctx.stroke();
    for (let i = 1; i < picture.count && picture.count < 300; i++) {
      ctx.beginPath();
      ctx.arc(f.X(picture.points[2 * i]), f.Y(valueAt(picture, i, o, [picture.points[2 * i]])), 3, 0, 7);
      ctx.fill();
    }
  }
}

// Lowest and highest value of all shown outputs, for the upright axis of a curve.
export function curveSpan(picture) {
  let low = Infinity, high = -Infinity;
  for (let o = 0; o < picture.outputs.length; o++) for (let i = 0; i < picture.count; i++) for (let k = 0; k < 2; k++) {
    const y = valueAt(picture, i, o, [picture.points[2 * i + k]]);
    low = Math.min(low, y);
    high = Math.max(high, y);
  }
  const pad = 0.08 * (high - low) || 0.5;
  return high >= low ? [low - pad, high + pad] : [0, 1];
}

export function ticks(low, high, most) {
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 2.5, 5, 10].find(m => power * m >= raw * 0.999), out = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) out.push(k * step);
  return out.map(t => [t, String(Number(t.toPrecision(6))).replace(/^-/, '−')]);
}

function halo(ctx, width, dash, colour = '#000') {
  for (const [style, wide] of [['#ffffffd0', width + 2.4], [colour, width]]) {
    ctx.setLineDash(dash);
    ctx.strokeStyle = style;
    ctx.lineWidth = wide;
    ctx.stroke();
  }
  ctx.setLineDash([]);
}

// Ticks stand at round values in the units of people; the frame is in the network's own numbers.
function tickPlaces(label, low, high, most) {
  const ends = [low, high].map(v => (v - label.shift) / label.scale);
  return ticks(Math.min(...ends), Math.max(...ends), most).map(([t, text]) => [t * label.scale + label.shift, text]);
}

const PLAIN = { name: '', unit: '', scale: 1, shift: 0 };

function axes(ctx, f, labels, theme) {
  const [across, up] = labels.map(l => l ?? PLAIN), title = l => l.unit ? `${l.name} (${l.unit})` : l.name;
  ctx.font = '12px system-ui, sans-serif';
  ctx.fillStyle = ctx.strokeStyle = theme.soft;
  ctx.lineWidth = 1;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'top';
  for (const [t, text] of tickPlaces(across, f.x0, f.x1, Math.max(2, Math.min(7, f.w / 70)))) {
    ctx.fillRect(f.X(t) - 0.5, f.top + f.h, 1, 4);
    ctx.fillText(text, f.X(t), f.top + f.h + 7);
  }
  ctx.textAlign = 'right';
  ctx.textBaseline = 'middle';
  for (const [t, text] of tickPlaces(up, f.y0, f.y1, Math.max(2, Math.min(7, f.h / 50)))) {
    ctx.fillRect(f.left - 4, f.Y(t) - 0.5, 4, 1);
    ctx.fillText(text, f.left - 7, f.Y(t));
  }
  ctx.strokeRect(f.left, f.top, f.w, f.h);
  ctx.fillStyle = theme.ink;
  ctx.font = '13px system-ui, sans-serif';
  ctx.textAlign = 'center';
  ctx.fillText(title(across), f.left + f.w / 2, f.top + f.h + 34);
  ctx.save();
  ctx.translate(11, f.top + f.h / 2);
  ctx.rotate(-Math.PI / 2);
  ctx.fillText(title(up) || 'output', 0, 0);
  ctx.restore();
}

function ellipses(ctx, f, list) {
  const most = Math.max(...list.map(e => e.weight));
  for (const { mean, cov, weight } of list) {
    ctx.globalAlpha = 0.35 + 0.65 * weight / most;
    const a = Math.sqrt(Math.max(cov[0][0], 0)), b = a ? cov[0][1] / a : 0, c = Math.sqrt(Math.max(cov[1][1] - b * b, 0));
    for (const k of [1, 2]) {
      ctx.beginPath();
      for (let i = 0; i <= 96; i++) {
        const s = Math.cos(i * Math.PI / 48), t = Math.sin(i * Math.PI / 48);
        ctx[i ? 'lineTo' : 'moveTo'](f.X(mean[0] + k * a * s), f.Y(mean[1] + k * (b * s + c * t)));
      }
      halo(ctx, k === 1 ? 1.6 : 1.1, [6, 4], EDGE);
    }
  }
  ctx.globalAlpha = 1;
}

// One input: the law's density along the bottom, with marks at one and two standard deviations.
function bell(ctx, f, list) {
  const density = x => list.reduce((s, e) => {
    const v = Math.max(e.cov[0][0], 1e-300);
    return s + e.weight * Math.exp(-0.5 * (x - e.mean[0]) ** 2 / v) / Math.sqrt(v);
  }, 0);
  const xs = Array.from({ length: 401 }, (_, i) => f.x0 + (f.x1 - f.x0) * i / 400), ys = xs.map(density), top = Math.max(...ys) || 1;
  ctx.beginPath();
  ctx.moveTo(f.left, f.top + f.h);
  xs.forEach((x, i) => ctx.lineTo(f.X(x), f.top + f.h - 0.22 * f.h * ys[i] / top));
  ctx.lineTo(f.left + f.w, f.top + f.h);
  ctx.fillStyle = '#1d6fb833';
  ctx.fill();
  for (const { mean, cov } of list) for (const k of [-2, -1, 1, 2]) {
    const x = f.X(mean[0] + k * Math.sqrt(Math.max(cov[0][0], 0)));
    ctx.beginPath();
    ctx.moveTo(x, f.top + f.h);
    ctx.lineTo(x, f.top + f.h - (Math.abs(k) === 1 ? 0.1 : 0.05) * f.h);
    halo(ctx, 1.2, [4, 3], EDGE);
  }
}

// The regions as they were painted, moved and stretched while a new view is on its way.
function paste(ctx, f, sheet, ratio, line) {
  const { lower, upper } = sheet.of, x = f.X(lower[0]), wide = f.X(upper[0]) - x;
  const y = line ? f.top : f.Y(upper[1]), high = line ? f.h : f.Y(lower[1]) - y;
  ctx.save();
  ctx.beginPath();
  ctx.rect(f.left, f.top, f.w, f.h);
  ctx.clip();
  ctx.drawImage(sheet, f.left * ratio, f.top * ratio, f.w * ratio, f.h * ratio, x, y, wide, high);
  ctx.restore();
}

// Stripes where the event holds, and a thick line where it begins.
function event(ctx, f, place, line) {
  ctx.save();
  ctx.beginPath();
  if (line) for (let i = 0; i < place.points.length; i += 2) ctx.rect(f.X(place.points[i]), f.top, (place.points[i + 1] - place.points[i]) * f.sx, f.h);
  else for (let i = 0; i + 1 < place.offsets.length; i++) {
    for (let v = place.offsets[i]; v < place.offsets[i + 1]; v++) ctx[v > place.offsets[i] ? 'lineTo' : 'moveTo'](f.X(place.points[2 * v]), f.Y(place.points[2 * v + 1]));
    ctx.closePath();
  }
  if (place.points.length) {
    ctx.clip();
    ctx.beginPath();
    for (let x = f.left - f.h; x < f.left + f.w; x += 9) { ctx.moveTo(x, f.top + f.h); ctx.lineTo(x + f.h, f.top); }
    ctx.strokeStyle = EDGE;
    ctx.globalAlpha = 0.45;
    ctx.lineWidth = 1.3;
    ctx.stroke();
  }
  ctx.restore();
  const { limit } = place;
  if (!limit.length) return;
  ctx.beginPath();
  if (line) for (const x of limit) { ctx.moveTo(f.X(x), f.top); ctx.lineTo(f.X(x), f.top + f.h); }
  else for (let i = 0; i < limit.length; i += 4) { ctx.moveTo(f.X(limit[i]), f.Y(limit[i + 1])); ctx.lineTo(f.X(limit[i + 2]), f.Y(limit[i + 3])); }
  ctx.lineCap = 'round';
  halo(ctx, 2.2, []);
}

function rows(ctx, f, data, line, classes) {
  const k = line ? 1 : 2;
  for (let i = 0; i * k < data.points.length; i++) {
    ctx.beginPath();
    ctx.arc(f.X(data.points[i * k]), line ? f.top + f.h - 5 : f.Y(data.points[i * k + 1]), 2.6, 0, 7);
    ctx.fillStyle = data.classes ? rgb(classes[data.classes[i] % classes.length]) : '#ffffffc0';
    ctx.strokeStyle = EDGE;
    ctx.lineWidth = 0.9;
    ctx.fill();
    ctx.stroke();
  }
}

// All but the regions: axes, data, law, event, what is marked.
export function overlay(ctx, f, model) {
  const { view, picture, place } = model, line = view.axes.length === 1;
  axes(ctx, f, model.labels, model.theme);
  within(ctx, f);
  if (place) event(ctx, f, place, line);
  if (model.data?.points) rows(ctx, f, model.data, line, model.classes);
  if (model.ellipses?.length) (line ? bell : ellipses)(ctx, f, model.ellipses);
  if (picture && model.marked >= 0 && model.marked < picture.count) {
    if (line) {
      ctx.beginPath();
      ctx.rect(f.X(picture.points[2 * model.marked]), f.top, (picture.points[2 * model.marked + 1] - picture.points[2 * model.marked]) * f.sx, f.h);
    } else path(ctx, f, shapeOf(picture, model.marked));
    halo(ctx, 3, [], '#d1603d');
  }
  if (model.point) {
    ctx.beginPath();
    ctx.arc(f.X(model.point[0]), line ? f.Y(model.pointValue ?? f.y0) : f.Y(model.point[1]), 4.5, 0, 7);
    ctx.fillStyle = '#d1603d';
    ctx.fill();
    halo(ctx, 1.5, [], '#fff');
  }
  ctx.restore();
}

export function draw(canvas, model) {
  const ratio = devicePixelRatio || 1, { view, sheet, span } = model;
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  const ctx = canvas.getContext('2d'), f = frame(canvas, view, span);
  ctx.scale(ratio, ratio);
  if (sheet) paste(ctx, f, sheet, ratio, view.axes.length === 1);
  overlay(ctx, f, model);
}
