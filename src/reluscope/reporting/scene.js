
// The map of a report: hover, zoom, and the layers one by one. What is drawn comes from the page itself.
(() => {
  const source = document.getElementById('scene-data'), canvas = document.getElementById('scene');
  if (!source || !canvas) return;
  const scene = JSON.parse(source.textContent), tip = document.getElementById('scene-tip'), slider = document.getElementById('scene-layers');
  const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0)), floats = text => new Float32Array(bytes(text).buffer);
  const steps = scene.layers.map(step => {
    const offsets = [0];
    for (const n of bytes(step.corners)) offsets.push(offsets[offsets.length - 1] + n);
    const last = step.layers === scene.layers[scene.layers.length - 1].layers;
    return { count: step.count, layers: step.layers, offsets, points: floats(step.points), C: floats(step.C), d: floats(step.d), outputs: last ? scene.outputs.map((_, o) => o) : [0], last };
  });
  const view = { axes: [0, 1], lower: scene.lower.slice(), upper: scene.upper.slice(), colour: scene.colour };
  let at = steps.length - 1, sheet = null, asked = 0;

  function drawScene() {
    const style = getComputedStyle(document.documentElement), picture = { ...steps[at], older: at > 0 && !steps[at].last ? steps[at - 1] : null };
    const shown = { ...view, colour: steps[at].last ? scene.colour : 'output' };
    if (!canvas.clientWidth) return;
    sheet = paintRegions(canvas, shown, picture, null, scene.palette, null);
    draw(canvas, { view: shown, sheet, span: null, point: null, marked: -1, picture, ellipses: scene.ellipses, place: null, data: null, labels: scene.labels,
      theme: { ink: style.getPropertyValue('--ink'), soft: style.getPropertyValue('--soft') } });
    const what = steps[at].last ? (scene.colour === 'output' ? `colour: ${scene.outputs[0]}` : `colour: which output is ${scene.colour}`) : `colour: unit 0 of layer ${steps[at].layers}, before it switches; orange: cut by layer ${steps[at].layers - 1}`;
    legend(picture, shown);
    document.getElementById('scene-depth').textContent = `${steps[at].layers} of ${steps[steps.length - 1].layers}`;
    document.getElementById('scene-text').textContent = `${steps[at].count.toLocaleString('en')} ${steps[at].count === 1 ? 'region' : 'regions'} after ${steps[at].layers === 1 ? '1 hidden layer' : `${steps[at].layers} hidden layers`}; ${what}.${scene.zoomed ? ' This is the middle of the plane above: the whole has too many regions for this page.' : ''}`;
  }

  // Colours with what they stand for: outputs that win somewhere, or a bar from the lowest to the highest value.
  function legend(picture, shown) {
    const box = document.getElementById('scene-legend'), entry = (colour, text) => {
      const made = document.createElement('span'), swatch = document.createElement('span');
      swatch.className = 'bar swatch';
      swatch.style.background = colour;
      made.append(swatch, ` ${text}`);
      return made;
    };
    if (shown.colour !== 'output') {
      const won = [...(sheet.won ?? [])].sort((a, b) => a - b);
      box.replaceChildren(...won.map(o => entry(rgb(scene.palette.categories[o]), scene.outputs[o])));
      return;
    }
    const scale = valueScale(valueRange(picture, 2), scene.palette), nice = v => String(Number(v.toPrecision(2))).replace('-', '−');
    const made = entry(`linear-gradient(90deg, ${scale.stops.map(rgb).join(', ')})`, nice(scale.high));
    made.firstChild.classList.remove('swatch');
    made.prepend(`${steps[at].last ? scene.outputs[0] : `unit 0 of layer ${steps[at].layers}`} ${nice(scale.low)} `);
    box.replaceChildren(made);
  }

  function again() { cancelAnimationFrame(asked); asked = requestAnimationFrame(drawScene); }
  const spot = e => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
  const back = p => frame(canvas, view, null).back(...p);
  const inside = u => u.every((v, k) => v >= view.lower[k] && v <= view.upper[k]);

  function zoomTo(by, u) {
    const lower = view.lower.map((v, k) => u[k] + (v - u[k]) * by), upper = view.upper.map((v, k) => u[k] + (v - u[k]) * by);
    const whole = scene.upper[0] - scene.lower[0], wide = upper[0] - lower[0];
    if (wide < 1e-4 * whole) return;
    if (wide > whole) Object.assign(view, { lower: scene.lower.slice(), upper: scene.upper.slice() });
    else Object.assign(view, { lower, upper });
    again();
  }

  const middle = () => view.lower.map((v, k) => (v + view.upper[k]) / 2);
  slider.max = steps.length - 1;
  slider.value = at;
  slider.addEventListener('input', () => { at = Number(slider.value); again(); });
  document.getElementById('scene-in').addEventListener('click', () => zoomTo(1 / 1.6, middle()));
  document.getElementById('scene-out').addEventListener('click', () => zoomTo(1.6, middle()));
  canvas.addEventListener('wheel', e => {
    if (!e.ctrlKey && !canvas.matches(':focus')) return;  // a page that scrolls must go on scrolling
    e.preventDefault();
    zoomTo(Math.exp(0.0015 * e.deltaY), back(spot(e)));
  }, { passive: false });
  let held = null;
  canvas.addEventListener('pointerdown', e => { if (e.pointerType === 'mouse') held = { from: back(spot(e)) }; });
  addEventListener('pointerup', () => { held = null; });
  canvas.addEventListener('pointermove', e => {
    const p = spot(e), u = back(p);
    if (held && e.buttons & 1) {
      for (const side of ['lower', 'upper']) view[side] = view[side].map((v, k) => v + held.from[k] - u[k]);
      tip.hidden = true;
      again();
      return;
    }
    tip.hidden = !inside(u);
    if (tip.hidden) return;
    const step = steps[at], i = regionAt(step, u), nice = v => String(Number(v.toPrecision(4))).replace('-', '−');
    const lines = [scene.labels.map((l, k) => `${l.name.split(',')[0]} = ${nice((u[k] - l.shift) / l.scale)}${l.unit ? ` ${l.unit}` : ''}`).join(', ')];
    if (i >= 0) step.outputs.forEach((o, k) => lines.push(`${step.last ? scene.outputs[o] : `unit 0 of layer ${step.layers}`} = ${nice(valueAt(step, i, k, u))}`));
    tip.replaceChildren(...lines.map(line => Object.assign(document.createElement('div'), { textContent: line })));
    tip.style.left = `${p[0] + 14 + tip.offsetWidth > canvas.clientWidth ? p[0] - 10 - tip.offsetWidth : p[0] + 14}px`;
    tip.style.top = `${p[1] + 14 + tip.offsetHeight > canvas.clientHeight ? p[1] - 10 - tip.offsetHeight : p[1] + 14}px`;
  });
  canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
  canvas.addEventListener('keydown', e => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[e.key];
    if (e.key === '+' || e.key === '-') { zoomTo(e.key === '+' ? 1 / 1.6 : 1.6, middle()); e.preventDefault(); }
    if (!way) return;
    e.preventDefault();
    for (const side of ['lower', 'upper']) view[side] = view[side].map((v, k) => v + 0.1 * way[k] * (view.upper[k] - view.lower[k]));
    again();
  });
  slider.parentElement.hidden = document.getElementById('scene-slider').hidden = steps.length < 2;
  document.getElementById('scene-law').hidden = !scene.ellipses.length;
  document.getElementById('scene-box').hidden = false;
  new ResizeObserver(again).observe(canvas);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
  drawScene();
})();

// "Copy as Python".
(() => {
  const button = document.getElementById('copy-python'), code = document.getElementById('python'), note = document.getElementById('copied');
  if (!button) return;
  button.hidden = false;
  button.addEventListener('click', async () => {
    try { await navigator.clipboard.writeText(code.textContent); note.textContent = 'copied'; } catch {
      code.closest('details').open = true;
      getSelection().selectAllChildren(code);
      note.textContent = 'selected: copy it with the keyboard';
    }
  });
})();
