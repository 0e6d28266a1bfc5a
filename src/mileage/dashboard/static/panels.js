// The dashboard's panels. A new one is an entry here: tiles say what the last seconds were, charts
// how they came about. A chart's `lines` makes its lines from the series of the window (lines.js),
// and `missing` says why there are none.

import { attained, count, figure, latency, percent } from "./format.js";
import * as lines from "./lines.js";

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

// What `text` and `detail` get is the page: { sample, ceilings, governor }.
export const tiles = [
  {
    id: "requests",
    title: "Requests/s",
    text: ({ sample }) => figure(value(sample, "requests_per_s")),
    detail: ({ sample }) => `${figure(outcome(sample, "cancelled"))} cancelled`,
  },
  {
    id: "output",
    title: "Output tokens/s",
    text: ({ sample }) => figure(value(sample, "output_tokens_per_s")),
    detail: ({ sample }) => `${figure(value(sample, "prompt_tokens_per_s"))} prompt`,
  },
  {
    id: "cached",
    title: "Prompt cached",
    text: ({ sample }) =>
      percent(share(value(sample, "cached_tokens_per_s"), value(sample, "prompt_tokens_per_s"))),
    detail: ({ sample }) => `${figure(value(sample, "cached_tokens_per_s"))}/s`,
  },
  {
    id: "ttft",
    title: "TTFT p50",
    text: ({ sample, ceilings }) => bounded(sample, "ttft_p50_s", ceilings.ttft_s),
    detail: ({ sample, ceilings }) => `p99 ${bounded(sample, "ttft_p99_s", ceilings.ttft_s)}`,
  },
  {
    id: "itl",
    title: "ITL p50",
    text: ({ sample, ceilings }) => bounded(sample, "itl_p50_s", ceilings.itl_s),
    detail: ({ sample, ceilings }) => `p99 ${bounded(sample, "itl_p99_s", ceilings.itl_s)}`,
  },
  {
    id: "targets",
    title: "Targets met",
    text: ({ sample }) => attained(grouped(sample, "targets_met_ratio", "all")),
    detail: ({ governor }) => targetsText(governor?.targets ?? []),
  },
  {
    id: "in-flight",
    title: "In flight",
    text: ({ sample }) => count(value(sample, "in_flight")),
    detail: ({ sample }) => `${count(value(sample, "connections"))} connections`,
  },
  {
    id: "held",
    title: "Held",
    text: ({ sample }) => count(value(sample, "held")),
    detail: ({ sample }) => `${count(total(sample, "waiting"))} wait in engines`,
  },
  {
    id: "refused",
    title: "Refused/s",
    text: ({ sample }) => figure(value(sample, "rejected_per_s")),
    detail: ({ sample }) => `${figure(value(sample, "merged_per_s"))} merged`,
  },
  {
    id: "errors",
    title: "Errors/s",
    text: ({ sample }) => figure(outcome(sample, "failed")),
    detail: ({ sample }) => `${figure(value(sample, "upstream_failures_per_s"))} failed tries`,
    alarm: ({ sample }) => (outcome(sample, "failed") ?? 0) > 0,
  },
];

function targetsText(targets) {
  if (targets.length === 0) return "none set";
  if (targets.length > 1) return `of ${targets.length} models`;
  const [{ ttft_s: ttftS, itl_s: itlS }] = targets;
  if (ttftS === null || itlS === null) return ttftS === null ? "of ITL" : "of TTFT";
  return "of TTFT and ITL";
}

export const charts = [
  { id: "tokens", title: "Tokens per second", format: figure, lines: lines.tokens },
  {
    id: "ttft",
    title: "Time to first token",
    format: latency,
    lines: lines.latencies("ttft"),
  },
  { id: "itl", title: "Inter-token latency", format: latency, lines: lines.latencies("itl") },
  { id: "requests", title: "Requests per second", format: figure, lines: lines.outcomes },
  {
    id: "targets",
    title: "Targets met",
    format: attained,
    max: 1,
    lines: lines.attainment,
    missing: (governor) => {
      if (governor === null) return null;
      if (governor.targets.length === 0) return "No targets set: [slo] ttft_s, itl_s";
      return "No stream ended in this window";
    },
  },
  {
    id: "limits",
    title: "Limit, in flight and held",
    format: count,
    whole: true,
    lines: lines.governed,
  },
  {
    id: "refusals",
    title: "Refused and merged per second",
    format: figure,
    lines: lines.refusals,
  },
  {
    id: "replicas",
    title: "In the engines: running and waiting (dashed)",
    format: count,
    whole: true,
    lines: lines.runningAndWaiting,
    missing: () => "No engine has told it in this window",
  },
  {
    id: "kv",
    title: "KV cache in use",
    format: percent,
    max: 1,
    lines: (series) => lines.perReplica(series, "kv_cache_usage_ratio"),
    missing: () => "No engine has told it in this window",
  },
];
