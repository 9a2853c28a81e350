"use strict";
// The figures. Each is drawn from the page's state; colours are those of the style sheet, so that themes change both.

const QUANTITIES = { gap: "gap f(w) - f(w*)", grad_norm: "gradient norm |grad f(w)|", objective: "objective f(w)" };
const AXES = {
  exchange: "exchange (0 is Phase I)", bytes: "bytes up and down", seconds: "seconds", simulated: "simulated seconds",
};
const MARKS = {
  hessian: { label: "Hessian exchanges", sign: "\u25a1", symbol: "square-open", size: 9 },
  refused: { label: "refused steps", sign: "\u2715", symbol: "x-thin", size: 10 },
  absent: { label: "absences", sign: "\u25bd", symbol: "triangle-down-open", size: 11 },
};
const DASHES = ["solid", "8px,4px", "8px,3px,2px,3px", "2px,3px", "14px,4px"];
const RUN_COLOURS = 7;
const MOST_MARKS = 80; // more of one kind hide the curve; fewer where there is less room
const MOST_COLUMNS = 600; // more than that, and neighbours share pixels
const MOST_BARS = 200;
const PAPER = 670; // pixels between the margins of A4 and of letter paper
const CONFIG = { responsive: true, displayModeBar: false, scrollZoom: false, doubleClick: "reset" };

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function runColour(number) {
  return colour(`run${number % RUN_COLOURS}`);
}

// plotly reads some markup in labels; a name is not to be read so.
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// As wide as there is room; on paper as wide as a page, which no figure is told of.
function sized() {
  return document.documentElement.classList.contains("printing") ? { autosize: false, width: PAPER } : { autosize: true };
}

function layoutOf(x, y, more = {}) {
  const axis = { gridcolor: colour("line"), linecolor: colour("line"), zeroline: false, automargin: true, color: colour("soft") };
  const titled = (title) => ({ text: title, font: { size: 13 }, standoff: 8 });
  return {
    paper_bgcolor: colour("back"), plot_bgcolor: colour("back"), showlegend: false, hovermode: "closest",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("ink") },
    margin: { l: 56, r: 14, t: 10, b: 46 }, ...sized(),
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
    ...more,
    xaxis: { ...axis, ...x, title: titled(x.title) },
    yaxis: { ...axis, ...y, title: titled(y.title) },
  };
}

function marked(rows, mark, i) {
  if (mark === "hessian") return state.kinds[rows.kind[i]] === "hessian";
  return mark === "refused" ? rows.refused[i] === 1 : rows.failed[i] > 0;
}

function curve(run, quantity, axis) {
  const x = [], y = [], at = [];
  const rows = run.rows;
  for (let i = 0; i < rows.exchange.length; i++) {
    const value = rows[quantity][i], place = rows[axis][i];
    if (!Number.isFinite(place)) continue;
    x.push(place);
    y.push(Number.isFinite(value) ? value : null);
    at.push(i);
  }
  return { x, y, at };
}

function logarithmic(quantity, curves) {
  if (quantity !== "objective") return true;
  let least = Infinity, most = -Infinity;
  for (const { y } of curves) for (const value of y) if (value !== null) { least = Math.min(least, value); most = Math.max(most, value); }
  return least > 0 && most > 1000 * least;
}

function drawProgress(state) {
  const { quantity, axis, marks } = state;
  const shown = state.runs.map((run, number) => ({ run, number })).filter(({ number }) => state.series[number]);
  const curves = shown.map(({ run }) => curve(run, quantity, axis));
  const log = logarithmic(quantity, curves);
  const floor = quantity === "objective" ? -Infinity : state.floor; // danl.wording.FLOOR: what is at or below it is rounding
  const notes = [];
  let low = 0;
  const traces = [];
  shown.forEach(({ run, number }, k) => {
    const { x, y, at } = curves[k];
    const drawn = y.map((value) => (value !== null && value <= floor ? (low++, floor) : value));
    const line = { color: runColour(number), width: 2, dash: DASHES[number % DASHES.length] };
    const name = state.runs.length > 1 ? `${plain(run.name)}<br>` : "";
    const text = at.map((i) => `${name}exchange ${run.rows.exchange[i]}, ${state.kinds[run.rows.kind[i]] || "other"}<br>` +
      `${quantity.replace("_", " ")} ${exponent(run.rows[quantity][i], 3)}`);
    traces.push({ type: "scatter", mode: x.length < 60 ? "lines+markers" : "lines", x, y: drawn, text, line,
      marker: { size: 4, color: line.color }, hovertemplate: "%{text}<extra></extra>", connectgaps: false, cliponaxis: false });
    for (const mark in MARKS) {
      if (!marks[mark]) continue;
      let places = at.map((_, j) => j).filter((j) => marked(run.rows, mark, at[j]) && drawn[j] !== null);
      const most = Math.min(MOST_MARKS, Math.round(innerWidth / 16));
      if (places.length > most) {
        notes.push(`${name ? `${run.name}: ` : ""}${most} of ${places.length.toLocaleString("en")} ${MARKS[mark].label} are marked.`);
        places = spaced(places.length, most).map((j) => places[j]);
      }
      traces.push({ type: "scatter", mode: "markers", x: places.map((j) => x[j]), y: places.map((j) => drawn[j]),
        text: places.map((j) => text[j]), cliponaxis: false, hovertemplate: `%{text}<br>${MARKS[mark].label}<extra></extra>`,
        marker: { symbol: MARKS[mark].symbol, size: MARKS[mark].size, color: line.color, line: { width: 2, color: line.color } } });
    }
  });
  if (low) notes.push(`${low} value${low === 1 ? "" : "s"} of ${exponent(floor, 0)} or less (rounding) ${low === 1 ? "is" : "are"} drawn there.`);
  const missing = shown.filter((_, k) => !curves[k].y.some((value) => value !== null)).map(({ run }) => run.name);
  if (missing.length) notes.push(`Not known for ${missing.join(", ")}${quantity === "gap" ? " (run with --reference)" : ""}.`);
  if (!shown.length) notes.push("No run is chosen.");
  const ends = curves.map(({ x }) => x[x.length - 1] || 0).filter((end) => end > 0);
  const wide = axis !== "exchange" && ends.length > 1 && Math.max(...ends) > 20 * Math.min(...ends);
  const x = { title: AXES[axis], type: wide ? "log" : "linear" };
  const end = Math.max(0, ...ends);
  if (!wide && end) x.range = [-0.015 * end, 1.015 * end]; // room for the marks at both ends
  if (axis === "exchange" && end <= 12) Object.assign(x, whole(end, 12));
  if (axis === "bytes") Object.assign(x, { tickformat: "~s", ticksuffix: "B" });
  const y = { title: QUANTITIES[quantity], type: log ? "log" : "linear", exponentformat: "power", nticks: 8 };
  Plotly.react("progress", traces, layoutOf(x, y), CONFIG);
  return notes;
}

// Coverage by region and column; a column is one exchange, or the mean of so many where there are too many to see.
function coverageOf(run, training) {
  const { rows, regions } = run, count = rows.exchange.length;
  const step = Math.ceil(count / MOST_COLUMNS), x = [], z = Array.from({ length: regions }, () => []);
  let most = 1;
  for (let from = 0; from < count; from += step) {
    const places = [];
    for (let i = from; i < Math.min(from + step, count); i++) if (training.includes(rows.kind[i])) places.push(i);
    x.push(rows.exchange[from]);
    for (let q = 0; q < regions; q++) {
      const total = places.reduce((sum, i) => sum + rows.coverage[i * regions + q], 0);
      z[q].push(places.length ? total / places.length : null);
    }
  }
  for (const value of rows.coverage) most = Math.max(most, value);
  return { x, z, most, step };
}

function drawCoverage(run, state) {
  const regions = run.regions, { x: places, z, most, step } = coverageOf(run, state.training);
  const trace = { type: "heatmap", z, x: places, zmin: 0, zmax: most, showscale: false,
    colorscale: [[0, colour("low")], [1, colour("high")]], hoverongaps: false,
    xgap: places.length <= 60 ? 1 : 0, ygap: 1,
    hovertemplate: `exchange %{x}, region %{y}: ${step > 1 ? "%{z:.1f} workers on average" : "%{z} workers"}<extra></extra>` };
  const y = { title: "region", autorange: "reversed", ...whole(regions, 16), showgrid: false };
  const x = { title: AXES.exchange, showgrid: false, ...(places.length <= 12 ? whole(places.length, 12) : {}) };
  const shapes = [];
  if (run.masks) {
    const at = run.masks.exchange[state.frame];
    shapes.push({ type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 1, line: { color: colour("silent"), width: 2 } });
  }
  fit("coverage", regions, 18, 110, 420);
  Plotly.react("coverage", [trace], layoutOf(x, y, { shapes }), CONFIG);
  return { most, step };
}

// Ticks at whole numbers, every one where there is room.
function whole(count, room) {
  return { tickmode: "linear", tick0: 0, dtick: Math.max(1, Math.ceil(count / room)) };
}

function fit(id, rows, each, least, most) {
  document.getElementById(id).style.height = `${Math.min(most, Math.max(least, rows * each + 66))}px`;
}

function drawWho(run, state, values, top) {
  const masks = run.masks;
  const stale = state.map === "staleness";
  const steps = ["unasked", "idle", "trained", "silent"].map(colour);
  const scale = stale ? [[0, colour("low")], [1, colour("high")]]
    : steps.flatMap((name, i) => [[i / 4, name], [(i + 1) / 4, name]]);
  const trace = { type: "heatmap", z: grid(values, masks), zmin: 0, zmax: stale ? top : 3, colorscale: scale, showscale: false,
    xgap: 1, ygap: masks.workers <= 60 ? 1 : 0,
    text: grid(values.map((value) => cellLabel(value, stale)), masks),
    hovertemplate: "worker %{y}, region %{x}: %{text}<extra></extra>" };
  fit("who-map", masks.workers, 20, 150, 640);
  const x = { title: "region", ...whole(masks.regions, innerWidth < 640 ? 8 : 32), showgrid: false };
  const y = { title: "worker", autorange: "reversed", ...whole(masks.workers, 25), showgrid: false };
  Plotly.react("who-map", [trace], layoutOf(x, y), CONFIG);
}

function cellLabel(value, stale) {
  if (stale) return value === 0 ? "trained in the newest round" : `untrained for ${value} round${value === 1 ? "" : "s"}`;
  return ["not asked", "answered without it", "trained", "did not answer"][value];
}

// The workers that are drawn: all, or those with the most of something.
function drawnWorkers(costs) {
  const all = costs.map((_, i) => i);
  if (all.length <= MOST_BARS) return all;
  return all.sort((a, b) => costs[b] - costs[a]).slice(0, MOST_BARS).sort((a, b) => a - b);
}

function drawBars(id, costs, series, y) {
  const who = drawnWorkers(costs), all = who.length === costs.length, places = all ? who : who.map(String);
  const room = innerWidth < 640 ? 10 : 20;
  const x = { title: "worker", showgrid: false, tickangle: 0, ...(all ? whole(who.length, room) : { type: "category", nticks: 6 }) };
  const bars = series.map(({ values, name, label }) => ({ type: "bar", x: places, y: who.map((i) => values[i]),
    marker: { color: colour(name) }, hovertemplate: `worker %{x}: %{y:,} ${label}<extra></extra>` }));
  Plotly.react(id, bars, layoutOf(x, y, { barmode: "stack", bargap: 0.15 }), CONFIG);
}

function drawWorkers({ up, down, seconds: taken }) {
  drawBars("workers-bytes", up.map((count, i) => count + down[i]), [{ values: up, name: "trained", label: "bytes up" },
    { values: down, name: "silent", label: "bytes down" }], { title: "bytes", tickformat: "~s", ticksuffix: "B" });
  if (taken) drawBars("workers-seconds", taken, [{ values: taken, name: "run2", label: "s" }], { title: "simulated seconds" });
}
