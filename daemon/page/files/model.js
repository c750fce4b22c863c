// The interpretation of an answer: order of hosts and locks, and times since the answer was given.

const ranks = { lost: 0, silent: 0, unknown: 1, joining: 2, live: 3, dead: 4, left: 5 };

// Model is an answer of bakeryd and its time of arrival.
export class Model {
  constructor(answer, got) {
    this.answer = answer;
    this.got = got;
    this.over = false; // whether there is no newer answer, and hosts may have lost their leases since
    this.report = answer.report;
    this.error = answer.error;
    if (!this.report) return;
    this.lease = this.report.lockspace.lease_ms;
    this.self = this.report.this_host;
    this.ahead = Date.parse(answer.at) - Date.now(); // of the browser's clock
    this.hosts = [...this.report.hosts].sort((a, b) => this.hostRank(a) - this.hostRank(b) || a.id - b.id);
    this.locks = this.report.locks.map((l, i) => ({ ...l, rank: lockRank(l), at: i })).sort((a, b) => a.rank - b.rank || a.at - b.at);
    this.words = new Map();
    this.verdicts = verdictsOf(this.report.hosts);
    this.tally = this.count();
  }

  // old reports whether other hosts may hold the locks that are shown as free: Old of package report.
  old() {
    return this.over || ['lost', 'joining', 'unknown'].includes(this.self?.state);
  }

  // waits returns the number of waiters: hosts, and instead of this host its clients.
  waits(l) {
    const local = l.local?.length ?? 0;
    return local + l.queue.filter((q) => !local || q.host !== this.self?.id).length;
  }

  hostRank(h) {
    if (h.unreadable || h.asked_to_leave) return 1;
    if (h.health === 'dead' && !h.forgotten) return 1;
    return h.id === this.self?.id && h.health === 'live' ? 1.5 : ranks[h.health] ?? 1;
  }

  count() {
    const t = { live: 0, held: 0, waits: 0 };
    for (const h of this.report.hosts) t.live += h.health === 'live';
    for (const l of this.locks) {
      t.held += l.holders.length > 0 && !doubtOf(l);
      t.waits += this.waits(l);
    }
    return t;
  }

  // left returns the rest of this host's lease, at a time of performance.now.
  left(now) {
    return this.self.lease_left_ms - (now - this.got);
  }

  age(now) {
    return now - this.got;
  }

  // silent returns the time since the last renewal of a host; undefined if it is not watched.
  silent(h, now) {
    return h.silent_ms === undefined ? undefined : h.silent_ms + this.age(now);
  }

  // held returns the age of a hold, by the clock of bakeryd: the browser's may be wrong.
  held(since) {
    const t = Date.parse(since);
    return Number.isNaN(t) ? undefined : Math.max(0, Date.now() + this.ahead - t);
  }

  diskAge(now) {
    return this.answer.read.ago_ms + this.age(now);
  }

  // says reports whether a lock matches search words.
  says(l, words) {
    let text = this.words.get(l.number);
    if (text === undefined) {
      const of = (x) => `${x.host_name ?? ''} ${x.pid ? 'pid ' + x.pid : ''} ${x.command ?? ''} ${x.orphan ? 'orphan' : ''}`;
      text = [l.name || 'directory', ...l.holders.map(of), ...l.queue.map(of), ...(l.local ?? []).map(of), l.stuck].join(' ').toLowerCase();
      this.words.set(l.number, text);
    }
    return words.every((w) => text.includes(w));
  }

  findLocks(which, words) {
    return this.locks.filter((l) => (which === 'all' || (which === 'held' && l.holders.length) || (which === 'wanted' && l.queue.length + (l.local?.length ?? 0)) ||
      (which === 'stuck' && l.stuck)) && (!words.length || this.says(l, words)));
  }

  findHosts(words) {
    return words.length ? this.hosts.filter((h) => words.every((w) => `${h.id} ${h.name} ${h.health} ${h.unreadable ? 'unreadable' : ''}`.toLowerCase().includes(w))) : this.hosts;
  }
}

// doubtOf returns lost if the leases under all holds of a lock are over, unknown if all may be: Doubt of package report.
export function doubtOf(l) {
  const all = new Set(l.holders.map((h) => h.host_health));
  if (!all.size || [...all].some((h) => h !== 'lost' && h !== 'unknown')) return '';
  return all.has('unknown') ? 'unknown' : 'lost';
}

// lockRank orders locks: stuck ones first, then those with waiters, then held ones.
function lockRank(l) {
  if (l.stuck) return 0;
  if (doubtOf(l) || l.holders.some((h) => h.orphan)) return 1;
  if (l.queue.length + (l.local?.length ?? 0)) return 2;
  return l.holders.length ? 3 : 4;
}

// verdictsOf returns the verdicts by incarnation.
function verdictsOf(hosts) {
  const all = new Map();
  for (const h of hosts) {
    for (const v of h.verdicts ?? []) {
      const of = `${v.host} ${v.incarnation}`;
      all.set(of, [...(all.get(of) ?? []), { by: h, kind: v.kind }]);
    }
  }
  return all;
}

export const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
