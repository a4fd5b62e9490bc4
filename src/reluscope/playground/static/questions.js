// Which questions are to be asked, in which order, and which numbers on the page are out of date meanwhile.

import { $, pause, say } from './dom.js';
import { answered, failed } from './answers.js';
import { redraw } from './picture.js';
import { ask, page } from './server.js';
import { remember } from './share.js';
import { KINDS, LAW, S, planeOf } from './state.js';

const SETTLE = 350, QUICK = 110, TURN = 300;
const PANELS = { event: 'chance', outputs: 'output-panel', linear_models: 'regions-panel', point: 'point', code: 'code-panel', picture: 'stage' };
const dirty = new Set(), wanted = {}, took = {}, asks = {};   // to be asked; the change that asked for it; ms it took; when it was asked
let changes = 0, turn = 0, running = false, settle = 0, between = 0;   // between: when something else than the event was asked

function mark(kind, stale) {
  const panel = $(PANELS[kind]);
  if (panel.getAttribute('aria-busy') === String(stale)) return;
  panel.classList.toggle('stale', stale);
  panel.setAttribute('aria-busy', String(stale));
}

// One question at a time; while it is under way, newer ones replace those that wait.
async function pump() {
  if (running) return;
  running = true;
  document.body.setAttribute('aria-busy', 'true');
  try {
    for (;;) {
      // While something moves, only what is quick is asked, in turns; the rest waits until it rests.
      const ready = KINDS.filter(k => dirty.has(k) && (!S.live || k === 'picture' || k === 'event' || (k !== 'code' && took[k] < QUICK)));
      // The number follows the hand: while it moves, the other questions take turns, one every so many milliseconds.
      const others = ready.filter(k => k !== 'event').sort((a, b) => (asks[a] ?? 0) - (asks[b] ?? 0));
      const first = ready.includes('event') && performance.now() - between < TURN;
      const kind = !S.live ? ready[0] : first || !others.length ? ready.find(k => k === 'event') : others[0];
      if (!kind) break;
      asks[kind] = performance.now();
      if (kind !== 'event') between = asks[kind];
      dirty.delete(kind);
      if (kind === 'point' && !S.point) { mark(kind, false); continue; }
      const methods = ['outputs', 'linear_models'].map(k => S.got[k]?.asked ?? 'auto');
      const { net } = S, change = wanted[kind], view = structuredClone(S.view);
      const asked = { page, turn: ++turn, network: net.key, view: { ...view, live: S.live }, point: S.point, methods };
      if (kind === 'event') asked.have = S.place?.key ?? null;
      try {
        const found = await ask(kind, asked);
        took[kind] = performance.now() - asks[kind];
        // An answer about another network, event, plane or place is not shown at all.
        if (net.key !== S.net.key || String(view.axes) !== String(S.view.axes)) continue;
        if (kind === 'event' && view.event !== S.view.event) continue;
        if (kind === 'point' && String(asked.point) !== String(S.point)) continue;
        S.got[kind] = Object.assign(found, { plane: planeOf(view), view });
        answered[kind](found);
        mark(kind, change !== wanted[kind]);
      } catch (error) {
        if (error.status === 0) return;
        if (error.status === 409) continue;
        if (error.status === 503) { dirty.add(kind); await pause(800); continue; }
        if (error.status === undefined) throw error;
        if (net.key !== S.net.key) continue;
        S.got[kind] = null;
        failed[kind](error.message);
        mark(kind, change !== wanted[kind]);
      }
    }
  } finally {
    running = false;
    document.body.setAttribute('aria-busy', String(S.live));
  }
}

export function change(kinds) {
  changes += 1;
  for (const kind of kinds) { dirty.add(kind); wanted[kind] = changes; if (kind !== 'picture') mark(kind, true); }
  if (!S.live) say($('problem'), '');
  remember();
  redraw();
  pump();
}

// While something moves, answers may be rough; when it rests, they are asked for again.
export function moved(kinds = LAW) {
  S.live = true;
  clearTimeout(settle);
  settle = setTimeout(rest, SETTLE);
  change(kinds);
}

export function rest() {
  clearTimeout(settle);
  if (!S.live) return;
  S.live = false;
  change(LAW);
}

export function nothingAsked() { dirty.clear(); S.live = false; clearTimeout(settle); for (const kind of KINDS) mark(kind, false); }
export const idle = () => !running && !dirty.size;
