// The picture as a file: PNG at twice the size, or SVG.

import { $ } from './dom.js';
import { frame, overlay, regionsInto } from './draw.js';
import { model, whole } from './picture.js';
import { S } from './state.js';
import { SvgContext } from './svg.js';

function into(ctx, size) {
  const { picture } = S.got, f = frame(size, S.view, S.span);
  const mass = S.got.linear_models?.plane === picture?.plane ? S.got.linear_models?.drawn : null;
  if (picture) regionsInto(ctx, f, { ...S.view, colour: whole() ? S.view.colour : 'output' }, picture, mass, S.palette);
  overlay(ctx, f, { ...model(), theme: { ink: '#1c2330', soft: '#5b6577' } });
}

function offer(blob, ending) {
  const name = S.net.title.replace(/[^A-Za-z0-9._-]+/g, '-').slice(0, 60), link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = `${name || 'network'}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export const svgText = () => {
  const canvas = $('canvas'), ctx = new SvgContext(canvas.clientWidth, canvas.clientHeight, '#ffffff');
  into(ctx, canvas);
  return ctx.text();
};

export function pngCanvas() {
  const canvas = $('canvas'), sheet = document.createElement('canvas'), ctx = sheet.getContext('2d');
  sheet.width = 2 * canvas.clientWidth;
  sheet.height = 2 * canvas.clientHeight;
  ctx.scale(2, 2);
  ctx.fillStyle = '#fff';
  ctx.fillRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  into(ctx, canvas);
  return sheet;
}

export const saveSvg = () => offer(new Blob([svgText()], { type: 'image/svg+xml' }), 'svg');
export const savePng = () => pngCanvas().toBlob(blob => offer(blob, 'png'));
