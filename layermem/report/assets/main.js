"use strict";
// Puts the sections of the page together.

function tiles(summary) {
  const change = summary.baseline_seconds ? summary.seconds / summary.baseline_seconds - 1 : 0;
  const budget = summary.budget_bytes ? `budget ${formatBytes(summary.budget_bytes)}` : "no budget";
  const tile = (label, value, note) => element("div", { class: "tile" }, element("span", { class: "label" }, label),
    element("strong", {}, value), element("span", { class: "label" }, note));
  return element("div", { class: "tiles" },
    tile("peak", formatBytes(summary.peak_bytes), `${budget}, ${formatShare(summary.peak_bytes, summary.baseline_bytes)} of strategy caffe`),
    tile("predicted time", formatSeconds(summary.seconds), `per step, ${change < 0 ? "" : "+"}${(100 * change).toFixed(1)} % over the baseline`),
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

async function start() {
  startTheme();
  const data = await readData(), main = document.getElementById("main");
  document.getElementById("title").textContent = data.title;
  document.getElementById("footer").textContent = `Made by ${data.made_by}.`;
  const { sections, costs } = planSections(data);
  const training = data.training ? trainingSection(data) : null;
  const all = [
    data.summary && section("plan", "Plan", tiles(data.summary), facts(data.facts)),
    data.live ? training : null, ...sections, data.strategies && strategiesSection(data.strategies), costs,
    data.live ? null : training,
  ].filter(Boolean);
  main.replaceChildren(...all);
  document.getElementById("contents").replaceChildren(...all.map((each) =>
    element("a", { href: `#${each.id}` }, each.querySelector("h2").textContent)));
}

const started = performance.now();
start().then(() => requestAnimationFrame(() => {
  document.documentElement.dataset.ready = ((performance.now() - started) / 1000).toFixed(2);
}), (error) => {
  document.getElementById("main").replaceChildren(element("p", { class: "error", role: "alert" },
    `This page cannot be shown: ${error.message}. It needs a browser of 2023 or later (Chrome 80, Firefox 113, Safari 16.4).`));
  throw error;
});
