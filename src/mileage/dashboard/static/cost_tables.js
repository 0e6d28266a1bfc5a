// Costs as text: tiles, the parts, the accounts and the replicas.

import { byId, element, setAttribute, setText } from "./dom.js";
import { cost, costOfPart, dollars, gpuTime, hours, portion, share } from "./cost_format.js";
import { PARTS } from "./cost_parts.js";
import { MISSING, count, figure, percent, tally } from "./format.js";
import { Table } from "./table.js";

const LOST = ["recomputed", "failed", "warmup"];

function sum(view, kinds) {
  const amounts = kinds.map((kind) => view.where[kind]);
  return {
    gpu_ns: amounts.reduce((all, each) => all + each.gpu_ns, 0),
    usd: amounts.some((each) => each.usd === null) ? null : amounts.reduce((all, each) => all + each.usd, 0),
  };
}

function totals(view) {
  const all = { prompt: 0, cached: 0, output: 0, requests: 0 };
  for (const account of view.accounts) {
    all.prompt += account.prompt_tokens;
    all.cached += account.cached_tokens;
    all.output += account.output_tokens;
    all.requests += account.requests;
  }
  return all;
}

// -- tiles

const TILES = [
  [
    "total",
    "Total",
    ({ gpu_ns_total: gpuNs, usd_total: usd }) => [
      cost({ gpu_ns: gpuNs, usd }),
      usd === null ? "no price is set: see Replicas" : gpuTime(gpuNs),
    ],
  ],
  [
    "output",
    "Per million output tokens",
    (view, all) => {
      if (all.output === 0) return [MISSING, "no output yet"];
      const each = 1e6 / all.output;
      const whole = cost({ gpu_ns: view.gpu_ns_total * each, usd: view.usd_total === null ? null : view.usd_total * each });
      return [whole, `${tally(all.output)} tokens, idle time included`];
    },
  ],
  [
    "request",
    "Per request",
    (view, all) => {
      if (all.requests === 0) return [MISSING, "no request yet"];
      const usd = view.usd_total === null ? null : view.usd_total / all.requests;
      return [cost({ gpu_ns: view.gpu_ns_total / all.requests, usd }), `${count(all.requests)} requests`];
    },
  ],
  [
    "idle",
    "Idle",
    (view) => [portion(share(view.where.idle.gpu_ns, view.gpu_ns_total)), `${costOfPart(view.where.idle, view)} without work`],
  ],
  [
    "lost",
    "Lost work",
    (view) => {
      const lost = sum(view, LOST);
      return [portion(share(lost.gpu_ns, view.gpu_ns_total)), `${costOfPart(lost, view)} with warm-up`];
    },
  ],
  [
    "cached",
    "Prompt from cache",
    (view, all) => [percent(share(all.cached, all.prompt)), `${tally(all.prompt - all.cached)} tokens computed`],
  ],
];

export function costTiles() {
  const tiles = TILES.map(([id, title, text]) => {
    const main = element("p", { class: "tile-text" });
    const detail = element("p", { class: "tile-detail" });
    const node = element("div", { class: "tile", id: `tile-${id}` }, element("h2", {}, title), main, detail);
    return { node, main, detail, text };
  });
  byId("tiles").replaceChildren(...tiles.map(({ node }) => node));
  return (view) => {
    const all = totals(view);
    for (const { main, detail, text } of tiles) {
      const [figureText, detailText] = text(view, all);
      setText(main, figureText);
      setText(detail, detailText);
      setAttribute(detail, "title", detailText);
    }
  };
}

// -- parts

export function whereParts() {
  const entries = PARTS.map(([kind, name, color, hint]) => {
    const part = element("i", { class: color, title: name });
    const figures = element("dd");
    const head = element("dt", { title: hint }, element("i", { class: `swatch ${color}`, "aria-hidden": "true" }), name);
    return { kind, part, figures, node: element("div", { id: `where-${kind}` }, head, figures) };
  });
  byId("where-bar").replaceChildren(...entries.map(({ part }) => part));
  byId("where").replaceChildren(...entries.map(({ node }) => node));
  return (view) => {
    for (const { kind, part, figures, node } of entries) {
      const amount = view.where[kind];
      const ratio = share(amount.gpu_ns, view.gpu_ns_total) ?? 0;
      part.style.flexGrow = String(ratio);
      node.hidden = kind === "unattributed" && amount.gpu_ns === 0;
      const time = amount.usd === null ? "" : ` · ${gpuTime(amount.gpu_ns)}`;
      figures.replaceChildren(costOfPart(amount, view), element("small", { class: "quiet" }, `${portion(ratio)}${time}`));
    }
  };
}

// -- accounts

function perMillion({ usd, gpu_ns: gpuNs, output_tokens: tokens }) {
  if (tokens === 0) return MISSING;
  return cost({ gpu_ns: (gpuNs * 1e6) / tokens, usd: usd === null ? null : (usd * 1e6) / tokens });
}

// How far the true figure may be off, either way.
function uncertainty({ interval: [low, high], gpu_ns: gpuNs, idle }) {
  const used = gpuNs - idle.gpu_ns;
  if (used <= 0 || high <= low) return "";
  return `± ${portion(Math.max(high - used, used - low) / used)}`;
}

export function accountTable() {
  let view = null;
  const columns = [
    { title: "Account", text: (row) => row.name },
    { title: "USD", numeric: true, text: (row) => dollars(row.usd) },
    { title: "Share", numeric: true, text: (row) => portion(share(row.gpu_ns, view.gpu_ns_total)) },
    {
      title: "GPU-hours",
      numeric: true,
      text: (row) => figure(hours(row.gpu_ns)),
      detail: (row) => (row.requests > 0 ? uncertainty(row) : ""),
      hint: (row) =>
        row.interval[1] > row.interval[0]
          ? `used ${gpuTime(row.interval[0])} to ${gpuTime(row.interval[1])}, 19 times of 20`
          : null,
    },
    { title: "Requests", numeric: true, text: (row) => (row.requests > 0 ? count(row.requests) : MISSING) },
    {
      title: "Failed",
      numeric: true,
      text: (row) => (row.requests > 0 ? count(row.requests_failed) : MISSING),
      tone: (row) => (row.requests_failed > 0 ? "warn" : null),
    },
    { title: "Prompt tokens", numeric: true, text: (row) => (row.requests > 0 ? tally(row.prompt_tokens) : MISSING) },
    { title: "Cached", numeric: true, text: (row) => percent(share(row.cached_tokens, row.prompt_tokens)) },
    { title: "Output tokens", numeric: true, text: (row) => (row.requests > 0 ? tally(row.output_tokens) : MISSING) },
    { title: "Per 1M output", numeric: true, text: perMillion },
  ];
  const table = new Table(byId("accounts"), columns, {
    caption: "What each account used",
    empty: "No request in this time.",
  });
  return (found) => {
    view = found;
    const idle = {
      name: "(idle)",
      gpu_ns: view.idle_gpu_ns,
      usd: view.where.idle.gpu_ns === view.idle_gpu_ns ? view.where.idle.usd : null,
      requests: 0,
      requests_failed: 0,
      prompt_tokens: 0,
      cached_tokens: 0,
      output_tokens: 0,
      interval: [0, 0],
      idle: { gpu_ns: 0, usd: null },
    };
    const rows = view.idle_gpu_ns > 0 ? [...view.accounts, idle] : view.accounts;
    table.update(rows.map((row) => ({ ...row, key: row.name })));
  };
}

// -- replicas

export function costReplicas() {
  const ratio = (part, row) => portion(share(part.gpu_ns, row.total.gpu_ns));
  const columns = [
    { title: "Replica", text: (row) => row.name },
    { title: "GPUs", text: (row) => `${row.gpus} × ${row.gpu ?? "GPU of unknown make"}` },
    { title: "GPU-hours", numeric: true, text: (row) => figure(hours(row.total.gpu_ns)) },
    { title: "USD", numeric: true, text: (row) => dollars(row.total.usd) },
    { title: "Idle", numeric: true, text: (row) => ratio(row.idle, row), detail: (row) => cost(row.idle) },
    { title: "Warm-up", numeric: true, text: (row) => ratio(row.warmup, row) },
    {
      title: "Price",
      text: (row) => row.price ?? "none set",
      tone: (row) => (row.price === null ? "warn" : null),
    },
  ];
  const table = new Table(byId("replicas"), columns, {
    caption: "What each replica was there for",
    empty: "No replica was up in this time.",
  });
  return (view) => {
    table.update(view.replicas.map((row) => ({ ...row, key: row.name })));
    const unpriced = view.replicas.filter(({ price }) => price === null);
    setText(
      byId("replicas-note"),
      unpriced.length > 0
        ? "A price is missing: [costs] usd_per_gpu_hour or [[billing.prices]], or the GPU's name: gpu in [[engines]]."
        : "",
    );
  };
}
