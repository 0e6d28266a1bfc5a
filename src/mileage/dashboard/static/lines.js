// Lines of charts, made from the series of the window.

import { ranked, summed } from "./series.js";
import { MERGED, reasonColor, reasonWords } from "./reasons.js";

const LINES_MAX = 6;
const TARGETS_MAX = 3;
const DASHED = [4, 3];
const DOTTED = [2, 3];
const SPREAD = [
  ["most", "c4", 1],
  ["median", "c2", 0.5],
  ["least", "c1", 0],
];
const OUTCOMES = [
  ["ok", "ok"],
  ["rejected", "warn"],
  ["cancelled", "muted"],
  ["failed", "bad"],
  ["lost", "c5"],
];
const TARGETS = [
  ["all", "c1", 1.75],
  ["ttft", "c3", 1.25],
  ["itl", "c5", 1.25],
];

export function tokens(series) {
  return [
    { ...plain(series, "output_tokens_per_s", "output", "c1"), fill: true, width: 1.75 },
    plain(series, "prompt_tokens_per_s", "prompt", "c3"),
    { ...plain(series, "cached_tokens_per_s", "of it cached", "c3"), dash: DASHED },
  ];
}

// `name` is ttft or itl; the targets in force are drawn with it.
export function latencies(name) {
  return (series) => [
    { ...plain(series, `${name}_p99_s`, "p99", "c4"), band: true },
    { ...plain(series, `${name}_p95_s`, "p95", "c2"), band: true },
    { ...plain(series, `${name}_p50_s`, "p50", "c1"), width: 1.75 },
    ...targets(series, `${name}_target_s`),
  ];
}

function targets(series, name) {
  const found = [null, ...series.labels(name)].map((label) => ({
    label: label === null ? "target" : `target ${label}`,
    color: "ok",
    values: series.column(name, label),
    dash: DASHED,
    step: true,
    reference: true,
  }));
  return found.filter(({ values }) => values.some((value) => value !== null)).slice(0, TARGETS_MAX);
}

export function attainment(series) {
  const labels = series.labels("targets_met_ratio");
  // Where there is one kind of target, all are the same.
  const shown = labels.length > 2 ? TARGETS : TARGETS.slice(0, 1);
  return shown.map(([label, color, width]) => {
    return { label, color, width, values: series.column("targets_met_ratio", label) };
  });
}

export function outcomes(series) {
  const found = series.labels("requests_per_s");
  if (found.length === 0) return [{ ...plain(series, "requests_per_s", "all", "ok"), fill: true }];
  const known = OUTCOMES.filter(([label]) => found.includes(label));
  const others = found.filter((label) => !OUTCOMES.some(([name]) => name === label));
  return [...known, ...others.map((label) => [label, "c6"])].map(([label, color]) => ({
    label,
    color,
    values: series.column("requests_per_s", label),
    fill: label === "ok",
  }));
}

// What the governor lets run, what runs, and what waits for it: of each replica, or of all together
// where they are many. The figures in the legend come in this order.
export function governed(series) {
  const replicas = series.labels("replica_in_flight");
  if (replicas.length > 1 && replicas.length <= LINES_MAX) {
    return replicas.flatMap((label, index) => {
      const color = `c${index + 1}`;
      return [
        { label, color, values: series.column("limit", label), ...LIMIT, dash: DOTTED },
        { label, color, values: series.column("replica_in_flight", label) },
        { label, color, values: series.column("held", label), dash: DASHED },
      ];
    });
  }
  const total = (name) => summed(replicas.map((label) => series.column(name, label)));
  return [
    { label: "limit", color: "c4", values: total("limit"), ...LIMIT },
    { label: "in flight", color: "c1", values: total("replica_in_flight"), fill: true },
    { label: "held", color: "c2", values: series.column("held"), width: 1.75 },
  ];
}

const LIMIT = { step: true, reference: true, width: 1.75 };

export function refusals(series) {
  const reasons = series.labels("rejected_per_s");
  const lines = reasons.map((label) => ({
    label: reasonWords(label),
    color: reasonColor(label),
    values: series.column("rejected_per_s", label),
  }));
  const merged = series.labels("merged_per_s").map((label) => ({
    label: MERGED[label] ?? label,
    color: label === "same" ? "c1" : "c3",
    values: series.column("merged_per_s", label),
    dash: DASHED,
  }));
  if (lines.length > 0) return [...lines, ...merged];
  return [plain(series, "rejected_per_s", "refused", "warn"), ...merged];
}

export function runningAndWaiting(series) {
  return [...perReplica(series, "running"), ...perReplica(series, "waiting", { dash: DASHED })];
}

// Some replicas are told apart by line; of many, what is the most, the middle and the least over
// them at each moment: unlike "the busiest five" these lines do not change places.
export function perReplica(series, name, more = {}) {
  const labels = series.labels(name);
  const columns = labels.map((label) => series.column(name, label));
  if (labels.length <= LINES_MAX) {
    return columns.map((values, index) => {
      return { label: labels[index], color: `c${index + 1}`, values, ...more };
    });
  }
  return SPREAD.map(([label, color, q]) => {
    return { label, color, values: ranked(columns, q), ...more };
  });
}

function plain(series, name, label, color) {
  return { label, color, values: series.column(name) };
}
