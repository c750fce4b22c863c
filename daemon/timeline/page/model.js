// The data of the page, indexed by rows, and the view of it.
const $ = (id) => document.getElementById(id);
const data = JSON.parse($('data').textContent);
const attempts = (data.attempts ??= []);
for (const list of ['hosts', 'locks', 'findings', 'notes']) data[list] ??= [];
for (const h of data.hosts) { h.changes ??= []; h.spans ??= []; }
for (const l of data.locks) l.marks ??= [];

// Times become microseconds since data.from. An unknown one is undefined.
function shift(item, ...names) {
  for (const n of names) if (item[n] !== undefined) item[n] -= data.from;
}
data.span = data.until - data.from;
for (const h of data.hosts) { for (const c of h.changes) shift(c, 'at'); for (const s of h.spans) shift(s, 'from', 'till'); }
for (const l of data.locks) for (const m of l.marks) shift(m, 'at');
for (const f of data.findings) shift(f, 'at', 'until');
for (const a of attempts) {
  shift(a, 'asked', 'choosing', 'numbered', 'entered', 'ended', 'lost', 'verdict', 'sure');
  if (a.sure === a.ended) delete a.sure;
  for (const m of [...(a.modes ?? []), ...(a.marks ?? [])]) shift(m, 'at');
}
const begin = (a) => a.asked ?? a.choosing ?? a.numbered ?? a.entered ?? a.ended;
const held = (a) => a.entered !== undefined;
const certain = (a) => a.sure ?? a.ended; // it lasted at least until then
const endings = { released: 'released', removed: 'removed the lock', timeout: 'timed out', cancel: 'gave up', busy: 'did not wait', refused: 'refused',
  dead: 'ended by the verdict on its host', unseen: 'its end is not in the journals', open: 'not over by the end of its host’s journal', lost: 'its host lost the lease' };

// Marks of hosts: letter, severity, meaning.
const changes = {
  joined: ['J', 'good', 'joined'], resumed: ['R', 'good', 'continued after a restart of bakeryd'], seen: ['S', 'good', 'renews its lease again'],
  left: ['L', 'plain', 'left'], at_risk: ['!', 'warn', 'does not renew its lease'], asked: ['E', 'warn', 'was asked to leave (evict)'],
  fenced: ['F', 'bad', 'was fenced'], dead: ['D', 'bad', 'was declared dead'], lost: ['X', 'bad', 'lost its lease'], gap: ['?', 'warn', 'events are missing here'],
  disk_lost: ['M', 'warn', 'lost a member disk'], disk_back: ['B', 'good', 'has a member disk back'],
  replaced: ['N', 'warn', 'uses another list of member disks'],
  kill: ['K', 'bad', 'the command was sent a signal'], remains: ['P', 'bad', 'processes survived SIGKILL'], orphan: ['O', 'warn', 'its client disconnected, the command keeps the lock'],
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

// lay assigns lanes to overlapping items of a row, and returns their number. Further ones than most overlap in the last lane.
function lay(ix, name, most) {
  const ends = [];
  for (const a of ix.list) {
    const free = ends.findIndex((end) => end <= ix.from(a)), lane = free >= 0 ? free : Math.min(ends.length, most - 1);
    ends[lane] = Math.max(ends[lane] ?? -Infinity, ix.till(a));
    a[name] = lane;
  }
  return Math.max(1, ends.length);
}

const byLock = data.locks.map(() => []), byHost = data.locks.map(() => new Map());
attempts.forEach((a, i) => {
  a.index = i;
  a.findings = [];
  byLock[a.lock].push(a);
  const hosts = byHost[a.lock];
  if (!hosts.has(a.host)) hosts.set(a.host, []);
  hosts.get(a.host).push(a);
});
data.findings.forEach((f, i) => {
  f.index = i;
  f.proven = f.kind !== 'doubt' && f.kind !== 'late';
  for (const n of f.attempts) attempts[n].findings.push(f);
});
data.locks.forEach((l, i) => {
  l.index = i;
  l.holds = index(byLock[i].filter(held), (a) => a.entered, (a) => a.ended);
  l.lanes = lay(l.holds, 'track', 6);
  l.rows = new Map([...byHost[i]].map(([h, list]) => [h, index(list, begin, (a) => a.ended)]));
  l.hosts = [...l.rows].map(([h, ix]) => [h, lay(ix, 'lane', 8)]).sort((x, y) => x[0] - y[0]);
  l.findings = index(data.findings.filter((f) => f.lock === i), (f) => f.at, (f) => f.until);
  l.absent = !byLock[i].length && !l.marks.length; // nothing of it is in the shown time
  l.proven = data.findings.some((f) => f.lock === i && f.proven);
});
const present = new Set(attempts.map((a) => a.host));
data.hosts.forEach((h, i) => {
  h.index = i;
  h.absent = !h.changes.length && h.spans.every((s) => s.state === 'gone') && !present.has(i); // it had left, or had not joined yet
  h.deaths = h.changes.filter((c) => c.kind === 'dead' && !c.old).map((c) => c.at);
});

// Locks with findings come first, then by name.
const lockOrder = [...data.locks].sort((x, y) => y.proven - x.proven || y.findings.list.length - x.findings.list.length || x.name.localeCompare(y.name, 'en', { numeric: true }));
const shut = new Set(); // locks that show only their track
if (data.locks.reduce((n, l) => n + l.hosts.length, 0) > 120) for (const l of data.locks) if (!l.findings.list.length) shut.add(l.index);

const matches = (l) => !l.absent && (!view.filter || l.name.toLowerCase().includes(view.filter.toLowerCase()));
const shown = (a) => !view.hidden.has(a.host) && matches(data.locks[a.lock]);

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
const who = (a) => [a.pid ? `pid ${a.pid}` : '', a.command].filter(Boolean).join(' ');
const ahead = (a) => (held(a) ? a.entered : certain(a)) - begin(a);
const kept = (a) => (a.end === 'open' ? certain(a) : a.ended) - a.entered;

// describe returns a sentence about an attempt.
function describe(a) {
  const lock = data.locks[a.lock].name, mode = a.shared ? ' shared' : '';
  const bound = a.sure === undefined ? '' : a.end === 'open' || !held(a) ? 'at least ' : 'at most ';
  if (held(a)) return `${hostName(a.host)} held ${lock}${mode} for ${bound}${lasting(kept(a))}${a.end === 'open' ? ': ' + endings.open : ''}`;
  if (a.end === 'removed') return `${hostName(a.host)} removed ${lock} after ${lasting(ahead(a))}`;
  return `${hostName(a.host)} waited ${bound}${lasting(ahead(a))} for ${lock}${mode}: ${endings[a.end] ?? a.end}`;
}

function make(tag, props = {}, ...children) {
  const el = Object.assign(document.createElement(tag), props);
  for (const c of children) if (c !== null && c !== undefined) el.append(c);
  return el;
}
