// The state of the page in its address, so that a link or a reload leads back to it.

import { S } from './state.js';

let waiting = 0;
const KEPT = ['axes', 'vary', 'lower', 'upper', 'event', 'output', 'colour', 'layers', 'unit'];

const encode = value => btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(value)))).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
const decode = text => JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), c => c.charCodeAt(0))));
const differing = (now, then) => Object.fromEntries(now.flatMap((v, i) => v === then[i] ? [] : [[i, v]]));

export function link() {
  const { view, first, net } = S, state = { network: net.key, title: net.title, at: differing(view.at, first.at), sd: differing(view.sd, first.sd) };
  for (const key of KEPT) if (JSON.stringify(view[key]) !== JSON.stringify(first[key])) state[key] = view[key];
  return `${location.origin}${location.pathname}#${encode(state)}`;
}

// Written a moment after the last change: browsers refuse too many.
export function remember() {
  clearTimeout(waiting);
  waiting = setTimeout(() => { if (S.net && !S.net.key.startsWith('train-')) history.replaceState(null, '', link()); }, 400);
}

// What the address says, or null: `network` and what differs from the network's first view.
export function remembered() {
  try {
    const state = location.hash.length > 1 ? decode(location.hash.slice(1)) : null;
    return state && typeof state === 'object' && typeof state.network === 'string' ? state : null;
  } catch { return null; }
}

export function restore(state) {
  const { view } = S, n = view.at.length, good = k => Array.isArray(state[k]) && state[k].length === view[k].length && state[k].every(Number.isFinite);
  for (const what of ['at', 'sd']) for (const [i, v] of Object.entries(state[what] ?? {})) if (Number(i) < n && Number.isFinite(v) && (what === 'at' || v >= 0)) view[what][i] = v;
  for (const key of ['axes', 'lower', 'upper']) if (good(key)) view[key] = state[key];
  if (!view.axes.every(i => Number.isInteger(i) && i >= 0 && i < n) || new Set(view.axes).size !== view.axes.length) view.axes = S.first.axes.slice();
  for (const key of ['vary', 'event', 'colour']) if (typeof state[key] === 'string') view[key] = state[key];
  for (const key of ['output', 'layers', 'unit']) if (Number.isInteger(state[key])) view[key] = state[key];
}
