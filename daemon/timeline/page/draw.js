// Colours, and drawing of the parts of a row.
const plot = $('plot'), rowsBox = $('rows'), overview = $('overview');
const pen = plot.getContext('2d'), pen2 = overview.getContext('2d');
const LIGHT = ['#3b6fd4', '#0f8a7e', '#8a56c9', '#b0741a', '#5d7a1f', '#c2558f', '#2b8fb8', '#6b6f7d'];
const DARK = ['#6d9bff', '#35bfae', '#b58cf0', '#dba043', '#9dbb4e', '#ee8bbd', '#5cc0e8', '#a3a8b8'];
let theme = {};

function readTheme() {
  const css = getComputedStyle(document.documentElement), get = (n) => css.getPropertyValue('--' + n).trim();
  theme = {};
  for (const n of ['back', 'panel', 'ink', 'soft', 'faint', 'line', 'band', 'accent', 'bad', 'good', 'live', 'risk']) theme[n] = get(n);
  theme.dark = matchMedia('(prefers-color-scheme: dark)').matches;
  theme.hatch = {};
  theme.font = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  theme.bold = '600 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
}

function hostColour(i) {
  const all = theme.dark ? DARK : LIGHT;
  if (data.hosts.length <= all.length) return all[i % all.length];
  return `hsl(${(200 + i * 47.5) % 300 + 20} ${theme.dark ? '65% 66%' : '55% 42%'})`; // none of them red
}

// hatch returns a pattern of slanting lines.
function hatch(colour, step) {
  const key = colour + step;
  if (theme.hatch[key]) return theme.hatch[key];
  const c = document.createElement('canvas');
  c.width = c.height = step;
  const p = c.getContext('2d');
  p.strokeStyle = colour;
  p.lineWidth = step / 3.2;
  p.beginPath();
  for (const x of [-step, 0, step]) {
    p.moveTo(x - 1, step + 1);
    p.lineTo(x + step + 1, -1);
  }
  p.stroke();
  return (theme.hatch[key] = pen.createPattern(c, 'repeat'));
}

function box(p, x, y, w, h, r) {
  p.beginPath();
  p.roundRect(x, y, w, h, Math.min(r, w / 2, h / 2));
}

// label writes a text into a box, shortened, if there is room. A name also keeps its end: several may begin alike.
function label(p, words, x, y, w, colour, name = false) {
  if (w < 22) return;
  p.fillStyle = colour;
  let s = words;
  if (p.measureText(s).width > w) {
    const cut = (n) => (name ? s.slice(0, Math.ceil(n / 2)) + '…' + s.slice(s.length - Math.floor(n / 2)) : s.slice(0, n) + '…');
    let low = 0, high = s.length;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (p.measureText(cut(mid)).width <= w) low = mid; else high = mid - 1;
    }
    if (low < 2) return;
    s = cut(low);
  }
  p.fillText(s, x, y);
}

// badge draws the letter of an event.
function badge(p, x, y, letter, grave) {
  const colours = { good: theme.good, bad: theme.bad, warn: theme.risk, plain: theme.soft };
  p.fillStyle = colours[grave];
  box(p, x - 6.5, y - 6.5, 13, 13, 4);
  p.fill();
  p.strokeStyle = theme.panel;
  p.lineWidth = 1;
  p.stroke();
  p.fillStyle = grave === 'warn' ? '#1c1305' : theme.dark ? '#0d1116' : '#fff';
  p.font = '700 9.5px system-ui, "DejaVu Sans", sans-serif';
  p.textAlign = 'center';
  p.fillText(letter, x, y + 0.5);
  p.textAlign = 'left';
  p.font = theme.font;
}

// hold draws a hold: hatched while shared, pale while uncertain.
function hold(p, a, x1, x2, y, h, xOf) {
  const colour = hostColour(a.host), w = Math.max(x2 - x1, 1.5);
  const sure = a.sure === undefined ? x2 : Math.max(x1 + 1.5, Math.min(x2, xOf(a.sure)));
  if (w < 4) {
    p.fillStyle = colour;
    p.fillRect(x1, y, w, h);
    return;
  }
  p.save();
  box(p, x1, y, w, h, 3);
  p.clip();
  let from = x1, shared = a.shared;
  const part = (till) => {
    p.fillStyle = colour;
    p.fillRect(from, y, till - from, h);
    if (shared && h > 3) {
      p.fillStyle = hatch(theme.panel, 7);
      p.globalAlpha = 0.42;
      p.fillRect(from, y, till - from, h);
      p.globalAlpha = 1;
    }
    from = till;
  };
  for (const m of a.modes ?? []) {
    const x = Math.min(sure, Math.max(from, xOf(m.at)));
    part(x);
    shared = m.shared;
  }
  part(Math.max(from, sure));
  if (sure < x2) {
    p.globalAlpha = 0.38;
    p.fillStyle = colour;
    p.fillRect(sure, y, x2 - sure, h);
    p.globalAlpha = 1;
  }
  for (const late of [a.lost, a.verdict]) { // held after the loss
    const from = late === undefined ? sure : Math.max(x1, xOf(late));
    if (from < sure) {
      p.fillStyle = hatch(theme.bad, 6);
      p.fillRect(from, y, sure - from, h);
    }
  }
  p.restore();
  if (sure < x2 - 3) {
    p.strokeStyle = colour;
    p.setLineDash([4, 3]);
    p.lineWidth = 1;
    box(p, x1 + 0.5, y + 0.5, w - 1, h - 1, 3);
    p.stroke();
    p.setLineDash([]);
  }
}

// wait draws a wait and its end, thinner than a hold.
function wait(p, a, x1, x2, y, h, xOf) {
  const colour = hostColour(a.host), mid = y + h / 2;
  const sure = held(a) || a.sure === undefined ? x2 : Math.max(x1, Math.min(x2, xOf(a.sure)));
  p.fillStyle = colour;
  p.globalAlpha = 0.5;
  p.fillRect(x1, mid - 2, Math.max(sure - x1, 1), 4);
  p.globalAlpha = 0.2;
  p.fillRect(sure, mid - 2, x2 - sure, 4);
  p.globalAlpha = 1;
  if (x2 - x1 > 14) {
    p.fillStyle = colour;
    if (a.numbered !== undefined) {
      p.beginPath();
      p.arc(Math.min(Math.max(xOf(a.numbered), x1 + 1), x2), mid, 3, 0, 7);
      p.fill();
    }
    p.fillRect(x1, mid - 4, 1.5, 8);
  }
  if (held(a) || a.end === 'open' || a.end === 'removed') return;
  p.strokeStyle = { timeout: theme.risk, refused: theme.bad, dead: theme.bad, lost: theme.bad }[a.end] ?? theme.soft;
  p.lineWidth = 1.8;
  p.beginPath();
  p.moveTo(x2 - 3, mid - 3.5);
  p.lineTo(x2 + 3, mid + 3.5);
  p.moveTo(x2 - 3, mid + 3.5);
  p.lineTo(x2 + 3, mid - 3.5);
  p.stroke();
}

// Steps of the axis, in microseconds.
const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 1.5e7, 3e7, 6e7, 1.2e8, 3e8, 6e8, 9e8,
  1.8e9, 3.6e9, 7.2e9, 1.08e10, 2.16e10, 4.32e10, 8.64e10, 1.728e11, 6.048e11, 2.592e12];

function ticks(width) {
  const span = view.till - view.from, least = (span / width) * 96;
  const step = steps.find((s) => s >= least) ?? steps.at(-1), shift = view.relative ? 0 : data.from % step, all = [];
  for (let t = Math.ceil((view.from + shift) / step) * step - shift; t <= view.till; t += step) all.push(t);
  const digits = step >= 1e6 ? 0 : step >= 1e3 ? 3 : 6;
  let last = '';
  return all.map((t) => {
    if (view.relative) return [t, since(t, digits), false];
    const d = day(t), first = d !== last;
    last = d;
    return [t, step >= 8.64e10 ? d : utc(t, digits), first && step < 8.64e10 ? d : ''];
  });
}
