"use strict";
// The page around the figures: their notes, controls, colours; while a run is served, new rows as they come.

const POLL_MILLISECONDS = 1000;

// --- figures with their notes and tables ---

function showProgress() {
  byId("progress-note").textContent = drawProgress(state).join(" ");
  showLegend();
  byId("progress").setAttribute("aria-label", `${QUANTITIES[state.quantity]} against ${AXES[state.axis]}; the numbers are in the table below`);
  refill("progress-table");
}

// What the lines and marks are, for paper, where the controls are not.
function showLegend() {
  const lines = state.runs.length > 1 ? state.runs.map((run, number) => [run, number]).filter(([, number]) => state.series[number]) : [];
  const marks = Object.keys(MARKS).filter((mark) => state.marks[mark]);
  byId("progress-legend").replaceChildren(
    ...lines.map(([run, number]) => element("span", null, {}, lineSample(number), document.createTextNode(` ${run.name}`))),
    ...marks.map((mark) => element("span", `${MARKS[mark].sign} ${MARKS[mark].label}`)));
}

function showCoverage() {
  const run = state.runs[state.run];
  byId("coverage-part").hidden = !run.rows.exchange.length; // before it is drawn: what is hidden has no size
  if (!run.rows.exchange.length) {
    Plotly.purge("coverage");
    return;
  }
  const { most, step } = drawCoverage(run, state);
  byId("coverage").setAttribute("aria-label", "Workers that trained each region, by exchange; the numbers are in the table below");
  byId("coverage-scale").replaceChildren(element("span", null, {}, document.createTextNode("0 workers"),
    element("span", null, { class: "ramp" }), document.createTextNode(String(most))),
    ...(step > 1 ? [element("span", `A column is the mean of ${step} exchanges.`)] : []));
  refill("coverage-table");
}

function showWho() {
  const run = state.runs[state.run], masks = run.masks;
  const whose = state.runs.length > 1 ? `: ${run.name}` : "";
  byId("who-head").textContent = `Who trained what${whose}`;
  byId("workers-head").textContent = `Workers${whose}`;
  const nothing = run.rows.exchange.length || state.live ? run.no_masks : "No exchange was made: there is nothing to show.";
  byId("no-masks").textContent = nothing;
  byId("no-masks").hidden = !nothing;
  const has = Boolean(masks && masks.exchange.length);
  byId("who").hidden = !has;
  if (!has) return;
  const slider = byId("exchange");
  slider.max = masks.exchange.length - 1;
  state.frame = Math.min(state.frame, masks.exchange.length - 1);
  slider.value = state.frame;
  const stale = stalenessAt(masks, state.frame, state.training), states = statesAt(masks, state.frame, state.training);
  const number = masks.exchange[state.frame], kind = state.kinds[masks.kind[state.frame]] || "other";
  const last = masks.exchange[masks.exchange.length - 1];
  const trained = states.filter((value) => value === 2).length;
  let silent = 0;
  for (let worker = 0; worker < masks.workers; worker++) silent += askedAt(masks, state.frame, worker) === 2;
  const oldest = stale.reduce((most, value) => Math.max(most, value), 0);
  byId("exchange-number").textContent = `${number} of ${last} (${kind})`;
  slider.setAttribute("aria-valuetext", `exchange ${number} of ${last}, ${kind}`);
  byId("who-value").textContent = `Exchange ${number}, ${kind}: ${trained} of ${masks.pairs} pairs of worker and region trained` +
    `${silent ? `, ${silent} worker${silent === 1 ? "" : "s"} did not answer` : ""}; ` +
    `the longest wait is ${oldest} round${oldest === 1 ? "" : "s"}${run.since ? `, counted from exchange ${run.since} on` : ""}.`;
  const top = Math.max(1, run.summary.max_staleness || 0, oldest);
  drawWho(run, state, state.map === "staleness" ? stale : states, top);
  byId("who-map").setAttribute("aria-label", `Workers and regions in exchange ${number}; the numbers are in the table below`);
  byId("who-scale").replaceChildren(...(state.map === "staleness"
    ? [element("span", null, {}, document.createTextNode("rounds untrained: 0"), element("span", null, { class: "ramp" }), document.createTextNode(String(top)))]
    : [["trained", 2], ["idle", 1], ["silent", 3], ["unasked", 0]].map(([name, value]) => element("span", null, {}, ...swatch(`var(--${name})`, cellLabel(value, false))))));
  refill("who-table");
}

function showWorkers() {
  const run = state.runs[state.run];
  byId("workers").hidden = !run.workers || !run.workers.up.length;
  if (byId("workers").hidden) return;
  byId("workers-time").hidden = !run.workers.seconds;
  drawWorkers(run.workers);
  const count = run.workers.up.length, drawn = Math.min(count, MOST_BARS);
  byId("workers-note").textContent = [
    run.since ? `What each worker did is known from exchange ${run.since} on: these are sums since then.` : "",
    count > drawn ? `Of ${count.toLocaleString("en")} workers the ${drawn} with the most are drawn.` : "",
    run.workers.seconds ? "" : "There are no simulated seconds: the run had no profiles of its machines.",
  ].filter(Boolean).join(" ");
  byId("workers-bytes").setAttribute("aria-label", "Bytes of each worker; the numbers are in the table below");
  byId("workers-seconds").setAttribute("aria-label", "Simulated seconds of each worker; the numbers are in the table below");
  byId("bytes-scale").replaceChildren(...[["trained", "up"], ["silent", "down"]].map(([name, label]) => element("span", null, {}, ...swatch(`var(--${name})`, label))));
  refill("workers-table");
}

function showAll() {
  byId("title").textContent = payload.title;
  showFindings();
  showSummary();
  showMade();
  showFigures();
}

function showFigures() {
  showProgress();
  showModel();
  showWho();
  showCoverage();
  showWorkers();
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
}

// --- controls ---

function choices(id, kind, options, chosen, change) {
  byId(id).append(...options.map(({ value, label, sign, disabled }) => {
    const input = element("input", null, { type: kind, name: kind === "radio" ? id : `${id}-${value}`, value });
    input.checked = chosen(value);
    input.disabled = Boolean(disabled);
    input.addEventListener("change", () => change(value, input.checked));
    const made = element("label", null, disabled ? { class: "off" } : {}, input);
    if (sign) made.append(sign);
    made.append(document.createTextNode(label));
    return made;
  }));
}

// A piece of a run's line, as the figure has it.
function lineSample(number) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const dash = DASHES[number % DASHES.length];
  for (const [name, value] of Object.entries({ width: 34, height: 10, "aria-hidden": "true" })) svg.setAttribute(name, value);
  for (const [name, value] of Object.entries({ x1: 1, x2: 33, y1: 5, y2: 5, "stroke-width": 2.5 })) line.setAttribute(name, value);
  if (dash !== "solid") line.setAttribute("stroke-dasharray", dash);
  line.style.stroke = `var(--run${number % RUN_COLOURS})`;
  svg.append(line);
  return svg;
}

function known(column) {
  return state.runs.some((run) => run.rows[column].some(Number.isFinite));
}

function makeControls() {
  if (!known("gap")) state.quantity = "grad_norm";
  if (state.quantity === "grad_norm" && !known("grad_norm") && !state.live) state.quantity = "objective";
  choices("quantity", "radio", [{ value: "gap", label: "gap", disabled: !known("gap") && !state.live }, { value: "grad_norm", label: "gradient norm" },
    { value: "objective", label: "objective" }], (value) => value === state.quantity, (value) => { state.quantity = value; state.chosen = true; showProgress(); });
  choices("axis", "radio", [{ value: "exchange", label: "exchanges" }, { value: "bytes", label: "bytes" }, { value: "seconds", label: "seconds" },
    { value: "simulated", label: "simulated seconds", disabled: !known("simulated") && !state.live }],
  (value) => value === state.axis, (value) => { state.axis = value; showProgress(); });
  choices("marks", "checkbox", Object.keys(MARKS).map((value) => ({ value, label: `${MARKS[value].sign} ${MARKS[value].label}` })),
    (value) => state.marks[value], (value, on) => { state.marks[value] = on; showProgress(); });
  choices("map", "radio", [{ value: "trained", label: "who trained" }, { value: "staleness", label: "staleness" }],
    (value) => value === state.map, (value) => { state.map = value; showWho(); });
  if (state.runs.length > 1) {
    byId("progress-head").closest("section").after(byId("summary").closest("section")); // the table is what one looks for
    byId("series").hidden = byId("run-choice").hidden = false;
    choices("series", "checkbox", state.runs.map((run, number) => {
      return { value: String(number), label: run.name, sign: lineSample(number) };
    }), () => true, (value, on) => { state.series[Number(value)] = on; showProgress(); });
    byId("run").append(...state.runs.map((run, number) => element("option", run.name, { value: String(number) })));
    byId("run").addEventListener("change", () => { state.run = Number(byId("run").value); state.frame = 0; showFigures(); });
  }
  let waiting = false;
  byId("exchange").addEventListener("input", () => {
    state.frame = Number(byId("exchange").value);
    state.following = state.frame === Number(byId("exchange").max);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; showWho(); moveLine(); });
  });
  for (const id in TABLES) byId(id).addEventListener("toggle", () => refill(id));
  byId("theme").addEventListener("change", () => { state.theme = byId("theme").value; setTheme(); showSummary(); showFigures(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (state.theme === "auto") { setTheme(); showSummary(); showFigures(); } });
  let closed = []; // what is opened for paper and closed again
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
    document.documentElement.classList.add("printing");
    closed = state.runs.length > 1 ? [...document.querySelectorAll("#made > details:not([open])")] : [];
    for (const part of closed) part.open = true;
    showSummary();
    showFigures();
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    for (const part of closed) part.open = false;
    setTheme();
    showSummary();
    showFigures();
  });
}

// The line of the chosen exchange on the coverage, without drawing that again.
function moveLine() {
  const at = state.runs[state.run].masks.exchange[state.frame];
  if (state.runs[state.run].rows.exchange.length) Plotly.relayout("coverage", { "shapes[0].x0": at, "shapes[0].x1": at });
}

function setTheme() {
  const dark = state.theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : state.theme === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

// --- a run that is going on ---

async function follow() {
  const rows = state.runs[0].rows.exchange.length;
  let more;
  try {
    const answer = await fetch(`rows?after=${rows}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    more = await answer.json();
  } catch {
    say("The command that served this page has ended; what is shown stays.");
    return;
  }
  if (more.run.rows.exchange || more.run.status !== state.runs[0].status) {
    const at = state.runs[0].masks && state.runs[0].masks.exchange[state.frame];
    state.runs[0] = extendRun(state.runs[0], more.run);
    const masks = state.runs[0].masks;
    if (masks) state.frame = state.following ? masks.exchange.length - 1 : Math.max(0, masks.exchange.indexOf(at));
    if (!state.chosen && state.quantity !== "gap" && known("gap")) {
      state.quantity = "gap";
      document.querySelector("#quantity input[value=gap]").checked = true;
    }
    showAll();
  }
  say(more.done && !more.more ? `The run has ended: ${more.run.status.replace("_", " ")}.` : `Running: ${state.runs[0].rows.exchange.length} exchanges so far.`);
  if (!more.done || more.more) setTimeout(follow, more.more ? 0 : POLL_MILLISECONDS);
}

function say(text) {
  if (byId("live").textContent !== text) byId("live").textContent = text;
  byId("live").hidden = false;
}

setTheme();
makeControls();
if (!state.live) {
  const masks = state.runs[0].masks;
  const round = masks ? masks.kind.indexOf(state.kinds.indexOf("gradient")) : 0; // the first one that has masks
  state.frame = Math.max(round, 0);
}
showAll();
if (state.live) follow();
