"use strict";
// Pictures: curves with bands by Plotly, parallel coordinates as SVG. Names come from anyone: Plotly would read
// `<` as the beginning of a tag, and elements take them as text alone.

// Distinguishable with colour blindness (Okabe and Ito 2008).
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B2A400"];

function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function shorter(text, most) {
  return text.length <= most ? text : text.slice(0, most / 2) + "…" + text.slice(-most / 2);
}

// A picture for each environment: returns of different ones have nothing in common.
function showCharts(place, curves, metric) {
  const environments = [...new Set(curves.map((curve) => curve.env))];
  if (place.dataset.environments !== JSON.stringify(environments)) {
    place.dataset.environments = JSON.stringify(environments);
    place.replaceChildren(...environments.map((env) => element("figure", {},
      element("figcaption", { textContent: env }), element("div", { class: "chart" }), element("ul", { class: "legend" }))));
  }
  environments.forEach((env, index) => {
    const drawn = curves.filter((curve) => curve.env === env), figure = place.children[index];
    drawCurves(figure.querySelector(".chart"), drawn, metric);
    figure.querySelector(".legend").replaceChildren(...legendOf(drawn));
  });
}

function drawCurves(element, curves, metric) {
  const traces = [];
  curves.forEach((curve, index) => {
    const color = COLORS[index % COLORS.length];
    const name = plain(shorter(curve.label, 70));
    if (curve.runs.length > 1) {
      traces.push({ x: curve.steps.concat([...curve.steps].reverse()),
        y: curve.high.concat([...curve.low].reverse()), fill: "toself", fillcolor: color + "26",
        line: { width: 0 }, hoverinfo: "skip", showlegend: false  });
    }
    const few = curve.steps.length < 30;
    traces.push({ x: curve.steps, y: curve.mean, name, mode: few ? "lines+markers" : "lines",
      line: { color, width: 2 }, marker: { size: 4 },
      hovertemplate: "%{y:.4g} at %{x:,}<extra>" + name + "</extra>" });
  });
  // A dashed line where a stage ends, in the colour of its curve.
  const shapes = curves.flatMap((curve, index) => curve.stage_ends.map((step) => ({ type: "line", x0: step, x1: step,
    y0: 0, y1: 1, yref: "paper", opacity: 0.5, line: { color: COLORS[index % COLORS.length], width: 1, dash: "dash" } })));
  const layout = { shapes, margin: { l: 55, r: 10, t: 30, b: 40 }, font: { size: 11, family: "system-ui, sans-serif" },
    xaxis: { title: { text: "steps" }, gridcolor: "#e9ecef", zeroline: false },
    yaxis: { title: { text: plain(metric) }, gridcolor: "#e9ecef", zeroline: false, automargin: true },
    showlegend: false, width: element.clientWidth, height: element.clientHeight,
    uirevision: metric, hovermode: "closest", plot_bgcolor: "#fff", paper_bgcolor: "#fff" };
  Plotly.react(element, traces, layout, { displaylogo: false,
    modeBarButtonsToRemove: ["lasso2d", "select2d"] });
}

// The names of curves in their colours, as text.
function legendOf(curves) {
  return curves.map((curve, index) => {
    const line = document.createElement("li");
    line.style.setProperty("--color", COLORS[index % COLORS.length]);
    line.textContent = curve.label;
    return line;
  });
}

function node(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The heights of a column's values from 0 to 1, and the texts at both ends; words stand in alphabetical order.
function axis(values) {
  const numbers = values.every((value) => typeof value === "number");
  if (numbers) {
    const log = Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > 30;
    const scale = log ? Math.log : (x) => x;
    const low = Math.min(...values), high = Math.max(...values), span = scale(high) - scale(low);
    return { height: (x) => (span ? (scale(x) - scale(low)) / span : 0.5), ends: [short(low), short(high)] };
  }
  const words = [...new Set(values.map((value) => JSON.stringify(value)))].sort();
  return { height: (x) => (words.length > 1 ? words.indexOf(JSON.stringify(x)) / (words.length - 1) : 0.5),
    ends: [words[0], words[words.length - 1]] };
}

function short(x) {
  return Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(1) : String(+x.toPrecision(4));
}

// A line for each trial across the fields to its score; the better, the darker.
function parallelCoordinates(fields, trials) {
  const scored = trials.filter((trial) => typeof trial.score === "number")
    .filter((trial) => fields.every((field) => field in trial.values));
  const columns = [...fields, "score"];
  const width = Math.max(360, 150 * columns.length), height = 300, top = 40, bottom = 20, side = 50;
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "parallel coordinates" });
  if (!scored.length) return svg;
  const value = (trial, column) => (column === "score" ? trial.score : trial.values[column]);
  const axes = columns.map((column) => axis(scored.map((trial) => value(trial, column))));
  const x = (index) => side + (index * (width - 2 * side)) / (columns.length - 1);
  const y = (share) => height - bottom - share * (height - top - bottom);
  const best = axes[axes.length - 1].height;
  for (const trial of [...scored].sort((a, b) => a.score - b.score)) {
    const points = columns.map((column, index) => `${x(index)},${y(axes[index].height(value(trial, column)))}`);
    const worth = best(trial.score);
    const line = node("polyline", { points: points.join(" "), fill: "none", stroke: worth === 1 ? COLORS[1] : COLORS[0],
      "stroke-opacity": 0.15 + 0.85 * worth * worth, "stroke-width": worth === 1 ? 2.5 : 1.2 });
    line.append(node("title", {}, `trial ${trial.number}: ${short(trial.score)}`));
    svg.append(line);
  }
  columns.forEach((column, index) => {
    svg.append(node("line", { x1: x(index), x2: x(index), y1: y(0), y2: y(1), stroke: "#8a929b" }));
    // The outer names begin and end with the picture: in the middle of their axis they would be cut.
    const place = index === 0 ? { x: 0, "text-anchor": "start" }
      : index === columns.length - 1 ? { x: width, "text-anchor": "end" } : { x: x(index), "text-anchor": "middle" };
    svg.append(node("text", { ...place, y: 14 }, shorter(column, 24)));
    svg.append(node("text", { x: x(index), y: top - 8, "text-anchor": "middle" }, shorter(axes[index].ends[1], 16)));
    svg.append(node("text", { x: x(index), y: height - 5, "text-anchor": "middle" }, shorter(axes[index].ends[0], 16)));
  });
  return svg;
}

// A line for each member of a population along the steps, and an arrow for each copy, from the source to the
// member that goes on from it.
function lineage(copies) {
  const kept = copies.filter((copy) => typeof copy.step === "number" && copy.member !== copy.source);
  const members = [...new Set(kept.flatMap((copy) => [String(copy.source), String(copy.member)]))].sort();
  const last = Math.max(1, ...kept.map((copy) => copy.step)), row = 24, top = 14, left = 90, width = 640;
  const height = top + row * members.length + 20;
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "lineage" });
  const x = (step) => left + (step / last) * (width - left - 20), y = (name) => top + row * members.indexOf(String(name));
  const head = node("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6,
    orient: "auto" });
  head.append(node("path", { d: "M0 0 L8 4 L0 8 z", fill: COLORS[1] }));
  svg.append(head);
  for (const name of members) {
    svg.append(node("line", { x1: left, x2: width - 20, y1: y(name), y2: y(name), stroke: "#c9d0d8" }));
    svg.append(node("text", { x: left - 8, y: y(name) + 4, "text-anchor": "end" }, shorter(name, 12)));
  }
  for (const copy of kept) {
    const arrow = node("line", { x1: x(copy.step), x2: x(copy.step), y1: y(copy.source), y2: y(copy.member),
      stroke: COLORS[1], "stroke-width": 1.5, "marker-end": "url(#head)" });
    const score = (value) => (typeof value === "number" ? short(value) : "-");
    arrow.append(node("title", {}, `step ${copy.step}: ${copy.member} (${score(copy.score)}) goes on from ` +
      `${copy.source} (${score(copy.source_score)})`));
    svg.append(arrow);
  }
  svg.append(node("text", { x: left, y: height - 4 }, "0"));
  svg.append(node("text", { x: width - 20, y: height - 4, "text-anchor": "end" }, `${last.toLocaleString()} steps`));
  return svg;
}
