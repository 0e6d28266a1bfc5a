// Who uses what: spend by tenant, and what is left of the budgets.

import { byId, element, setAttribute, setText } from "./dom.js";
import { count, duration, figure, money, percent, tick } from "./format.js";
import { Table } from "./table.js";

const UNITS = { usd: "USD", tokens: "tokens", gpu_s: "GPU-s" };
const LOW_RATIO = 0.1;

export function tenantTable() {
  let whole = 0; // GPU-seconds of all rows
  const columns = [
    { title: "Tenant", text: (row) => row.tenant },
    { title: "Requests", numeric: true, text: (row) => count(row.requests) },
    {
      title: "Refused",
      numeric: true,
      text: (row) => count(row.rejected),
      tone: (row) => (row.rejected > 0 ? "warn" : null),
    },
    { title: "Prompt tokens", numeric: true, text: (row) => figure(row.prompt_tokens) },
    { title: "Output tokens", numeric: true, text: (row) => figure(row.output_tokens) },
    { title: "GPU-seconds", numeric: true, text: (row) => figure(row.gpu_s) },
    {
      title: "Share",
      numeric: true,
      text: (row) => percent(row.gpu_s === null || whole === 0 ? null : row.gpu_s / whole),
    },
    { title: "USD", numeric: true, text: (row) => money(row.cost_usd) },
  ];
  const table = new Table(byId("tenants"), columns, {
    caption: "What tenants used since the start",
    empty: "No request yet.",
  });
  return ({ tenants, tenants_left_out: leftOut }) => {
    whole = tenants.reduce((all, row) => all + (row.gpu_s ?? 0), 0);
    table.update(tenants.map((row) => ({ ...row, key: row.tenant })));
    const notes = [];
    if (leftOut > 0) notes.push(`${count(leftOut)} more tenants used less; all are at /metrics.`);
    if (tenants.length > 0 && tenants.every((row) => row.cost_usd === null)) {
      notes.push("No prices set: [costs] usd_per_gpu_hour, models.");
    }
    setText(byId("tenants-note"), notes.join(" "));
  };
}

// -- budgets

function amount(value, unit) {
  return unit === "usd" ? money(value) : figure(value);
}

function level({ left, amount: whole }) {
  if (left <= 0) return "bad";
  return left < LOW_RATIO * whole ? "warn" : "ok";
}

class Budget {
  constructor() {
    this.name = element("b");
    this.left = element("span");
    this.spent = element("i", { class: "spent" });
    this.reserved = element("i", { class: "reserved" });
    this.detail = element("small");
    this.bar = element("div", { class: "bar-track", role: "meter", "aria-valuemin": "0" }, this.spent, this.reserved);
    const head = element("p", {}, this.name, this.left);
    this.node = element("li", {}, head, this.bar, this.detail);
  }

  write(row, nowUtcS) {
    const unit = UNITS[row.unit] ?? row.unit;
    const share = (value) => `${Math.min(100, Math.max(0, (100 * value) / row.amount))}%`;
    setText(this.name, row.tenant);
    setText(this.left, `${amount(Math.max(0, row.left), row.unit)} ${unit} left`);
    setAttribute(this.left, "class", level(row) === "ok" ? "" : level(row));
    this.spent.style.width = share(row.spent);
    this.reserved.style.width = share(Math.min(row.reserved + row.uncertain, row.amount - row.spent));
    setAttribute(this.node, "class", level(row));
    setAttribute(this.bar, "aria-valuemax", String(row.amount));
    setAttribute(this.bar, "aria-valuenow", String(Math.min(row.spent, row.amount)));
    setAttribute(this.bar, "aria-label", `${row.tenant}: spent of ${tick(amount(row.amount, row.unit))} ${unit} per ${row.per}`);
    setText(this.detail, this.details(row, unit, nowUtcS));
  }

  details(row, unit, nowUtcS) {
    const whole = tick(amount(row.amount, row.unit));
    const parts = [`${amount(row.spent, row.unit)} of ${whole} ${unit} per ${row.per}`];
    if (row.reserved > 0) parts.push(`${amount(row.reserved, row.unit)} reserved`);
    if (row.uncertain > 0) parts.push(`${amount(row.uncertain, row.unit)} held back for workers that died`);
    if (row.possible_overshoot > 0) {
      parts.push(`the ledger cannot be read: up to ${amount(row.possible_overshoot, row.unit)} lent all the same`);
    }
    parts.push(`renews in ${duration(Math.max(0, Math.ceil(row.renews_utc_s - nowUtcS)))}`);
    return parts.join(" · ");
  }
}

export function budgetList() {
  const known = new Map(); // a Map, because a tenant may be called __proto__
  const list = element("ul", { class: "budgets" });
  const empty = element("p", { class: "quiet" }, "No budgets set: [[tenants.NAME.budgets]]");
  byId("budgets").replaceChildren(list, empty);
  return ({ budgets }, nowUtcS) => {
    empty.hidden = budgets.length > 0;
    const keys = budgets.map((row) => JSON.stringify([row.tenant, row.unit, row.per]));
    for (const [key, budget] of known) {
      if (!keys.includes(key)) {
        budget.node.remove();
        known.delete(key);
      }
    }
    budgets.forEach((row, index) => {
      let budget = known.get(keys[index]);
      if (budget === undefined) {
        budget = new Budget();
        known.set(keys[index], budget);
      }
      if (list.children[index] !== budget.node) list.insertBefore(budget.node, list.children[index] ?? null);
      budget.write(row, nowUtcS);
    });
  };
}
