// The data of the page, indexed by rows, and the view of it.
const $ = (id) => document.getElementById(id);
const data = JSON.parse($('data').textContent);
const HOST = 0, LOCK = 1, ASKED = 2, CHOOSING = 3, NUMBERED = 4, ENTERED = 5, ENDED = 6, END = 7, SHARED = 8, TOKEN = 9,
  PID = 10, COMMAND = 11, BEHIND = 12, REASON = 13, LANE = 14, TRACK = 15, EXTRA = 16;
const attempts = data.attempts;
const begin = (a) => a[ASKED] ?? a[CHOOSING] ?? a[NUMBERED] ?? a[ENTERED] ?? a[ENDED];
const held = (a) => a[ENTERED] !== null;
const text = (n) => data.strings[n];
const endings = { released: 'released', timeout: 'timed out', cancel: 'gave up', busy: 'did not wait', refused: 'refused',
  dead: 'ended by the verdict on its host', unseen: 'its end is not in the journals', open: 'lasts until the end of the journals', lost: 'its host lost the lease' };

// Marks of hosts: letter, severity, meaning.
const changes = {
  joined: ['J', 'good', 'joined'], resumed: ['R', 'good', 'continued after a restart of bakeryd'], seen: ['S', 'good', 'renews its lease again'],
  left: ['L', 'plain', 'left'], at_risk: ['!', 'warn', 'does not renew its lease'], asked: ['E', 'warn', 'was asked to leave (evict)'],
  fenced: ['F', 'bad', 'was fenced'], dead: ['D', 'bad', 'was declared dead'], lost: ['X', 'bad', 'lost its lease'], gap: ['?', 'warn', 'events are missing here'],
  kill: ['K', 'bad', 'the command was sent a signal'], orphan: ['O', 'warn', 'its client disconnected, the command keeps the lock'],
  wanted: ['W', 'plain', 'was asked for the lock'], removed: ['Z', 'plain', 'the lock was removed'],
};
const kindOf = (kind) => changes[kind] ?? ['·', 'plain', kind.replaceAll('_', ' ')];

// view is the visible part: microseconds since data.from, rows from the top, filters.
const margin = Math.max(data.span * 0.022, 50);
const whole = { from: -margin, till: data.span + margin };
const view = { ...whole, top: 0, relative: false, filter: '', hidden: new Set(), selected: null, hover: null, table: false, page: 0, finding: -1 };

// index sorts the items of a row by time, so that a search finds the visible ones.
function index(list, from, till) {
  list.sort((x, y) => from(x) - from(y));
  let end = -Infinity;
  return { list, from, till, ends: list.map((x) => (end = Math.max(end, till(x)))) };
}
function* within(ix, from, till) {
  let low = 0, high = ix.list.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (ix.ends[mid] < from) low = mid + 1; else high = mid;
  }
  for (; low < ix.list.length && ix.from(ix.list[low]) <= till; low++) if (ix.till(ix.list[low]) >= from) yield ix.list[low];
}

const byLock = data.locks.map(() => []), byHost = data.locks.map(() => new Map());
attempts.forEach((a, i) => {
  a.index = i;
  a.findings = [];
  byLock[a[LOCK]].push(a);
  const hosts = byHost[a[LOCK]];
  if (!hosts.has(a[HOST])) hosts.set(a[HOST], []);
  hosts.get(a[HOST]).push(a);
});
data.findings.forEach((f, i) => {
  f.index = i;
  for (const n of f.attempts) attempts[n].findings.push(f);
});
data.locks.forEach((l, i) => {
  l.index = i;
  l.holds = index(byLock[i].filter(held), (a) => a[ENTERED], (a) => a[ENDED]);
  l.rows = new Map([...byHost[i]].map(([h, list]) => [h, index(list, begin, (a) => a[ENDED])]));
  l.findings = index(data.findings.filter((f) => f.lock === i), (f) => f.at, (f) => f.until);
  l.proven = data.findings.some((f) => f.lock === i && f.proven);
});
data.hosts.forEach((h, i) => {
  h.index = i;
  h.spans = spansOf(h);
  h.deaths = h.changes.filter((c) => c[1] === 'dead').map((c) => c[0]);
});

// spansOf returns the states of a host, from one change to the next.
function spansOf(h) {
  const spans = [];
  let state = 'unknown', since = -Infinity;
  if (h.changes.length && !['joined', 'dead'].includes(h.changes[0][1])) state = 'live';
  if (!h.changes.length) state = 'live';
  for (const c of h.changes) {
    const next = { joined: 'live', resumed: 'live', seen: 'live', at_risk: 'risk', left: 'gone', dead: 'dead', lost: 'dead' }[c[1]];
    if (!next || (next === 'risk' && state !== 'live') || next === state) continue;
    spans.push({ state, from: since, till: c[0] });
    state = next;
    since = c[0];
  }
  spans.push({ state, from: since, till: Infinity });
  return spans;
}

// Locks with findings come first, then by name.
const lockOrder = [...data.locks].sort((x, y) => y.proven - x.proven || y.findings.list.length - x.findings.list.length || x.name.localeCompare(y.name, 'en', { numeric: true }));
const shut = new Set(); // locks that show only their track
if (data.locks.reduce((n, l) => n + l.hosts.length, 0) > 120) for (const l of data.locks) if (!l.findings.list.length) shut.add(l.index);

const matches = (l) => !view.filter || l.name.toLowerCase().includes(view.filter.toLowerCase());
const shown = (a) => !view.hidden.has(a[HOST]) && matches(data.locks[a[LOCK]]);

// Times as text.
const pad = (n, width = 2) => String(n).padStart(width, '0');
function utc(t, digits = 3) {
  const us = data.from + Math.round(t), d = new Date(Math.floor(us / 1000)), fraction = pad(((us % 1e6) + 1e6) % 1e6, 6).slice(0, digits);
  return `${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}:${pad(d.getUTCSeconds())}${digits ? '.' + fraction : ''}`;
}
const day = (t) => new Date(Math.floor((data.from + t) / 1000)).toISOString().slice(0, 10);
const since = (t, digits = 3) => `${t < 0 ? '-' : '+'}${(Math.abs(t) / 1e6).toFixed(digits)} s`;
const moment = (t) => `${day(t)} ${utc(t)} UTC (${since(t)})`;
function lasting(us) {
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${+(us / 1000).toPrecision(3)} ms`;
  if (us < 6e7) return `${+(us / 1e6).toPrecision(4)} s`;
  const s = Math.round(us / 1e6), h = Math.floor(s / 3600), m = Math.floor((s % 3600) / 60);
  return h ? `${h} h ${m} min` : `${m} min ${s % 60} s`;
}
const hostName = (i) => data.hosts[i]?.name ?? '?';
const count = (n, one, more) => `${n.toLocaleString('en')} ${n === 1 ? one : more ?? one + 's'}`;
const who = (a) => [a[PID] ? `pid ${a[PID]}` : '', text(a[COMMAND])].filter(Boolean).join(' ');
const ahead = (a) => (held(a) ? a[ENTERED] : a[ENDED]) - begin(a);

// describe returns a sentence about an attempt.
function describe(a) {
  const lock = data.locks[a[LOCK]].name, mode = a[SHARED] ? ' shared' : '';
  if (held(a)) return `${hostName(a[HOST])} held ${lock}${mode} for ${a[EXTRA].s === undefined ? '' : 'at most '}${lasting(a[ENDED] - a[ENTERED])}`;
  return `${hostName(a[HOST])} waited ${lasting(ahead(a))} for ${lock}${mode}: ${endings[a[END]] ?? a[END]}`;
}

function make(tag, props = {}, ...children) {
  const el = Object.assign(document.createElement(tag), props);
  for (const c of children) if (c !== null && c !== undefined) el.append(c);
  return el;
}
