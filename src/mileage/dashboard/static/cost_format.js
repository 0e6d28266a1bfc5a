// Money and GPU time as text: dollars where there is a price, hours always.

import { MISSING, figure, money } from "./format.js";

const NS_PER_HOUR = 3.6e12;

export function hours(gpuNs) {
  return gpuNs / NS_PER_HOUR;
}

export function gpuTime(gpuNs) {
  if (gpuNs === null) return MISSING;
  const found = hours(gpuNs);
  if (found === 0) return "0 GPU-h";
  if (found < 0.01) return `${figure(gpuNs / 1e9)} GPU-s`;
  return `${figure(found)} GPU-h`;
}

export function dollars(usd) {
  return usd === null || usd === undefined ? MISSING : `$${money(usd)}`;
}

// An amount by what is known of it: where one has no price, its time.
export function cost({ gpu_ns: gpuNs, usd }) {
  return usd === null ? gpuTime(gpuNs) : dollars(usd);
}

// A part of the whole: no time costs nothing, but where others have no price it is in their unit.
export function costOfPart(amount, { usd_total: whole }) {
  return whole === null && amount.gpu_ns === 0 ? gpuTime(0) : cost(amount);
}

// "a, b" of a whole; null where there is no whole.
export function share(part, whole) {
  return whole > 0 ? part / whole : null;
}

// Shares of which the small ones are seen too.
export function portion(value) {
  if (value === null) return MISSING;
  if (value > 0 && value < 0.001) return "<0.1 %";
  return `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;
}
