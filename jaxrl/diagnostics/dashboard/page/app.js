"use strict";
// The page: a table of runs, and views of those that are selected. Its state is in the address, so that a link
// shows the same. Everything from files is set as text, never as HTML.

// The last word says on which screens a column is shown, or that it needs a value in some run.
const COLUMNS = [
  ["name", "run", "word name"], ["state", "state", "word"], ["eval", "eval", ""], ["return", "return", ""],
  ["step", "steps", ""], ["success", "success", "sparse"], ["rate", "steps/s", "extra"], ["time", "age", "extra"],
];
const TABS = ["curves", "difference", "run", "searches"];
const EVERY = 2500; // milliseconds between requests
const state = { q: "", tab: "curves", metric: "episode/return", sort: "time", down: true, open: "", search: "", runs: [] };
let table = { total: 0, runs: [] };
const byId = (id) => document.getElementById(id);

function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function readAddress() {
  const given = new URLSearchParams(location.search);
  for (const key of ["q", "tab", "metric", "sort", "open", "search"]) if (given.has(key)) state[key] = given.get(key);
  state.down = given.get("down") !== "0";
  state.runs = given.getAll("run");
  if (!TABS.includes(state.tab)) state.tab = "curves";
  byId("query").value = state.q;
}

function writeAddress() {
  const said = new URLSearchParams();
  for (const key of ["q", "tab", "metric", "sort", "open", "search"]) if (state[key]) said.set(key, state[key]);
  if (!state.down) said.set("down", "0");
  for (const run of state.runs) said.append("run", run);
  history.replaceState(null, "", "?" + said);
}

function change(values) {
  Object.assign(state, values);
  writeAddress();
  showTable();
  showView();
}

async function ask(path, values = []) {
  const answer = await fetch(path + "?" + new URLSearchParams(values), { cache: "no-store" });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || answer.statusText);
  return found;
}

const named = (runs) => runs.map((run) => ["run", run]);
const chosen = () => (state.runs.length ? state.runs
  : table.runs.filter((run) => run.state !== "saved").slice(0, 8).map((run) => run.name));

// Why no run is chosen.
const nothing = () => (table.runs.length ? "Select a run in the table." : table.total ? "No run fits the filter."
  : "No runs here yet: they appear as training begins.");

function number(x) {
  if (typeof x !== "number") return "-";
  if (Number.isInteger(x) && Math.abs(x) < 1e7) return x.toLocaleString("en");
  return Math.abs(x) >= 1e7 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(2) : String(+x.toPrecision(4));
}

// As "40.4K": columns of large numbers stay narrow.
function rounded(x) {
  return typeof x === "number"
    ? new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(x) : "-";
}

function since(seconds) {
  if (!seconds) return "-";
  const age = Math.max(0, Date.now() / 1000 - seconds);
  if (age < 90) return `${Math.round(age)} s`;
  if (age < 5400) return `${Math.round(age / 60)} min`;
  return age < 172800 ? `${Math.round(age / 3600)} h` : `${Math.round(age / 86400)} d`;
}

function cell(run, key) {
  if (key === "name") {
    const about = [run.env, run.seed === null ? null : `seed ${run.seed}`].filter((part) => part).join(" · ");
    const name = element("button", { type: "button", textContent: shorter(run.name, 40), title: run.name,
      onclick: () => open(run.name) });
    return element("div", {}, name, element("div", { class: "grey", textContent: shorter(about, 60) }));
  }
  if (key === "state") {
    return element("span", { class: "state " + run.state, textContent: run.state, title: run.problem || "" });
  }
  if (key === "eval" && run.cut_off) {
    return element("span", { textContent: number(run.eval) + " cut off",
      title: number(run.cut_off) + " episodes had no end: their returns are of what was played" });
  }
  if (key === "time") return since(run.time);
  if (key === "success") return typeof run.success === "number" ? (100 * run.success).toFixed(1) + "%" : "-";
  if (key === "step") return rounded(run.step) + (typeof run.share === "number" ? ` ${Math.floor(100 * run.share)}%` : "");
  return key === "rate" ? rounded(run.rate) : number(run[key]);
}

// Where the views stand below the table, the page of a run must come into sight.
function open(name) {
  change({ open: name, tab: "run" });
  byId("views").scrollIntoView({ block: "nearest" });
}

function showTable() {
  const shown = COLUMNS.filter(([key, , style]) =>
    style !== "sparse" || table.runs.some((run) => typeof run[key] === "number"));
  const headings = shown.map(([key, title, style]) => element("th", { class: style, tabIndex: 0,
    textContent: title + (state.sort === key ? (state.down ? " ▾" : " ▴") : ""),
    onclick: () => change({ sort: key, down: state.sort === key ? !state.down : true }) }));
  byId("headings").replaceChildren(element("th", { class: "word" }), ...headings);
  const order = [...table.runs].sort((a, b) => {
    const [x, y] = [a[state.sort] ?? -Infinity, b[state.sort] ?? -Infinity];
    const sign = typeof x === "string" && typeof y === "string" ? x.localeCompare(y) : x < y ? -1 : x > y ? 1 : 0;
    return state.down ? -sign : sign;
  });
  const selected = new Set(state.runs);
  byId("rows").replaceChildren(...order.map((run) => {
    const box = element("input", { type: "checkbox", checked: selected.has(run.name), "aria-label": "select",
      onchange: (event) => change({ runs: event.target.checked ? [...state.runs, run.name]
        : state.runs.filter((name) => name !== run.name) }) });
    const cells = shown.map(([key, , style]) => element("td", { class: style }, cell(run, key)));
    return element("tr", {}, element("td", { class: "word" }, box), ...cells);
  }));
  byId("count").textContent = `${table.runs.length} of ${table.total} runs`;
}

function showTabs() {
  byId("tabs").replaceChildren(...TABS.map((tab) => element("button", { type: "button", textContent: tab,
    "aria-pressed": String(tab === state.tab), onclick: () => change({ tab }) })));
}

const VIEWS = {
  async curves(view) {
    const runs = chosen();
    const [metrics, curves] = await Promise.all([ask("api/metrics", named(runs)),
      ask("api/curves", [["metric", state.metric], ...named(runs)])]);
    if (!view.querySelector(".charts")) {
      view.replaceChildren(element("div", { class: "bar" }, element("select", { "aria-label": "metric",
        onchange: (event) => change({ metric: event.target.value }) })), element("div", { class: "charts" }),
      element("p", { class: "grey" }));
    }
    const choice = view.querySelector("select");
    if (choice.dataset.names !== metrics.join() && document.activeElement !== choice) {
      choice.replaceChildren(...metrics.map((name) => element("option", { value: name, textContent: name })));
      choice.dataset.names = metrics.join();
    }
    choice.value = state.metric;
    showCharts(view.querySelector(".charts"), curves.filter((curve) => curve.steps.length), state.metric);
    const what = state.runs.length ? "The selected runs" : "The newest runs: select others in the table";
    view.querySelector("p").textContent = curves.some((curve) => curve.steps.length)
      ? `${what}; those that differ in the seed alone are one curve, its band from the lowest to the highest.`
      : runs.length ? `No row of these runs has ${state.metric} yet.` : nothing();
  },
  async difference(view) {
    const found = await ask("api/difference", named(chosen()));
    const head = element("tr", {}, ...["field", ...found.runs].map((name) =>
      element("th", { class: "word", textContent: shorter(name, 40), title: name })));
    const rows = found.rows.map((row) => element("tr", {}, ...[row.field, ...row.values.map((x) => JSON.stringify(x) ?? "-")]
      .map((text) => element("td", { class: "word", textContent: shorter(text, 60), title: text }))));
    view.replaceChildren(found.rows.length
      ? element("div", { class: "wide" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)))
      : element("p", { class: "grey", textContent: found.runs.length ? "The configurations are the same." : nothing() }));
  },
  async run(view) {
    const name = state.open || chosen()[0];
    if (!name) return view.replaceChildren(element("p", { class: "grey", textContent: nothing() }));
    await showRun(view, name);
  },
  async searches(view) {
    const names = await ask("api/searches");
    if (!names.length) return view.replaceChildren(element("p", { class: "grey", textContent: "No search here." }));
    const name = names.includes(state.search) ? state.search : names[0];
    const found = await ask("api/search", [["name", name]]);
    const choice = element("select", { "aria-label": "search", onchange: (event) => change({ search: event.target.value }) },
      ...names.map((each) => element("option", { value: each, textContent: each, selected: each === name })));
    const columns = ["trial", "state", "score", ...found.fields];
    const best = [...found.trials].sort((a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity));
    const rows = best.map((trial) => [String(trial.number), trial.state, number(trial.score),
      ...found.fields.map((field) => typeof trial.values[field] === "number" ? number(trial.values[field])
        : JSON.stringify(trial.values[field]))]);
    view.replaceChildren(element("div", { class: "bar" }, choice), parallelCoordinates(found.fields, found.trials),
      ...(found.copies.length ? [element("h2", { textContent: "lineage" }), lineage(found.copies)] : []),
      grid(columns, rows, 2));
  },
};

function grid(columns, rows, words) {
  const style = (index) => (index < words ? "word" : "");
  return element("div", { class: "wide low" }, element("table", {},
    element("thead", {}, element("tr", {}, ...columns.map((name, i) => element("th", { class: style(i), textContent: name })))),
    element("tbody", {}, ...rows.map((row) =>
      element("tr", {}, ...row.map((text, i) => element("td", { class: style(i), textContent: text ?? "-" })))))));
}

// Each page has an element of its own: an answer that comes late fills one that is no longer shown.
let view, shown;
async function showView() {
  showTabs();
  const page = state.tab === "run" ? "run " + state.open : state.tab;
  if (shown !== page) {
    shown = page;
    view = element("div");
    byId("view").replaceChildren(view);
  }
  const own = view;
  let problem = "";
  try {
    await VIEWS[state.tab](own);
  } catch (error) {
    problem = String(error.message || error);
  }
  if (own === view) byId("problem").textContent = problem;
}

async function refresh() {
  try {
    const [found, machine] = await Promise.all([ask("api/runs", [["q", state.q]]), ask("api/machine")]);
    table = found;
    const gigabytes = (x) => (x / 1e9).toFixed(1);
    byId("machine").textContent = `${machine.cores} cores ${Math.round(machine.load)}%  ` +
      `${gigabytes(machine.used)} of ${gigabytes(machine.memory)} GB`;
    showTable();
    await showView();
  } catch (error) {
    byId("problem").textContent = "The server does not answer.";
  }
}

window.addEventListener("resize", () => showView());
let typing = 0;
byId("query").addEventListener("input", (event) => {
  state.q = event.target.value;
  writeAddress();
  clearTimeout(typing);
  typing = setTimeout(refresh, 250);
});
byId("all").addEventListener("click", () => change({ runs: table.runs.map((run) => run.name) }));
byId("none").addEventListener("click", () => change({ runs: [] }));
readAddress();
(async () => {
  for (;;) {
    await refresh();
    document.documentElement.dataset.ready = "yes";
    await new Promise((resolve) => setTimeout(resolve, document.hidden ? 4 * EVERY : EVERY));
  }
})();
