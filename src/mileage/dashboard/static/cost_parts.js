// What GPU time goes to: names, colours and explanations, in the order in which they are stacked.

export const PARTS = [
  ["prefill", "Prefill", "c1", "Prompt tokens that no cache had"],
  ["decode", "Decode", "c3", "Output tokens"],
  ["recomputed", "Recomputed", "c2", "Prompts that were computed before and lost by a preemption"],
  ["failed", "Failures", "bad", "Requests that did not end well: failed, cancelled, lost"],
  ["warmup", "Warm-up", "c5", "Replicas that were started and not ready yet"],
  ["unattributed", "Unattributed", "c6", "On record as nobody's: mileage cost verify"],
  ["idle", "Idle", "idle", "Replicas that were up and had nothing to do"],
];

const ACCOUNT_COLORS = ["c1", "c3", "c2", "c5", "c6", "c4"];
export const ACCOUNTS_MAX = ACCOUNT_COLORS.length;

// The dearest accounts each have a colour; the rest is one more.
export function accountParts(view) {
  const own = view.accounts.filter(({ name }) => !name.startsWith("("));
  const shown = own.slice(0, ACCOUNTS_MAX).map(({ name }, index) => [name, name, ACCOUNT_COLORS[index], ""]);
  const all = view.accounts.map(({ name }) => name);
  const rest = all.length > shown.length ? [[null, "others", "muted", "All other accounts"]] : [];
  return [...shown, ...rest];
}

// Amounts of a period by account, in the parts of `accountParts`; what is idle is nobody's.
export function byAccount(period, parts) {
  const found = new Map(parts.map(([name]) => [name, { gpu_ns: 0, usd: 0 }]));
  for (const [name, amount] of Object.entries(period.accounts)) {
    const sum = found.get(name) ?? found.get(null);
    if (sum === undefined) continue;
    sum.gpu_ns += amount.gpu_ns;
    sum.usd = sum.usd === null || amount.usd === null ? null : sum.usd + amount.usd;
  }
  return found;
}

export function byPart(period) {
  return new Map(Object.entries(period.where));
}
