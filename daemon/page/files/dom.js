// The only way into the document: elements are made here, and what bakeryd, the disk or a client says becomes text, never markup.

// What does not show, or changes how its neighbours show, is written out.
const odd = /[\p{C}\p{Zl}\p{Zp}\p{DI}]|(?! )\p{Zs}/gu;

export const printable = (s) => String(s ?? '').replace(odd, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

// make makes an element with classes, and what is in it: texts are made printable.
export function make(tag, classes, ...inside) {
  const e = document.createElement(tag);
  if (classes) e.className = classes;
  e.append(...inside.filter((x) => x !== undefined).map((x) => (x instanceof Node ? x : document.createTextNode(printable(x)))));
  return e;
}

// say sets a text unless it is there: what somebody has selected stays so.
export function say(e, words) {
  const s = printable(words);
  const only = e.firstChild;
  if (only === null) {
    if (s !== '') e.append(s);
  } else if (only.data !== s) {
    only.data = s;
  }
}

// Attributes, and whether something is there, likewise.
export function mark(e, name, value) {
  const v = printable(value);
  if (e.getAttribute(name) !== v) e.setAttribute(name, v);
}

export function show(e, on) {
  if (e.hidden === on) e.hidden = !on;
}

// tell sets a text that may be missing.
export function tell(e, words) {
  show(e, !!words);
  say(e, words || '');
}

export const $ = (id) => document.getElementById(id);

const lists = new WeakMap(); // an element: its rows by key

// keyed has an element show a row for each item: one that was there stays the same node, and moves only if its order does.
// begin makes a row, {node, update}; update gets the item, and what else is known.
export function keyed(parent, items, keyOf, begin, ...known) {
  let rows = lists.get(parent);
  if (!rows) lists.set(parent, (rows = new Map()));
  const wanted = new Map();
  for (const item of items) {
    let key = String(keyOf(item));
    while (wanted.has(key)) key += ' ';
    wanted.set(key, item);
  }
  for (const [key, row] of rows) {
    if (wanted.has(key)) continue;
    row.node.remove();
    rows.delete(key);
  }
  let at = parent.firstChild;
  for (const [key, item] of wanted) {
    let row = rows.get(key);
    if (!row) rows.set(key, (row = begin(item)));
    row.update?.(item, ...known);
    if (row.node === at) at = at.nextSibling;
    else parent.insertBefore(row.node, at);
  }
}
