"use strict";
// Puts the sections of the page together.

function tiles(summary) {
  const change = summary.baseline_seconds ? summary.seconds / summary.baseline_seconds - 1 : 0;
  const budget = summary.budget_bytes ? `budget ${formatBytes(summary.budget_bytes)}` : "no budget";
  const tile = (label, value, note) => element("div", { class: "tile" }, element("span", { class: "label" }, label),
    element("strong", {}, value), element("span", { class: "label" }, unbroken(note)));
  return element("div", { class: "tiles" },
    tile("peak", formatBytes(summary.peak_bytes), `${budget}, ${formatShare(summary.peak_bytes, summary.baseline_bytes)} of strategy caffe`),
    tile("predicted time", formatSeconds(summary.seconds), `per step, ${formatChange(change)} the baseline`),
    tile("strategy", summary.strategy, `on ${summary.device}`),
    tile("recomputed", summary.recomputed_ops.toLocaleString("en"), `of ${plural(summary.ops, "op")}`),
    summary.offloaded_bytes ? tile("offloaded", formatBytes(summary.offloaded_bytes), "per step, to the host") : null);
}

function planSections(data) {
  const net = data.net ? unpackNet(data.net) : null, arena = data.arena ? unpackArena(data.arena) : null;
  const costs = net && arena ? layerCosts(arena, net) : null;
  let netView = null;
  const showLayer = (layer) => {
    netView?.show(layer);
    document.getElementById("net")?.scrollIntoView();
  };
  const sections = [];
  if (arena) {
    const view = new ArenaView(arena, net, net ? showLayer : null);
    window.layermem = { arena, view }; // for the tests of the page
    view.reveal = (tick) => {
      view.moveTo(tick, true);
      document.getElementById("arena").scrollIntoView();
    };
    sections.push(section("arena", "Arena",
      element("p", {}, "Each box is one residency of a buffer: across the time of a step, up the addresses of the arena. "
        + "Below it are the bytes in use, and the streams of ops and copies."),
      view.controls(), view.legend, view.frame,
      element("p", { class: "note" }, "Drag to zoom, double-click to show all, click for what is in use there; Ctrl and the wheel zoom. "
        + "With the keyboard: arrows move, + and − zoom, 0 shows all."),
      view.details));
    if (net) netView = new NetView(net, costs, layerDetails(arena, view));
  }
  if (net) {
    netView ??= new NetView(net, null, null);
    sections.push(section("net", "Net",
      element("p", {}, `${net.name}: ${plural(net.layers.name.length, "layer")}, ${net.parameters.toLocaleString("en")} parameters, `
        + `${formatCount(net.flops)} FLOPs forward. A click unfolds a group (+), or shows a layer.`),
      netView.controls(), netView.note,
      element("ul", { class: "legend" },
        costs?.some((cost) => cost.recompute) && element("li", { class: "swatch step-3" }, "recomputed"),
        costs?.some((cost) => cost.offloads) && element("li", { class: "swatch step-4" }, "offloaded")),
      element("div", { class: "beside" }, netView.picture, netView.details)));
  }
  return { sections, costs: costs && section("costs", "Costs by layer", costTable(costs, net, showLayer)) };
}

const ORDER = ["plan", "arena", "net", "strategies", "costs", "training"];
const LIVE_ORDER = ["training", "plan", "arena", "net", "strategies", "costs"];

// Puts `node` where its section belongs, in place of one with its name; what is there already stays untouched.
function place(node, order) {
  const main = document.getElementById("main"), old = [...main.children].find((each) => each.id === node.id);
  const later = [...main.children].find((each) => order.indexOf(each.id) > order.indexOf(node.id));
  if (old) old.replaceWith(node);
  else main.insertBefore(node, later ?? null);
  listSections();
}

function listSections() {
  document.getElementById("contents").replaceChildren(...[...document.getElementById("main").children].map((each) =>
    element("a", { href: `#${each.id}` }, each.querySelector("h2").textContent)));
}

function placePlan(data, order, ...notes) {
  const { sections, costs } = planSections(data);
  const plan = data.summary && section("plan", "Plan", ...notes, tiles(data.summary), facts(data.facts));
  for (const node of [plan, ...sections, costs].filter(Boolean)) place(node, order);
}

async function start() {
  startTheme();
  const data = await readData(), order = data.live ? LIVE_ORDER : ORDER;
  document.getElementById("title").textContent = data.title;
  document.getElementById("footer").textContent = `Made by ${data.made_by}.`;
  document.getElementById("wait").remove();
  if (data.net || data.summary) placePlan(data, order);
  if (data.strategies) place(strategiesSection(data.strategies), order);
  if (data.training) {
    const training = trainingSection(data);
    place(training.node, order);
    if (data.live) follow(training, data.training);
  }
}

const started = performance.now();
start().then(() => requestAnimationFrame(() => {
  document.documentElement.dataset.ready = ((performance.now() - started) / 1000).toFixed(2);
}), (error) => {
  document.getElementById("main").replaceChildren(element("p", { class: "error", role: "alert" },
    `This page cannot be shown: ${error.message}. It needs a browser of 2023 or later (Chrome 80, Firefox 113, Safari 16.4).`));
  throw error;
});
