// Shared parts of the page: arrays from text, the theme, and the marked network.

const ARRAYS = {
  i1: Int8Array, u1: Uint8Array, u1c: Uint8ClampedArray, i2: Int16Array, u2: Uint16Array,
  i4: Int32Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array,
};

const byId = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function bytes(base64) {
  const text = atob(base64);
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
  return out;
}

// Convert {dtype, bdata, shape} to nested views of one buffer, at any depth of a value.
function revive(value) {
  if (Array.isArray(value)) return value.map(revive);
  if (value === null || typeof value !== "object") return value;
  if (typeof value.bdata === "string" && ARRAYS[value.dtype]) {
    const flat = new ARRAYS[value.dtype](bytes(value.bdata).buffer);
    return nest(flat, value.shape === undefined ? [flat.length] : String(value.shape).split(",").map(Number));
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, revive(item)]));
}

function nest(flat, shape) {
  if (shape.length < 2) return flat;
  const size = flat.length / shape[0] || 0;
  return Array.from({ length: shape[0] }, (_, i) => nest(flat.subarray(i * size, (i + 1) * size), shape.slice(1)));
}

const theme = {
  listeners: [],
  get name() { return document.documentElement.dataset.theme; },
  colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); },
  set(name) {
    document.documentElement.dataset.theme = name;
    byId("theme").textContent = name === "dark" ? "Light" : "Dark";
    byId("theme").setAttribute("aria-pressed", String(name === "dark"));
    byId("theme").setAttribute("aria-label", "Dark theme");
    for (const listen of this.listeners) listen();
  },
};

function remembered(value) {
  try {
    if (value === undefined) return localStorage.getItem("understudy-theme");
    localStorage.setItem("understudy-theme", value);
  } catch { /* storage may be forbidden: the choice then lasts as long as the page */ }
  return null;
}

function startTheme() {
  theme.set(theme.name);
  byId("theme").addEventListener("click", () => {
    theme.set(theme.name === "dark" ? "light" : "dark");
    remembered(theme.name);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    if (remembered() === null) theme.set(event.matches ? "dark" : "light");
  });
}

// The marked network, or null: {network, teacher}, with teacher −1 for the whole network.
const mark = {
  current: null,
  listeners: [],
  set(next, from) {
    const same = next && this.current && next.network === this.current.network && next.teacher === this.current.teacher;
    this.current = same ? null : next;
    for (const listen of this.listeners) listen(this.current, from);
  },
};

function startChip(table) {
  const chip = byId("chip");
  const clear = chip.querySelector("button");
  mark.listeners.push((marked) => {
    chip.hidden = !marked;
    if (!marked) return;
    const node = marked.teacher >= 0 ? [`teacher node ${marked.teacher}`] : [];
    chip.querySelector("span").textContent =
      [`network ${marked.network}`, ...table.describe(marked.network), ...node].join(" · ");
  });
  clear.addEventListener("click", () => mark.set(null));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && mark.current && event.target.type !== "search") mark.set(null);
  });
}

function startCopy() {
  const button = byId("copy");
  button.addEventListener("click", async () => {
    const text = byId("command").textContent;
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // A page opened from a file may not access the clipboard: select the text, so that one keystroke copies it.
      getSelection().selectAllChildren(byId("command"));
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

// In print: light theme, every figure at the width of the paper, and the first rows of the table.
function startPrint(figures, table) {
  let before = null;
  addEventListener("beforeprint", () => {
    before = theme.name;
    theme.set("light");
    table.print(true);
    figures.print(true);
  });
  addEventListener("afterprint", () => {
    figures.print(false);
    table.print(false);
    if (before) theme.set(before);
  });
}

function start() {
  startTheme();
  const table = startTable(JSON.parse(byId("rows").textContent));
  const figures = startFigures();
  startChip(table);
  startCopy();
  startPrint(figures, table);
}
