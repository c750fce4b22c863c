// The lease of this host, and the hosts with their leases.
import { $, keyed, make, mark, say, show, tell } from './dom.js';
import { wordsOf } from './model.js';
import { aged, hostName, lasting, many, until, whole } from './words.js';

const batch = 40;
let shown = batch;

export function beginHosts(redraw) {
  $('hostsearch').oninput = () => {
    shown = batch;
    redraw();
  };
  $('morehosts').onclick = () => {
    shown += 5 * batch;
    redraw();
  };
}

// meter is a bar of the remaining time, with a text for screen readers.
function meter(label) {
  const fill = make('i'), node = make('div', 'meter', fill);
  node.setAttribute('role', 'meter');
  mark(node, 'aria-label', label);
  mark(node, 'aria-valuemin', 0);
  mark(node, 'aria-valuemax', 100);
  return {
    node,
    set(part, level, words) {
      const percent = Math.round(1000 * Math.min(1, Math.max(0, part))) / 10;
      if (fill.style.width !== `${percent}%`) fill.style.width = `${percent}%`;
      mark(node, 'data-level', level);
      mark(node, 'aria-valuenow', Math.round(percent));
      mark(node, 'aria-valuetext', words);
    },
  };
}

const lease = (() => {
  const left = make('b', 'big'), of = make('span', 'soft'), bar = meter('Lease left'), marks = make('div', 'stops'), facts = make('p', 'soft small');
  marks.append(make('span', 'stop'));
  marks.setAttribute('aria-hidden', 'true');
  const box = make('div', 'meterbox', bar.node, marks);
  return { node: make('div', '', make('p', 'leaseline', left, of), box, facts), left, of, bar, facts };
})();

// drawLease draws a bar that shrinks until a renewal. The mark is where commands are asked to stop.
export function drawLease(m, now) {
  if (!lease.node.parentNode) $('lease').append(lease.node);
  const left = Math.max(0, m.left(now)), L = m.lease, own = m.report.hosts.find((h) => h.id === m.self.id);
  const level = m.self.state === 'lost' || left < L / 3 ? 'bad' : left < L * 0.6 ? 'warn' : 'good';
  const over = m.self.state === 'lost' || left === 0, since = -m.left(now);
  say(lease.left, over ? 'over' : until(left));
  say(lease.of, !over ? ` of ${until(L)} left` : since > 0 ? ` for ${whole(since)}` : '');
  lease.bar.set(left / L, level, `${until(left)} of ${until(L)} left`);
  const dog = own?.watchdog_armed ? `watchdog armed, ${own.watchdog_ms / 1000} s` : 'no watchdog';
  say(lease.facts, `${hostName(m.self.id, m.self.name)}, ${m.over ? 'unknown' : m.self.state} · renewed every ${lasting(L / 6)} · commands are asked to stop at ${lasting(L / 6)} left · ${dog}`);
}

export function drawHosts(m, now) {
  const words = wordsOf($('hostsearch').value), found = m.findHosts(words), all = m.hosts.length;
  show($('hostfield'), all > 12);
  say($('hostcount'), words.length ? `${found.length.toLocaleString('en')} of ${all.toLocaleString('en')}` : String(all.toLocaleString('en')));
  keyed($('hostlist'), found.slice(0, shown), (h) => h.id, hostRow, m, now);
  const more = found.length - shown;
  tell($('morehosts'), more > 0 ? `${many(more, 'more host')}: search, or show some` : '');
}

function hostRow() {
  const name = make('b'), chip = make('span', 'chip'), badges = make('span', 'badges'), when = make('span', 'when'), bar = meter('Lease');
  const said = make('p', 'said');
  const node = make('li', 'host', make('div', 'hostline', name, chip, badges, when), bar.node, said);
  const update = (h, m, now) => {
    const state = stateOf(m, h, now);
    say(name, hostName(h.id, h.name));
    say(chip, state.word);
    mark(chip, 'data-level', state.level);
    say(when, state.when);
    show(bar.node, state.part !== undefined);
    if (state.part !== undefined) bar.set(state.part, state.level, state.when);
    keyed(badges, badgesOf(m, h), (b) => b, (b) => ({ node: make('span', 'badge', b) }));
    tell(said, verdictsOn(m, h));
    mark(node, 'data-level', state.level);
  };
  return { node, update };
}

// stateOf returns the state of a host, and the rest of its lease or of the time until it is dead.
// The words of bakeryd for a silence are those of its problems, too.
function stateOf(m, h, now) {
  const silent = m.silent(h, now);
  if (m.over && (h.health === 'live' || h.health === 'silent')) return { word: 'unknown', level: 'warn', when: `${h.health} when last seen` };
  if (h.health === 'silent') {
    const dead = Math.max(0, (h.dead_in_ms ?? 0) - m.age(now));
    return { word: 'silent', level: 'bad', part: dead / Math.max(1, dead + (silent ?? 0)), when: aged(h.silence ?? '', h.times, m.age(now)) };
  }
  if (h.health === 'dead') return { word: h.forgotten ? 'forgotten' : 'dead', level: h.forgotten ? 'note' : 'warn',
    when: `${silent === undefined ? '' : `no renewal for ${whole(silent)}, `}its locks are free` };
  if (h.health === 'lost' || h.health === 'unknown') return { word: h.health, level: h.health === 'lost' ? 'bad' : 'warn', when: aged(h.silence ?? '', h.times, m.age(now)) };
  if (h.health === 'left') return { word: 'left', level: 'note', when: silent === undefined ? '' : `${whole(silent)} ago` };
  if (h.health === 'joining') return { word: 'joining', level: 'warn', when: 'holds no locks yet' };
  if (h.health !== 'live') return { word: h.health, level: 'note', when: '' };
  const left = h.id === m.self?.id ? m.left(now) : silent === undefined ? undefined : m.lease - silent;
  if (left === undefined) return { word: 'live', level: 'good', when: '' };
  return { word: 'live', level: left < m.lease / 3 ? 'bad' : left < m.lease * 0.6 ? 'warn' : 'good', part: left / m.lease, when: `renewed ${lasting(silent ?? m.lease - left)} ago` };
}

function badgesOf(m, h) {
  const all = [];
  if (h.id === m.self?.id) all.push('this host');
  if (h.watchdog_armed) all.push(`watchdog ${h.watchdog_ms / 1000} s`);
  if (h.unreadable) all.push('record unreadable');
  if (h.asked_to_leave) all.push('asked to leave');
  return all;
}

const sayings = { dead: 'declared dead by', forgotten: 'declared dead, with its id released, by', wish: 'asked to leave by' };

// verdictsOn describes the verdicts on a host.
function verdictsOn(m, h) {
  const all = m.verdicts.get(`${h.id} ${h.incarnation}`) ?? [];
  if (!all.length || h.health === 'left') return '';
  const told = all.slice(0, 3).map((v) => `${sayings[v.kind] ?? v.kind} ${hostName(v.by.id, v.by.name)}`).join('; ');
  return all.length > 3 ? `${told}; and ${all.length - 3} more say so` : told;
}
