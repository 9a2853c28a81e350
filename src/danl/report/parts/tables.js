"use strict";
// The tables of the numbers in the figures.

const MOST_TABLE_ROWS = 500;

const TABLES = {
  "progress-table": () => {
    const several = state.runs.length > 1;
    const heads = ["Exchange", "Kind", "Gap", "Gradient norm", "Objective", "Bytes", "Seconds", "Simulated", "Answered", "No reply", "Refused"];
    return state.runs.filter((_, number) => state.series[number]).map(({ name, rows }) => {
      const told = rows.why.some((reason) => reason !== "");
      const places = spaced(rows.exchange.length, MOST_TABLE_ROWS);
      const lines = places.map((i) => [rows.exchange[i], state.kinds[rows.kind[i]] || "other", exponent(rows.gap[i], 3),
        exponent(rows.grad_norm[i], 3), Number.isFinite(rows.objective[i]) ? rows.objective[i].toPrecision(10) : "-",
        rows.bytes[i].toLocaleString("en"), rows.seconds[i].toPrecision(4),
        Number.isFinite(rows.simulated[i]) ? rows.simulated[i].toPrecision(4) : "-", rows.active[i], rows.failed[i], rows.refused[i],
        ...(told ? [rows.senders[i] || "", rows.why[i]] : [])]);
      return table(captioned(several ? `${name}. Bytes and seconds are sums up to the exchange.` : "Bytes and seconds are sums up to the exchange.",
        places.length, rows.exchange.length, "exchanges"), told ? [...heads, "Senders", "Why"] : heads, lines);
    });
  },
  "coverage-table": () => {
    const { rows, regions } = state.runs[state.run];
    const places = spaced(rows.exchange.length, MOST_TABLE_ROWS);
    const heads = ["Exchange", "Kind", ...Array.from({ length: regions }, (_, q) => `Region ${q}`)];
    const lines = places.map((i) => [rows.exchange[i], state.kinds[rows.kind[i]] || "other",
      ...rows.coverage.subarray(i * regions, (i + 1) * regions)]);
    return [table(captioned("Workers that trained each region.", places.length, rows.exchange.length, "exchanges"), heads, lines)];
  },
  "who-table": () => {
    const { masks, since } = state.runs[state.run];
    if (!masks) return [];
    const stale = stalenessAt(masks, state.frame, state.training), states = statesAt(masks, state.frame, state.training);
    const signs = ["not asked", "-", "trained", "no answer"];
    const places = spaced(masks.workers, MOST_TABLE_ROWS);
    const heads = ["Worker", ...Array.from({ length: masks.regions }, (_, q) => `Region ${q}`)];
    const lines = places.map((worker) => [worker, ...Array.from({ length: masks.regions }, (_, q) => {
      const pair = worker * masks.regions + q;
      return state.map === "staleness" ? stale[pair] : signs[states[pair]];
    })]);
    const what = state.map === "staleness" ? `Rounds each region went untrained${since ? `, counted from exchange ${since} on` : ""}` : "What each worker did";
    return [table(captioned(`${what}, exchange ${masks.exchange[state.frame]}.`, places.length, masks.workers, "workers"), heads, lines)];
  },
  "workers-table": () => {
    const { workers, since } = state.runs[state.run];
    if (!workers) return [];
    const timed = workers.seconds ? ["Simulated seconds", "Among the slowest in"] : [];
    const places = spaced(workers.up.length, MOST_TABLE_ROWS);
    const lines = places.map((i) => [i, workers.up[i].toLocaleString("en"), workers.down[i].toLocaleString("en"),
      workers.asked[i], workers.silent[i], ...(workers.seconds ? [seconds(workers.seconds[i]), workers.slowest[i]] : [])]);
    return [table(captioned(since ? `Sums since exchange ${since}.` : "Sums over the run.", places.length, workers.up.length, "workers"),
      ["Worker", "Bytes up", "Bytes down", "Asked", "No reply", ...timed], lines)];
  },
};

function captioned(text, shown, all, what) {
  return shown < all ? `${text} ${shown} of ${all.toLocaleString("en")} ${what}, evenly spaced.` : text;
}

// A table is made when it is opened, and again when what it shows has changed.
function refill(id) {
  const details = byId(id);
  if (details.open) details.querySelector(".scroll").replaceChildren(...TABLES[id]());
}
