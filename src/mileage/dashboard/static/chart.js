// One chart: a caption, a legend whose figures are text, and the plot (uPlot) under them.

import { element, setAttribute, setText } from "./dom.js";
import { clock, tick } from "./format.js";

const HEIGHT = 148;
const LIGHT_FILL = "24"; // alpha, as hexadecimal digits after a colour
const BAND_FILL = "38";
const FAR = 4; // a reference line this many times above all else would flatten it: only told
const NO_DATA = "No data in this window";
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5];

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// The top of an axis: the next round number above the highest point.
function roundUp(highest) {
  const unit = 10 ** Math.floor(Math.log10(highest));
  const step = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((each) => each * unit >= highest * 1.04);
  return (step ?? 12) * unit;
}

export class Chart {
  constructor(definition) {
    this.definition = definition;
    this.plot = null;
    this.signature = "";
    this.lines = [];
    this.entries = [];
    this.hovered = null;
    this.series = null;
    this.time = element("span", { class: "quiet" });
    this.legend = element("ul", { class: "legend" });
    this.canvas = element("div", { class: "plot", role: "img" });
    this.empty = element("p", { class: "empty" }, NO_DATA);
    const title = element("figcaption", {}, element("h2", {}, definition.title), this.time);
    this.node = element(
      "figure",
      { class: "panel chart", id: `chart-${definition.id}` },
      title,
      this.legend,
      element("div", { class: "plot-box" }, this.canvas, this.empty),
    );
    new ResizeObserver(() => this.resize()).observe(this.canvas);
  }

  // `governor` is what the gateway tells of it, or null before it has.
  update(series, governor) {
    this.series = series;
    this.lines = this.definition.lines(series);
    this.empty.hidden = this.seen;
    setText(this.empty, this.definition.missing?.(governor) ?? NO_DATA);
    const signature = JSON.stringify(
      this.lines.map(({ label, color: name, dash, fill, band, step }) => [label, name, dash, fill, band, step]),
    );
    if (signature !== this.signature || this.plot === null) {
      this.signature = signature;
      this.rebuild();
    } else {
      this.plot.setData(this.data());
    }
    this.write();
  }

  // Also called when the colour scheme changes: a canvas does not follow a style sheet.
  rebuild() {
    if (this.series === null) return;
    this.plot?.destroy();
    this.plot = new uPlot(this.options(), this.data(), this.canvas);
    this.buildLegend();
    this.write();
  }

  data() {
    return [this.series.times, ...this.lines.map((line) => line.values)];
  }

  resize() {
    const width = this.canvas.clientWidth;
    if (this.plot !== null && width > 0 && width !== this.plot.width) {
      this.plot.setSize({ width, height: HEIGHT });
    }
  }

  get seen() {
    return this.lines.some((line) => !line.reference && line.values.some((value) => value !== null));
  }

  // The highest point; reference lines count as long as they are not far above all others.
  highest() {
    const tops = (wanted) =>
      this.lines
        .filter(({ reference = false }) => reference === wanted)
        .map(({ values }) => values.reduce((top, value) => Math.max(top, value ?? 0), 0));
    const data = Math.max(0, ...tops(false));
    const near = tops(true).filter((top) => data === 0 || top <= FAR * data);
    return Math.max(data, ...near);
  }

  top() {
    const highest = this.highest();
    const least = this.definition.whole ? 4 : 0;
    return highest > 0 ? Math.max(least, roundUp(highest)) : least || 1;
  }

  range() {
    const end = this.series.times.at(-1) ?? Date.now() / 1000;
    return [end - this.series.windowS, end];
  }

  options() {
    const grid = { stroke: color("grid"), width: 1 };
    const axis = { stroke: color("quiet"), font: "11px system-ui, sans-serif", grid, ticks: grid };
    const bands = [];
    this.lines.forEach((line, index) => {
      if (!line.band) return;
      bands.push({ series: [index + 1, index + 2], fill: color(line.color) + BAND_FILL });
    });
    return {
      width: this.canvas.clientWidth || 300,
      height: HEIGHT,
      padding: [6, 18, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: false, y: false },
        points: { size: 5 },
        sync: { key: "mileage", setSeries: false },
      },
      scales: {
        x: { range: () => this.range() },
        y: { range: () => [0, this.definition.max ?? this.top()] },
      },
      axes: [
        {
          ...axis,
          size: 22,
          gap: 3,
          space: 56,
          values: (_, splits) =>
            splits.map((at) => clock(at, { seconds: this.series.windowS <= 900 && at % 60 !== 0 })),
        },
        {
          ...axis,
          size: 54,
          gap: 4,
          space: 30,
          incrs: this.definition.whole ? WHOLE : undefined,
          values: (_, splits) =>
            splits.map((at) => (this.empty.hidden ? tick(this.definition.format(at)) : "")),
        },
      ],
      series: [
        {},
        ...this.lines.map((line) => ({
          stroke: color(line.color),
          width: line.width ?? 1.25,
          dash: line.dash,
          fill: line.fill ? color(line.color) + LIGHT_FILL : undefined,
          paths: line.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
          points: { show: (_, __, start, stop) => stop - start < 2 },
        })),
      ],
      bands,
      hooks: {
        setCursor: [
          (plot) => {
            this.hovered = plot.cursor.idx ?? null;
            this.write();
          },
        ],
      },
    };
  }

  buildLegend() {
    const names = [...new Set(this.lines.map(({ label }) => label))];
    this.entries = names.map((name) => {
      const lines = this.lines.map((line, index) => [line, index]).filter(([line]) => line.label === name);
      const figures = element("b");
      const kind = lines.every(([line]) => line.dash) ? "swatch dashed" : "swatch";
      const swatch = element("i", { class: `${kind} ${lines[0][0].color}`, "aria-hidden": "true" });
      const label = element("span", { title: name }, name);
      const item = element("li", {}, swatch, label, figures);
      return { name, item, figures, indices: lines.map(([, index]) => index) };
    });
    this.legend.replaceChildren(...this.entries.map((entry) => entry.item));
  }

  // Figures of the point under the cursor, else of the newest one.
  write() {
    const { times, windowS } = this.series;
    const hovered = this.hovered !== null && this.hovered < times.length ? this.hovered : null;
    const at = hovered ?? times.length - 1;
    setText(this.time, hovered === null ? "" : clock(times[at], { seconds: windowS <= 9_000 }));
    for (const { figures, indices } of this.entries) {
      const texts = indices.map((index) => this.definition.format(this.lines[index]?.values[at]));
      setText(figures, texts.join(" · "));
    }
    const summary = this.entries.map(({ name, figures }) => `${name} ${figures.textContent}`);
    const text = this.empty.hidden ? `Now: ${summary.join(", ")}` : this.empty.textContent;
    setAttribute(this.canvas, "aria-label", `Chart: ${this.definition.title}. ${text}`);
  }
}
