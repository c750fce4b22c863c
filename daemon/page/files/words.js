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

// whole formats a duration in whole seconds; until rounds up, because the time is not over before.
export const whole = (ms) => (ms < 120_000 ? `${Math.max(0, Math.floor(ms / 1000))} s` : lasting(ms));
export const until = (ms) => whole(ms + 999);

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
