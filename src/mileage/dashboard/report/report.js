// Draws the charts of a report, in the colours of the page's theme.
"use strict";

(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const timed = [];
  let moving = false;

  function colour(text, style) {
    const [, name, alpha] = /^var\(--([a-z0-9]+)\)(?:\/([0-9.]+))?$/.exec(text) ?? [];
    if (name === undefined) return text;
    const value = style.getPropertyValue(`--${name}`).trim();
    if (alpha === undefined) return value;
    const part = (at) => parseInt(value.slice(at, at + 2), 16);
    return `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${alpha})`;
  }

  // The same tree with each colour of the page's style as it is now.
  function coloured(value, style) {
    if (typeof value === "string") return colour(value, style);
    if (Array.isArray(value)) return value.map((item) => coloured(item, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v, style)]));
  }

  function axis(given) {
    return {
      gridcolor: "var(--grid)",
      linecolor: "var(--edge)",
      zeroline: false,
      automargin: true,
      fixedrange: false,
      ...given,
      title: given.title ? { ...given.title, standoff: 6, font: { size: 11 } } : undefined,
    };
  }

  function layout(chart) {
    return {
      margin: { l: 46, r: 10, t: 6, b: 34 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 11, color: "var(--quiet)" },
      hoverlabel: { bgcolor: "var(--panel)", bordercolor: "var(--edge)", font: { color: "var(--text)" } },
      hovermode: chart.time ? "x unified" : "closest",
      showlegend: chart.legend,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11 } },
      barmode: "group",
      bargap: 0.25,
      xaxis: axis(chart.xaxis),
      yaxis: { ...axis(chart.yaxis), fixedrange: chart.time },
      shapes: chart.shapes,
    };
  }

  // Drag to zoom, double click for all of it; a bar of buttons would only be in the way.
  const config = { responsive: true, displayModeBar: false };

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const drawn = Object.entries(charts).map(([id, chart]) => {
      const place = document.getElementById(id);
      const [data, look] = coloured([chart.traces, layout(chart)], style);
      return Plotly.react(place, data, look, config);
    });
    return Promise.all(drawn);
  }

  // What is zoomed into in one chart over time is shown by all of them.
  function follow(id) {
    document.getElementById(id).on("plotly_relayout", (change) => {
      if (moving) return;
      const low = change["xaxis.range[0]"];
      const all = change["xaxis.autorange"] === true;
      if (low === undefined && !all) return;
      moving = true;
      const moved = timed
        .filter((other) => other !== id)
        .map((other) => {
          const range = all ? charts[other].xaxis.range : [low, change["xaxis.range[1]"]];
          return Plotly.relayout(other, { "xaxis.range": range.slice() });
        });
      Promise.all(moved).finally(() => (moving = false));
    });
  }

  draw().then(() => {
    for (const [id, chart] of Object.entries(charts)) {
      if (!chart.time) continue;
      timed.push(id);
      follow(id);
    }
    document.body.dataset.state = "drawn";
  });
  dark.addEventListener("change", draw);
})();
