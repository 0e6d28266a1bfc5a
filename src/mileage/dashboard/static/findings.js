// What the doctor finds in the gateway's figures of the last minutes.

import { byId, setText } from "./dom.js";
import { Table } from "./table.js";

export const PERIOD_S = 15;
const VERDICTS = {
  finding: "",
  clear: "Clear: nothing that the gateway sees costs money or time.",
  not_enough_evidence: "Not enough evidence yet.",
};

const usd = new Intl.NumberFormat("en-US", { style: "currency", currency: "USD", maximumFractionDigits: 0 });

function loss({ loss_low_usd_per_month: low, loss_high_usd_per_month: high }) {
  if (low === null || high === null) return "unknown";
  const [from, to] = [usd.format(low), usd.format(high)];
  return from === to ? from : `${from} to ${to}`;
}

export function findingsPanel() {
  const columns = [
    {
      title: "Cause",
      text: (row) => row.title,
      detail: (row) => `${row.rule} ${row.cause}${row.consequence_of ? `, by ${row.consequence_of}` : ""}`,
      hint: (row) => row.evidence.join("\n"),
      tone: (row) => (row.severity === "critical" ? "bad" : row.severity === "warning" ? "warn" : ""),
    },
    { title: "What to do", text: (row) => row.remedy },
    { title: "Sure", text: (row) => `${Math.round(100 * row.confidence)} %`, numeric: true },
    { title: "A month", text: loss, numeric: true },
  ];
  const table = new Table(byId("findings"), columns, {
    caption: "What the doctor finds, the cause first",
    empty: "Nothing is found in these figures. mileage doctor also looks at the host and at engines.",
  });
  return ({ verdict, window_s: windowS, findings }) => {
    const over = windowS === null ? "" : ` of the last ${Math.round(windowS)} s`;
    setText(byId("findings-summary"), `${VERDICTS[verdict] ?? ""}${over}`.trim());
    table.update(findings.map((row) => ({ ...row, key: row.rule })));
  };
}
