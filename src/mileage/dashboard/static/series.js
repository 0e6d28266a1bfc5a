// The window of points that the charts show: replaced from the gateway's series, then extended by
// the live samples while the points are a second apart.

const SEPARATOR = "\u0000";

function key(name, label) {
  return label === null ? name : name + SEPARATOR + label;
}

export class Series {
  constructor() {
    this.stepS = 1;
    this.windowS = 300;
    this.times = [];
    this.columns = new Map(); // a Map, because a label may be called __proto__
    this.ceilings = {};
  }

  replace(document) {
    this.stepS = document.step_s;
    this.windowS = document.window_s;
    this.times = document.times_utc_s;
    this.ceilings = document.ceilings;
    this.columns = new Map();
    for (const [name, values] of Object.entries(document.values)) {
      this.columns.set(key(name, null), values);
    }
    for (const [name, group] of Object.entries(document.groups)) {
      for (const { label, values } of group) this.columns.set(key(name, label), values);
    }
  }

  // Returns false where the sample does not follow the last point: then points are missing, or the
  // clock was set, and the window must be fetched anew.
  append(sample) {
    const last = this.times.at(-1);
    if (last !== undefined) {
      const elapsedS = sample.at_utc_s - last;
      if (elapsedS > -0.5 && elapsedS < 0.5) return true; // the newest point was fetched already
      if (elapsedS < 0 || elapsedS > this.stepS * 1.5) return false;
    }
    const found = new Map();
    for (const [name, value] of Object.entries(sample.values)) found.set(key(name, null), value);
    for (const [name, group] of Object.entries(sample.groups)) {
      for (const [label, value] of group) found.set(key(name, label), value);
    }
    for (const name of found.keys()) {
      if (!this.columns.has(name)) {
        this.columns.set(name, new Array(this.times.length).fill(null));
      }
    }
    this.times.push(sample.at_utc_s);
    for (const [name, values] of this.columns) values.push(found.get(name) ?? null);
    this.trim();
    return true;
  }

  trim() {
    const extra = this.times.length - Math.ceil(this.windowS / this.stepS);
    if (extra <= 0) return;
    this.times.splice(0, extra);
    for (const [name, values] of this.columns) {
      values.splice(0, extra);
      if (values.every((value) => value === null)) this.columns.delete(name);
    }
  }

  column(name, label = null) {
    return this.columns.get(key(name, label)) ?? new Array(this.times.length).fill(null);
  }

  labels(name) {
    const start = name + SEPARATOR;
    const found = [];
    for (const column of this.columns.keys()) {
      if (column.startsWith(start)) found.push(column.slice(start.length));
    }
    return found;
  }
}

// The sum over the columns, point by point, of what is known; missing where it is in all of them.
export function summed(columns) {
  if (columns.length === 0) return [];
  return columns[0].map((_, index) => {
    const known = columns.map((column) => column[index]).filter((value) => value !== null);
    return known.length === 0 ? null : known.reduce((a, b) => a + b, 0);
  });
}

// The value at rank `q` (0 the least, 1 the most) over the columns, point by point; a point is
// missing only where it is missing in all of them.
export function ranked(columns, q) {
  if (columns.length === 0) return [];
  return columns[0].map((_, index) => {
    const known = columns.map((column) => column[index]).filter((value) => value !== null);
    known.sort((a, b) => a - b);
    return known.length === 0 ? null : known[Math.round(q * (known.length - 1))];
  });
}
