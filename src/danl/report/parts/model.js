"use strict";
// The fitted model, where a run was made with --summary: coefficients as a table, a forest plot of them, sites, the fit.

const MODEL_HEADS = { coef: "Coefficient", std_err: "Std error", p_value: "p", interval: "interval" };

function rounded(value, digits = 4) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  return size === 0 || (size >= 1e-3 && size < 1e5) ? value.toFixed(digits) : exponent(value, 3);
}

function percentOf(level) {
  return `${Number((100 * level).toPrecision(3))}%`;
}

// Near 1 with the digits that say on which side a ratio is, and how far.
function ratioText(value) {
  const apart = value === null || value === undefined ? 0 : Math.abs(value - 1);
  return apart > 0 && apart < 1e-3 ? value.toFixed(Math.min(2 - Math.floor(Math.log10(apart)), 12)) : rounded(value);
}

function interval(line, low, high, text = rounded) {
  return line[low] === null || line[high] === null ? "-" : `${text(line[low])} to ${text(line[high])}`;
}

function showModel() {
  const run = state.runs[state.run], model = run.model;
  byId("model").hidden = !model;
  if (!model) return;
  byId("model-head").textContent = `Model${state.runs.length > 1 ? `: ${run.name}` : ""}`;
  byId("model-title").textContent = model.title;
  byId("model-numbers").replaceChildren(element("dl", null, { class: "tiles" }, ...model.numbers.map(([name, value]) =>
    element("div", null, {}, element("dt", name), element("dd", value)))));
  byId("model-notes").replaceChildren(...model.notes.map((note) => element("p", note, { class: "note" })));
  byId("model-coefficients").replaceChildren(coefficientTable(model));
  byId("model-sites").replaceChildren(table("Records of each site.", model.sites.heads, model.sites.lines));
  drawForest(model);
  const what = model.ratio ? `${model.ratio}s` : "coefficients";
  byId("forest").setAttribute("aria-label", `Forest plot: ${what} with ${percentOf(model.level)} intervals; the numbers are in the table`);
}

function coefficientTable(model) {
  const percent = percentOf(model.level);
  const ratio = model.ratio ? [capital(model.ratio), `${percent} interval`] : [];
  const heads = ["", MODEL_HEADS.coef, MODEL_HEADS.std_err, model.statistic, MODEL_HEADS.p_value, `${percent} interval`, ...ratio];
  const lines = model.coefficients.map((line) => [line.name, rounded(line.coef), rounded(line.std_err), rounded(line.z, 2),
    line.p_value === null ? "-" : line.p_value < 0.001 ? "<0.001" : line.p_value.toFixed(3), interval(line, "ci_low", "ci_high"),
    ...(model.ratio ? [ratioText(line.ratio), interval(line, "ratio_low", "ratio_high", ratioText)] : [])]);
  return table("Coefficients.", heads, lines);
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// A logarithmic axis with the numbers written out; so few that Plotly never takes every digit, whose labels it moves aside.
function ratioTicks(values) {
  const room = innerWidth < 640 ? 4 : 8, decades = Math.log10(Math.max(...values) / Math.min(...values));
  return { type: "log", dtick: undefined, tickformat: "~g", nticks: decades < 0.8 ? room : Math.min(room, Math.floor(decades / 0.3)) };
}

// Estimates with their intervals, one below the other; ratios on a logarithmic axis, about 1.
function drawForest(model) {
  const [middle, low, high] = model.ratio ? ["ratio", "ratio_low", "ratio_high"] : ["coef", "ci_low", "ci_high"];
  const fits = (value) => Number.isFinite(value) && (!model.ratio || value > 0);
  const shown = model.coefficients.filter((line) => line.name !== "(intercept)" && fits(line[middle]) && fits(line[low]) && fits(line[high]));
  byId("forest").hidden = !shown.length;
  if (!shown.length) return;
  const label = (name) => (name.length > model.longest ? `${name.slice(0, model.longest - 1)}\u2026` : name);
  const y = shown.map((_, place) => place);
  const trace = { type: "scatter", mode: "markers", x: shown.map((line) => line[middle]), y,
    marker: { size: 9, symbol: "square", color: colour("trained") },
    error_x: { type: "data", symmetric: false, array: shown.map((line) => line[high] - line[middle]),
      arrayminus: shown.map((line) => line[middle] - line[low]), color: colour("trained"), thickness: 2, width: 5 },
    text: shown.map((line) => `${plain(line.name)}<br>${rounded(line[middle])} (${interval(line, low, high)})`),
    hovertemplate: "%{text}<extra></extra>", cliponaxis: false };
  const none = model.ratio ? 1 : 0;
  const shapes = [{ type: "line", xref: "x", yref: "paper", x0: none, x1: none, y0: 0, y1: 1, line: { color: colour("soft"), width: 1.5, dash: "4px,4px" } }];
  const percent = percentOf(model.level);
  const x = { title: `${model.ratio || "coefficient"}, ${percent} interval`, ...(model.ratio ? ratioTicks(shown.flatMap((line) => [1, line[low], line[high]])) : {}) };
  const axis = { title: "", tickmode: "array", tickvals: y, ticktext: shown.map((line) => plain(label(line.name))), range: [shown.length - 0.4, -0.6], showgrid: false };
  fit("forest", shown.length, 30, 130, 2000);
  Plotly.react("forest", [trace], layoutOf(x, axis, { shapes }), CONFIG);
}
