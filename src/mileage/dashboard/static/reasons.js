// What the governor says, as people say it: reasons of refusals, and decisions as sentences.

import { count } from "./format.js";

// By the controller's reason, and by the code that the answer has.
const REASONS = new Map([
  ["deadline", ["too late for its target", "c4"]],
  ["queue_full", ["queue full", "c2"]],
  ["rate_limited", ["above its rate", "c5"]],
  ["rate_limit_exceeded", ["above its rate", "c5"]],
  ["concurrency_limited", ["too many at once", "c6"]],
  ["concurrency_limit_exceeded", ["too many at once", "c6"]],
  ["budget_exhausted", ["budget used up", "warn"]],
  ["insufficient_quota", ["budget used up", "warn"]],
  ["no_replica", ["no replica up", "bad"]],
  ["upstream_failed", ["engines failed", "bad"]],
  ["busy", ["no connection free", "c3"]],
  ["ledger_failed", ["not recorded", "bad"]],
  ["model_not_found", ["unknown model", "muted"]],
  ["endpoint_not_supported", ["unknown endpoint", "muted"]],
]);

export const MERGED = { same: "answer shared", batch: "call shared" };

export function reasonWords(reason) {
  return REASONS.get(reason)?.[0] ?? reason;
}

export function reasonColor(reason) {
  return REASONS.get(reason)?.[1] ?? "muted";
}

// One decision in one line.
export function sentence(decision) {
  const { kind, subject, reason, limit, limit_before: before, count: many } = decision;
  if (kind === "refused") {
    return `${subject}: ${many === 1 ? "one request" : `${count(many)} requests`} refused, ${reasonWords(reason)}`;
  }
  if (kind === "engine") {
    return `${subject}: ${reason}`;
  }
  const change = before === null ? `limit ${count(limit)}` : `limit ${count(before)} → ${count(limit)}`;
  return kind === "failed" ? `${subject}: ${reason}; ${change}` : `${subject}: ${change}, ${reason}`;
}

export function tone({ kind }) {
  return { failed: "dot bad", refused: "dot warn", engine: "dot c3" }[kind] ?? "dot c1";
}
