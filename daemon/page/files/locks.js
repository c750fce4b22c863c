// The locks: holders with their time and command, and waiters.
import { $, keyed, make, mark, say, show, tell } from './dom.js';
import { doubtOf, wordsOf } from './model.js';
import { aged, hostName, many, whole } from './words.js';

const batch = 60, perLine = 4; // free locks are short
let shown = batch, which = 'all';
const asked = { m: null, key: '', found: [] }; // the last search: made once for each answer

export function beginLocks(redraw) {
  const again = () => {
    shown = batch;
    redraw();
  };
  $('locksearch').oninput = again;
  for (const b of document.querySelectorAll('.chips button')) {
    b.onclick = () => {
      which = b.dataset.which;
      for (const other of document.querySelectorAll('.chips button')) mark(other, 'aria-pressed', other === b);
      again();
    };
  }
  $('morelocks').onclick = () => {
    shown += 5 * batch;
    redraw();
  };
  addEventListener('keydown', (e) => {
    if (e.key === '/' && !e.ctrlKey && !e.metaKey && !e.altKey && !(e.target instanceof HTMLInputElement)) {
      e.preventDefault();
      $('locksearch').focus();
    } else if (e.key === 'Escape' && e.target === $('locksearch')) {
      $('locksearch').value = '';
      again();
    }
  });
}

export function drawLocks(m, now) {
  const words = wordsOf($('locksearch').value), key = `${which} ${words.join(' ')}`;
  if (asked.m !== m || asked.key !== key) Object.assign(asked, { m, key, found: m.findLocks(which, words) });
  const found = asked.found, all = m.locks.length;
  say($('lockcount'), found.length === all ? all.toLocaleString('en') : `${found.length.toLocaleString('en')} of ${all.toLocaleString('en')}`);
  const busy = found.filter((l) => l.rank < 4).slice(0, shown), free = found.filter((l) => l.rank === 4).slice(0, (shown - busy.length) * perLine);
  keyed($('locklist'), busy, (l) => l.number, lockRow, m, m.age(now));
  keyed($('freelist'), free, (l) => l.number, freeRow);
  say($('freehead'), m.old() ? 'Free when last read' : 'Free');
  show($('free'), free.length > 0);
  const more = found.length - busy.length - free.length;
  tell($('morelocks'), more > 0 ? `${many(more, 'more lock')}: search, or show some` : '');
  tell($('nolocks'), found.length ? '' : all ? 'No lock matches.' : 'There are no locks yet. A lock is created when it is first taken.');
}

function lockRow() {
  const name = make('b', 'name'), permits = make('span', 'badge'), state = make('span', 'chip'), why = make('p', 'why');
  const holders = make('ul', 'holders'), queue = make('ol', 'queue');
  holders.setAttribute('aria-label', 'Holders');
  queue.setAttribute('aria-label', 'Queue');
  const node = make('li', 'lock', make('div', 'lockline', name, permits, state), why, holders, queue);
  const update = (l, m, age) => {
    const { word, level } = stateOf(m, l);
    say(name, l.name || 'directory of locks');
    tell(permits, l.permits > 1 ? `${l.permits} permits` : '');
    say(state, word);
    mark(state, 'data-level', level);
    mark(node, 'data-level', level);
    tell(why, aged(l.stuck, l.times, age));
    show(holders, l.holders.length > 0);
    keyed(holders, capped(l.holders), (h) => h.key ?? `${h.host} ${h.token} ${h.pid}`, holderRow, m);
    const queued = queueOf(m, l);
    show(queue, queued.length > 0);
    keyed(queue, queued, (q) => q.key, queueRow, m);
  };
  return { node, update };
}

function freeRow() {
  const name = make('span', 'name'), permits = make('span', 'badge');
  return {
    node: make('li', '', name, permits),
    update(l) {
      say(name, l.name || 'directory of locks');
      tell(permits, l.permits > 1 ? `${l.permits} permits` : '');
    },
  };
}

const doubtLevels = { lost: 'bad', unknown: 'warn' };

function stateOf(m, l) {
  const waits = m.waits(l);
  if (l.stuck) return { word: 'stuck', level: 'bad' };
  const doubt = m.over && l.holders.length ? 'unknown' : doubtOf(l);
  if (doubt) return { word: doubt, level: doubtLevels[doubt] };
  if (l.holders.some((h) => h.orphan)) return { word: 'orphan', level: 'warn' };
  if (waits && !l.holders.length) return { word: 'being taken', level: 'busy' };
  if (waits) return { word: `${waits} waiting`, level: 'busy' };
  if (l.holders.length) return { word: l.holders.length > 1 ? `held by ${l.holders.length}` : 'held', level: 'good' };
  return { word: l.lingering ? 'lingering' : 'free', level: 'note' };
}

const deepest = 12; // maximum of holders, and of waiters, that are shown

// queueOf returns the waiters: hosts in order, with the clients of this host at its place, or after the hosts.
function queueOf(m, l) {
  const all = l.queue.map((q) => ({ ...q, key: `h${q.host}`, number: q.place }));
  const local = (l.local ?? []).map((c) => ({ ...c, key: `c${c.place} ${c.pid}`, client: true }));
  const own = all.findIndex((q) => q.host === m.self?.id);
  if (own >= 0) all.splice(own + 1, 0, ...local); else all.push(...local);
  return capped(all);
}

const capped = (all) => (all.length <= deepest ? all : [...all.slice(0, deepest - 1), { key: 'more', more: all.length - deepest + 1 }]);

function holderRow() {
  const host = make('b'), pid = make('span', 'pid'), command = make('code', 'command'), since = make('span', 'when'), mode = make('span', 'mode'), token = make('span', 'token');
  const orphan = make('span', 'chip');
  const node = make('li', '', host, pid, command, orphan, mode, since, token);
  const update = (h, m) => {
    say(host, h.more ? `and ${h.more} more` : hostName(h.host, h.host_name));
    tell(pid, h.pid ? `pid ${h.pid}` : '');
    tell(command, h.command);
    mark(command, 'title', h.command ?? '');
    const doubt = doubtLevels[h.host_health] ? h.host_health : '';
    tell(orphan, [doubt, h.orphan ? 'orphan' : ''].filter(Boolean).join(', '));
    mark(orphan, 'data-level', doubtLevels[doubt] ?? 'warn');
    tell(mode, h.mode === 'shared' ? 'shared' : '');
    const held = m.held(h.since);
    say(since, held === undefined || h.since === undefined ? '' : `for ${whole(held)}`);
    mark(since, 'title', h.since ? `since ${h.since}` : '');
    say(token, h.more ? '' : `token ${h.token}`);
  };
  return { node, update };
}

function queueRow() {
  const place = make('span', 'place'), who = make('b'), pid = make('span', 'pid'), command = make('code', 'command'), mode = make('span', 'mode'), what = make('span', 'when');
  const node = make('li', '', place, who, pid, command, mode, what);
  const update = (q, m) => {
    node.classList.toggle('client', !!q.client);
    node.classList.toggle('rest', !!q.more);
    say(place, q.number ?? '');
    say(who, q.more ? `and ${q.more} more` : q.client ? 'client here' : hostName(q.host, q.host_name));
    tell(pid, q.pid ? `pid ${q.pid}` : '');
    tell(command, q.command ?? '');
    tell(mode, q.mode === 'shared' ? 'shared' : '');
    const waited = q.since && m.held(q.since);
    say(what, q.more ? '' : q.client ? (waited === undefined ? 'waits' : `waits for ${whole(waited)}`) : q.phase);
  };
  return { node, update };
}
