// The page: it polls bakeryd, and draws the answers. It pauses while it is hidden.
import { $, keyed, make, mark, say, show, tell } from './dom.js';
import { drawDisks } from './disks.js';
import { drawEvents, follow, unfollow } from './events.js';
import { beginHosts, drawHosts, drawLease } from './hosts.js';
import { judge } from './judge.js';
import { drawLatency, sampleLatency } from './latency.js';
import { beginLocks, drawLocks } from './locks.js';
import { Model } from './model.js';
import { bytes, lasting, many, whole } from './words.js';

const patience = 30_000, soon = 8000; // ms: by then bakeryd reports a hanging device itself
let model = null; // of the last answer with a report
let now = null; // the last answer
let lost = null; // time since which there is none
let asked = 0; // time of a request without an answer yet

const every = () => Math.min(2000, Math.max(500, (model?.lease ?? 12_000) / 6));

async function ask() {
  const began = (asked = performance.now());
  try {
    const answer = await fetch('/page/status', { cache: 'no-store', signal: AbortSignal.timeout(patience) });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    take(await answer.json(), (began + performance.now()) / 2);
  } catch {
    lost ??= { since: now?.got ?? began };
    draw();
  } finally {
    asked = 0;
  }
}

function take(answer, at) {
  now = new Model(answer, at);
  if (now.report) {
    model = now;
    sampleLatency(model);
  }
  lost = null;
  draw();
}

const pause = (ms) => new Promise((go) => setTimeout(go, ms));
const looked = () => new Promise((go) => (document.hidden ? document.addEventListener('visibilitychange', go, { once: true }) : go()));

async function forever(work, rest) {
  for (;;) {
    await looked();
    await work();
    await pause(rest());
  }
}

function draw() {
  const at = performance.now();
  if (asked && at - asked > soon) lost ??= { since: now?.got ?? asked };
  const away = !!lost || !now?.report;
  drawLink(at);
  drawVerdict(at);
  show($('parts'), !!model);
  document.body.classList.toggle('stale', away);
  if (model) {
    model.over = away && model.left(at) <= 0;
    drawFacts();
    drawLease(model, at);
    const seen = away ? model.got : at; // the present state of others is unknown
    drawHosts(model, seen);
    drawDisks(model);
    drawLatency(model);
    drawLocks(model, seen);
  }
  drawEvents();
}

function drawFacts() {
  const space = model.report.lockspace, self = model.self;
  say($('space'), space.name || 'lockspace without a name');
  const facts = [space.device, `seen from ${self.name || 'host ' + self.id}`, `lease ${lasting(model.lease)}`, `policy ${space.policy}${space.fence_after_ms ? ' after ' + lasting(space.fence_after_ms) : ''}`,
    `${many(space.hosts, 'host')} and ${many(space.locks, 'lock')} at most`];
  say($('facts'), facts.join(' · '));
}

// drawLink shows the age of the data.
function drawLink(at) {
  let level = 'good', words = '';
  if (lost) {
    level = 'bad';
    words = model ? `no answer; this is ${whole(model.diskAge(at))} old` : 'no answer';
  } else if (!now) {
    level = 'note';
    words = 'asking bakeryd';
  } else if (!now.report) {
    level = 'warn';
    words = model ? `not joined; this is ${whole(model.diskAge(at))} old` : 'not joined';
  } else {
    const age = now.diskAge(at);
    if (now.error) level = 'bad';
    words = `${!now.error ? 'live' : now.error.code === 'unavailable' ? 'not joined' : 'the disk does not answer'} · disk read ${whole(age)} ago`;
    const read = now.answer.read;
    mark($('link'), 'title', `read of the disk for this page: ${bytes(read.bytes)} in ${lasting(read.took_ms)}; ` +
      `all of it every ${lasting(read.every_ms)}, locks with holders or waiters every 2 s`);
  }
  mark($('link'), 'data-level', level);
  say($('linktext'), words);
}

const words = { good: 'All well', note: 'Asking bakeryd' };
let told = null;

function drawVerdict(at) {
  const troubles = now || lost ? judge(lost ? model : now, lost, at, model) : [], worst = troubles[0];
  const level = !now && !lost ? 'note' : !worst || worst.level === 'note' ? 'good' : worst.level;
  mark($('verdict'), 'data-level', level);
  const first = level === 'bad' || level === 'warn' ? worst : null;
  say($('headline'), first ? first.what : words[level]);
  tell($('todo'), first?.todo);
  tell($('summary'), now?.report && !lost ? summary(now) : '');
  keyed($('troubles'), troubles.filter((t) => t !== first).slice(0, 12), (t) => t.key, troubleRow);
  const icon = `/page/${level === 'good' ? 'well' : level === 'bad' ? 'bad' : 'warn'}.svg`;
  mark($('icon'), 'href', icon);
  const name = model?.report.lockspace.name || 'bakeryd', grave = troubles.filter((t) => t.level !== 'note').length;
  say(document.querySelector('title'), level === 'good' ? `All well · ${name}` : level === 'note' ? name : `${many(grave, 'problem')} · ${name}`);
  // Announced when a fault begins or ends, not when its seconds change.
  const keys = troubles.map((t) => t.key).join('\n');
  if ((now || lost) && keys !== told) {
    told = keys;
    say($('announce'), first ? `${first.what}. ${first.todo ?? ''}` : words.good);
  }
}

function troubleRow() {
  const what = make('span', 'what'), todo = make('span', 'todo'), node = make('li', '', what, todo);
  return {
    node,
    update(t) {
      mark(node, 'data-level', t.level);
      say(what, t.what);
      tell(todo, t.todo);
    },
  };
}

function summary(m) {
  const t = m.tally, free = m.locks.filter((l) => l.rank === 4).length;
  const parts = [`${many(t.live, 'host')} live`, `${many(t.held, 'lock')} held`,
    t.waits ? `${t.waits.toLocaleString('en')} waiting` : 'no waiters', `${many(free, 'lock')} free${m.old() ? ' when last read' : ''}`];
  return parts.join(' · ');
}

beginHosts(draw);
beginLocks(draw);
document.addEventListener('visibilitychange', () => (document.hidden ? unfollow() : draw()));
forever(ask, every);
forever(() => follow(draw), () => 1500);
setInterval(() => document.hidden || draw(), 500);

// For programs that inspect the page.
globalThis.statusPage = { take: (answer) => take(answer, performance.now()), model: () => model };
