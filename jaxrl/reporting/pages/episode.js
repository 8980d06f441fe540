"use strict";
const rows = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg", WIDTH = 600, HEIGHT = 90;
const last = Math.max(0, rows.length - 1);
const cursors = [];
let now = 0, timer = 0;

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function heading(text) {
  const made = document.createElement("h2");
  made.textContent = text;
  byId("curves").append(made);
  return made;
}

const across = (t) => (last ? (t / last) * WIDTH : WIDTH / 2);
const jump = (event) => {
  const box = event.currentTarget.getBoundingClientRect();
  show(Math.round(((event.clientX - box.left) / box.width) * last));
};

// A value that is null is left out.
function curve(title, values) {
  const head = heading(title);
  const low = Math.min(0, ...values), high = Math.max(0, ...values), span = high - low || 1;
  const y = (x) => HEIGHT - 4 - ((x - low) / span) * (HEIGHT - 8);
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", height: HEIGHT });
  svg.append(shape("line", { x1: 0, x2: WIDTH, y1: y(0), y2: y(0), stroke: "#c9d0d8" }));
  svg.append(shape("polyline", { points: values.flatMap((x, t) => (x === null ? [] : [`${across(t)},${y(x)}`])).join(" "), fill: "none",
    stroke: "#0072B2", "stroke-width": 2, "vector-effect": "non-scaling-stroke" }));
  const line = shape("line", { y1: 0, y2: HEIGHT, stroke: "#D55E00", "vector-effect": "non-scaling-stroke" });
  svg.append(line);
  svg.addEventListener("click", jump);
  byId("curves").append(svg);
  cursors.push((t) => {
    line.setAttribute("x1", across(t));
    line.setAttribute("x2", across(t));
    head.textContent = `${title}: ${values[t] ?? "-"}  (${low} to ${high})`;
  });
}

// Time across, a unit in each row: blue below 0, red above.
function carries() {
  const units = rows[0].carry.length;
  if (!units) return;
  heading("carry before the step, a row for each unit: blue below 0, red above");
  const canvas = document.createElement("canvas");
  canvas.width = rows.length;
  canvas.height = units;
  const context = canvas.getContext("2d"), picture = context.createImageData(rows.length, units);
  rows.forEach((row, t) => row.carry.forEach((x, unit) => {
    const strength = Math.round(255 * (1 - Math.min(1, Math.abs(x)))), at = 4 * (unit * rows.length + t);
    picture.data.set(x < 0 ? [strength, strength, 255, 255] : [255, strength, strength, 255], at);
  }));
  const draw = (t) => {
    context.putImageData(picture, 0, 0);
    context.fillStyle = "rgba(0, 0, 0, .55)";
    context.fillRect(t, 0, Math.max(1, rows.length / 400), units);
  };
  canvas.addEventListener("click", jump);
  byId("curves").append(canvas);
  cursors.push(draw);
}

function choice(row) {
  const [name, values] = Object.entries(row.choice)[0] || ["", []];
  const deviations = row.choice.deviation;
  byId("chosen").textContent = `${name} of each action; taken: ${row.action.join(", ")}`;
  const probabilities = name === "probability";
  const most = probabilities ? 1 : Math.max(1e-9, ...values.map(Math.abs));
  byId("choice").replaceChildren(...values.flatMap((value, index) => {
    const label = document.createElement("span"), bar = document.createElement("i"), text = document.createElement("span");
    label.textContent = String(index);
    bar.style.width = `${(100 * Math.abs(value)) / most}%`;
    if (row.action.length === 1 && values.length > 1 && row.action[0] === index) bar.className = "taken";
    text.textContent = deviations ? `${value} ± ${deviations[index]}` : String(value);
    return [label, bar, text];
  }));
}

function show(t) {
  now = Math.min(Math.max(t, 0), last);
  const row = rows[now];
  byId("step").value = now;
  byId("now").textContent = `step ${now} of ${last}, reward ${row.reward}`;
  byId("reports").textContent = Object.entries(row.reports).map(([name, x]) => `${name} ${x}`).join(", ");
  byId("picture").hidden = !row.picture;
  if (row.picture) byId("picture").src = "data:image/png;base64," + row.picture;
  choice(row);
  for (const move of cursors) move(now);
}

function play() {
  if (timer) {
    clearInterval(timer);
    timer = 0;
  } else {
    if (now === last) show(0);
    timer = setInterval(() => (now < last ? show(now + 1) : play()), 60);
  }
  byId("play").textContent = timer ? "pause" : "play";
}

if (rows.length) {
  byId("step").max = last;
  let total = 0;
  curve("value", rows.map((row) => row.value));
  curve("reward", rows.map((row) => row.reward));
  curve("return so far", rows.map((row) => +(total += row.reward).toPrecision(6)));
  for (const name of [...new Set(rows.flatMap((row) => Object.keys(row.reports)))].sort())
    curve(name, rows.map((row) => row.reports[name] ?? null));
  carries();
  byId("step").addEventListener("input", (event) => show(+event.target.value));
  byId("play").addEventListener("click", play);
  document.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by && event.target.id !== "step") show(now + by);
    if (event.key === " " && event.target.id !== "play") {
      event.preventDefault();
      play();
    }
  });
  show(0);
}
