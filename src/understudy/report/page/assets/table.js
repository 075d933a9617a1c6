// Table of matched nodes: thousands of rows, of which only the visible ones are in the document.

const ROW = 32; // --row in page.css
const PRINTED = 50;
const MANY = 40; // values a filter can list
const MEANING = {
  network: "the network, as in networks.parquet",
  layer: "hidden layer, counted from 1, the lowest",
  teacher: "teacher node",
  strength: "how much the teacher node counts in the teacher's output",
  student: "the student node that correlates best with it",
  correlation: "of the two nodes' activations, at the end",
  sin_angle: "sine of the angle between the two nodes' weights",
  bias_gap: "distance of the two nodes' biases, at unit weight",
  recovered_at: "first epoch, or step, at which the correlation exceeds 0.95",
  teacher_layer: "module of the teacher",
  student_layer: "module of the student that matches it best",
  correlation_before: "best correlation before training",
  rank_before: "rank of the student node before training, 0 first to 1 last",
  fan_out: "norm of the weights that read the student node",
  settled_at: "step from which on the student node is the best one",
};
const collator = new Intl.Collator("en", { numeric: true });

const RAISED = Object.fromEntries([..."-0123456789"].map((c, i) => [c, "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"[i]]));
// -3.2e-7 becomes −3.2×10⁻⁷.
function typeset(number) {
  const raised = (_, power) => `×10${[...power].map((c) => RAISED[c]).join("")}`;
  return String(number).replace(/e\+?(-?\d+)$/, raised).replace(/^(-?)1×/, "$1").replace("-", "−");
}

function decimal(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return typeset(size < 5e-4 || size >= 1e5 ? value.toExponential(2) : value.toFixed(size < 10 ? 4 : 2));
}

// A column has, for row i: value (number, text or null), text to show, key to sort by (NaN: last).
function column(spec) {
  const base = { name: spec.name, label: spec.name.replaceAll("_", " "), parameter: spec.parameter };
  if (spec.numbers) {
    const numbers = revive(spec.numbers);
    const show = spec.whole ? typeset : decimal;
    const value = (i) => (Number.isNaN(numbers[i]) ? null : numbers[i]);
    const text = (i) => (value(i) === null ? "" : show(numbers[i]));
    return { ...base, numeric: true, value, text, key: (i) => numbers[i] };
  }
  const codes = revive(spec.codes);
  const numeric = spec.values.every((value) => value === null || typeof value === "number");
  const sorted = numeric ? [] : spec.values.filter((value) => value !== null).sort(collator.compare);
  const rank = new Map(sorted.map((value, at) => [value, at]));
  const keys = spec.values.map((value) => (value === null ? NaN : numeric ? value : rank.get(value)));
  const whole = spec.values.every((value) => value === null || Number.isInteger(value));
  const show = !numeric ? String : whole || spec.parameter ? typeset : decimal;
  const texts = spec.values.map((value) => (value === null ? "" : show(value)));
  const [value, key, text] = [spec.values, keys, texts].map((each) => (i) => each[codes[i]]);
  return { ...base, numeric, value, key, text };
}

function distinct(column, rows) {
  const seen = new Map(); // text of each value, to its sorting key
  for (let i = 0; i < rows && seen.size <= MANY; i++) seen.set(column.text(i), column.key(i));
  return [...seen].sort((a, b) => a[1] - b[1]).map(([text]) => text);
}

function select(label, options) {
  const control = make("select", { name: label });
  control.append(...options.map(([text], at) => make("option", { value: String(at), textContent: text })));
  byId("filters").append(make("label", {}, make("span", { textContent: label }), control));
  return () => options[Number(control.value)][1];
}

// One filter per column with few values; each returns a test of a row, or null.
function valueFilter(column, rows) {
  const values = distinct(column, rows);
  if (values.length < 2 || values.length > MANY) return null;
  const tests = values.map((text) => [text || "none", (i) => column.text(i) === text]);
  return select(column.label, [["all", null], ...tests]);
}

function strengthFilter(column, rows) {
  const sorted = Float64Array.from({ length: rows }, (_, i) => column.key(i)).filter((v) => !Number.isNaN(v)).sort();
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  if (!sorted.length || at(0) === at(1)) return null;
  const edges = [at(0), at(0.25), at(0.5), at(0.75), Infinity];
  const names = ["weakest quarter", "second quarter", "third quarter", "strongest quarter"];
  const tests = names.map((name, q) => {
    const [low, high] = [edges[q], edges[q + 1]];
    const words = q === 3 ? `${decimal(low)} or more` : `${decimal(low)} to ${decimal(high)}`;
    return [`${name}: ${words}`, (i) => column.key(i) >= low && column.key(i) < high, low < high];
  });
  return select(column.label, [["all", null], ...tests.filter((test) => test[2]).reverse()]);
}

function recoveredFilter(column, rows) {
  if (!rows) return null;
  return select("recovered", [
    ["all", null],
    ["by the end", (i) => column.value(i) !== null],
    ["never", (i) => column.value(i) === null],
  ]);
}

function makeFilters(columns, rows) {
  const filters = columns.map((column) => {
    if (column.parameter || column.name === "layer") return valueFilter(column, rows);
    if (column.name === "strength") return strengthFilter(column, rows);
    return column.name === "recovered_at" ? recoveredFilter(column, rows) : null;
  });
  return filters.filter(Boolean);
}

const COMPARE = {
  "=": (a, b) => a === b, "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
};

// `seed=3 correlation<0.9 word`: every term must hold; a word without operator may match any column.
function searchTests(text, columns, rowText) {
  return text.toLowerCase().split(/\s+/).filter(Boolean).map((term) => {
    const [, name, sign, wanted] = term.match(/^(\w+)(<=|>=|=|<|>)(.+)$/) ?? [];
    const column = columns.find((candidate) => candidate.name.toLowerCase() === name);
    if (!column) return (i) => rowText(i).includes(term.replace(/^-(?=\.?\d)/, "−"));
    if (!column.numeric || wanted === "never") return (i) => (column.text(i).toLowerCase() || "never") === wanted;
    return (i) => column.value(i) !== null && COMPARE[sign](Number(column.value(i).toPrecision(7)), Number(wanted));
  });
}

function csv(columns, rows) {
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const cell = (column, i) => {
    const value = column.value(i);
    if (value === null) return "";
    return typeof value === "number" ? String(Number(value.toPrecision(7))) : quoted(String(value));
  };
  const lines = [columns.map((column) => quoted(column.name)).join(",")];
  for (const i of rows) lines.push(columns.map((column) => cell(column, i)).join(","));
  return lines.join("\n") + "\n";
}

function save(name, text) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function startTable({ rows, columns: specs }) {
  const columns = specs.map(column);
  const named = Object.fromEntries(columns.map((c) => [c.name, c]));
  const filters = makeFilters(columns, rows);
  const view = makeGrid(columns, rows);
  const texts = [];
  const rowText = (i) => (texts[i] ??= columns.map((c) => c.text(i)).join(" ").toLowerCase());
  const everything = Uint32Array.from({ length: rows }, (_, i) => i);
  let order = everything;
  let shown = everything;
  let only = false;

  const isMarked = (i) => mark.current !== null && named.network.value(i) === mark.current.network;

  function refresh() {
    const tests = [...filters.map((filter) => filter()), ...searchTests(byId("search").value, columns, rowText)];
    if (only && mark.current) tests.push(isMarked);
    const active = tests.filter(Boolean);
    shown = active.length ? order.filter((i) => active.every((test) => test(i))) : order;
    byId("count").replaceChildren(make("b", { textContent: shown.length.toLocaleString("en") }),
      ` of ${rows.toLocaleString("en")} rows`);
    byId("reset").hidden = active.length === 0;
    view.show(shown);
  }

  function sort(column, direction) {
    const keys = Float64Array.from({ length: rows }, (_, i) => column.key(i));
    order = everything.slice().sort((a, b) => {
      const [x, y] = [keys[a], keys[b]];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
      return direction * (x - y);
    });
    refresh();
  }

  function reset() {
    byId("search").value = "";
    for (const control of document.querySelectorAll("#filters select")) control.value = "0";
    setOnly(false);
    refresh();
  }

  function setOnly(value) {
    only = value;
    byId("only").setAttribute("aria-pressed", String(only));
  }

  view.onSort(sort);
  if (named.network) {
    view.onChoose((i) => mark.set({ network: named.network.value(i), teacher: named.teacher?.value(i) ?? -1 }, "table"));
  }
  byId("search").addEventListener("input", refresh);
  byId("filters").addEventListener("change", refresh);
  byId("reset").addEventListener("click", reset);
  byId("only").addEventListener("click", () => { setOnly(!only); refresh(); });
  byId("csv").addEventListener("click", () => save("matched-nodes.csv", csv(columns, shown)));
  mark.listeners.push((marked, from) => {
    byId("only").hidden = !marked;
    if (!marked) setOnly(false);
    refresh();
    if (!marked || from === "table") return;
    const wanted = (i) => isMarked(i) && (marked.teacher < 0 || named.teacher?.value(i) === marked.teacher);
    view.reveal(shown.findIndex(wanted));
  });
  refresh();

  // Parameters of this network, such as p=1 · 5× · seed 3, from any of its rows.
  function describe(network) {
    const row = everything.find((i) => named.network.value(i) === network);
    if (row === undefined) return [];
    return columns.filter((c) => c.parameter).map((c) => {
      if (c.name === "polarity") return `p=${c.text(row)}`;
      return c.name === "multiple" ? `${c.text(row)}×` : `${c.label} ${c.text(row)}`;
    });
  }
  return { describe, print: (on) => view.print(on, shown.length) };
}
