"use strict";
// What the page is made of: numbers decoded from the text in the page, and what is counted from them.
// src/danl/report/encode.py writes what is read here.

const COLUMNS = {
  exchange: Int32Array, kind: Uint8Array, gap: Float64Array, grad_norm: Float64Array, objective: Float64Array,
  bytes: Float64Array, seconds: Float64Array, simulated: Float64Array, active: Int32Array, failed: Int32Array,
  refused: Uint8Array, senders: Int32Array, coverage: Int32Array,
};

function numbers(text, Kind) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}

function joined(first, second) {
  const all = new first.constructor(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}

function decodeRun(sent) {
  const rows = {};
  for (const name in COLUMNS) rows[name] = numbers(sent.rows[name], COLUMNS[name]);
  rows.why = Array.from(numbers(sent.rows.why.which, Uint16Array), (place) => sent.rows.why.texts[place]);
  return { ...sent, rows, masks: sent.masks && decodeMasks(sent.masks) };
}

function decodeMasks(sent) {
  const pairs = sent.workers * sent.regions;
  return {
    workers: sent.workers, regions: sent.regions, most: sent.most || Infinity, pairs, bits: Math.ceil(pairs / 8), quads: Math.ceil(sent.workers / 4),
    exchange: numbers(sent.exchange, Int32Array), kind: numbers(sent.kind, Uint8Array),
    asked: numbers(sent.asked, Uint8Array),
    trained: sent.trained === undefined ? null : numbers(sent.trained, Uint8Array),
    staleness: sent.staleness === undefined ? null : numbers(sent.staleness, Uint16Array),
  };
}

// The rows and exchanges that came since, put behind those that are there.
function extendRun(run, more) {
  const next = decodeRun(more);
  for (const name in COLUMNS) next.rows[name] = joined(run.rows[name], next.rows[name]);
  next.rows.why = run.rows.why.concat(next.rows.why);
  next.masks = extendMasks(run.masks, next.masks);
  return next;
}

// Masks one behind the other, the newest of them where there are too many; anew where some between are not there.
function extendMasks(masks, next) {
  if (!masks || !next) return next || masks;
  if (next.exchange[0] !== masks.exchange[masks.exchange.length - 1] + 1) return next;
  const over = Math.max(0, masks.exchange.length + next.exchange.length - next.most);
  const sizes = { exchange: 1, kind: 1, asked: next.quads, trained: next.bits };
  for (const name in sizes) next[name] = joined(masks[name], next[name]).slice(over * sizes[name]);
  return next;
}

// 0 not asked, 1 answered, 2 did not answer
function askedAt(masks, frame, worker) {
  return (masks.asked[frame * masks.quads + (worker >> 2)] >> (2 * (worker & 3))) & 3;
}

function bitAt(masks, frame, pair) {
  return (masks.trained[frame * masks.bits + (pair >> 3)] >> (7 - (pair & 7))) & 1;
}

// Rounds that each (worker, region) went untrained up to this frame; 0 where it was trained in the newest round.
function stalenessAt(masks, frame, training) {
  if (masks.staleness) return Array.from(masks.staleness.subarray(frame * masks.pairs, (frame + 1) * masks.pairs));
  const stale = new Array(masks.pairs).fill(0);
  let waiting = Array.from(stale.keys());
  let rounds = 0;
  for (let at = frame; at >= 0 && waiting.length; at--) {
    if (!training.includes(masks.kind[at])) continue;
    waiting = waiting.filter((pair) => {
      if (bitAt(masks, at, pair)) { stale[pair] = rounds; return false; }
      return true;
    });
    rounds++;
  }
  for (const pair of waiting) stale[pair] = rounds;
  return stale;
}

// Of each (worker, region): 0 not asked, 1 answered without this region, 2 trained, 3 did not answer.
function statesAt(masks, frame, training) {
  const stale = masks.trained ? null : stalenessAt(masks, frame, training);
  const round = training.includes(masks.kind[frame]);
  const states = new Array(masks.pairs);
  for (let pair = 0; pair < masks.pairs; pair++) {
    const asked = askedAt(masks, frame, Math.floor(pair / masks.regions));
    const trained = masks.trained ? bitAt(masks, frame, pair) : round && asked === 1 && stale[pair] === 0;
    states[pair] = trained ? 2 : asked === 2 ? 3 : asked;
  }
  return states;
}

function grid(values, masks) {
  const rows = [];
  for (let worker = 0; worker < masks.workers; worker++) {
    rows.push(values.slice(worker * masks.regions, (worker + 1) * masks.regions));
  }
  return rows;
}

function humanBytes(count) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (count < 1000) return unit === "B" ? `${Math.round(count)} B` : `${count.toFixed(1)} ${unit}`;
    count /= 1000;
  }
  return `${count.toFixed(1)} TB`;
}

function exponent(value, digits = 1) {
  return value === null || !Number.isFinite(value) ? "-" : value.toExponential(digits).replace(/e([+-])(\d)$/, "e$10$2");
}

function seconds(value) {
  return value === null || !Number.isFinite(value) ? "-" : `${value >= 100 ? Math.round(value) : Number(value.toPrecision(3))} s`;
}

// At most so many places of a list of this length, evenly spaced, the first and the last among them.
function spaced(length, most) {
  if (length <= most) return Array.from({ length }, (_, i) => i);
  return Array.from({ length: most }, (_, i) => Math.round((i * (length - 1)) / (most - 1)));
}
