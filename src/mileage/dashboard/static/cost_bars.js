// Columns over time: one per hour or day, stacked. Drawn as SVG: each column can have the focus,
// and tells its figures.

import { element, setText } from "./dom.js";
import { dollars, gpuTime, hours } from "./cost_format.js";
import { MISSING, figure, money, tick } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 220;
const LEFT = 52;
const BOTTOM = 20;
const TOP = 8;
const GAP_RATIO = 0.18;
const LABEL_WIDTH = 96;

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function two(value) {
  return String(value).padStart(2, "0");
}

export function periodName(utcS, step) {
  const at = new Date(utcS * 1000);
  const day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return step === "hour" ? `${day} ${two(at.getHours())}:${two(at.getMinutes())}` : day;
}

// The next round number above.
function roundUp(highest) {
  if (highest <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(highest));
  const step = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((each) => each * unit >= highest * 1.02);
  return (step ?? 12) * unit;
}

export class Columns {
  constructor(container, { legend, now }) {
    this.container = container;
    this.legend = legend;
    this.now = now;
    this.key = "";
    this.shown = null;
    new ResizeObserver(() => this.resize()).observe(container);
  }

  resize() {
    const width = this.container.clientWidth;
    if (this.shown === null || width === 0 || width === this.width) return;
    this.width = width;
    this.container.replaceChildren(this.draw(...this.shown));
  }

  // `parts` are [key, name, colour, hint], `amounts(period)` a Map of them; `priced`: show dollars.
  update(periods, { step, parts, amounts, priced }) {
    const value = ({ gpu_ns: gpuNs, usd }) => (priced ? (usd ?? 0) : hours(gpuNs));
    const stacks = periods.map((period) => {
      const found = amounts(period);
      return parts.map(([key]) => found.get(key) ?? { gpu_ns: 0, usd: priced ? 0 : null });
    });
    const sums = stacks.map((stack) => stack.reduce((all, each) => all + value(each), 0));
    const present = parts.map((_, index) => stacks.some((stack) => stack[index].gpu_ns > 0));
    const key = JSON.stringify([periods, parts, priced, step]);
    if (key === this.key) return; // the focus stays where it is
    this.key = key;
    this.rest = priced ? `per ${step}, USD` : `per ${step}, GPU-hours`;
    setText(this.now, this.rest);
    this.legend.replaceChildren(
      ...parts
        .filter((_, index) => present[index])
        .map(([, name, color, hint]) =>
          element(
            "li",
            { title: hint || name },
            element("i", { class: `swatch ${color}`, "aria-hidden": "true" }),
            element("span", {}, name),
          ),
        ),
    );
    this.shown = [periods, stacks, sums, { step, parts, value, priced }];
    this.width = this.container.clientWidth || 600;
    this.container.replaceChildren(this.draw(...this.shown));
  }

  draw(periods, stacks, sums, { step, parts, value, priced }) {
    const top = roundUp(Math.max(0, ...sums));
    const tall = HEIGHT - TOP - BOTTOM;
    const width = this.width;
    const wide = (width - LEFT) / Math.max(1, periods.length);
    const y = (amount) => TOP + tall * (1 - amount / top);
    const picture = svg("svg", {
      width,
      height: HEIGHT,
      role: "group",
      "aria-label": `Costs per ${step}`,
    });
    for (const at of [0, 0.5, 1]) {
      const label = tick(priced ? `$${money(at * top)}` : figure(at * top));
      picture.append(
        svg("line", { x1: LEFT, x2: width, y1: y(at * top), y2: y(at * top) }),
        svg("text", { x: LEFT - 6, y: y(at * top) + 4, "text-anchor": "end" }, at === 0 ? "0" : label),
      );
    }
    const every = Math.ceil(LABEL_WIDTH / wide);
    periods.forEach((period, index) => {
      const left = LEFT + index * wide;
      const name = periodName(period.since_utc_s, step);
      const column = svg("g", { class: "column", tabindex: "0", role: "img" });
      column.append(svg("rect", { class: "hit", x: left, y: TOP, width: wide, height: tall }));
      let height = 0;
      parts.forEach(([, , color], place) => {
        const amount = value(stacks[index][place]);
        if (amount <= 0) return;
        column.append(
          svg("rect", {
            class: color,
            x: left + (wide * GAP_RATIO) / 2,
            width: wide * (1 - GAP_RATIO),
            y: y(height + amount),
            height: Math.max(0.5, y(height) - y(height + amount)),
          }),
        );
        height += amount;
      });
      const text = this.tell(name, stacks[index], sums[index], parts, priced);
      column.setAttribute("aria-label", text);
      const show = () => setText(this.now, text);
      const hide = () => setText(this.now, this.rest);
      column.addEventListener("mouseenter", show);
      column.addEventListener("focus", show);
      column.addEventListener("mouseleave", hide);
      column.addEventListener("blur", hide);
      picture.append(column);
      if (index % every === 0 && left + LABEL_WIDTH - 24 < width) {
        picture.append(svg("text", { x: left + 1, y: HEIGHT - 5 }, name));
      }
    });
    return picture;
  }

  tell(name, stack, sum, parts, priced) {
    const told = parts
      .map(([, label], index) => [label, stack[index]])
      .filter(([, amount]) => amount.gpu_ns > 0)
      .map(([label, amount]) => `${label} ${priced ? dollars(amount.usd) : gpuTime(amount.gpu_ns)}`);
    const whole = priced ? dollars(sum) : `${figure(sum)} GPU-h`;
    return `${name}: ${whole}${told.length > 0 ? ` · ${told.join(" · ")}` : ` ${MISSING}`}`;
  }
}
