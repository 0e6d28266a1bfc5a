// The dashboard's panels. A new one is an entry here: tiles say what the last seconds were, charts
// how they came about. A chart's `lines` makes its lines from the series of the window.

import { ranked } from "./series.js";
import { count, figure, latency, percent } from "./format.js";

const LINES_MAX = 6;
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

// A sample's figure, or null where it was not seen.
function value(sample, name) {
  return sample?.values[name] ?? null;
}

function grouped(sample, name, label) {
  const found = (sample?.groups[name] ?? []).find(([each]) => each === label);
  return found?.[1] ?? null;
}

// An outcome that never came is 0 as soon as requests are counted at all.
function outcome(sample, label) {
  if (value(sample, "requests_per_s") === null) return null;
  return grouped(sample, "requests_per_s", label) ?? 0;
}

function total(sample, name) {
  const values = (sample?.groups[name] ?? []).map(([, each]) => each);
  return values.length === 0 ? null : values.reduce((a, b) => a + b, 0);
}

function share(part, whole) {
  return part === null || !whole ? null : part / whole;
}

// A histogram ends at its highest bound: what reaches it is at least that.
function bounded(sample, name, ceiling) {
  const seen = value(sample, name);
  const text = latency(seen);
  return seen !== null && ceiling !== undefined && seen >= ceiling ? `≥ ${text}` : text;
}

export const tiles = [
  {
    id: "requests",
    title: "Requests/s",
    text: (sample) => figure(value(sample, "requests_per_s")),
    detail: (sample) => `${figure(outcome(sample, "cancelled"))} cancelled`,
  },
  {
    id: "output",
    title: "Output tokens/s",
    text: (sample) => figure(value(sample, "output_tokens_per_s")),
    detail: (sample) => `${figure(value(sample, "prompt_tokens_per_s"))} prompt`,
  },
  {
    id: "cached",
    title: "Prompt cached",
    text: (sample) =>
      percent(share(value(sample, "cached_tokens_per_s"), value(sample, "prompt_tokens_per_s"))),
    detail: (sample) => `${figure(value(sample, "cached_tokens_per_s"))}/s`,
  },
  {
    id: "ttft",
    title: "TTFT p50",
    text: (sample, ceilings) => bounded(sample, "ttft_p50_s", ceilings.ttft_s),
    detail: (sample, ceilings) => `p99 ${bounded(sample, "ttft_p99_s", ceilings.ttft_s)}`,
  },
  {
    id: "itl",
    title: "ITL p50",
    text: (sample, ceilings) => bounded(sample, "itl_p50_s", ceilings.itl_s),
    detail: (sample, ceilings) => `p99 ${bounded(sample, "itl_p99_s", ceilings.itl_s)}`,
  },
  {
    id: "in-flight",
    title: "In flight",
    text: (sample) => count(value(sample, "in_flight")),
    detail: (sample) => `${count(value(sample, "connections"))} connections`,
  },
  {
    id: "waiting",
    title: "Waiting in engines",
    text: (sample) => count(total(sample, "waiting")),
    detail: (sample) => `${count(total(sample, "running"))} running`,
  },
  {
    id: "errors",
    title: "Errors/s",
    text: (sample) => figure(outcome(sample, "failed")),
    detail: (sample) => `${figure(outcome(sample, "rejected"))} rejected`,
    alarm: (sample) => (outcome(sample, "failed") ?? 0) > 0,
  },
];

function plain(name, label, color, more = {}) {
  return (series) => ({ label, color, values: series.column(name), ...more });
}

function quantiles(name) {
  return (series) => [
    { label: "p99", color: "c4", values: series.column(`${name}_p99_s`), band: true },
    { label: "p95", color: "c2", values: series.column(`${name}_p95_s`), band: true },
    { label: "p50", color: "c1", values: series.column(`${name}_p50_s`), width: 1.75 },
  ];
}

// Some replicas are told apart by line; of many, what is the most, the middle and the least over
// them at each moment: unlike "the busiest five" these lines do not change places.
function perReplica(series, name, more = {}) {
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

function runningAndWaiting(series) {
  return [...perReplica(series, "running"), ...perReplica(series, "waiting", { dash: [4, 3] })];
}

function outcomes(series) {
  const found = series.labels("requests_per_s");
  if (found.length === 0) return [plain("requests_per_s", "all", "ok", { fill: true })(series)];
  const known = OUTCOMES.filter(([label]) => found.includes(label));
  const others = found.filter((label) => !OUTCOMES.some(([name]) => name === label));
  return [...known, ...others.map((label) => [label, "c6"])].map(([label, color]) => ({
    label,
    color,
    values: series.column("requests_per_s", label),
    fill: label === "ok",
  }));
}

export const charts = [
  {
    id: "tokens",
    title: "Tokens per second",
    format: figure,
    lines: (series) =>
      [
        plain("output_tokens_per_s", "output", "c1", { fill: true, width: 1.75 }),
        plain("prompt_tokens_per_s", "prompt", "c3"),
        plain("cached_tokens_per_s", "of it cached", "c3", { dash: [4, 3] }),
      ].map((line) => line(series)),
  },
  { id: "ttft", title: "Time to first token", format: latency, lines: quantiles("ttft") },
  { id: "itl", title: "Inter-token latency", format: latency, lines: quantiles("itl") },
  { id: "requests", title: "Requests per second", format: figure, lines: outcomes },
  {
    id: "replicas",
    title: "Running and waiting (dashed)",
    format: count,
    whole: true,
    lines: runningAndWaiting,
  },
  {
    id: "kv",
    title: "KV cache in use",
    format: percent,
    max: 1,
    lines: (series) => perReplica(series, "kv_cache_usage_ratio"),
  },
];
