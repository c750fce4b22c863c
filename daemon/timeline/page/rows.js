// The rows: hosts first, then for each lock a track of its holders and a row for each host.
const AXIS = 30, PAD = 5;
let TRACK_H = 20, LANE_H = 15, HOST_H = 20; // increased if there is room
let rows = [], total = 0, width = 0, height = 0, gutter = 170, hits = [], scale = 1;

function layRows() {
  for (const stretch of [1, 0]) {
    const k = stretch || Math.min(1.7, Math.max(1, (height - 20) / total));
    TRACK_H = Math.round(20 * k);
    LANE_H = Math.round(15 * k);
    HOST_H = Math.round(20 * k);
    layOut();
  }
}

function layOut() {
  rows = [];
  let y = AXIS;
  const add = (row, h) => { rows.push({ ...row, y, h }); y += h; };
  add({ type: 'head', text: 'Hosts' }, 22);
  for (const h of data.hosts) if (!h.absent && !view.hidden.has(h.index)) add({ type: 'host', host: h }, HOST_H);
  for (const l of lockOrder) {
    if (!matches(l)) continue;
    const open = !shut.has(l.index);
    add({ type: 'space' }, 9);
    add({ type: 'lock', lock: l, open }, l.lanes * TRACK_H + 2 * PAD);
    if (open) for (const [h, lanes] of l.hosts) if (!view.hidden.has(h)) add({ type: 'lockhost', lock: l, host: data.hosts[h] }, lanes * LANE_H + 4);
  }
  total = y + 24;
  $('height').style.height = Math.max(0, total - height) + 'px';
}

function resize() {
  scale = devicePixelRatio || 1;
  width = rowsBox.clientWidth;
  height = rowsBox.clientHeight;
  gutter = Math.round(Math.min(210, Math.max(96, width * 0.17)));
  for (const [c, w, h] of [[plot, width, height], [overview, overview.clientWidth, 40]]) {
    c.width = Math.round(w * scale);
    c.height = Math.round(h * scale);
    c.style.height = h + 'px';
  }
  plot.style.width = width + 'px';
  layRows();
  draw();
}

const xOf = (t) => gutter + ((t - view.from) / (view.till - view.from)) * (width - gutter);
const timeAt = (x) => view.from + ((x - gutter) / (width - gutter)) * (view.till - view.from);
const rowAt = (y) => rows.find((r) => y + view.top >= r.y && y + view.top < r.y + r.h);

let asked = 0;
function draw() {
  if (!asked) asked = requestAnimationFrame(() => { asked = 0; paint(); });
}

function paint() {
  const began = performance.now();
  view.top = rowsBox.scrollTop;
  hits = [];
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.textBaseline = 'middle';
  pen.font = theme.font;
  pen.fillStyle = theme.back;
  pen.fillRect(0, 0, width, height);
  const marks = ticks(width - gutter), seen = rows.filter((r) => r.y - view.top < height && r.y + r.h - view.top > AXIS);
  for (const r of seen) background(r);
  pen.save();
  pen.beginPath();
  pen.rect(gutter, AXIS, width - gutter, height - AXIS);
  pen.clip();
  pen.strokeStyle = theme.line;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const [t] of marks) {
    const x = Math.round(xOf(t)) + 0.5;
    pen.moveTo(x, AXIS);
    pen.lineTo(x, height);
  }
  pen.stroke();
  for (const r of seen) if (r.type === 'lockhost') attemptsOf(r); else if (r.type === 'lock') trackOf(r); else if (r.type === 'host') hostRow(r);
  handovers(seen);
  for (const r of seen) if (r.type === 'lock') findingsOf(r);
  outline();
  pen.restore();
  for (const r of seen) sideOf(r);
  axis(marks);
  paintOverview();
  view.painted = performance.now() - began;
}

function background(r) {
  const y = r.y - view.top;
  pen.fillStyle = r.type === 'lock' ? theme.panel : r.type === 'space' || r.type === 'head' ? theme.back : theme.band;
  pen.fillRect(0, y, width, r.h);
  if (r.type === 'space') return;
  pen.fillStyle = theme.line;
  pen.fillRect(r.type === 'lock' ? 0 : 10, y + r.h - 1, width, 1);
  if (r.type === 'lock') pen.fillRect(0, y, width, 1);
}

// sideOf writes the label of a row.
function sideOf(r) {
  const y = r.y - view.top, mid = r.type === 'lock' ? y + PAD + TRACK_H / 2 : y + r.h / 2;
  if (r.type === 'space') return;
  pen.fillStyle = r.type === 'lock' ? theme.panel : r.type === 'head' ? theme.back : theme.band;
  pen.fillRect(0, y + (r.type === 'lock' ? 1 : 0), gutter, r.h - 1);
  pen.fillStyle = theme.line;
  pen.fillRect(gutter - 1, y, 1, r.h);
  if (r.type === 'head') {
    pen.font = theme.bold;
    label(pen, r.text, 10, mid, gutter - 20, theme.soft);
  } else if (r.type === 'lock') {
    pen.fillStyle = theme.soft;
    pen.beginPath();
    if (r.open) pen.roundRect(7, mid - 3, 9, 2, 1); else pen.roundRect(10.5, mid - 5, 2, 9, 1);
    pen.roundRect(7, mid - 1.5, 9, 2, 1);
    pen.fill();
    pen.font = theme.bold;
    label(pen, r.lock.name, 22, mid, gutter - 30 - (r.lock.permits > 1 ? 26 : 0), r.lock.proven ? theme.bad : theme.ink, true);
    if (r.lock.permits > 1) {
      pen.font = theme.font;
      pen.textAlign = 'right';
      label(pen, `×${r.lock.permits}`, gutter - 8, mid, 40, theme.soft);
      pen.textAlign = 'left';
    }
  } else {
    pen.fillStyle = hostColour(r.host.index);
    box(pen, 22, mid - 4, 8, 8, 2);
    pen.fill();
    pen.font = theme.font;
    label(pen, r.host.name, 36, mid, gutter - 42, r.host.journal ? theme.ink : theme.faint);
  }
  pen.font = theme.font;
}

function axis(marks) {
  pen.fillStyle = theme.panel;
  pen.fillRect(0, 0, width, AXIS);
  pen.fillStyle = theme.line;
  pen.fillRect(0, AXIS - 1, width, 1);
  pen.font = theme.font;
  pen.textAlign = 'center';
  for (const [t, words, date] of marks) {
    const x = xOf(t);
    if (x < gutter + 4 || x > width - 4) continue;
    pen.fillStyle = theme.line;
    pen.fillRect(Math.round(x), AXIS - 6, 1, 6);
    const half = pen.measureText(words).width / 2, at = Math.min(Math.max(x, gutter + half + 4), width - half - 4);
    pen.fillStyle = theme.soft;
    pen.fillText(words, at, date ? 18 : 15);
    if (date) {
      pen.fillStyle = theme.faint;
      pen.fillText(date, Math.max(at, gutter + 32), 6);
    }
  }
  pen.textAlign = 'left';
  label(pen, view.relative ? 'since the beginning' : 'UTC', 10, 15, gutter - 14, theme.faint);
}

// hostRow draws the states and changes of a host.
function hostRow(r) {
  const mid = r.y - view.top + r.h / 2;
  for (const s of r.host.spans) {
    const x1 = Math.max(gutter, xOf(s.from)), x2 = Math.min(width, xOf(s.till));
    if (x2 <= x1 || s.state === 'gone') continue;
    pen.fillStyle = { live: theme.live, unsure: theme.live, risk: theme.risk, dead: theme.bad }[s.state];
    pen.globalAlpha = { dead: 0.55, unsure: 0.3 }[s.state] ?? 0.8;
    const h = s.state === 'dead' ? 2 : 5;
    pen.fillRect(x1, mid - h / 2, x2 - x1, h);
    pen.globalAlpha = 1;
  }
  badges(r.host.changes.map((c) => ({ at: c.at, kind: c.kind, change: c, host: r.host })), mid);
}

// badges draws letters. Overlapping ones are merged into their number, with the highest severity.
function badges(list, mid) {
  const grades = ['plain', 'good', 'warn', 'bad'];
  let group = [];
  const flush = () => {
    if (!group.length) return;
    const x = group[0].x, grave = grades[Math.max(...group.map((g) => grades.indexOf(kindOf(g.kind)[1])))];
    badge(pen, x, mid, group.length === 1 ? kindOf(group[0].kind)[0] : group.length > 9 ? '+' : String(group.length), grave);
    hits.push({ x: x - 8, y: mid - 8, w: 16, h: 16, marks: group });
    group = [];
  };
  for (const m of list) {
    const x = xOf(m.at);
    if (x < gutter - 8 || x > width + 8) continue;
    if (group.length && x - group[0].x > 11) flush();
    group.push({ ...m, x });
  }
  flush();
}

// trackOf draws the holders of the lock.
function trackOf(r) {
  const last = [], top = r.y - view.top + PAD;
  for (const a of within(r.lock.holds, view.from, view.till)) {
    const x1 = xOf(a.entered), x2 = Math.max(xOf(a.ended), x1 + 1.5), y = top + a.track * TRACK_H + 1;
    if (x2 < (last[a.track] ?? -1) + 0.5 && x2 - x1 < 3) continue; // it would cover the previous one
    last[a.track] = x2;
    pen.globalAlpha = view.hidden.has(a.host) ? 0.18 : 1;
    hold(pen, a, Math.max(x1, gutter - 9), Math.min(x2, width + 9), y, TRACK_H - 2, xOf);
    const from = Math.max(x1, gutter), room = roomIn(a, from, Math.min(x2, width) - from - 10);
    if (room > 24) label(pen, hostName(a.host) + (room > 150 ? `  ${lasting(a.ended - a.entered)}` : ''), from + 5, y + TRACK_H / 2 - 0.5, room, ink(a));
    pen.globalAlpha = 1;
    hits.push({ x: x1, y, w: x2 - x1, h: TRACK_H - 2, a });
  }
  badges(r.lock.marks.map((m) => ({ at: m.at, kind: m.kind, mark: m, lock: r.lock })), r.y - view.top + r.h - 8);
}

// A label is in the solid part of a hold, with its ink, or if that is short in all of it.
const solid = (a, from) => (a.sure === undefined ? Infinity : xOf(a.sure) - from);
const roomIn = (a, from, room) => (solid(a, from) < 30 ? room : Math.min(room, solid(a, from) - 8));
const ink = (a) => (solid(a, Math.max(gutter, xOf(a.entered))) < 30 ? theme.ink : theme.dark ? '#0d1116' : '#fff');

// attemptsOf draws the waits and holds of one host in one lock.
function attemptsOf(r) {
  const ix = r.lock.rows.get(r.host.index), last = [];
  for (const t of r.host.deaths) {
    const x = xOf(t);
    if (x < gutter || x > width) continue;
    pen.fillStyle = theme.bad;
    pen.globalAlpha = 0.5;
    pen.fillRect(Math.round(x), r.y - view.top, 1.5, r.h);
    pen.globalAlpha = 1;
  }
  for (const a of within(ix, view.from, view.till)) {
    const x1 = xOf(begin(a)), x2 = Math.max(xOf(a.ended), x1 + 1.5), y = r.y - view.top + 3 + a.lane * LANE_H;
    if (x2 < (last[a.lane] ?? -1) + 0.5 && x2 - x1 < 3) continue;
    last[a.lane] = x2;
    const enters = held(a) ? xOf(a.entered) : x2;
    if (enters - x1 > 0.7 || !held(a)) wait(pen, a, Math.max(x1, gutter - 9), Math.min(enters, width + 9), y, LANE_H - 4, xOf);
    if (held(a)) {
      hold(pen, a, Math.max(enters, gutter - 9), Math.min(x2, width + 9), y, LANE_H - 4, xOf);
      const from = Math.max(enters, gutter), room = roomIn(a, from, Math.min(x2, width) - from - 8);
      if (room > 44) {
        pen.font = '10px system-ui, "DejaVu Sans", sans-serif';
        label(pen, a.command || `pid ${a.pid}`, from + 4, y + (LANE_H - 4) / 2 + 0.5, room, ink(a));
        pen.font = theme.font;
      }
    }
    hits.push({ x: x1, y: y - 2, w: x2 - x1, h: LANE_H, a });
    if (a.marks && x2 - x1 > 6) badges(a.marks.map((m) => ({ at: m.at, kind: m.kind, why: m.text, a })), y + (LANE_H - 4) / 2);
  }
}

// handovers draws the hand-overs between hosts, unless there are too many to see.
function handovers(seen) {
  const rowOf = new Map(seen.filter((r) => r.type === 'lockhost').map((r) => [r.lock.index + ' ' + r.host.index, r]));
  for (const r of seen) {
    if (r.type !== 'lock' || !r.open || r.lock.permits > 1) continue;
    const list = [...within(r.lock.holds, view.from, view.till)];
    if (list.length > 250) continue;
    pen.lineWidth = 1.3;
    for (let i = 1; i < list.length; i++) {
      const a = list[i - 1], b = list[i], from = rowOf.get(r.lock.index + ' ' + a.host), to = rowOf.get(r.lock.index + ' ' + b.host);
      if (a.host === b.host || !from || !to || (a.shared && b.shared) || b.entered < a.ended || a.end !== 'released') continue;
      const x1 = xOf(a.ended), x2 = xOf(b.entered), bend = Math.max(7, (x2 - x1) / 2);
      const y1 = from.y - view.top + 3 + a.lane * LANE_H + (LANE_H - 4) / 2, y2 = to.y - view.top + 3 + b.lane * LANE_H + (LANE_H - 4) / 2;
      pen.strokeStyle = theme.faint;
      pen.globalAlpha = 0.75;
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
      pen.stroke();
      pen.globalAlpha = 1;
    }
  }
}

// findingsOf marks findings, over all rows of the lock.
function findingsOf(r) {
  let bottom = r.y + r.h, tagged = -Infinity;
  for (const o of rows) if (o.type === 'lockhost' && o.lock === r.lock) bottom = o.y + o.h;
  for (const f of within(r.lock.findings, view.from, view.till)) {
    const x1 = xOf(f.at), x2 = Math.max(xOf(f.until), x1 + 3), y = r.y - view.top, colour = f.proven ? theme.bad : theme.risk;
    pen.globalAlpha = f.proven ? 0.2 : 0.13;
    pen.fillStyle = colour;
    pen.fillRect(x1, y, x2 - x1, bottom - r.y);
    pen.globalAlpha = f.proven ? 0.55 : 0.3;
    pen.fillStyle = hatch(colour, 9);
    pen.fillRect(x1, y, x2 - x1, bottom - r.y);
    pen.globalAlpha = 1;
    pen.strokeStyle = colour;
    pen.lineWidth = f.proven ? 2.5 : 1.5;
    pen.strokeRect(x1, y + 1, x2 - x1, bottom - r.y - 2);
    if (!f.proven) continue;
    const words = f.kind.toUpperCase();
    pen.font = '700 10px system-ui, "DejaVu Sans", sans-serif';
    const w = pen.measureText(words).width + 12, at = Math.min(Math.max((x1 + x2) / 2 - w / 2, gutter + 2), width - w - 2);
    hits.push({ x: at, y: y - 8, w, h: 15, finding: f });
    if (at < tagged) continue;
    tagged = at + w;
    pen.fillStyle = colour;
    box(pen, at, y - 8, w, 15, 4);
    pen.fill();
    label(pen, words, at + 6, y, w, '#fff');
    pen.font = theme.font;
  }
}

// outline marks the item under the pointer and the selected one.
function outline() {
  for (const [a, w] of [[view.hover, 1.5], [view.selected, 2.5]]) {
    if (!a) continue;
    for (const h of hits) {
      if (h.a !== a) continue;
      pen.strokeStyle = theme.ink;
      pen.lineWidth = w;
      const x = Math.max(h.x, gutter - 6);
      box(pen, x - 1.5, h.y - 1.5, Math.min(h.x + h.w, width + 6) - x + 3, h.h + 3, 4);
      pen.stroke();
    }
  }
}

// paintOverview draws the whole time, and the position of the view in it.
function paintOverview() {
  const w = overview.clientWidth, h = 40, wide = w - gutter, span = whole.till - whole.from;
  const at = (t) => gutter + ((t - whole.from) / span) * wide;
  pen2.setTransform(scale, 0, 0, scale, 0, 0);
  pen2.fillStyle = theme.panel;
  pen2.fillRect(0, 0, w, h);
  if (!view.load || view.load.length !== Math.round(wide)) view.load = loadOf(Math.round(wide), span);
  const most = Math.max(1, ...view.load);
  pen2.fillStyle = theme.accent;
  pen2.globalAlpha = 0.55;
  view.load.forEach((n, x) => {
    if (n) pen2.fillRect(gutter + x, h - 4 - (30 * n) / most, 1, (30 * n) / most);
  });
  pen2.globalAlpha = 1;
  for (const host of data.hosts) for (const t of host.deaths) {
    pen2.fillStyle = theme.bad;
    pen2.fillRect(at(t), 14, 1.5, h - 16);
  }
  for (const f of data.findings) {
    pen2.fillStyle = f.proven ? theme.bad : theme.risk;
    pen2.beginPath();
    const x = at(f.at);
    pen2.moveTo(x - 5, 1);
    pen2.lineTo(x + 5, 1);
    pen2.lineTo(x, 10);
    pen2.fill();
    pen2.fillRect(x - 0.5, 2, Math.max(1.5, at(f.until) - x), 3);
  }
  const x1 = at(Math.max(view.from, whole.from)), x2 = at(Math.min(view.till, whole.till));
  pen2.fillStyle = theme.back;
  pen2.globalAlpha = 0.65;
  pen2.fillRect(gutter, 0, x1 - gutter, h);
  pen2.fillRect(x2, 0, w - x2, h);
  pen2.globalAlpha = 1;
  pen2.strokeStyle = theme.accent;
  pen2.lineWidth = 1.5;
  pen2.strokeRect(x1 + 0.75, 0.75, Math.max(3, x2 - x1 - 1.5), h - 1.5);
  pen2.font = theme.font;
  pen2.textBaseline = 'middle';
  label(pen2, 'load', 10, h / 2, gutter - 16, theme.faint);
}

// loadOf counts the attempts at each point of the overview.
function loadOf(n, span) {
  const change = new Int32Array(n + 2);
  for (const a of attempts) {
    if (!shown(a)) continue;
    const from = Math.floor(((begin(a) - whole.from) / span) * n), till = Math.floor(((a.ended - whole.from) / span) * n);
    change[Math.max(0, from)]++;
    change[Math.min(n, till) + 1]--;
  }
  let sum = 0;
  return [...change.subarray(0, n)].map((c) => (sum += c));
}
