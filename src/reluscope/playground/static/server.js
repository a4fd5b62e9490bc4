// Questions to the server. When it has stopped, the page is covered: nothing on it is true any longer.

import { $, say } from './dom.js';
import { S } from './state.js';

const BEAT = 2000;
export const page = Array.from(crypto.getRandomValues(new Uint8Array(12)), b => b.toString(16).padStart(2, '0')).join('');

export function cover() {
  if ($('cover').hidden) { $('cover').hidden = false; document.querySelector('main').inert = true; $('reload').focus(); }
}

export async function ask(name, body, kind = 'application/json') {
  const slow = setTimeout(() => say($('busy'), 'working…'), 500);
  const slower = setTimeout(() => say($('busy'), 'working… (code is compiled on first use, which takes a while once)'), 5000);
  try {
    const answer = await fetch(`api/${name}`, {
      method: 'POST', headers: { 'Content-Type': kind }, body: kind === 'application/json' ? JSON.stringify(body) : body,
    }).catch(() => { cover(); throw Object.assign(new Error('the server has stopped'), { status: 0 }); });
    const found = await answer.json().catch(() => ({ error: 'the server gave no answer' }));
    if (!answer.ok) throw Object.assign(new Error(found.error), { status: answer.status });
    return found;
  } finally {
    clearTimeout(slow);
    clearTimeout(slower);
    $('busy').hidden = true;
  }
}

// A page that asks nothing notices too: the server says every two seconds which one it is.
export function heartbeat() {
  setInterval(async () => {
    if (document.hidden) return;
    const found = await fetch('api/ping', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' }).then(r => r.json()).catch(() => null);
    if (found === null) cover();
    else if (S.server && found.server !== S.server) location.reload();  // another server: its networks are others
  }, BEAT);
  $('reload').addEventListener('click', () => location.reload());
}
