// Figures as text. What is missing is a dash, never 0.

export const MISSING = "–";

function given(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// Three significant digits, without the exponent that toPrecision would use.
function short(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return value.toFixed(1);
  if (size >= 0.01) return value.toFixed(2);
  return "<0.01";
}

export function figure(value) {
  if (!given(value)) return MISSING;
  if (value >= 999_500_000) return `${short(value / 1e9)}G`;
  if (value >= 999_500) return `${short(value / 1e6)}M`;
  if (value >= 9_995) return `${short(value / 1e3)}k`;
  return short(value);
}

// Whole things, such as tokens: every one of them while they are few.
export function tally(value) {
  return given(value) && value < 9_995 ? count(value) : figure(value);
}

export function count(value) {
  return given(value) ? Math.round(value).toLocaleString("en-US") : MISSING;
}

export function latency(value) {
  if (!given(value)) return MISSING;
  if (value < 0.9995) return `${short(value * 1e3)} ms`;
  return `${short(value)} s`;
}

export function percent(value) {
  return given(value) ? `${(value * 100).toFixed(0)} %` : MISSING;
}

// A share that was attained: all is only what is all.
export function attained(value) {
  if (!given(value)) return MISSING;
  const tenths = Math.floor(value * 1000 + 1e-9) / 10;
  return `${value >= 1 || tenths < 90 ? Math.floor(tenths) : tenths.toFixed(1)} %`;
}

// An amount of money: cents where they matter, and enough digits where it is less than one.
export function money(value) {
  if (!given(value)) return MISSING;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 9_999.5) return figure(value);
  if (size >= 0.995) return value.toFixed(2);
  if (size < 0.000_095) return "<0.0001";
  return value.toFixed(size < 0.0995 ? 4 : 3);
}

export function duration(value) {
  if (!given(value)) return MISSING;
  if (value < 9.95 && !Number.isInteger(value)) return `${value.toFixed(1)} s`;
  if (value < 119.5) return `${value.toFixed(0)} s`;
  if (value < 7_170) return `${(value / 60).toFixed(0)} min`;
  if (value < 171_000) return `${(value / 3_600).toFixed(0)} h`;
  return `${(value / 86_400).toFixed(0)} d`;
}

export function bytes(value) {
  if (!given(value)) return MISSING;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let rest = value;
  let unit = 0;
  while (rest >= 1023.5 && unit < units.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? rest.toFixed(0) : short(rest)} ${units[unit]}`;
}

function two(value) {
  return String(value).padStart(2, "0");
}

// A tick of an axis: round already, so without the zeros that keep live figures from jumping.
export function tick(text) {
  const short = text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
  return short.replace(/^0\s.*$/, "0");
}

export function clock(utcS, { seconds = true } = {}) {
  const at = new Date(utcS * 1000);
  const minutes = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return seconds ? `${minutes}:${two(at.getSeconds())}` : minutes;
}
