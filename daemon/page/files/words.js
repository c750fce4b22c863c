// How numbers are told to people.

export const many = (n, one, more = one + 's') => `${n.toLocaleString('en')} ${n === 1 ? one : more}`;

// lasting is a duration of so many milliseconds, in as few words as tell it.
export function lasting(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${Math.floor(s * 10) / 10} s`;
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} days`;
}

// whole is one in whole seconds; until rounds up, for it is not over before.
export const whole = (ms) => (ms < 120_000 ? `${Math.max(0, Math.floor(ms / 1000))} s` : lasting(ms));
export const until = (ms) => whole(ms + 999);

// short is a latency of so many microseconds.
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

// clock is a time of day, where the reader is.
export function clock(at) {
  const t = new Date(at);
  return Number.isNaN(t.getTime()) ? '' : `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
}

export const hostName = (id, name) => (name ? `${name} (${id})` : `host ${id}`);
