// What the governor does: banners for what an operator must know, its decisions, and its state.

import { byId, element, setAttribute, setText } from "./dom.js";
import { clock, count, latency, tick } from "./format.js";
import { MERGED, reasonWords, sentence, tone } from "./reasons.js";
import { Table } from "./table.js";

const MODES = {
  act: "acts",
  observe: "observes, and changes nothing",
  off: "off: no limits, no queue",
};
const HELD_BY_MAX = 3;

// -- banners

function banners(status, governor) {
  const found = [];
  const { failures, policy_failed: policyFailed, mode, policy } = governor;
  if (failures.length > 0) {
    const workers = status.processes.filter(({ role }) => role === "worker").length;
    const why = failures.map(({ worker, failure }) => `Worker ${worker}: ${failure}.`).join(" ");
    found.push([
      "bad",
      `The governor has failed on ${failures.length} of ${Math.max(workers, failures.length)} workers and lets ` +
        `everything through: no limits, no queue, no tenants' limits, until a reload. ${why}`,
    ]);
  }
  if (policyFailed.length > 0) {
    found.push([
      "warn",
      `The limits policy “${policy}” has failed for ${policyFailed.join(", ")} and was left out: ` +
        "what the engine itself runs is the limit there, until a reload.",
    ]);
  }
  if (mode === "observe") {
    found.push([
      "info",
      "The governor only observes: it holds and refuses nothing. It would have held " +
        `${count(governor.would_hold_total)} requests and refused ${count(governor.would_refuse_total)}.`,
    ]);
  }
  const config = status.config;
  if (config?.error) {
    found.push(["warn", `The last reload was refused, version ${config.version} stays in force: ${config.error}`]);
  } else if (config && config.restart_needed.length > 0) {
    found.push(["info", `In force only after a restart: ${config.restart_needed.join(", ")}.`]);
  }
  return found;
}

export function bannerList() {
  const list = byId("banners");
  let shown = "";
  return (status, governor) => {
    const found = banners(status, governor);
    const key = JSON.stringify(found);
    if (key === shown) return;
    shown = key;
    list.replaceChildren(...found.map(([level, text]) => element("p", { class: `banner ${level}` }, text)));
    list.hidden = found.length === 0;
  };
}

// -- decisions

export function decisionTable() {
  const columns = [
    {
      title: "Time",
      text: (row) => clock(row.at_utc_s),
      hint: (row) => (row.worker === null ? null : `worker ${row.worker}`),
    },
    { title: "Decision", text: sentence, detail: (row) => row.detail ?? "", tone },
  ];
  const table = new Table(byId("decisions"), columns, {
    caption: "The governor's last decisions, the newest first",
    empty: "None yet.",
  });
  return ({ decisions }) => {
    const seen = new Map();
    const rows = decisions.map((row) => {
      const key = JSON.stringify([row.at_utc_s, row.kind, row.subject, row.reason, row.limit]);
      const number = (seen.get(key) ?? 0) + 1;
      seen.set(key, number);
      return { ...row, key: `${key}${number}` };
    });
    table.update(rows);
  };
}

// -- state

function listed(totals, words) {
  const known = Object.entries(totals).filter(([, number]) => number > 0);
  known.sort(([, a], [, b]) => b - a);
  const sum = known.reduce((all, [, number]) => all + number, 0);
  if (known.length < 2) return known.length === 0 ? "0" : `${count(sum)} ${words(known[0][0])}`;
  return `${count(sum)}: ${known.map(([name, number]) => `${count(number)} ${words(name)}`).join(", ")}`;
}

function targetTexts(targets) {
  if (targets.length === 0) return "none set: [slo] ttft_s, itl_s";
  const told = (name, targetS) => (targetS === null ? "" : `${name} ${tick(latency(targetS))}`);
  return targets
    .map(({ model, ttft_s: ttftS, itl_s: itlS }) => {
      const parts = [told("TTFT", ttftS), told("ITL", itlS)].filter(Boolean).join(", ");
      return model === null ? parts : `${model}: ${parts}`;
    })
    .join("; ");
}

function heldText({ held, held_by_tenant: byTenant }) {
  if (!held) return count(held);
  const tenants = Object.entries(byTenant).sort(([, a], [, b]) => b - a);
  const named = tenants.slice(0, HELD_BY_MAX).map(([tenant, number]) => `${tenant} ${count(number)}`);
  if (tenants.length > HELD_BY_MAX) named.push("others");
  return `${count(held)}: ${named.join(", ")}`;
}

export function governorFacts() {
  const rows = [
    ["Governor", ({ mode, failures }) => (failures.length > 0 ? "has failed" : (MODES[mode] ?? "not heard of"))],
    ["Limits policy", ({ policy }) => policy ?? "–"],
    ["Targets", ({ targets }) => targetTexts(targets)],
    ["Held now", heldText],
    ["Held so far", ({ held_total: heldTotal }) => count(heldTotal)],
    ["Refused", ({ rejected_total: rejected }) => listed(rejected, reasonWords)],
    ["Merged", ({ merged_total: merged }) => listed(merged, (kind) => MERGED[kind] ?? kind)],
  ].map(([title, text]) => {
    const value = element("dd");
    byId("governor").append(element("div", {}, element("dt", {}, title), value));
    return [value, text];
  });
  return (governor) => {
    for (const [value, text] of rows) setText(value, text(governor));
    const { mode, failures } = governor;
    const dot = failures.length > 0 ? "dot bad" : { act: "dot ok", observe: "dot warn" }[mode];
    setAttribute(rows[0][0], "class", dot ?? "dot muted");
  };
}
