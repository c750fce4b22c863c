// The last events of this host: a stream of lines, which is reopened whenever it ends.
import { $, keyed, make, mark, say, show } from './dom.js';
import { clock, hostName, lasting, many } from './words.js';

const most = 100;
let all = []; // newest first
let ending = null; // ends the stream
let dirty = false;

const grave = { dead: 'bad', lost: 'bad', kill: 'bad', remains: 'bad', fenced: 'bad', at_risk: 'warn', refused: 'warn', timeout: 'warn', orphan: 'warn', gap: 'warn', asked: 'warn', disk_lost: 'warn', replaced: 'warn',
  enter: 'good', joined: 'good', seen: 'good', resumed: 'good', disk_back: 'good' };

// follow reads events until the stream ends. It requests only events after the last one.
export async function follow(touched) {
  ending?.abort();
  const own = (ending = new AbortController());
  const query = all.length ? `since=${all[0].seq}` : 'from=' + new Date(Date.now() - 30 * 864e5).toISOString();
  try {
    const answer = await fetch(`/v1/events?${query}&limit=${most}&follow=1`, { signal: own.signal, cache: 'no-store' });
    if (!answer.ok) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      if (rest.length > 1 << 20) return; // no valid line is so long
      lines.forEach(take);
      if (dirty) touched();
    }
  } catch {
    // bakeryd is gone, or the page is hidden: the caller retries.
  } finally {
    own.abort();
  }
}

export function unfollow() {
  ending?.abort();
}

function take(text) {
  let e;
  try {
    e = JSON.parse(text);
  } catch {
    return;
  }
  if (typeof e?.seq !== 'string' || !/^\d{1,20}$/.test(e.seq) || all.some((x) => x.seq === e.seq)) return;
  all.unshift(e);
  if (all.length > most) all.length = most;
  dirty = true;
}

export function drawEvents() {
  if (!dirty) return;
  dirty = false;
  show($('noevents'), all.length === 0);
  say($('eventcount'), all.length < most ? all.length : `the last ${most}`);
  keyed($('eventlist'), all, (e) => e.seq, eventRow);
}

// eventRow creates a row that never changes.
function eventRow(e) {
  const kind = make('span', 'chip', String(e.kind).replace('_', ' '));
  mark(kind, 'data-level', grave[e.kind] ?? 'note');
  const when = make('time', '', clock(e.at));
  mark(when, 'datetime', e.at);
  mark(when, 'title', e.at);
  const who = e.host ? hostName(e.host, e.host_name) : e.host_name ?? '';
  const node = make('li', '', when, make('p', '', kind, ' ', make('b', 'name', e.lock ?? who), ' ', make('span', 'words', wordsOf(e))));
  return { node };
}

const seen = new Set(['joined', 'left', 'at_risk', 'seen']); // reported by every host

function wordsOf(e) {
  const parts = [];
  if (e.by_host && e.by_host !== e.host && !seen.has(e.kind)) parts.push(`by ${hostName(e.by_host, e.by_host_name)}`);
  if (e.pid) parts.push(`pid ${e.pid}`);
  if (e.command) parts.push(e.command);
  if (e.mode === 'shared') parts.push('shared');
  if (e.kind === 'exit' && e.held_ms !== undefined) parts.push(`held ${lasting(e.held_ms)}`);
  else if (e.waited_ms) parts.push(`waited ${lasting(e.waited_ms)}`);
  const ahead = e.ahead?.at?.(-1);
  if (ahead) parts.push(`behind ${hostName(ahead.host, ahead.host_name)}`);
  if (e.reason) parts.push(e.reason);
  if (e.missed) parts.push(`${many(e.missed, 'event')} missing`);
  return parts.join(' · ');
}
