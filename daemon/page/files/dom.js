// The only code that creates elements. Data of bakeryd, the disk or a client becomes text, never markup.

// printable escapes characters that are invisible, or that change the display of others.
const odd = /[\p{C}\p{Zl}\p{Zp}\p{DI}]|(?! )\p{Zs}/gu;

export const printable = (s) => String(s ?? '').replace(odd, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

// make creates an element with classes and contents. It makes texts printable.
export function make(tag, classes, ...inside) {
  const e = document.createElement(tag);
  if (classes) e.className = classes;
  e.append(...inside.filter((x) => x !== undefined).map((x) => (x instanceof Node ? x : document.createTextNode(printable(x)))));
  return e;
}

// say sets a text unless it is unchanged, so that a selection in it stays.
export function say(e, words) {
  const s = printable(words);
  const only = e.firstChild;
  if (only === null) {
    if (s !== '') e.append(s);
  } else if (only.data !== s) {
    only.data = s;
  }
}

// The same for attributes and visibility.
export function mark(e, name, value) {
  const v = printable(value);
  if (e.getAttribute(name) !== v) e.setAttribute(name, v);
}

export function show(e, on) {
  if (e.hidden === on) e.hidden = !on;
}

// tell sets a text, and hides the element if the text is empty.
export function tell(e, words) {
  show(e, !!words);
  say(e, words || '');
}

export const $ = (id) => document.getElementById(id);

const lists = new WeakMap(); // by element: its rows by key

// keyed shows a row for each item in an element. An item keeps its node, which moves only if the order changes.
// begin creates a row, {node, update}; update gets the item and the further arguments.
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
