"use strict";
// What the page says in words: the state it shows, findings, the summary and how a run was made.
// Whatever comes from a run is put in as text, never as markup.

const TONES = { good: "Good:", note: "", warn: "Note:", try: "Next:" };
const STATUS_TONES = { converged: "good", max_rounds: "warn", diverged: "warn", quorum_lost: "warn" };
const payload = JSON.parse(document.getElementById("data").textContent);
const state = {
  runs: payload.runs.map(decodeRun), kinds: payload.kinds, training: payload.training, live: payload.live, floor: payload.floor,
  quantity: "gap", axis: "exchange", marks: { hessian: true, refused: true, absent: true },
  series: payload.runs.map(() => true), run: 0, frame: 0, map: "trained", theme: "auto", following: true,
};
const byId = (id) => document.getElementById(id);

function element(tag, text, attributes = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== null && text !== undefined) made.textContent = text;
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  made.append(...children);
  return made;
}

function table(caption, heads, rows, kind = "") {
  const head = element("tr", null, {}, ...heads.map((name) => element("th", name, { scope: "col" })));
  const body = rows.map((cells) => element("tr", null, {}, ...cells.map((cell, i) =>
    i ? element("td", cell) : element("th", cell, { scope: "row" }))));
  return element("table", null, kind ? { class: kind } : {}, element("caption", caption),
    element("thead", null, {}, head), element("tbody", null, {}, ...body));
}

// A coloured square and what it stands for.
function swatch(colour, label) {
  const square = element("span", null, { class: "swatch" });
  square.style.background = colour;
  return [square, document.createTextNode(label)];
}

function badge(status) {
  return element("span", status.replace("_", " "), { class: `badge ${STATUS_TONES[status] || "note"}` });
}

function showFindings() {
  const list = (findings) => element("ul", null, { class: "findings" }, ...findings.map(({ tone, text }) =>
    element("li", null, { class: tone === "note" ? "fact" : tone },
      ...(TONES[tone] ? [element("span", TONES[tone], { class: "tone" })] : []), document.createTextNode(text))));
  const [first] = state.runs;
  byId("findings-body").replaceChildren(...(state.runs.length === 1 ? [list(first.findings)]
    : [list(payload.findings), ...state.runs.flatMap((run) => [element("h3", run.name), list(run.findings)])]));
}

const SUMMARY = [
  ["Method", (run) => run.summary.method || "-"],
  ["Exchanges", (run) => run.summary.exchanges.toLocaleString("en")],
  ["Hessians", (run) => run.summary.hessians.toLocaleString("en")],
  ["Gap", (run) => (run.summary.rounding ? `<=${exponent(state.floor, 0)}` : exponent(run.summary.gap))],
  ["Gradient norm", (run) => exponent(run.summary.grad_norm)],
  ["Objective", (run) => shortest(run.summary.objective)],
  ["Bytes up", (run) => humanBytes(run.summary.bytes_up)],
  ["Bytes down", (run) => humanBytes(run.summary.bytes_down)],
  ["Seconds", (run) => seconds(run.summary.seconds)],
  ["Simulated", (run) => seconds(run.summary.simulated)],
  ["Refused", (run) => run.summary.refused.toLocaleString("en")],
  ["No reply", (run) => run.summary.failed.toLocaleString("en")],
];

function shortest(value) {
  if (value === null) return "-";
  const size = Math.abs(value);
  return size === 0 || (size >= 1e-3 && size < 1e6) ? String(Number(value.toPrecision(8))) : exponent(value, 4);
}

function showSummary() {
  if (state.runs.length === 1) {
    const [run] = state.runs;
    const tiles = [["Status", badge(run.status)], ...SUMMARY.map(([name, of]) => [name, of(run)])];
    byId("summary-body").replaceChildren(element("dl", null, { class: "tiles" }, ...tiles.map(([name, value]) =>
      element("div", null, {}, element("dt", name), typeof value === "string" ? element("dd", value) : element("dd", null, {}, value)))));
    return;
  }
  const hasValues = ([name, of]) => (name === "Method" ? state.runs.some((run) => of(run) !== run.name)
    : name === "Exchanges" || state.runs.some((run) => !["-", "0"].includes(of(run))));
  const used = SUMMARY.filter(hasValues); // columns that have something to say
  const heads = ["Run", "Status", ...used.map(([name]) => name)];
  const made = table("", heads, [], "runs");
  made.querySelectorAll("thead th").forEach((th, i) => { if (i < 2 || th.textContent === "Method") th.className = "text"; });
  made.querySelector("caption").remove();
  made.querySelector("tbody").append(...state.runs.map((run, number) => {
    const cells = used.map(([name, of]) => element("td", of(run), { "data-label": name, ...(name === "Method" ? { class: "text" } : {}) }));
    return element("tr", null, {}, element("th", null, { scope: "row" }, ...swatch(runColour(number), run.name)),
      element("td", null, { "data-label": "Status", class: "text" }, badge(run.status)), ...cells);
  }));
  byId("summary-body").replaceChildren(element("div", null, { class: "wide" }, made));
}

// Made again only where it has changed, and then what was opened stays open: a run that goes on is looked at every second.
function showMade() {
  const several = state.runs.length > 1;
  const notes = state.runs.flatMap((run) => run.notes.map((note) => (several ? `${run.name}: ${note}` : note)));
  byId("foot").textContent = [`Made by danl ${payload.danl}. Workers, regions and exchanges are numbered from 0.`, ...notes].join(" ");
  const now = JSON.stringify(state.runs.map((run) => [run.name, run.sections]));
  if (now === state.made) return;
  state.made = now;
  const before = new Map([...byId("made").querySelectorAll("details")].map((part) => [part.firstChild.textContent, part.open]));
  byId("made").replaceChildren(...state.runs.flatMap((run) => {
    const parts = run.sections.map(({ title, lines }) => {
      const rows = lines.map(([name, value]) => element("tr", null, {},
        ...(name ? [element("th", name, { scope: "row" }), element("td", value)] : [element("td", value, { colspan: "2" })])));
      const opened = before.get(title) ?? (title === "Data" || title === "Versions");
      const open = opened ? { open: "" } : {};
      return element("details", null, open, element("summary", title),
        element("table", null, { class: "made" }, element("tbody", null, {}, ...rows)));
    });
    if (!parts.length) parts.push(element("p", "There is no config.json: how the run was made is not known.", { class: "note" }));
    return several ? [element("details", null, {}, element("summary", run.name), ...parts)] : parts;
  }));
}
