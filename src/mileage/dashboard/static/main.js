// The dashboard: puts the panels on the page and keeps them up to date.

import { Chart } from "./chart.js";
import { byId, element, setText } from "./dom.js";
import { experimentPanel } from "./experiment.js";
import { PERIOD_S as FINDINGS_S, findingsPanel } from "./findings.js";
import { clock, duration } from "./format.js";
import { bannerList, decisionTable, governorFacts } from "./governor.js";
import { Live, request } from "./live.js";
import { charts as chartDefinitions, tiles as tileDefinitions } from "./panels.js";
import { Series } from "./series.js";
import { ledgerFacts, processTable, replicaTable, tileRow } from "./tables.js";
import { budgetList, tenantTable } from "./tenants.js";

const RANGES = [
  [300, "5 min"],
  [900, "15 min"],
  [3_600, "1 h"],
  [21_600, "6 h"],
  [86_400, "24 h"],
];
const REFETCH_MIN_S = 5;
const STATES = {
  connecting: "Connecting",
  live: "Live",
  paused: "Paused",
  draining: "Draining",
  stale: "No updates",
};

const series = new Series();
const page = {
  rangeS: 300,
  paused: false,
  loaded: false,
  loadingS: null,
  fetchedAt: 0,
  state: "connecting",
  lostAt: null,
  sample: null,
  status: null,
  governor: null,
  experiment: null,
  findingsAt: null,
};

const charts = chartDefinitions.map((definition) => new Chart(definition));
byId("charts").append(...charts.map((chart) => chart.node));
const writeTiles = tileRow(tileDefinitions);
const writeReplicas = replicaTable(askForReplica);
const writeProcesses = processTable();
const writeLedger = ledgerFacts();
const writeBanners = bannerList();
const writeDecisions = decisionTable();
const writeGovernor = governorFacts();
const writeTenants = tenantTable();
const writeBudgets = budgetList();
const writeExperiment = experimentPanel();
const writeFindings = findingsPanel();

// -- figures

function drawCharts() {
  for (const chart of charts) chart.update(series, page.governor);
}

function write() {
  writeTiles({ sample: page.sample, ceilings: series.ceilings, governor: page.governor });
  if (page.status === null || page.governor === null) return;
  setText(byId("version"), `${page.status.version} · up ${duration(Math.floor(page.status.uptime_s))}`);
  writeReplicas(page.status);
  writeProcesses(page.status);
  writeLedger(page.status);
  writeBanners(page.status, page.governor);
  writeDecisions(page.governor);
  writeGovernor(page.governor);
  writeTenants(page.governor);
  writeBudgets(page.governor, page.status.now_utc_s);
  writeExperiment(page.experiment);
  writeState();
}

async function load() {
  const rangeS = page.rangeS;
  if (page.loadingS === rangeS) return;
  page.loadingS = rangeS;
  page.fetchedAt = performance.now();
  try {
    const found = await request(`/api/v1/series?window_s=${rangeS}`);
    if (page.loadingS !== rangeS) return; // another range was chosen meanwhile
    series.replace(found);
    page.loaded = true;
    drawCharts();
  } catch {
    // The live connection tells when the gateway is back, and then this is called again.
  } finally {
    if (page.loadingS === rangeS) page.loadingS = null;
  }
}

async function askForFindings() {
  const now = performance.now();
  if (page.findingsAt !== null && (now - page.findingsAt) / 1000 < FINDINGS_S) return;
  page.findingsAt = now;
  try {
    writeFindings(await request("/api/v1/findings"));
  } catch {
    // The live connection tells when the gateway is back; the next update asks again.
  }
}

function take({ sample, status, governor, experiment }) {
  page.sample = sample;
  page.status = status;
  page.governor = governor;
  page.experiment = experiment;
  if (page.paused) return;
  write();
  askForFindings();
  if (sample === null) return;
  if (!page.loaded) {
    load();
    return;
  }
  if (series.stepS > 1) {
    const elapsedS = (performance.now() - page.fetchedAt) / 1000;
    if (elapsedS >= Math.max(REFETCH_MIN_S, series.stepS)) load();
  } else if (series.append(sample)) {
    drawCharts();
  } else {
    load();
  }
}

// -- state of the connection

function writeState() {
  let shown = page.state;
  if (shown === "live" && page.status?.draining) shown = "draining";
  if (shown === "live" && page.paused) shown = "paused";
  document.body.dataset.state = shown;
  setText(byId("state"), STATES[shown] ?? "Unreachable");
  document.title = ["live", "paused"].includes(shown) ? "Mileage" : "(!) Mileage";
}

function setState(state, detail) {
  const notice = byId("notice");
  if (state === "live") page.lostAt = null;
  else page.lostAt ??= Date.now() / 1000;
  page.state = state;
  if (state === "unreachable") {
    notify(`Gateway unreachable since ${clock(page.lostAt)}. Trying again.`, "connection");
  } else if (state === "refused") {
    notify(detail, "connection");
  } else if (state === "stale") {
    notify(`No update since ${clock(page.lostAt)}. These figures are old.`, "connection");
  } else if (notice.dataset.about === "connection") {
    notice.hidden = true;
  }
  writeState();
}

function notify(text, about) {
  const notice = byId("notice");
  notice.dataset.about = about;
  setText(notice, text);
  notice.hidden = false;
}

// -- controls

function choose(rangeS) {
  page.rangeS = rangeS;
  page.loaded = false;
  history.replaceState(null, "", `#range=${rangeS}`);
  for (const button of byId("ranges").children) {
    button.setAttribute("aria-pressed", String(button.dataset.rangeS === String(rangeS)));
  }
  load();
}

function pause() {
  page.paused = !page.paused;
  byId("pause").setAttribute("aria-pressed", String(page.paused));
  setText(byId("pause"), page.paused ? "Resume" : "Pause");
  writeState();
  if (!page.paused) {
    write();
    load();
  }
}

function askForReplica(row) {
  const verb = row.enabled ? "Disable" : "Enable";
  setText(byId("confirm-title"), `${verb} ${row.name}?`);
  setText(
    byId("confirm-text"),
    row.enabled
      ? "It gets no new requests. What it runs now is finished."
      : "It gets new requests again as soon as its health check passes.",
  );
  setText(byId("confirm-yes"), verb);
  const dialog = byId("confirm");
  dialog.returnValue = "no";
  dialog.onclose = () => {
    if (dialog.returnValue === "yes") setReplica(row);
  };
  dialog.showModal();
}

async function setReplica(row) {
  const verb = row.enabled ? "disable" : "enable";
  try {
    await request(`/api/v1/replicas/${encodeURIComponent(row.name)}/${verb}`, { method: "POST" });
    const found = await request("/api/v1/status");
    page.status = found;
    write();
  } catch (error) {
    notify(`Could not ${verb} ${row.name}: ${error.message}`, "replica");
  }
}

// -- start

for (const [rangeS, label] of RANGES) {
  const button = element("button", { type: "button", "data-range-s": rangeS }, label);
  button.addEventListener("click", () => choose(rangeS));
  byId("ranges").append(button);
}
byId("pause").addEventListener("click", pause);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts) chart.rebuild();
});

const asked = Number(new URLSearchParams(location.hash.slice(1)).get("range"));
const live = new Live({
  connected: load,
  update: take,
  state: setState,
  signedOut: () => location.replace("/login"),
});
drawCharts();
write();
choose(RANGES.some(([rangeS]) => rangeS === asked) ? asked : 300);
live.start();
