// Faults, and instructions for the operator.
import { hostName, many, until, whole } from './words.js';

const grave = { bad: 0, warn: 1, note: 2 };
const most = 5; // of a kind are listed one by one

// judge returns the faults, the worst first. The key identifies a fault that lasts.
export function judge(m, lost, now) {
  const all = [];
  const add = (level, key, what, todo) => all.push({ level, key, what, todo });
  if (lost) silence(add, m, lost, now);
  else if (m?.error && !m.report) away(add, m);
  if (m?.report && !lost) {
    if (m.error) {
      add('bad', 'device', sentence(m.error.message), `The data shown from the disk is ${whole(m.diskAge(now))} old. ${m.error.hint || 'Check the device: dmesg, multipath -ll.'}`);
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
  // A restart is no fault: it keeps holds.
  const level = m?.report && now - lost.since < 5000 && m.left(now) > m.lease / 2 ? 'warn' : 'bad';
  add(level, 'silence', what, 'On its host, run systemctl status bakeryd. If you use ssh -L, check that connection. The page keeps retrying.');
}

function away(add, m) {
  const joining = m.error.code === 'unavailable';
  add(joining ? 'warn' : 'bad', 'away', joining ? `bakeryd runs, but has not joined the lockspace: ${m.error.message}` : sentence(m.error.message), m.error.hint);
}

function ownHost(add, m, now) {
  if (!m.self) return;
  const left = m.left(now), L = m.lease;
  if (m.self.state === 'lost' || left <= 0) {
    add('bad', 'lost', 'This host has lost its lease, and its locks with it', 'It rejoins automatically when its commands have ended and the device answers. The log of bakeryd has the reason.');
  } else if (left < L * 0.6) {
    const stop = left - L / 6;
    add(left < L / 3 ? 'bad' : 'warn', 'lease', `The lease of this host runs out in ${until(left)}: it has not been renewed for ${whole(L - left)}`,
      (stop > 0 ? `Commands under its locks are asked to stop in ${until(stop)}. ` : 'Commands under its locks are being stopped. ') + 'Check the device: dmesg, multipath -ll.');
  }
  if (m.self.state === 'leaving') add('warn', 'leaving', 'This host is leaving the lockspace', '');
  const oldest = m.self.io?.oldest_ms;
  if (oldest > Math.max(1000, L / 20)) {
    add(oldest > L / 6 ? 'bad' : 'warn', 'io', `A request to the device has not returned for ${whole(oldest)}`, 'The device hangs or is overloaded. Run dmesg, multipath -ll, iostat -x 1.');
  }
}

function hosts(add, m, now) {
  const told = { silent: 0, dead: 0 };
  for (const h of m.hosts) {
    const name = hostName(h.id, h.name), evict = `bakeryctl evict ${h.id}`;
    if (h.health === 'silent' && ++told.silent <= most) add('bad', `silent ${h.id}`, `${name} is silent: ${fate(m, h, now)}`, remedy(m, h, evict));
    else if (h.unreadable) add('bad', `unreadable ${h.id}`, `The record of ${name} cannot be read`, `Its next renewal repairs that. If the host is down: ${evict}`);
    else if (h.health === 'dead' && !h.forgotten && ++told.dead <= most) {
      add('warn', `dead ${h.id}`, `${name} is dead: its locks are free`, `Start it again; it joins automatically. If it will not return: ${evict} --forget`);
    }
    if (h.asked_to_leave) add('warn', `asked ${h.id}`, `${name} was asked to leave, and still renews`, 'It stops its holders and leaves. Until then its locks stay held.');
  }
  if (told.silent > most) add('bad', 'silent', `${many(told.silent - most, 'more host is', 'more hosts are')} silent`, 'If many hosts are silent, check the storage first.');
  if (told.dead > most) add('warn', 'dead', `${many(told.dead - most, 'more host is', 'more hosts are')} dead`, '');
}

// fate describes a silent host and when it will be dead.
function fate(m, h, now) {
  const seen = `no renewal for ${whole(m.silent(h, now) ?? 0)}`, dead = m.deadIn(h, now);
  const fenced = m.report.lockspace.policy === 'fence';
  if (dead === undefined) return `${seen}, and it is not declared dead automatically`;
  if (dead <= 0) return `${seen}, ${fenced ? 'being fenced' : 'being declared dead'}`;
  return `${seen}, ${fenced ? 'fenced' : 'dead'} in ${until(dead)}`;
}

function remedy(m, h, evict) {
  if (h.dead_in_ms === undefined) return `Its locks are blocked until you evict it. If you are certain that it is off: ${evict}`;
  return `Then its locks go to the waiters. If you are certain that it is off, do it now: ${evict}`;
}

function locks(add, m) {
  const stuck = m.locks.filter((l) => l.stuck);
  for (const l of stuck.slice(0, most)) add('bad', `stuck ${l.lock}`, `Lock ${lockName(l)} is stuck: ${l.stuck}`, '');
  if (stuck.length > most) add('bad', 'stuck', `${many(stuck.length - most, 'more lock is', 'more locks are')} stuck`, 'See the top of the list of locks.');
  const orphans = m.locks.filter((l) => !l.stuck && l.holders.some((h) => h.orphan));
  for (const l of orphans.slice(0, most)) {
    const h = l.holders.find((x) => x.orphan);
    add('note', `orphan ${l.lock}`, `Lock ${lockName(l)} is kept by remaining processes of ${h.command || 'a command'}: its bakeryctl has ended`,
      h.processes?.length ? `It is released when ${h.processes.length > 1 ? 'processes' : 'process'} ${h.processes.slice(0, 8).join(', ')} ${h.processes.length > 1 ? 'end' : 'ends'}.` : '');
  }
}

function disk(add, m) {
  const device = m.report.lockspace.device;
  for (const d of m.report.damaged.slice(0, most)) add('bad', `damaged ${d.offset}`, `Damaged: ${d.what}: ${d.error}`, `To repair it, run: bakeryctl check ${device}`);
  if (m.report.damaged.length > most) add('bad', 'damaged', `${many(m.report.damaged.length - most, 'more record is', 'more records are')} damaged`, `bakeryctl check ${device} lists them.`);
  m.report.lockspace.warnings.forEach((w, i) => add('warn', `warning ${i}`, sentence(w), ''));
}

const sentence = (s) => s.charAt(0).toUpperCase() + s.slice(1);

export const lockName = (l) => l.name || 'of the directory';
