// What a canvas context draws, as an SVG file: just the calls that draw.js makes.

const escaped = text => String(text).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
const short = v => Number(v.toFixed(2));

export class SvgContext {
  constructor(width, height, ground) {
    Object.assign(this, { width, height, parts: [`<rect width="${width}" height="${height}" fill="${ground}"/>`], defs: [], d: '', stack: [], made: 0 });
    Object.assign(this, { fillStyle: '#000', strokeStyle: '#000', lineWidth: 1, globalAlpha: 1, lineCap: 'butt', font: '12px sans-serif', textAlign: 'start', textBaseline: 'alphabetic', dash: [], open: 0, turned: '' });
  }

  save() { this.stack.push(['fillStyle', 'strokeStyle', 'lineWidth', 'globalAlpha', 'lineCap', 'font', 'textAlign', 'textBaseline', 'dash', 'open', 'turned'].map(k => [k, this[k]])); this.open = 0; }

  restore() {
    for (let k = 0; k < this.open; k++) this.parts.push('</g>');
    for (const [k, v] of this.stack.pop()) this[k] = v;
  }

  translate(x, y) { this.turned += `translate(${short(x)} ${short(y)}) `; }

  rotate(angle) { this.turned += `rotate(${short(angle * 180 / Math.PI)}) `; }

  beginPath() { this.d = ''; }

  moveTo(x, y) { this.d += `M${short(x)} ${short(y)}`; }

  lineTo(x, y) { this.d += `L${short(x)} ${short(y)}`; }

  closePath() { this.d += 'Z'; }

  rect(x, y, w, h) { this.d += `M${short(x)} ${short(y)}h${short(w)}v${short(h)}h${short(-w)}Z`; }

  arc(x, y, r) { this.d += `M${short(x - r)} ${short(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`; }

  setLineDash(dash) { this.dash = dash; }

  clip() {
    const id = `c${++this.made}`;
    this.defs.push(`<clipPath id="${id}"><path d="${this.d}"/></clipPath>`);
    this.parts.push(`<g clip-path="url(#${id})">`);
    this.open += 1;
  }

  paint(style, what) {
    const [, colour, alpha] = /^(#[0-9a-fA-F]{6})([0-9a-fA-F]{2})$/.exec(style) ?? [null, style, 'ff'];
    const clear = this.globalAlpha * parseInt(alpha, 16) / 255;
    return `${what}="${escaped(colour.id ? `url(#${colour.id})` : colour)}"${clear < 1 ? ` ${what}-opacity="${short(clear)}"` : ''}`;
  }

  fill() { if (this.d) this.parts.push(`<path d="${this.d}" ${this.paint(this.fillStyle, 'fill')}/>`); }

  stroke() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(' ')}"` : '';
    if (this.d) this.parts.push(`<path d="${this.d}" fill="none" ${this.paint(this.strokeStyle, 'stroke')} stroke-width="${this.lineWidth}"${dash} stroke-linecap="${this.lineCap}"/>`);
  }

  fillRect(x, y, w, h) { this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}" ${this.paint(this.fillStyle, 'fill')}/>`); }

  strokeRect(x, y, w, h) { this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}" fill="none" ${this.paint(this.strokeStyle, 'stroke')} stroke-width="${this.lineWidth}"/>`); }

  fillText(text, x, y) {
    const size = parseFloat(this.font), down = { top: 0.8, middle: 0.35 }[this.textBaseline] ?? 0, anchor = { center: 'middle', right: 'end' }[this.textAlign] ?? 'start';
    this.parts.push(`<text x="${short(x)}" y="${short(y + down * size)}" font-family="sans-serif" font-size="${size}" text-anchor="${anchor}"${this.turned ? ` transform="${this.turned.trim()}"` : ''} ${this.paint(this.fillStyle, 'fill')}>${escaped(text)}</text>`);
  }

  createLinearGradient(x1, y1, x2, y2) {
    const id = `g${++this.made}`, at = this.defs.push('') - 1, stops = [], { defs } = this;
    return { id, addColorStop(part, colour) {
      stops.push(`<stop offset="${Number(part.toFixed(4))}" stop-color="${colour}"/>`);
      defs[at] = `<linearGradient id="${id}" gradientUnits="userSpaceOnUse" x1="${short(x1)}" y1="${short(y1)}" x2="${short(x2)}" y2="${short(y2)}">${stops.join('')}</linearGradient>`;
    } };
  }

  text() {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}"><defs>${this.defs.join('')}</defs>${this.parts.join('')}</svg>\n`;
  }
}
