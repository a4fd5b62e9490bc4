// Files dropped on the page: a model is opened; a table becomes rows of data or a law, as its user says.

import { $, say } from './dom.js';

const MOST_TABLE = 32 << 20;
const isTable = file => /\.(csv|tsv|txt)$/i.test(file.name);
let waiting = null;

export function dropped(file, open, network) {
  if (!file) return;
  if (!isTable(file)) { open(`load?name=${encodeURIComponent(file.name)}`, file, 'application/octet-stream'); return; }
  if (file.size > MOST_TABLE) { say($('problem'), `${file.name} has ${file.size.toLocaleString('en')} bytes, at most ${MOST_TABLE.toLocaleString('en')} are taken here`); return; }
  waiting = { file, network };
  $('table-name').textContent = file.name;
  $('table').hidden = false;
  $('as-data').focus();
}

export function dropping(open, network) {
  const page = document.body;
  page.addEventListener('dragover', e => { if (e.dataTransfer.types.includes('Files')) { e.preventDefault(); page.classList.add('dropping'); } });
  page.addEventListener('dragleave', e => { if (!e.relatedTarget) page.classList.remove('dropping'); });
  page.addEventListener('drop', e => { e.preventDefault(); page.classList.remove('dropping'); dropped(e.dataTransfer.files[0], open, network); });
  $('file').addEventListener('change', e => { dropped(e.target.files[0], open, network); e.target.value = ''; });
  for (const use of ['data', 'law']) $(`as-${use}`).addEventListener('click', () => {
    const { file } = waiting;
    $('table').hidden = true;
    open(`table?name=${encodeURIComponent(file.name)}&as=${use}&network=${encodeURIComponent(network())}`, file, 'application/octet-stream', true);
  });
  $('table-no').addEventListener('click', () => { $('table').hidden = true; });
}
