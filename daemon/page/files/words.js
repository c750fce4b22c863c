// Numbers as text.

export const many = (n, one, more = one + 's') => `${n.toLocaleString('en')} ${n === 1 ? one : more}`;

// lasting formats a duration in milliseconds, briefly.
export function lasting(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${Math.floor(s * 10) / 10} s`;
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} days`;
}

// whole formats an elapsed time, and rounds it down; until a remaining one, and rounds it up:
// times.go of package report has the same rule.
const units = (ms) => (ms >= 36e6 ? [36e5, 'h'] : ms >= 6e5 ? [6e4, 'min'] : [1000, 's']);
const inUnits = (ms, round) => {
  const [unit, name] = units(ms);
  return `${round(Math.max(0, ms) / unit)} ${name}`;
};
export const whole = (ms) => inUnits(ms, Math.floor);
export const until = (ms) => inUnits(ms, Math.ceil);

// aged returns a text of a report when the report is of age ms: Aged of package report.
export function aged(text, times, ms) {
  for (const t of times ?? []) {
    const old = moving(t, 0), at = text.lastIndexOf(old);
    if (at >= 0) text = text.slice(0, at) + moving(t, ms) + text.slice(at + old.length);
  }
  return text;
}

// agedProblem returns text, why and remedy of a problem: Problem.Aged of package report.
export function agedProblem(p, ms) {
  const texts = [p.text, p.why, p.remedy];
  for (const t of p.times ?? []) {
    const at = texts.findLastIndex((s) => s.includes(moving(t, 0)));
    if (at >= 0) texts[at] = aged(texts[at], [t], ms);
  }
  return texts;
}

function moving(t, age) {
  if (!t.left) return `${t.words} ${whole(t.ms + age)}`;
  return t.ms > age ? `${t.words} ${until(t.ms - age)}` : t.over;
}

// short formats a latency in microseconds.
export function short(us) {
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${Number((us / 1000).toPrecision(3))} ms`;
  return `${Number((us / 1e6).toPrecision(3))} s`;
}

export function bytes(n) {
  if (n < 1 << 20) return `${Math.ceil(n / 1024)} KiB`;
  return `${(n / (1 << 20)).toFixed(n < 10 << 20 ? 1 : 0)} MiB`;
}

const two = (n) => String(n).padStart(2, '0');

// clock formats a time of day in the reader's time zone.
export function clock(at) {
  const t = new Date(at);
  return Number.isNaN(t.getTime()) ? '' : `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
}

export const hostName = (id, name) => (name ? `${name} (${id})` : `host ${id}`);
