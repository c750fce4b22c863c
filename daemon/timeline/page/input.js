// Pointer, keys, filters.
const tip = $('tip');

function look(from, till) {
  const least = 20, most = (whole.till - whole.from) * 1.5;
  let span = Math.min(Math.max(till - from, least), most), mid = (from + till) / 2;
  mid = Math.min(Math.max(mid, whole.from), whole.till);
  view.from = mid - span / 2;
  view.till = mid + span / 2;
  tip.hidden = true;
  draw();
  if (view.table) later(showTable);
}
const zoom = (factor, at = (view.from + view.till) / 2) => look(at - (at - view.from) * factor, at + (view.till - at) * factor);
const pan = (part) => look(view.from + (view.till - view.from) * part, view.till + (view.till - view.from) * part);
const fit = () => look(whole.from, whole.till);

const timers = new Map();
function later(f, name = f.name) {
  clearTimeout(timers.get(name));
  timers.set(name, setTimeout(f, 120));
}

// The last one drawn is on top; marks come before the item that they are on.
function hitAt(x, y) {
  if (x < gutter || y < AXIS) return null;
  let best = null;
  for (let i = hits.length - 1; i >= 0; i--) {
    const h = hits[i];
    if (x < h.x - 2 || x > h.x + h.w + 2 || y < h.y || y > h.y + h.h) continue;
    if (h.marks || h.finding) return h;
    if (!best || h.w < best.w) best = h;
  }
  return best;
}

const fingers = new Map();
let drag = null;
plot.addEventListener('pointerdown', (e) => {
  if (e.button) return;
  plot.setPointerCapture(e.pointerId);
  fingers.set(e.pointerId, e.offsetX);
  drag = { x: e.offsetX, y: e.clientY, from: view.from, till: view.till, top: rowsBox.scrollTop, moved: false, apart: spread() };
});
const spread = () => (fingers.size === 2 ? Math.abs([...fingers.values()][0] - [...fingers.values()][1]) : 0);
plot.addEventListener('pointermove', (e) => {
  if (!drag) {
    point(e);
    return;
  }
  fingers.set(e.pointerId, e.offsetX);
  const dx = e.offsetX - drag.x, dy = e.clientY - drag.y;
  if (Math.abs(dx) + Math.abs(dy) > 4) drag.moved = true;
  if (!drag.moved) return;
  plot.classList.add('dragging');
  const span = drag.till - drag.from;
  if (drag.apart > 10 && spread() > 10) {
    const mid = (drag.from + drag.till) / 2, half = ((span / 2) * drag.apart) / spread();
    look(mid - half, mid + half);
    return;
  }
  rowsBox.scrollTop = drag.top - dy;
  look(drag.from - (dx / (width - gutter)) * span, drag.till - (dx / (width - gutter)) * span);
});
for (const end of ['pointerup', 'pointercancel']) plot.addEventListener(end, (e) => {
  fingers.delete(e.pointerId);
  if (drag && !drag.moved && end === 'pointerup') click(e);
  drag = null;
  plot.classList.remove('dragging');
});
plot.addEventListener('pointerleave', () => {
  tip.hidden = true;
  if (view.hover) {
    view.hover = null;
    draw();
  }
});
plot.addEventListener('dblclick', (e) => zoom(0.25, timeAt(e.offsetX)));
plot.addEventListener('wheel', (e) => {
  if (e.offsetX < gutter && !e.ctrlKey) return; // the rows scroll
  e.preventDefault();
  const lines = e.deltaMode === 1 ? 16 : 1, dx = e.deltaX * lines, dy = e.deltaY * lines;
  if (e.shiftKey || Math.abs(dx) > Math.abs(dy)) pan((dx || dy) / (width - gutter));
  else zoom(Math.exp(Math.max(-240, Math.min(240, dy)) * 0.0022), timeAt(e.offsetX));
}, { passive: false });
rowsBox.addEventListener('scroll', draw);

function point(e) {
  const h = hitAt(e.offsetX, e.offsetY), a = h?.a ?? null, row = e.offsetX < gutter ? rowAt(e.offsetY) : null;
  plot.classList.toggle('over', !!h || row?.type === 'lock');
  if (view.hover !== a) {
    view.hover = a;
    draw();
  }
  tip.hidden = !h;
  if (!h) return;
  tip.replaceChildren(...tipOf(h));
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - box.width - 6)) + 'px';
  tip.style.top = (e.clientY + 18 + box.height > innerHeight ? Math.max(4, e.clientY - box.height - 12) : e.clientY + 18) + 'px';
}

function tipOf(h) {
  if (h.finding) return [make('b', { textContent: h.finding.kind }), h.finding.text];
  if (h.marks) {
    return h.marks.slice(0, 8).map((m) => make('div', {}, make('b', { textContent: `${utc(m.at)}  ${markText(m)}` })))
      .concat(h.marks.length > 8 ? [`and ${h.marks.length - 8} more`] : []);
  }
  const a = h.a, lines = [make('b', { textContent: describe(a) })];
  lines.push(make('div', { textContent: `${utc(held(a) ? a.entered : begin(a))} to ${utc(a.ended)} UTC` }));
  if (who(a)) lines.push(make('div', { textContent: who(a) }));
  if (held(a) && ahead(a) > 0) lines.push(make('div', { textContent: `waited ${lasting(ahead(a))}${a.behind ? ' behind ' + a.behind : ''}` }));
  if (a.token) lines.push(make('div', { textContent: `token ${a.token}` }));
  for (const f of a.findings) lines.push(make('div', { textContent: '⚠ ' + f.text }));
  return lines;
}

// markText explains a mark.
function markText(m) {
  const what = m.change?.old ? 'had been declared dead before this' : kindOf(m.kind)[2];
  if (m.change) {
    const { by, reason, others } = m.change;
    return `${m.host.name} ${what}${by >= 0 ? ` (says ${hostName(by)}${others ? ` and ${count(others, 'other')}` : ''})` : ''}${reason ? ': ' + reason : ''}`;
  }
  if (m.mark) return `${m.lock.name}: ${what}${m.kind === 'wanted' ? ' by ' + hostName(m.mark.host) : ''}${m.mark.text ? ': ' + m.mark.text : ''}`;
  return `${hostName(m.a.host)} ${what}${m.why ? ': ' + m.why : ''}`;
}

function click(e) {
  const row = rowAt(e.offsetY);
  if (e.offsetX < gutter && row?.type === 'lock') {
    if (shut.has(row.lock.index)) shut.delete(row.lock.index); else shut.add(row.lock.index);
    layRows();
    draw();
    return;
  }
  const h = hitAt(e.offsetX, e.offsetY);
  if (h?.finding) return goTo(h.finding);
  if (h?.marks) return showMarks(h.marks);
  select(h?.a ?? null);
}

// select selects an attempt and shows its details. With go it scrolls there.
function select(a, go = false) {
  view.selected = a;
  showDetails(a);
  if (a && go) {
    if (a.ended < view.from || begin(a) > view.till) look(begin(a) - (view.till - view.from) / 3, begin(a) + (view.till - view.from) * 2 / 3);
    scrollTo((r) => r.type === 'lockhost' && r.lock.index === a.lock && r.host.index === a.host);
  }
  draw();
}

function scrollTo(is) {
  const r = rows.find(is);
  if (r && (r.y < rowsBox.scrollTop + AXIS || r.y + r.h > rowsBox.scrollTop + height)) rowsBox.scrollTop = Math.max(0, r.y - height / 3);
}

function goTo(f) {
  view.finding = f.index;
  const l = data.locks[f.lock];
  if (!matches(l)) setFilter('');
  shut.delete(l.index);
  layRows();
  const long = Math.max(f.until - f.at, ...f.attempts.map((n) => Math.min(attempts[n].ended - begin(attempts[n]), (f.until - f.at + 1000) * 6)), 200);
  look(f.at - long, Math.max(f.until, f.at) + long);
  scrollTo((r) => r.type === 'lock' && r.lock === l);
  select(attempts[f.attempts.at(-1)]);
}

function step(by) {
  const list = attempts.filter(shown);
  if (!list.length) return;
  let at = list.indexOf(view.selected);
  if (at < 0) at = by > 0 ? list.findIndex((a) => a.ended >= view.from) - 1 : list.length;
  select(list[Math.min(Math.max(at + by, 0), list.length - 1)], true);
}

const keys = {
  ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), ArrowUp: () => rowsBox.scrollBy(0, -60), ArrowDown: () => rowsBox.scrollBy(0, 60),
  PageUp: () => rowsBox.scrollBy(0, -height * 0.8), PageDown: () => rowsBox.scrollBy(0, height * 0.8), Home: () => look(whole.from, whole.from + view.till - view.from),
  End: () => look(whole.till - (view.till - view.from), whole.till), '+': () => zoom(0.6), '=': () => zoom(0.6), '-': () => zoom(1 / 0.6), 0: fit,
  n: () => step(1), p: () => step(-1), Enter: () => view.selected && look(begin(view.selected) - ahead(view.selected) * 0.2 - 500, view.selected.ended + (view.selected.ended - begin(view.selected)) * 0.2 + 500),
  Escape: () => select(null), '/': () => $('filter').focus(), t: () => toggleTable(), '?': () => toggleLegend(),
  v: () => data.findings.length && goTo(data.findings[(view.finding + 1) % data.findings.length]),
};
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.target.tagName === 'INPUT') {
    if (e.key === 'Escape') e.target.blur();
    return;
  }
  if (e.target.tagName === 'BUTTON' && ['Enter', ' '].includes(e.key) || e.target.tagName === 'TR' && e.key === 'Enter') return;
  if (e.target.closest('#table, #findings, #details, #legend') && /^(Arrow|Page|Home|End)/.test(e.key)) return;
  const f = keys[e.key];
  if (!f) return;
  e.preventDefault();
  f();
});

let brushing = false;
function brush(e) {
  const t = whole.from + ((e.offsetX - gutter) / (overview.clientWidth - gutter)) * (whole.till - whole.from), half = (view.till - view.from) / 2;
  look(t - half, t + half);
}
overview.addEventListener('pointerdown', (e) => {
  overview.setPointerCapture(e.pointerId);
  brushing = true;
  if (view.till - view.from >= (whole.till - whole.from) * 0.98) zoom(0.2);
  brush(e);
});
overview.addEventListener('pointermove', (e) => brushing && brush(e));
overview.addEventListener('pointerup', () => (brushing = false));

function setFilter(words) {
  view.filter = words;
  if ($('filter').value !== words) $('filter').value = words;
  filtered();
}
function filtered() {
  view.load = null;
  layRows();
  draw();
  if (!view.selected) later(() => showDetails(null));
  if (view.table) later(showTable);
}
