// Latency of the device. The section is shown if bakeryd reports it.
import { $, keyed, make, mark, say, show } from './dom.js';
import { many, short } from './words.js';

const most = 150; // samples kept of each kind
const kept = new Map(); // by kind: the p99 of each answer
const width = 110, height = 24;

const kinds = [['Read', (t) => t.io?.read], ['Write', (t) => t.io?.write], ['Renewal', (t) => t.renewals]];

const known = (m) => kinds.map(([name, of]) => ({ name, of: of(m.self ?? {}) })).filter((k) => typeof k.of?.p99_us === 'number' && k.of.count !== 0);

// sampleLatency stores the latencies of an answer.
export function sampleLatency(m) {
  for (const k of known(m)) {
    const all = kept.get(k.name) ?? [];
    all.push(k.of.p99_us);
    if (all.length > most) all.shift();
    kept.set(k.name, all);
  }
}

export function drawLatency(m) {
  const all = known(m);
  show($('latency'), all.length > 0);
  keyed($('latencies'), all, (k) => k.name, latencyRow);
}

function latencyRow(k) {
  const cells = [make('td'), make('td'), make('td')], errors = make('span', 'errors'), note = make('span', 'soft small');
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg'), line = document.createElementNS(svg.namespaceURI, 'polyline');
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('class', 'sparkline');
  svg.setAttribute('aria-hidden', 'true');
  svg.append(line);
  const head = make('th', '', k.name, ' ', errors);
  head.scope = 'row';
  const node = make('tr', '', head, ...cells, make('td', 'spark', svg));
  return {
    node,
    update({ name, of }) {
      [of.p50_us, of.p99_us, of.max_us].forEach((v, i) => say(cells[i], typeof v === 'number' ? short(v) : '–'));
      mark(head, 'title', typeof of.count === 'number' ? many(of.count, 'request') : '');
      say(errors, of.errors > 0 ? many(of.errors, 'error') : '');
      mark(line, 'points', points(kept.get(name) ?? []));
    },
  };
}

// points returns a line of the samples, the newest at the right; its base is 0.
function points(all) {
  const top = Math.max(...all, 1) * 1.15;
  return all.map((v, i) => `${(width - (all.length - 1 - i) * (width / (most - 1))).toFixed(1)},${(height - 1 - (v / top) * (height - 3)).toFixed(1)}`).join(' ');
}
