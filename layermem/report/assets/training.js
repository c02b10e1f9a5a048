"use strict";
// Curves of a training log (page/training.py), and their newest values while a run goes on.

const POLL = 1000; // milliseconds between requests for a newer log

function trainingSection(data) {
  const state = element("p", { role: "status" }), tilesBox = element("div", { class: "tiles" });
  const charts = element("div", { class: "charts" }), more = element("div", {}), plots = new Map();
  const show = (training) => {
    state.replaceChildren(...runState(training, data.live));
    tilesBox.replaceChildren(...runTiles(training));
    const marks = (training.resumed || []).map((value) => ({ value, text: "resumed" }));
    for (const { title, curves, logarithmic } of training.charts) {
      const series = curves.map(({ faint, colour: number, ...curve }) => ({
        ...curve, colour: number + 1, width: faint ? 0.6 : 1.75, points: curve.x.length < 3, stepped: title === "learning rate",
      }));
      const kind = `${title} ${logarithmic}`;
      if (plots.has(kind)) {
        plots.get(kind).update(series);
        continue;
      }
      const plot = chart(series, {
        label: `${title} over iterations`, x: { label: "iteration", format: formatCount }, marks, logarithmic,
        y: { label: "", format: title === "seconds per iteration" ? formatSeconds : formatNumber }, height: 280,
      });
      plots.set(kind, plot);
      const box = element("div", { "data-chart": title }, element("h3", {}, title[0].toUpperCase() + title.slice(1)), plot);
      const old = charts.querySelector(`[data-chart="${title}"]`); // with the other kind of axis
      if (old) old.replaceWith(box);
      else charts.append(box);
    }
    more.replaceChildren(facts([...training.facts, ["snapshots", training.snapshots.map(formatCount).join(", ")]]),
      ...training.notes.map((note) => element("p", { class: "note" }, note)));
  };
  show(data.training);
  if (data.live) follow(show, state);
  return section("training", "Training", state, tilesBox, charts, more);
}

function runState(training, live) {
  const texts = {
    running: live ? "The run goes on; this page follows its log." : "The log has no end: the run goes on, or was killed.",
    done: "The run is done.", stopped: "The run was stopped by a signal.", diverged: "The run diverged.", failed: "The run failed.",
  };
  return [`${training.source}: ${texts[training.status] || training.status}`,
    ...[training.message, training.error].filter(Boolean).map((text) => element("span", { class: "error" }, ` ${text}`))];
}

function runTiles(training) {
  const last = (curve) => curve.y[curve.y.length - 1];
  const tile = (label, value, note = "") => element("div", { class: "tile" }, element("span", { class: "label" }, label),
    element("strong", {}, value), element("span", { class: "label" }, note));
  const of = training.max_iter ? `of ${training.max_iter.toLocaleString("en")}` : "";
  const curves = training.charts.filter(({ title }) => title === "loss" || title === "output").flatMap((each) => each.curves)
    .filter((curve) => !curve.faint && curve.y.length);
  return [
    training.iteration === null ? null : tile("iteration", training.iteration.toLocaleString("en"), of),
    training.seconds === null ? null : tile("since the start", formatSeconds(training.seconds)),
    ...curves.slice(0, 6).map((curve) => tile(curve.name, formatNumber(last(curve)), `iteration ${curve.x[curve.x.length - 1]}`)),
  ].filter(Boolean);
}

function formatNumber(value) {
  if (value === null || value === undefined) return "not finite";
  const size = Math.abs(value);
  return size && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

// Requests the section again and again; `show` gets it when it has changed.
function follow(show, state) {
  let tag = null;
  const poll = async () => {
    try {
      const answer = await fetch("data", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        show(await answer.json());
        document.documentElement.dataset.version = tag;
      }
    } catch {
      state.replaceChildren(element("span", { class: "error" }, "`layermem watch` has ended; this page shows what it sent last."));
    }
    setTimeout(poll, POLL);
  };
  setTimeout(poll, POLL);
}
