// The page of costs: asks for a stretch of time by account, and puts it on the page.

import { Columns, periodName } from "./cost_bars.js";
import { PARTS, accountParts, byAccount, byPart } from "./cost_parts.js";
import { accountTable, costReplicas, costTiles, whereParts } from "./cost_tables.js";
import { byId, element, setText } from "./dom.js";
import { clock } from "./format.js";
import { request } from "./live.js";

const WINDOWS = [
  ["24h", "24 h"],
  ["7d", "7 d"],
  ["30d", "30 d"],
  ["this-month", "This month"],
];
const GROUPS = [
  ["tenant", "Tenant"],
  ["team", "Team"],
  ["model", "Model"],
  ["adapter", "Adapter"],
  ["key", "Key"],
];
const STACKS = [
  ["part", "By part"],
  ["account", "By account"],
];
const AGAIN_MS = 30_000;
const RETRY_MS = 5_000;

const page = { window: "24h", by: "tenant", stack: "part", view: null, asked: 0, timer: null };

const writeTiles = costTiles();
const writeWhere = whereParts();
const writeAccounts = accountTable();
const writeReplicas = costReplicas();
const columns = new Columns(byId("time"), { legend: byId("time-legend"), now: byId("time-now") });

// -- figures

function writeTime(view) {
  const priced = view.usd_total !== null;
  const parts = page.stack === "part" ? PARTS : accountParts(view);
  const amounts = page.stack === "part" ? byPart : (period) => byAccount(period, parts);
  columns.update(view.periods, { step: view.step, parts, amounts, priced });
}

function settledNote({ settled_utc_s: settled, until_utc_s: until }) {
  if (settled === null) return "provisional: nothing is settled yet";
  if (settled >= until) return "";
  return `provisional after ${periodName(settled, "hour")}`;
}

function write(view) {
  const empty = view.gpu_ns_total === 0;
  byId("nothing").hidden = !empty;
  byId("found").hidden = empty;
  setText(byId("state"), `As of ${clock(Date.now() / 1000, { seconds: false })}`);
  if (empty) return;
  writeTiles(view);
  writeWhere(view);
  writeTime(view);
  writeAccounts(view);
  writeReplicas(view);
  setText(byId("accounts-note"), settledNote(view));
}

async function load() {
  clearTimeout(page.timer);
  const asked = ++page.asked;
  document.body.classList.add("loading");
  let waitMs = AGAIN_MS;
  try {
    const query = new URLSearchParams({ window: page.window, by: page.by });
    const view = await request(`/api/v1/cost?${query}`);
    if (asked !== page.asked) return; // something else was chosen meanwhile
    page.view = view;
    document.body.dataset.state = "live";
    byId("notice").hidden = true;
    write(view);
  } catch (error) {
    if (asked !== page.asked) return;
    if (await signedOut()) {
      location.replace("/login");
      return;
    }
    waitMs = RETRY_MS;
    document.body.dataset.state = "unreachable";
    setText(byId("state"), "No figures");
    setText(byId("notice"), `${error.message} Trying again.`);
    byId("notice").hidden = false;
  }
  document.body.classList.remove("loading");
  page.timer = setTimeout(load, waitMs);
}

async function signedOut() {
  try {
    return !(await request("/api/v1/session")).authenticated;
  } catch {
    return false; // it cannot be reached: that is what is told
  }
}

// -- controls

function segments(id, choices, key, changed) {
  const buttons = choices.map(([value, label]) => {
    const button = element("button", { type: "button", "data-value": value }, label);
    button.addEventListener("click", () => {
      page[key] = value;
      mark();
      changed();
    });
    return button;
  });
  byId(id).replaceChildren(...buttons);
  const mark = () => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === page[key]));
    history.replaceState(null, "", `#${new URLSearchParams({ window: page.window, by: page.by, stack: page.stack })}`);
  };
  const asked = new URLSearchParams(location.hash.slice(1)).get(key);
  if (choices.some(([value]) => value === asked)) page[key] = asked;
  return mark;
}

const marks = [
  segments("windows", WINDOWS, "window", load),
  segments("groups", GROUPS, "by", load),
  segments("stacks", STACKS, "stack", () => page.view !== null && write(page.view)),
];
for (const mark of marks) mark();
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(page.timer);
  else load();
});
load();
