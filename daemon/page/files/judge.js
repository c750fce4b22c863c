// Is it well? If not: what is wrong, and what is to be done about it.
import { hostName, many, until, whole } from './words.js';

const grave = { bad: 0, warn: 1, note: 2 };
const most = 5; // of a kind are told one by one

// judge returns what is wrong, the worst first. Each has a key, by which one that goes on is known.
export function judge(m, lost, now) {
  const all = [];
  const add = (level, key, what, todo) => all.push({ level, key, what, todo });
  if (lost) silence(add, m, lost, now);
  else if (m?.error && !m.report) away(add, m);
  if (m?.report && !lost) {
    if (m.error) {
      add('bad', 'device', sentence(m.error.message), `What is shown of the disk is ${whole(m.diskAge(now))} old. ${m.error.hint || 'Is the device there: dmesg, multipath -ll?'}`);
    }
    ownHost(add, m, now);
    hosts(add, m, now);
    locks(add, m);
    disk(add, m);
  }
  return all.map((t, i) => ({ ...t, i })).sort((a, b) => grave[a.level] - grave[b.level] || a.i - b.i);
}

function silence(add, m, lost, now) {
  let what = `bakeryd has not answered for ${whole(now - lost.since)}`;
  if (m?.report) {
    const left = m.left(now);
    what += left > 0 ? `. Its lease ends in ${until(left)}: started before then it keeps every lock` : '. Its lease is over by now, unless it still runs';
  }
  // A restart is no trouble: it keeps what is held.
  const level = m?.report && now - lost.since < 5000 && m.left(now) > m.lease / 2 ? 'warn' : 'bad';
  add(level, 'silence', what, 'On its host: systemctl status bakeryd. If you look through ssh -L: is that still up? It is asked again all the time.');
}

function away(add, m) {
  const joining = m.error.code === 'unavailable';
  add(joining ? 'warn' : 'bad', 'away', joining ? `bakeryd runs, but has not joined the lockspace: ${m.error.message}` : sentence(m.error.message), m.error.hint);
}

function ownHost(add, m, now) {
  if (!m.self) return;
  const left = m.left(now), L = m.lease;
  if (m.self.state === 'lost' || left <= 0) {
    add('bad', 'lost', 'This host has lost its lease: what it held is over', 'It joins anew by itself once its commands are gone and the device answers; the log of bakeryd says why.');
  } else if (left < L * 0.6) {
    const stop = left - L / 6;
    add(left < L / 3 ? 'bad' : 'warn', 'lease', `The lease of this host runs out in ${until(left)}: it has not been renewed for ${whole(L - left)}`,
      (stop > 0 ? `Commands under its locks are asked to stop in ${until(stop)}. ` : 'Commands under its locks are being stopped. ') + 'Is the device slow or gone? See dmesg, and multipath -ll.');
  }
  if (m.self.state === 'leaving') add('warn', 'leaving', 'This host is leaving the lockspace', '');
  const oldest = m.self.io?.oldest_ms;
  if (oldest > Math.max(1000, L / 20)) {
    add(oldest > L / 6 ? 'bad' : 'warn', 'io', `A request to the device has not returned for ${whole(oldest)}`, 'It hangs, or is overloaded: dmesg, multipath -ll, iostat -x 1.');
  }
}

function hosts(add, m, now) {
  const told = { silent: 0, dead: 0 };
  for (const h of m.hosts) {
    const name = hostName(h.id, h.name), evict = `bakeryctl evict ${h.id}`;
    if (h.health === 'silent' && ++told.silent <= most) add('bad', `silent ${h.id}`, `${name} is silent: ${fate(m, h, now)}`, remedy(m, h, evict));
    else if (h.unreadable) add('bad', `unreadable ${h.id}`, `The record of ${name} cannot be read`, `Its next renewal mends that. If it is down: ${evict}`);
    else if (h.health === 'dead' && !h.forgotten && ++told.dead <= most) {
      add('warn', `dead ${h.id}`, `${name} is dead: its locks are free`, `Start it again; it joins by itself. If it is gone for good: ${evict} --forget`);
    }
    if (h.asked_to_leave) add('warn', `asked ${h.id}`, `${name} was asked to leave, and still renews`, 'It stops its holders and leaves; nobody acts on it before.');
  }
  if (told.silent > most) add('bad', 'silent', `${many(told.silent - most, 'more host is', 'more hosts are')} silent`, 'If they are many: look at the storage first.');
  if (told.dead > most) add('warn', 'dead', `${many(told.dead - most, 'more host is', 'more hosts are')} dead`, '');
}

// fate is what becomes of a silent host.
function fate(m, h, now) {
  const seen = `no renewal for ${whole(m.silent(h, now) ?? 0)}`, dead = m.deadIn(h, now);
  const fenced = m.report.lockspace.policy === 'fence';
  if (dead === undefined) return `${seen}, and it is not declared dead by time`;
  if (dead <= 0) return `${seen}, ${fenced ? 'being fenced' : 'being declared dead'}`;
  return `${seen}, ${fenced ? 'fenced' : 'dead'} in ${until(dead)}`;
}

function remedy(m, h, evict) {
  if (h.dead_in_ms === undefined) return `Its locks wait for you. Once it is off for certain: ${evict}`;
  return `Then its locks go to those who wait. If it is off for certain, at once: ${evict}`;
}

function locks(add, m) {
  const stuck = m.locks.filter((l) => l.stuck);
  for (const l of stuck.slice(0, most)) add('bad', `stuck ${l.lock}`, `Lock ${lockName(l)} is stuck: ${l.stuck}`, '');
  if (stuck.length > most) add('bad', 'stuck', `${many(stuck.length - most, 'more lock is', 'more locks are')} stuck`, 'Below, at the top of the locks.');
  const orphans = m.locks.filter((l) => !l.stuck && l.holders.some((h) => h.orphan));
  for (const l of orphans.slice(0, most)) {
    const h = l.holders.find((x) => x.orphan);
    add('note', `orphan ${l.lock}`, `Lock ${lockName(l)} is kept by what is left of ${h.command || 'a command'}: its bakeryctl is gone`,
      h.processes?.length ? `It is let go when ${h.processes.length > 1 ? 'processes' : 'process'} ${h.processes.slice(0, 8).join(', ')} ${h.processes.length > 1 ? 'end' : 'ends'}.` : '');
  }
}

function disk(add, m) {
  const device = m.report.lockspace.device;
  for (const d of m.report.damaged.slice(0, most)) add('bad', `damaged ${d.offset}`, `Damaged: ${d.what}: ${d.error}`, `What mends it: bakeryctl check ${device}`);
  if (m.report.damaged.length > most) add('bad', 'damaged', `${many(m.report.damaged.length - most, 'more record is', 'more records are')} damaged`, `bakeryctl check ${device} lists them.`);
  m.report.lockspace.warnings.forEach((w, i) => add('warn', `warning ${i}`, sentence(w), ''));
}

const sentence = (s) => s.charAt(0).toUpperCase() + s.slice(1);

export const lockName = (l) => l.name || 'of the directory';
