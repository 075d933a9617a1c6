// Figures: drawn when they come near the viewport, in the page's colours, with the marked network emphasised.

const SELECTABLE = new Set(["scatter", "scattergl", "bar", "box", "violin", "histogram", "scatterpolar", "splom"]);
const INKS = new Set(["black", "#000", "#000000", "rgb(0,0,0)", "rgb(0, 0, 0)"]);
const PAPERS = new Set(["white", "#fff", "#ffffff", "rgb(255,255,255)", "rgb(255, 255, 255)"]);
const DIM = 0.12;
const NARROW = 560;
const MANY_POINTS = 6000;
const PAPER = 680; // what A4 and Letter have between their margins, in CSS pixels
const BUTTONS_LEFT_OUT = ["select2d", "lasso2d", "autoScale2d"];
const CARTESIAN = new Set(["scatter", "scattergl", "bar", "box", "violin", "histogram", "heatmap", "contour"]);

let plotly = null; // the promise of a drawing library

function loadPlotly() {
  plotly ??= unpack(byId("plotly").textContent).then((code) => {
    document.head.append(make("script", { textContent: code }));
    return window.Plotly;
  });
  return plotly;
}

async function unpack(base64) {
  const stream = new Blob([bytes(base64)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

// Black and white are replaced by the ink and paper colours of the current theme.
function repaint(value) {
  if (typeof value === "string") {
    if (INKS.has(value)) return theme.colour("ink");
    return PAPERS.has(value) ? theme.colour("paper") : value;
  }
  if (Array.isArray(value)) return value.map(repaint);
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, repaint(item)]));
}

function paintTrace(trace) {
  for (const key of ["line", "marker", "textfont", "error_x", "error_y", "selected", "unselected"]) {
    if (trace[key]) trace[key] = repaint(trace[key]);
  }
  return trace;
}

function rememberColours() {
  INKS.add(theme.colour("ink"));
  PAPERS.add(theme.colour("paper"));
}

function paintLayout(layout) {
  const [ink, muted, hairline, paper, tint] = ["ink", "muted", "hairline", "paper", "tint"].map((n) => theme.colour(n));
  Object.assign(layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" });
  layout.font = { size: 13, ...layout.font, color: ink, family: getComputedStyle(document.body).fontFamily };
  layout.hoverlabel = { ...layout.hoverlabel, bgcolor: paper, bordercolor: muted, font: { color: ink, size: 13 } };
  layout.legend = { ...layout.legend, bgcolor: "rgba(0,0,0,0)" };
  layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: theme.colour("accent") };
  for (const key of Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name))) {
    const axis = layout[key];
    Object.assign(axis, { gridcolor: hairline, zerolinecolor: hairline, linecolor: muted, tickcolor: muted });
    axis.tickfont = { ...axis.tickfont, color: muted };
    if (axis.title?.text) axis.title.font = { size: layout.font.size, ...axis.title.font, color: ink };
  }
  for (const scene of Object.keys(layout).filter((name) => /^scene\d*$/.test(name))) {
    for (const key of ["xaxis", "yaxis", "zaxis"]) {
      layout[scene][key] = { ...layout[scene][key], gridcolor: hairline, zerolinecolor: muted, color: muted };
    }
  }
  for (const part of [...(layout.sliders ?? []), ...(layout.updatemenus ?? [])]) {
    Object.assign(part, { bgcolor: tint, bordercolor: muted, font: { ...part.font, color: ink } });
    if (part.steps) Object.assign(part, { activebgcolor: theme.colour("accent"), tickcolor: muted });
  }
  for (const key of ["annotations", "shapes"]) if (layout[key]) layout[key] = repaint(layout[key]);
  return layout;
}

function ensureAxes(layout, data) {
  for (const trace of data) {
    if (!CARTESIAN.has(trace.type)) continue;
    for (const letter of ["x", "y"]) layout[`${letter}axis${(trace[`${letter}axis`] ?? letter).slice(1)}`] ??= {};
  }
}

// A film has a slider over its frames, the first of which is shown, and before it the buttons that play and stop.
function addControls(layout, frames, width) {
  if (!frames?.length) return;
  const still = { mode: "immediate", frame: { duration: 0, redraw: true }, transition: { duration: 0 } };
  const left = Math.min(0.5, 110 / width);
  layout.sliders ??= [{
    y: 0, yanchor: "top", pad: { t: 48 }, ticklen: 3, minorticklen: 2, borderwidth: 1,
    currentvalue: { visible: true, xanchor: "left", prefix: "epoch " },
    steps: frames.map(({ name }) => ({ label: String(name), method: "animate", args: [[String(name)], still] })),
  }];
  Object.assign(layout.sliders[0], { x: left, len: 1 - left });
  const playing = { fromcurrent: true, frame: { duration: 120, redraw: true }, transition: { duration: 0 } };
  layout.updatemenus ??= [{
    type: "buttons", direction: "left", showactive: false, x: 0, y: 0, xanchor: "left", yanchor: "top", pad: { t: 60 },
    buttons: [
      { label: "▶", method: "animate", args: [null, playing] },
      { label: "❚❚", method: "animate", args: [[null], still] },
    ],
  }];
  layout.margin = { ...layout.margin, b: Math.max(layout.margin?.b ?? 0, 130) };
}

function prepareLayout(spec, width) {
  const layout = spec.layout ?? {};
  delete layout.title; // the page has it above the figure
  delete layout.width;
  delete layout.template;
  layout.autosize = true;
  layout.hovermode ??= "closest";
  layout.margin = { t: 28, r: 16, b: 48, l: 60, ...layout.margin };
  layout.uirevision = "kept";
  // Overlays that are added later must not switch the legend on.
  layout.showlegend ??= spec.data.filter((trace) => trace.name && trace.showlegend !== false).length > 1;
  layout.legend ??= { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" };
  if (width < NARROW) layout.margin.l = Math.min(layout.margin.l, 52);
  // On touch screens dragging scrolls the page instead of zooming the figure.
  if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false;
  ensureAxes(layout, spec.data);
  addControls(layout, spec.frames, width);
  return paintLayout(layout);
}

// Browsers limit the number of WebGL contexts and may have none, so that only the largest traces use WebGL.
function needsWebGL(trace) {
  if ((trace.x ?? trace.y ?? []).length < MANY_POINTS) return false;
  return Boolean(make("canvas").getContext("webgl", { failIfMajorPerformanceCaveat: true }));
}

function networksOf(trace) {
  const rows = trace.customdata;
  return rows?.length && rows[0]?.length ? Array.from(rows, (row) => Number(row[0])) : null;
}

// A heat map names its network once; its columns are teacher nodes, or blocks of them.
function whose({ customdata, data, x }) {
  if (customdata || data?.type !== "heatmap") return customdata;
  return [data.meta?.network ?? -1, /^\d+$/.test(x) ? x : -1];
}

const where = (trace) => ({ xaxis: trace.xaxis ?? "x", yaxis: trace.yaxis ?? "y" });
const pick = (values, at) => at.map((i) => values[i]);
const quiet = { hoverinfo: "skip", showlegend: false, meta: { overlay: true } };

function ring(trace, at) {
  const marker = { symbol: "circle-open", size: 15, color: theme.colour("ink"), line: { width: 2 } };
  const [x, y] = [pick(trace.x, at), pick(trace.y, at)];
  return { ...quiet, ...where(trace), type: trace.type, mode: "markers", x, y, marker };
}

// A line in ink on a wider line in paper, which contrasts with any colour below it.
function inkLines(axes, x, y, width, opacity = 1) {
  const line = (color, extra) => ({
    ...quiet, ...axes, type: "scatter", mode: "lines", x, y, opacity, line: { color, width: width + extra },
  });
  return [line(theme.colour("paper"), 3), line(theme.colour("ink"), 0)];
}

// Dim other networks than the marked one; return lines and rings to draw over the trace.
function markTrace(trace, plain, marked) {
  const networks = networksOf(trace);
  Object.assign(trace, { opacity: plain.opacity, selectedpoints: plain.selectedpoints });
  Object.assign(trace, { selected: plain.selected, unselected: plain.unselected });
  if (!marked || !networks || networks.every((network) => network < 0)) return [];
  const at = networks.flatMap((network, i) => (network === marked.network ? [i] : []));
  const lines = (trace.mode ?? "").includes("lines");
  if (lines && networks.every((network) => network === networks[0])) {
    trace.opacity = at.length ? 1 : DIM;
    return [];
  }
  if (!SELECTABLE.has(trace.type)) return [];
  trace.selectedpoints = at;
  trace.selected = { marker: { opacity: 1 } };
  trace.unselected = { marker: { opacity: DIM } };
  if (!trace.type.startsWith("scatter") || trace.type === "scatterpolar") return [];
  const overlays = [];
  if (lines) {
    trace.opacity = DIM;
    overlays.push(...inkLines(where(trace), pick(trace.x, at), pick(trace.y, at), 2));
  }
  const node = at.filter((i) => marked.teacher >= 0 && Number(trace.customdata[i][1]) === marked.teacher);
  if (node.length && !lines) overlays.push(ring(trace, node));
  return overlays;
}

// Curves of the marked network, where a figure shows summaries.
function curvesOf(curves, marked) {
  if (!curves) return [];
  return Array.from(curves.id).flatMap((id, at) => (id === marked.network ? curvesAt(curves, at, marked) : []));
}

function curvesAt(curves, at, marked) {
  const own = (value) => (Array.isArray(value) ? value[at] : value);
  const axes = { xaxis: own(curves.xaxis) ?? "x", yaxis: own(curves.yaxis) ?? "y" };
  const x = Array.from(curves.x[0]?.length ? curves.x[at] : curves.x);
  const y = curves.y[at];
  if (!y[0]?.length) return inkLines(axes, x, Array.from(y), 2.5);
  const faint = marked.teacher < 0 ? 0.8 : 0.35;
  const thin = inkLines(axes, y.flatMap(() => [...x, null]), y.flatMap((line) => [...line, null]), 1, faint);
  return y[marked.teacher] ? [...thin, ...inkLines(axes, x, Array.from(y[marked.teacher]), 2.5)] : thin;
}

// Frame the panels whose heat map shows the marked network; `plain` has the axes as they were drawn.
function frameMaps(layout, data, plain) {
  for (const trace of data.filter((each) => each.meta?.network >= 0)) {
    const on = mark.current?.network === trace.meta.network;
    const frame = { showline: true, mirror: true, linewidth: 3, linecolor: theme.colour("accent") };
    for (const letter of ["x", "y"]) {
      const key = `${letter}axis${(trace[`${letter}axis`] ?? letter).slice(1)}`;
      const { showline = false, mirror = false, linewidth = 1 } = plain[key] ?? {};
      Object.assign(layout[key], on ? frame : { showline, mirror, linewidth });
    }
  }
  return layout;
}

function makeFigure(element) {
  const box = element.querySelector(".plot-box");
  const plot = element.querySelector(".plot");
  const least = plot.style.minWidth;
  let state = "waiting";
  let curves = null;
  let plain = [];
  let axes = {};

  const json = (name) => revive(JSON.parse(element.querySelector(name)?.textContent ?? "null"));

  async function draw() {
    if (state !== "waiting") return;
    state = "drawing";
    try {
      // Do not wait if plotly is loaded: printing does not wait either.
      const Plotly = window.Plotly ?? (await loadPlotly());
      const spec = json(".spec");
      curves = json(".curves");
      rememberColours();
      for (const trace of spec.data) {
        trace.type ??= "scatter";
        if (trace.type === "scattergl" && !needsWebGL(trace)) trace.type = "scatter";
        paintTrace(trace);
      }
      plain = spec.data.map((trace) => ({ ...trace }));
      const layout = prepareLayout(spec, plot.clientWidth);
      axes = structuredClone(Object.fromEntries(Object.entries(layout).filter(([key]) => /^[xy]axis/.test(key))));
      const config = {
        displaylogo: false,
        modeBarButtonsToRemove: BUTTONS_LEFT_OUT,
        toImageButtonOptions: { format: "svg", filename: element.dataset.name },
      };
      await Plotly.newPlot(plot, { data: spec.data, layout, frames: spec.frames ?? [], config });
      listen(Plotly);
      state = "drawn";
      element.dataset.drawn = "yes";
      if (mark.current) update();
    } catch (error) {
      plot.textContent = `This figure could not be drawn: ${error.message}`;
      console.error(error);
    }
  }

  function listen(Plotly) {
    plot.on("plotly_click", ({ points }) => {
      const data = points.map(whose).find((row) => Number(row?.[0]) >= 0);
      if (data) mark.set({ network: Number(data[0]), teacher: Number(data[1] ?? -1) }, element);
    });
    plot.on("plotly_animated", () => { if (mark.current) update(); });
    let width = plot.clientWidth;
    new ResizeObserver(() => {
      if (plot.clientWidth === width || !plot.clientWidth) return;
      width = plot.clientWidth;
      requestAnimationFrame(() => Plotly.Plots.resize(plot));
      reach();
    }).observe(plot);
    reach();
  }

  // A box that scrolls sideways must be reachable by keyboard.
  function reach() {
    if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }

  function update() {
    if (state !== "drawn") return;
    rememberColours();
    const data = plot.data.filter((trace) => !trace.meta?.overlay).map((trace) => paintTrace({ ...trace }));
    // A figure without the marked network stays as it is.
    const present = mark.current && data.some((trace) => networksOf(trace)?.includes(mark.current.network));
    const overlays = data.flatMap((trace, i) => markTrace(trace, plain[i], present ? mark.current : null));
    const own = mark.current ? curvesOf(curves, mark.current) : [];
    if (own.length) for (const trace of data) trace.opacity = (trace.opacity ?? 1) * 0.4;
    window.Plotly.react(plot, [...data, ...overlays, ...own], frameMaps(paintLayout(plot.layout), data, axes));
  }

  function print(on) {
    update();
    Object.assign(plot.style, on ? { width: `${PAPER}px`, minWidth: 0 } : { width: "", minWidth: least });
    if (state === "drawn") window.Plotly.relayout(plot, on ? { width: PAPER } : { width: null, autosize: true });
    else if (on) draw();
  }
  return { element, draw, update, print };
}

// Update visible figures first, one per task, so that a click has an effect at once; a newer call takes over.
function inTurn(figures) {
  let waiting = [];
  let timer = null;
  const away = ({ top, bottom }) => Math.max(0, -bottom, top - innerHeight);
  function next() {
    waiting.shift()?.update();
    timer = waiting.length ? setTimeout(next) : null;
  }
  return () => {
    const distance = new Map(figures.map((figure) => [figure, away(figure.element.getBoundingClientRect())]));
    waiting = [...figures].sort((a, b) => distance.get(a) - distance.get(b));
    timer ??= setTimeout(next);
  };
}

function startFigures() {
  const figures = [...document.querySelectorAll(".figure")].map(makeFigure);
  const near = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      figures.find(({ element }) => element === target).draw();
    }
  }, { rootMargin: "600px 0px" });
  for (const { element } of figures) near.observe(element);
  const updateAll = inTurn(figures);
  theme.listeners.push(updateAll);
  mark.listeners.push(updateAll);
  return { print(on) { for (const figure of figures) figure.print(on); } };
}
