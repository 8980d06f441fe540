"use strict";
// The page of a run: what it is, its curves, what was seen in it, its configuration and its log.

const RETURNS = ["episode/return", "eval/return"];

async function showRun(view, name) {
  const run = await ask("api/run", [["name", name]]);
  const mark = JSON.stringify([run.name, run.step, run.state, run.log.length, run.log.at(-1), run.films,
    run.episodes, run.suites]);
  if (view.dataset.mark === mark) return;
  const curves = await Promise.all(RETURNS.map((metric) => ask("api/curves", [["metric", metric], ["run", name]])));
  view.dataset.mark = mark;
  const facts = { state: run.state + (run.problem ? ": " + run.problem : ""), environment: run.env,
    algorithm: run.algorithm, seed: run.seed, steps: number(run.step), "stopped by": run.summary.stop_reason,
    "best return": run.summary.best_return === undefined ? undefined
      : `${number(run.summary.best_return)} at step ${number(run.summary.best_step)}`,
    "cut off": run.cut_off ? number(run.cut_off) + " episodes of the last evaluation" : undefined,
    device: run.summary.device, checkpoints: run.checkpoints.map(number).join("  ") || "none", command: run.command };
  const list = Object.entries(facts).filter(([, value]) => value !== undefined && value !== null)
    .flatMap(([key, value]) => [element("dt", { textContent: key }), element("dd", { textContent: String(value) })]);
  const charts = element("div", { class: "charts" });
  const fields = Object.entries(run.config).filter(([field]) => !field.startsWith("derived."))
    .map(([field, value]) => [field, JSON.stringify(value)]);
  const log = element("pre", { textContent: run.log.join("\n") || "no train.log", tabIndex: 0 });
  view.replaceChildren(element("h2", { textContent: run.name }), element("dl", { class: "facts" }, ...list), charts,
    ...run.suites.flatMap(suiteTable), ...run.films.flatMap((film) => filmOf(run.name, film)),
    ...run.episodes.flatMap((episode) => episodeOf(run.name, episode)),
    element("h2", { textContent: "configuration" }), grid(["field", "value"], fields, 2),
    element("h2", { textContent: "train.log" }), log);
  const drawn = curves.flatMap((found, index) => found.map((curve) => ({ ...curve, label: RETURNS[index] })))
    .filter((curve) => curve.steps.length);
  showCharts(charts, drawn, "return");
  log.scrollTop = log.scrollHeight;
}

function suiteTable(suite) {
  const percent = (x) => (typeof x === "number" ? (100 * x).toFixed(1) + "%" : "-");
  const rows = suite.rows.map((row) => [row.mode, row.category, number(row.episodes), percent(row.success_rate),
    `${percent(row.success_low)} – ${percent(row.success_high)}`, number(row.return_mean), number(row.length)]);
  return [element("h2", { textContent: `suite ${suite.name}, step ${number(suite.step)}` }),
    grid(["actions", "category", "episodes", "success", "95%", "return", "steps"], rows, 2)];
}

function filmOf(run, film) {
  const source = "film?" + new URLSearchParams({ run, name: film });
  const shown = film.endsWith(".mp4") ? element("video", { src: source, controls: true, muted: true })
    : element("img", { src: source, alt: film });
  return [element("h2", { textContent: film }), shown];
}

// A page of `jaxrl evaluate --inspect`, in a frame that reaches nothing here.
function episodeOf(run, name) {
  const source = "episode?" + new URLSearchParams({ run, name });
  const frame = element("iframe", { src: source, title: name, loading: "lazy", sandbox: "allow-scripts" });
  const link = element("a", { href: source, target: "_blank", rel: "noopener", textContent: "alone" });
  return [element("h2", {}, name + " ", link), frame];
}
