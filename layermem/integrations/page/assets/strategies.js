"use strict";
// Strategies side by side (page/strategies.py): under the budget, over many budgets, and over the step.

const OWN_WIDTH = 2.75; // pixels of the lines of the strategy of the page
const BOUND = LINES - 1; // the colour of the lower bound, which no strategy has

function strategiesSection(data) {
  const budget = data.budget_bytes, within = budget ? ` within ${formatBytes(budget)}` : "";
  const numbers = new Map(data.curves.map((curve) => [curve.strategy, curve.colour]));
  const parts = [
    element("p", {}, `Peak and predicted time of each strategy${within}. Strategy caffe, which keeps everything, takes `
      + `${formatBytes(data.baseline_bytes)} and ${formatSeconds(data.baseline_seconds)}; BVLC Caffe itself takes `
      + `${formatBytes(data.bvlc_bytes)} (computed). No plan takes less than ${formatBytes(data.bound_bytes)}.`),
    strategyTable(data),
  ];
  const curves = data.curves.filter((curve) => curve.bytes.length);
  if (curves.length) {
    const series = curves.map((curve) => ({
      name: curve.strategy, x: curve.bytes, y: curve.seconds, stepped: true, points: true, colour: numbers.get(curve.strategy),
      width: curve.strategy === data.strategy ? OWN_WIDTH : undefined,
    }));
    series.push({ name: "lower bound", x: data.bound.bytes, y: data.bound.seconds, dash: [3, 4], colour: BOUND });
    const marks = budget && budget <= 1.1 * Math.max(...curves.flatMap((curve) => curve.bytes))
      ? [{ value: budget, text: `budget ${formatBytes(budget)}` }] : [];
    parts.push(element("h3", {}, "Time over memory"), chart(series, {
      label: "Predicted seconds over peak bytes, one line per strategy", zero: true, marks, height: 340,
      x: { label: data.placed ? "peak" : "live bytes", format: formatBytes, base: 1024 }, y: { label: "predicted time of a step", format: formatSeconds },
    }), element("h3", {}, "Least time at each budget"), budgetTable(data));
  }
  if (data.memory.length) {
    parts.push(element("h3", {}, "Memory over the step"), chart(data.memory.map((curve) => ({
      name: curve.strategy, x: curve.seconds, y: curve.bytes, stepped: true, colour: numbers.get(curve.strategy),
      width: curve.strategy === data.strategy ? OWN_WIDTH : undefined,
    })), {
      label: "Bytes in use over the step, one line per strategy", floor: 0, height: 320,
      x: { label: "predicted time", format: formatSeconds }, y: { label: "bytes in use", format: formatBytes, base: 1024 },
    }));
  }
  parts.push(...data.left_out.map((note) => element("p", { class: "note" }, unbroken(note))));
  return section("strategies", "Strategies", ...parts);
}

function strategyTable(data) {
  const rows = data.rows.map((row, place) => ({ ...row, place, chosen: row.strategy === data.strategy }));
  const baseline = data.baseline_seconds;
  const columns = [
    { label: "strategy", value: (row) => row.place, text: (row) => row.strategy, title: (row) => row.description },
    { label: "fits", value: (row) => (row.fits ? "yes" : "no") },
    { label: "peak", number: true, value: (row) => row.peak_bytes, text: (row) => formatBytes(row.peak_bytes), share: (row) => row.peak_bytes / data.baseline_bytes },
    { label: "of caffe", number: true, value: (row) => row.peak_bytes, text: (row) => formatShare(row.peak_bytes, data.baseline_bytes) },
    { label: "least budget", number: true, value: (row) => row.least_bytes, text: (row) => formatBytes(row.least_bytes) },
    { label: "time", number: true, value: (row) => row.seconds, text: (row) => formatSeconds(row.seconds) },
    { label: "overhead", number: true, value: (row) => row.seconds, text: (row) => (baseline ? `${row.seconds < baseline ? "" : "+"}${(100 * (row.seconds / baseline - 1)).toFixed(1)} %` : "") },
    { label: "recomputed ops", number: true, value: (row) => row.recomputed_ops ?? null, text: (row) => row.recomputed_ops?.toLocaleString("en") ?? "–" },
    { label: "copied to the host", number: true, value: (row) => row.offloaded_bytes ?? null, text: (row) => formatBytes(row.offloaded_bytes) || "–" },
  ].filter((column) => !["recomputed ops", "copied to the host"].includes(column.label) || rows.some((row) => column.value(row)));
  return table(columns, rows, { caption: "Strategies under the budget" });
}

// The least predicted seconds of each strategy within each budget for which it was planned.
function budgetTable(data) {
  const columns = [
    { label: "budget", text: (row) => formatBytes(row.bytes) },
    ...[...data.curves].sort((a, b) => (b.strategy === data.strategy) - (a.strategy === data.strategy)).map((curve) => ({
      label: curve.strategy, number: true, text: (row) => formatSeconds(row.seconds[curve.strategy]) || "–",
    })),
  ];
  const rows = data.least_time.map((row) => ({ ...row, chosen: row.bytes === data.budget_bytes }));
  return table(columns, rows, { caption: "Least predicted time of a step at each budget; – does not fit, or was not planned" });
}
