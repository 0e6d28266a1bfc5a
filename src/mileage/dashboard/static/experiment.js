// The live experiment: both arms side by side, and what has become of it.

import { byId, element, setAttribute, setText } from "./dom.js";
import { MISSING, clock, count, figure, latency, percent } from "./format.js";
import { Table } from "./table.js";

const STATES = {
  running: ["running", "dot ok"],
  rolled_back: ["rolled back: all traffic is arm a's", "dot bad"],
  promoted: ["promoted", "dot ok"],
};
const VERDICTS = {
  better: ["b is better", "dot ok"],
  worse: ["b is worse", "dot bad"],
  mixed: ["b is better in some, worse in others", "dot warn"],
  no_difference: ["no difference", "dot muted"],
  not_yet: ["not yet", "dot muted"],
  invalid: ["not yet", "dot muted"],
};

function share(value) {
  return value === null ? MISSING : `${(value * 100).toFixed(2)} %`;
}

// Figures of each block of time, and how they are written.
const METRICS = [
  ["answered_ratio", "Answered", share],
  ["target_met_ratio", "Targets met", share],
  ["ttft_mean_s", "TTFT", latency],
  ["itl_p99_mean_s", "ITL p99", latency],
  ["e2e_mean_s", "Whole answer", latency],
  ["gpu_s_per_output_token", "GPU per token", latency],
];

function change(ratio) {
  if (ratio === null) return MISSING;
  const value = (ratio - 1) * 100;
  const text = Math.abs(value) < 9.95 ? Math.abs(value).toFixed(1) : count(Math.abs(value));
  return `${value < 0 ? "−" : "+"}${text} %`;
}

function rows({ a, b, comparisons }) {
  const counted = { key: "requests", title: "Requests", a: count(a.requests), b: count(b.requests) };
  const found = new Map(comparisons.map((each) => [each.metric, each]));
  const compared = METRICS.filter(([metric]) => found.has(metric)).map(([metric, title, text]) => {
    const each = found.get(metric);
    const range = each.ci95 === null ? MISSING : each.ci95.map(change).join(" to ");
    const [verdict, tone] = VERDICTS[each.verdict] ?? [each.verdict, "dot muted"];
    return {
      key: metric,
      title,
      a: text(each.a),
      b: text(each.b),
      change: change(each.ratio),
      range,
      verdict,
      tone,
      hint: each.text,
    };
  });
  return [counted, ...compared];
}

function armTable() {
  const columns = [
    { title: "Mean of blocks", text: (row) => row.title },
    { title: "Arm a", numeric: true, text: (row) => row.a },
    { title: "Arm b", numeric: true, text: (row) => row.b },
    { title: "b against a", numeric: true, text: (row) => row.change ?? "" },
    { title: "95 % interval", numeric: true, text: (row) => row.range ?? "" },
    {
      title: "By one look",
      text: (row) => row.verdict ?? "",
      tone: (row) => row.tone ?? null,
      hint: (row) => row.hint ?? null,
    },
  ];
  return new Table(byId("experiment"), columns, {
    caption: "Both arms of the experiment",
    empty: "Nothing has been counted yet.",
  });
}

function stepText({ step, steps }) {
  if (step === null) return MISSING;
  return `${step + 1} of ${steps.length}: ${steps.map(percent).join(", ")}`;
}

function evidenceText({ evidence, blocks }) {
  if (evidence === null) return MISSING;
  return `${figure(evidence)} to 1 that b is worse, ${count(blocks)} blocks`;
}

const FACTS = [
  ["State", ({ state }) => (STATES[state] ?? [state])[0], ({ state }) => (STATES[state] ?? ["", "dot muted"])[1]],
  ["Traffic of b", ({ ratio }) => (ratio === null ? MISSING : percent(ratio))],
  ["Step", stepText],
  ["Reason", ({ reason, since_utc_s: sinceS }) => `${reason ?? MISSING} (${clock(sinceS)})`],
  [
    "Verdict",
    ({ verdict }) => (VERDICTS[verdict] ?? [MISSING])[0],
    ({ verdict }) => (VERDICTS[verdict] ?? ["", "dot muted"])[1],
    ({ verdict_text: text }) => text,
  ],
  ["Evidence", evidenceText],
];

// Hidden while there are no arms.
export function experimentPanel() {
  const table = armTable();
  const facts = FACTS.map(([title, ...told]) => {
    const value = element("dd");
    byId("experiment-facts").append(element("div", {}, element("dt", {}, title), value));
    return [value, ...told];
  });
  return (experiment) => {
    const shown = experiment?.a && experiment.b;
    byId("experiment-panels").hidden = !shown;
    if (!shown) return;
    setText(byId("experiment-name"), `${experiment.name} (${experiment.mode})`);
    table.update(rows(experiment));
    for (const [value, text, tone, hint] of facts) {
      setText(value, text(experiment));
      setAttribute(value, "class", tone?.(experiment) ?? null);
      setAttribute(value, "title", hint?.(experiment) ?? null);
    }
  };
}
