// The parts next to the picture: facts, findings, details, legend, table; and the start of the script.
const graver = (f) => (f.proven ? 'bad' : f.kind === 'doubt' ? 'doubt' : 'late');

const corrected = (h) => (Math.abs(h.added) < 1000 ? '' : `${lasting(Math.abs(h.added))} ${h.added > 0 ? 'later' : 'earlier'} than its clock said`);

function showFacts() {
  const hosts = data.hosts.filter((h) => !h.absent);
  const title = data.title || 'Locks of ' + hosts.slice(0, 6).map((h) => h.name).join(', ') + (hosts.length > 6 ? ' …' : '');
  document.title = title;
  $('title').textContent = title;
  const holds = attempts.filter(held).length;
  const vain = attempts.filter((a) => !held(a) && a.end !== 'open' && a.end !== 'removed').length;
  $('facts').textContent = `${day(0)} ${utc(0)} UTC, ${lasting(data.span)}: ${count(data.locks.filter((l) => !l.absent).length, 'lock')}, ${count(hosts.length, 'host')}, ` +
    `${count(holds, 'hold')}, ${vain} in vain`;
  const proven = data.findings.filter((f) => f.proven).length, doubts = data.findings.filter((f) => f.kind === 'doubt').length, box = $('verdict');
  box.textContent = proven ? count(proven, 'VIOLATION', 'VIOLATIONS') : doubts ? `${count(doubts, 'place')} where two may have had a lock` : 'no violation in these journals';
  box.className = proven ? 'bad' : doubts ? 'doubt' : '';
  const list = [], note = (kind, text) => list.push(make('div', { className: 'finding note' }, make('b', { textContent: kind }), make('span', { textContent: text })));
  if (data.note) note('note', data.note);
  data.findings.slice(0, 300).forEach((f) => {
    list.push(make('button', { className: 'finding ' + graver(f), onclick: () => goTo(f) }, make('b', { textContent: f.kind }), make('span', { textContent: f.text }),
      make('time', { textContent: utc(f.at) })));
  });
  if (data.findings.length > 300) list.push(make('div', { className: 'finding note', textContent: `and ${data.findings.length - 300} more` }));
  for (const n of data.notes) note(n.includes('clock') ? 'clocks' : 'note', n);
  for (const h of data.hosts) if (corrected(h)) note('clocks', `${h.name} is shown ${corrected(h)}`);
  $('findings').replaceChildren(...list);
  $('findings').hidden = !list.length;
}

function showHosts() {
  $('hosts').replaceChildren(...data.hosts.filter((h) => !h.absent).map((h) => {
    const chip = make('button', { className: 'host', title: `host ${h.id}${h.journal ? '' : ', without a journal'}` }, make('i'), make('span', { textContent: h.name }));
    chip.setAttribute('aria-pressed', String(!view.hidden.has(h.index)));
    chip.firstChild.style.background = hostColour(h.index);
    chip.onclick = () => {
      if (view.hidden.has(h.index)) view.hidden.delete(h.index); else view.hidden.add(h.index);
      chip.setAttribute('aria-pressed', String(!view.hidden.has(h.index)));
      filtered();
    };
    return chip;
  }));
  $('locknames').replaceChildren(...data.locks.filter((l) => !l.absent).slice(0, 500).map((l) => make('option', { value: l.name })));
}

function pairs(list) {
  const dl = make('dl');
  for (const [k, v, mono] of list) if (v !== '' && v !== null && v !== undefined) dl.append(make('dt', { textContent: k }), make('dd', { textContent: v, className: mono ? 'mono' : '' }));
  return dl;
}

function showDetails(a) {
  if (!a) {
    $('details').replaceChildren(...summary());
    return;
  }
  const h = data.hosts[a.host];
  const list = [
    ['lock', data.locks[a.lock].name], ['host', h.name], ['host id', h.id], ['mode', a.shared ? 'shared' : 'exclusive'], ['who', who(a)], ['token', a.token, true], ['ticket', held(a) ? '' : a.ticket, true],
    ['asked', a.asked === undefined ? '' : moment(a.asked)], ['claimed', a.choosing === undefined ? '' : since(a.choosing, 6)], ['number', a.numbered === undefined ? '' : since(a.numbered, 6)],
    ['waited', held(a) && begin(a) === a.entered ? '' : lasting(ahead(a))], ['behind', a.behind],
    ['entered', held(a) ? moment(a.entered) : ''], ['held', held(a) ? lasting(kept(a)) : ''], ['end', a.end === 'open' ? endings.open : `${moment(a.ended)}: ${endings[a.end] ?? a.end}`],
    ['certain until', a.sure === undefined ? '' : moment(a.sure)], ['reason', a.reason], ['incarnation', a.incarnation, true],
    ['clock', corrected(h) && `shown up to ${corrected(h)}`],
  ];
  for (const m of a.modes ?? []) list.push(['mode', `${m.shared ? 'shared' : 'exclusive'} from ${utc(m.at)}`]);
  for (const m of a.marks ?? []) list.push([m.kind.replaceAll('_', ' '), `${utc(m.at)} ${m.text}`]);
  if (a.verdict !== undefined) list.push(['verdict', `${moment(a.verdict)}: the host was declared dead`]);
  $('details').replaceChildren(make('h2', { textContent: describe(a) }), ...a.findings.map((f) => make('p', { className: f.proven ? 'bad' : '', textContent: f.text })), pairs(list));
}

// summary shows the longest waits and holds, and deaths.
function summary() {
  const parts = [], list = attempts.filter(shown);
  const top = (name, of, ends) => {
    const best = list.filter((a) => a[of] > 0).sort((x, y) => y[of] - x[of]).slice(0, 5);
    if (!best.length) return;
    parts.push(make('h3', { textContent: name }), ...best.map((a) => make('button', { className: 'row', onclick: () => { select(a, true); keys.Enter(); } }, make('b', { textContent: lasting(a[of]) }),
      make('span', { textContent: `${hostName(a.host)}: ${data.locks[a.lock].name}${ends(a) ? ', ' + (endings[a.end] ?? a.end) : ''}` }))));
  };
  const deaths = data.hosts.flatMap((h) => h.changes.filter((c) => c.kind === 'dead' && !c.old || c.kind === 'lost').map((c) => [h, c])).sort((x, y) => x[1].at - y[1].at);
  if (deaths.length) parts.push(make('h3', { textContent: 'Died, or lost the lease' }), ...deaths.slice(0, 8).map(([h, c]) => make('button', { className: 'row', onclick: () => { look(c.at - 2e6, c.at + 2e6); } },
    make('b', { textContent: utc(c.at) }), make('span', { textContent: markText({ change: c, kind: c.kind, host: h }) }))));
  top('Waited longest', 'waited', (a) => !held(a));
  top('Held longest', 'held', (a) => a.end !== 'released');
  parts.push(make('p', { textContent: 'Point at an item to see its details. A click, or N and P, keeps them here; Escape returns to this summary.' }));
  return parts;
}

function showMarks(marks) {
  const parts = [];
  for (const m of marks.slice(0, 50)) parts.push(make('h2', { textContent: markText(m) }), pairs([['at', moment(m.at)], ['incarnation', m.change?.incarnation, true]]));
  $('details').replaceChildren(...parts);
}

function showLegend() {
  const sample = (f) => {
    const c = make('canvas', { width: 58 * scale, height: 22 * scale }), p = c.getContext('2d');
    p.scale(scale, scale);
    p.textBaseline = 'middle';
    p.font = theme.font;
    f(p);
    return c;
  };
  const like = (more) => ({ host: 0, numbered: 0, entered: 0, ended: 0, end: 'released', ...more }), at = (t) => t;
  const lines = [
    [(p) => hold(p, like({}), 2, 56, 3, 16, at), 'a hold, in its host’s colour; above, the track of the lock shows all holders'],
    [(p) => hold(p, like({ shared: true }), 2, 56, 3, 16, at), 'a shared hold'],
    [(p) => hold(p, like({ end: 'dead', sure: 22 }), 2, 56, 3, 16, at), 'pale: its end is not in the journals, only a verdict or the next holder'],
    [(p) => hold(p, like({ ended: 56, lost: 30 }), 2, 56, 3, 16, at), 'held after the lease was lost, or the host declared dead'],
    [(p) => { wait(p, like({ numbered: 16, entered: 40 }), 2, 40, 5, 11, at); hold(p, like({}), 40, 56, 5, 11, at); }, 'a wait; the dot is the number that was drawn'],
    [(p) => wait(p, like({ entered: undefined, end: 'timeout' }), 2, 46, 5, 11, at), 'a wait without a grant: timed out, gave up, refused'],
    [(p) => { p.fillStyle = theme.live; p.fillRect(2, 9, 20, 5); p.fillStyle = theme.risk; p.fillRect(22, 9, 18, 5); p.fillStyle = theme.bad; p.fillRect(40, 10, 16, 2); }, 'a host: live, at risk, dead or without a lease'],
    [(p) => { p.globalAlpha = 0.3; p.fillStyle = theme.live; p.fillRect(2, 9, 54, 5); p.globalAlpha = 1; }, 'pale: it was live before; when that ended is not in the journals'],
    [(p) => { p.fillStyle = hatch(theme.bad, 9); p.fillRect(14, 2, 30, 18); p.strokeStyle = theme.bad; p.lineWidth = 2.5; p.strokeRect(14, 2, 30, 18); }, 'a violation: too many holders, or a token that went back'],
    [(p) => { p.fillStyle = hatch(theme.risk, 9); p.fillRect(14, 2, 30, 18); p.strokeStyle = theme.risk; p.strokeRect(14, 2, 30, 18); }, 'late, or in doubt: the text says which'],
  ];
  for (const k of Object.keys(changes)) lines.push([(p) => badge(p, 29, 11, changes[k][0], changes[k][1]), changes[k][2]]);
  const keyLine = make('p');
  for (const [key, what] of [['wheel', 'zoom'], ['shift+wheel', 'pan'], ['drag', 'pan'], ['← →', 'pan'], ['↑ ↓', 'scroll'], ['+ −', 'zoom'], ['0', 'all'], ['N P', 'next, previous'],
    ['Enter', 'zoom to it'], ['V', 'next finding'], ['/', 'filter'], ['T', 'table'], ['?', 'legend']]) keyLine.append(make('kbd', { textContent: key }), ` ${what}   `);
  $('legend').replaceChildren(...lines.map(([f, words]) => make('div', {}, sample(f), make('span', { textContent: words }))), keyLine);
}

function toggleLegend() {
  $('legend').hidden = !$('legend').hidden;
  $('tolegend').setAttribute('aria-pressed', String(!$('legend').hidden));
  if (!$('legend').hidden) showLegend();
}

function toggleTable() {
  view.table = !view.table;
  $('table').hidden = !view.table;
  $('totable').setAttribute('aria-pressed', String(view.table));
  view.page = 0;
  if (view.table) showTable();
}

// showTable lists the visible items as text.
function showTable() {
  const size = 200, list = [];
  for (const a of attempts) if (shown(a) && begin(a) <= view.till && a.ended >= view.from) list.push({ at: begin(a), a });
  for (const h of data.hosts) if (!view.hidden.has(h.index)) for (const c of h.changes) if (c.at >= view.from && c.at <= view.till) list.push({ at: c.at, kind: c.kind, change: c, host: h });
  for (const l of data.locks) if (matches(l)) for (const m of l.marks) if (m.at >= view.from && m.at <= view.till) list.push({ at: m.at, kind: m.kind, mark: m, lock: l });
  list.sort((x, y) => x.at - y.at);
  const pages = Math.max(1, Math.ceil(list.length / size));
  view.page = Math.min(view.page, pages - 1);
  const turn = (by, name) => make('button', { textContent: name, disabled: view.page + by < 0 || view.page + by >= pages, onclick: () => { view.page += by; showTable(); } });
  const head = make('tr', {}, ...[view.relative ? 'Since the beginning' : 'UTC', 'Lock', 'Host', 'Event', 'Waited', 'Held', 'Token', 'Client', 'Behind, reason'].map((t) => make('th', { scope: 'col', textContent: t })));
  const body = list.slice(view.page * size, view.page * size + size).map(tableRow);
  $('table').replaceChildren(make('table', {}, make('caption', {}, `${count(list.length, 'row')} in view, filtered like the picture; page ${view.page + 1} of ${pages}  `, turn(-1, 'Previous'), ' ', turn(1, 'Next')),
    make('thead', {}, head), make('tbody', {}, ...body)));
}

function tableRow(r) {
  const when = view.relative ? since(r.at) : `${day(r.at)} ${utc(r.at)}`, a = r.a;
  const cells = a
    ? [when, data.locks[a.lock].name, hostName(a.host), (held(a) ? 'held' : endings[a.end] ?? a.end) + (a.shared ? ', shared' : '') + (held(a) && a.end !== 'released' ? `; ${endings[a.end]}` : ''),
      lasting(ahead(a)), held(a) ? lasting(kept(a)) : '', a.token, who(a), [a.behind, a.reason, ...a.findings.map((f) => '⚠ ' + f.text)].filter(Boolean).join('; ')]
    : [when, r.lock?.name ?? '', r.host?.name ?? '', markText(r), '', '', '', '', ''];
  const row = make('tr', { tabIndex: 0, className: a?.findings.some((f) => f.proven) ? 'bad' : '' }, ...cells.map((c) => make('td', { textContent: c })));
  const open = () => (a ? select(a, true) : showMarks([r]));
  row.onclick = open;
  row.onkeydown = (e) => e.key === 'Enter' && open();
  return row;
}

function setRelative(on) {
  view.relative = on;
  $('utc').setAttribute('aria-pressed', String(!on));
  $('relative').setAttribute('aria-pressed', String(on));
  draw();
  if (view.table) showTable();
}

readTheme();
showFacts();
showHosts();
showDetails(null);
$('filter').oninput = () => setFilter($('filter').value);
$('in').onclick = () => zoom(0.6);
$('out').onclick = () => zoom(1 / 0.6);
$('fit').onclick = fit;
$('utc').onclick = () => setRelative(false);
$('relative').onclick = () => setRelative(true);
$('totable').onclick = toggleTable;
$('tolegend').onclick = toggleLegend;
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  readTheme();
  showHosts();
  if (!$('legend').hidden) showLegend();
  draw();
});
new ResizeObserver(resize).observe(rowsBox);
resize();
const first = data.findings.findIndex((f) => f.proven);
if (first >= 0) view.finding = first - 1;

// For programs that inspect the page.
globalThis.timeline = { data, view, look, rows: () => rows, hits: () => hits, whereIs: (a) => hits.find((h) => h.a === a), describe };
