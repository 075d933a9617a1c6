// Table on the screen: the visible rows, between two gaps as high as the rows that are left out.

function makeGrid(columns, rows) {
  const scroller = byId("scroller");
  const body = make("tbody");
  const heads = columns.map(head);
  const top = make("thead", {}, make("tr", {}, ...heads));
  const table = make("table", { tabIndex: 0 }, colgroup(columns, rows), top, body);
  table.setAttribute("role", "grid");
  table.setAttribute("aria-label", `${byId("table-title").textContent}: arrow keys move, Enter marks the network`);
  scroller.append(table);
  const largest = Object.fromEntries(columns.filter((c) => c.name === "strength").map((c) => [c.name, most(c, rows)]));
  let shown = [];
  let active = 0;
  let printing = false;
  let drawn = "";

  function draw(force) {
    const height = scroller.clientHeight || 600;
    const first = printing ? 0 : Math.max(0, Math.floor(scroller.scrollTop / ROW) - 8);
    const last = Math.min(shown.length, printing ? PRINTED : first + Math.ceil(height / ROW) + 16);
    if (!force && drawn === `${first}-${last}`) return;
    drawn = `${first}-${last}`;
    const lines = [];
    for (let at = first; at < last; at++) lines.push(line(at));
    if (!shown.length) lines.push(nothing(columns.length));
    const below = printing ? 0 : shown.length - last;
    body.replaceChildren(gap(first, columns.length), ...lines, gap(below, columns.length));
    const inSight = active >= first && active < last;
    if (inSight) table.setAttribute("aria-activedescendant", `row-${active}`);
    else table.removeAttribute("aria-activedescendant");
  }

  function line(at) {
    const i = shown[at];
    const row = make("tr", { id: `row-${at}` });
    row.dataset.at = at;
    row.setAttribute("aria-rowindex", at + 2);
    const marked = mark.current && columns.some((c) => c.name === "network" && c.value(i) === mark.current.network);
    const chosen = marked && columns.some((c) => c.name === "teacher" && c.value(i) === mark.current.teacher);
    row.classList.toggle("marked", Boolean(marked));
    row.classList.toggle("chosen", Boolean(chosen));
    row.classList.toggle("active", at === active);
    row.setAttribute("aria-selected", String(Boolean(chosen)));
    row.append(...columns.map((c) => cell(c, i, largest)));
    return row;
  }

  function move(to) {
    active = Math.max(0, Math.min(shown.length - 1, to));
    const [above, below] = [active * ROW, (active + 1) * ROW + table.tHead.offsetHeight - scroller.clientHeight];
    scroller.scrollTop = Math.min(above, Math.max(below, scroller.scrollTop));
    draw(true);
  }

  const page = () => Math.max(1, Math.floor(scroller.clientHeight / ROW) - 2);
  const STEPS = {
    ArrowDown: () => active + 1, ArrowUp: () => active - 1, Home: () => 0,
    PageDown: () => active + page(), PageUp: () => active - page(), End: () => shown.length - 1,
  };

  let choose = () => {};
  table.addEventListener("keydown", (event) => {
    if (event.target !== table || !shown.length) return;
    if (STEPS[event.key]) move(STEPS[event.key]());
    else if (event.key === "Enter" || event.key === " ") choose(shown[active]);
    else return;
    event.preventDefault();
  });
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-at]");
    if (!row || getSelection().toString()) return;
    active = Number(row.dataset.at);
    choose(shown[active]);
  });
  scroller.addEventListener("scroll", () => requestAnimationFrame(() => draw(false)), { passive: true });
  new ResizeObserver(() => draw(false)).observe(scroller);

  return {
    show(next) {
      const moved = next !== shown;
      shown = next;
      table.setAttribute("aria-rowcount", shown.length + 1);
      if (moved) active = Math.min(active, Math.max(0, shown.length - 1));
      draw(true);
    },
    reveal(at) {
      if (at < 0) return;
      active = at;
      scroller.scrollTop = Math.max(0, at * ROW - scroller.clientHeight / 3);
      draw(true);
    },
    onChoose(action) { choose = action; },
    onSort(action) {
      heads.forEach((th, at) => th.firstChild.addEventListener("click", () => {
        const rising = th.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        th.setAttribute("aria-sort", rising ? "ascending" : "descending");
        active = 0;
        scroller.scrollTop = 0;
        action(columns[at], rising ? 1 : -1);
      }));
    },
    print(on, total) {
      printing = on;
      byId("printed").hidden = !on || total <= PRINTED;
      byId("printed").textContent = `The first ${PRINTED} of ${total.toLocaleString("en")} rows.`;
      draw(true);
    },
  };
}

function head(column) {
  const button = make("button", { type: "button", textContent: column.label, title: MEANING[column.name] ?? "" });
  return make("th", { scope: "col", className: column.numeric ? "" : "text" }, button);
}

// Fixed widths, from the longest of some rows, so that columns do not move during scrolling; ch is that of a digit.
function colgroup(columns, rows) {
  const step = Math.max(1, Math.floor(rows / 200));
  const widths = columns.map((column) => {
    let longest = column.label.length;
    for (let i = 0; i < rows; i += step) longest = Math.max(longest, column.text(i).length);
    return Math.min(longest, 28);
  });
  return make("colgroup", {}, ...widths.map((width) => {
    const col = make("col");
    col.style.width = `calc(${width}ch + 1.75rem)`;
    return col;
  }));
}

function most(column, rows) {
  let value = 0;
  for (let i = 0; i < rows; i++) value = Math.max(value, column.key(i) || 0);
  return value;
}

function cell(column, i, largest) {
  const text = column.text(i);
  const td = make("td", { textContent: text, className: column.numeric ? "" : "text" });
  if (column.name === "recovered_at" && text === "") {
    td.textContent = "never";
    td.classList.add("never");
  }
  const share = column.name === "correlation" ? column.value(i) : column.key(i) / largest[column.name];
  if (share >= 0 && column.numeric) {
    td.classList.add("share");
    td.style.setProperty("--share", Math.min(1, share).toFixed(3));
  }
  return td;
}

function gap(count, span) {
  const td = make("td", { colSpan: span });
  td.style.height = `${count * ROW}px`;
  const row = make("tr", { className: "gap" }, td);
  row.hidden = count === 0;
  row.setAttribute("aria-hidden", "true");
  return row;
}

function nothing(span) {
  const td = make("td", { colSpan: span, textContent: "No row fits: clear a filter or the search." });
  return make("tr", { className: "gap empty" }, td);
}
