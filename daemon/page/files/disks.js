// The member disks of a lockspace on several, as this host sees them. The section is hidden if there is one disk.
import { $, keyed, make, mark, say, show, tell } from './dom.js';
import { lasting, many, short } from './words.js';

const levels = { up: 'good', checking: 'warn', down: 'bad', vacant: 'bad', hangs: 'bad' };

export function drawDisks(m) {
  const all = m.report.disks ?? [];
  show($('disks'), all.length > 0);
  say($('diskcount'), `${all.filter((d) => d.state === 'up').length} of ${all.length} up`);
  keyed($('disklist'), all, (d) => d.position, diskRow, m);
}

function diskRow() {
  const name = make('b'), chip = make('span', 'chip'), when = make('span', 'when'), facts = make('p', 'said'), error = make('p', 'said');
  const node = make('li', '', make('div', 'hostline', name, chip, when), facts, error);
  const update = (d, m) => {
    const since = m.held(d.since);
    say(name, `${d.position} · ${d.device || (d.state === 'vacant' ? 'no disk' : 'no path')}`);
    say(chip, d.state);
    mark(chip, 'data-level', levels[d.state] ?? 'note');
    say(when, since === undefined ? '' : `for ${lasting(since)}`);
    tell(facts, factsOf(d).join(' · '));
    tell(error, d.state === 'up' ? '' : d.error);
  };
  return { node, update };
}

function factsOf(d) {
  const all = [];
  for (const op of ['read', 'write']) {
    const of = d.io?.[op];
    if (of?.count > 0) all.push(`${op} ${short(of.p50_us)}, p99 ${short(of.p99_us)}`);
  }
  if (d.behind) all.push(`${many(d.behind, 'record')} behind`);
  if (d.failures) all.push(many(d.failures, 'failed request'));
  return all;
}
