"use strict";
// Curves of a training log (page/training.py); {node: its section; show, showState, showEnd: news}.

const TRAINING = [1, 2, 3, 4, 5, 6, 7, 9]; // the colours of curves, in the order of curves_picture.py

function trainingSection(data) {
  const state = element("p", { role: "status" }), tilesBox = element("div", { class: "tiles" });
  let newest = data.training, said = "";
  const showState = () => {
    const texts = runState(newest, data.live), words = JSON.stringify(texts);
    if (words === said) return; // a screen reader reads each change
    said = words;
    state.replaceChildren(texts[0], ...texts.slice(1).map((text) => element("span", { class: "error" }, ` ${text}`)));
  };
  const charts = element("div", { class: "charts" }), more = element("div", {}), plots = new Map();
  const show = (training) => {
    newest = training;
    showState();
    tilesBox.replaceChildren(...runTiles(training));
    const marks = (training.resumed || []).map((value) => ({ value, text: "resumed" }));
    for (const { title, curves, logarithmic } of training.charts) {
      const series = curves.map(({ faint, colour: number, ...curve }) => ({
        ...curve, faint, colour: TRAINING[number % TRAINING.length], width: faint ? 1 : 1.75, points: curve.x.length < 3, stepped: title === "learning rate",
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
  const node = section("training", "Training", state, tilesBox, charts, more);
  const showEnd = (text) => { said = ""; state.replaceChildren(element("span", { class: "error" }, text)); };
  return { node, show, showState, showEnd };
}

function runState(training, live) {
  const texts = {
    running: live ? "The run goes on; this page follows its log." : "The log has no end: the run goes on, or was killed.",
    done: "The run is done.", stopped: "The run was stopped by a signal.", diverged: "The run diverged.", failed: "The run failed.",
  };
  const runs = live && training.status === "running", quiet = Date.now() / 1000 - training.changed > training.quiet_seconds;
  if (runs && quiet) {
    const since = new Date(1000 * training.changed).toLocaleString();
    texts.running = `No record since ${since}: the run was stopped or killed without its last record, or is very slow.`;
  }
  return [`${training.source ? `${training.source}: ` : ""}${texts[training.status] || training.status}`, training.message, training.error].filter(Boolean);
}

function runTiles(training) {
  const last = (curve) => curve.y[curve.y.length - 1];
  const tile = (label, value, note = "") => element("div", { class: "tile" }, element("span", { class: "label" }, label),
    element("strong", {}, value), element("span", { class: "label" }, note));
  const of = training.max_iter ? `of ${training.max_iter.toLocaleString("en")}` : "";
  const curves = training.charts.filter(({ title }) => !["learning rate", "seconds per iteration"].includes(title)).flatMap(({ curves: all }) =>
    all.filter((curve) => !curve.faint && curve.y.length).map((curve) => {
      const whole = all.find((each) => each.faint && each.colour === curve.colour); // of which this one is the mean
      return whole ? { ...curve, name: `${whole.name}, ${curve.name}` } : curve;
    }));
  return [
    training.iteration === null ? null : tile("iteration", training.iteration.toLocaleString("en"), of),
    training.seconds === null ? null : tile("since the start", formatDuration(training.seconds)),
    training.remaining_seconds === null ? null : tile("remaining", formatDuration(training.remaining_seconds), "at the pace of now"),
    ...curves.slice(0, 6).map((curve) => tile(curve.name, formatNumber(last(curve)), `iteration ${curve.x[curve.x.length - 1]}`)),
  ].filter(Boolean);
}

function formatNumber(value) {
  if (value === null || value === undefined) return "not finite";
  const size = Math.abs(value);
  return size && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}
