// The tables and the ledger's facts, from the gateway's status.

import { byId, element, setAttribute, setText } from "./dom.js";
import { MISSING, bytes, count, duration, percent } from "./format.js";
import { Table } from "./table.js";

const STATES = {
  up: ["up", "dot ok"],
  down: ["down", "dot bad"],
  disabled: ["disabled", "dot muted"],
  asleep: ["asleep", "dot muted"],
  open: ["breaker open", "dot bad"],
  half_open: ["breaker half open", "dot warn"],
  unknown: ["not checked yet", "dot muted"],
};

function outOf(value, max) {
  return max === null ? count(value) : `${count(value)} / ${count(max)}`;
}

// Workers need not agree: each has a breaker of its own.
function agreement({ state, worker_states: states }) {
  const all = Object.values(states).reduce((a, b) => a + b, 0);
  const same = states[state] ?? 0;
  return all > 1 && same > 0 && same < all ? `on ${same} of ${all} workers` : null;
}

function why(row) {
  return [row.state === "up" ? null : row.reason, agreement(row)].filter(Boolean).join(" · ");
}

function stale(row) {
  return row.stale ? "old" : null;
}

// What the engine itself was asked for, and has: nothing where its limit is not set from here.
function inEngine(control) {
  switch (control?.state) {
    case "held":
      return control.asked === control.applied
        ? `in the engine: ${count(control.applied)}`
        : `in the engine: ${count(control.applied)}, asked ${count(control.asked)}`;
    case "fault":
      return "not in the engine";
    case "unable":
      return "the engine cannot";
    default:
      return "";
  }
}

export function replicaTable(press) {
  const columns = [
    {
      title: "Replica",
      text: (row) => row.name,
      detail: (row) => (row.url === null || row.url.includes(row.name) ? "" : row.url),
      hint: (row) => row.url,
    },
    { title: "Engine", text: (row) => [row.kind, row.version].filter(Boolean).join(" ") || MISSING },
    {
      title: "State",
      text: (row) => (STATES[row.state] ?? [row.state])[0],
      detail: why,
      tone: (row) => (STATES[row.state] ?? ["", "dot muted"])[1],
    },
    { title: "Models", text: (row) => row.models.join(", ") || MISSING },
    {
      title: "Limit",
      numeric: true,
      text: (row) => count(row.limit),
      detail: (row) => (row.policy_failed ? "its policy failed" : inEngine(row.control)),
      tone: (row) => (row.policy_failed || row.control?.state === "fault" ? "warn" : null),
      hint: (row) => row.control?.error ?? row.limit_reason,
    },
    { title: "In flight", numeric: true, text: (row) => count(row.in_flight) },
    { title: "Held", numeric: true, text: (row) => count(row.held) },
    {
      title: "Running",
      numeric: true,
      text: (row) => outOf(row.running, row.running_max),
      tone: stale,
    },
    { title: "Waiting", numeric: true, text: (row) => count(row.waiting), tone: stale },
    {
      title: "KV cache",
      numeric: true,
      text: (row) => percent(row.kv_cache_usage_ratio),
      tone: stale,
    },
    {
      title: "Observed",
      numeric: true,
      text: (row) =>
        row.observation_age_s === null
          ? "never"
          : `${duration(Math.floor(row.observation_age_s))} ago`,
      detail: (row) => row.observation_error ?? "",
      tone: (row) => (row.stale ? "warn" : null),
    },
    {
      title: "",
      button: {
        label: (row) => (row.enabled ? "Disable" : "Enable"),
        name: (row) => row.name,
        press,
      },
    },
  ];
  const table = new Table(byId("replicas"), columns, {
    caption: "Replicas and their state",
    empty: "No replica is configured.",
  });
  return ({ replicas }) => {
    table.update(replicas.map((row) => ({ ...row, key: row.name })));
    const away = replicas.filter((row) => row.state !== "up").length;
    setText(byId("replicas-summary"), away > 0 ? `${away} of ${replicas.length} not up` : "");
  };
}

function processState(row) {
  if (row.role !== "worker") return "";
  if (row.report_age_s === null) return "no report yet";
  if (row.stale) return `silent for ${duration(row.report_age_s)}`;
  if (row.ledger_ok === false) return "cannot write its request log";
  return row.draining ? "draining" : "serving";
}

function processTone(row) {
  if (row.role !== "worker") return null;
  return row.stale || row.ledger_ok === false ? "dot bad" : `dot ${row.draining ? "warn" : "ok"}`;
}

export function processTable() {
  const columns = [
    { title: "Process", text: (row) => row.role },
    { title: "Pid", text: (row) => String(row.pid) },
    { title: "State", text: processState, tone: processTone },
    { title: "Memory", numeric: true, text: (row) => bytes(row.rss_bytes) },
    { title: "CPU", numeric: true, text: (row) => percent(row.cpu_ratio) },
    { title: "Connections", numeric: true, text: (row) => count(row.connections) },
    { title: "In flight", numeric: true, text: (row) => count(row.in_flight) },
  ];
  const table = new Table(byId("processes"), columns, {
    caption: "Processes of the gateway",
    empty: "No process has reported.",
  });
  return (status) => table.update(status.processes.map((row) => ({ ...row, key: row.pid })));
}

export function ledgerFacts() {
  const facts = ["State", "Records stored", "Not yet stored", "Lost in a crash", "Damaged"].map((title) => {
    const value = element("dd");
    byId("ledger").append(element("div", {}, element("dt", {}, title), value));
    return value;
  });
  const [state, rows, lag, lost, damaged] = facts;
  return ({ ledger }) => {
    const told = ledger === null ? "none" : ledger.ok ? "storing" : (ledger.error ?? "failing");
    setText(state, told);
    setAttribute(state, "class", ledger === null ? "muted" : ledger.ok ? "dot ok" : "dot bad");
    setText(rows, count(ledger?.rows_total));
    setText(lag, bytes(ledger?.lag_bytes));
    setText(lost, count(ledger?.lost_total));
    setText(damaged, count(ledger?.damaged_total));
  };
}

export function tileRow(definitions) {
  const made = definitions.map((tile) => {
    const text = element("p", { class: "tile-text" });
    const detail = element("p", { class: "tile-detail" });
    const node = element(
      "article",
      { class: "tile", id: `tile-${tile.id}` },
      element("h2", {}, tile.title),
      text,
      detail,
    );
    return { tile, node, text, detail };
  });
  byId("tiles").replaceChildren(...made.map(({ node }) => node));
  return (page) => {
    for (const { tile, node, text, detail } of made) {
      setText(text, tile.text(page));
      setText(detail, tile.detail(page));
      setAttribute(detail, "title", detail.textContent);
      node.classList.toggle("alarm", Boolean(tile.alarm?.(page)));
    }
  };
}
