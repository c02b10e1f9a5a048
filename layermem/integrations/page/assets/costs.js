"use strict";
// Costs of each layer in the step: seconds by kind of op, from the instructions of the arena.

function layerCosts(arena, net) {
  const costs = net.layers.name.map((_, layer) => ({
    layer, forward: 0, backward: 0, update: 0, recompute: 0, copies: 0, offloads: 0, total: 0, ticks: [],
  }));
  const { instructions: each, kinds, unit } = arena;
  for (let tick = 0; tick < each.count; tick++) {
    const cost = costs[each.layer[tick]];
    if (!cost) continue;
    const kind = each.recompute[tick] ? "recompute" : kinds[each.kind[tick]], seconds = each.duration[tick] * unit;
    cost.ticks.push(tick);
    if (kind === "offload" || kind === "prefetch") {
      cost.copies += seconds;
      cost.offloads += kind === "offload";
    } else {
      cost[kind] += seconds;
      cost.total += seconds;
    }
  }
  return costs;
}

function costTable(costs, net, onLayer) {
  const { layers, types } = net, longest = Math.max(...costs.map((cost) => cost.total), 1e-30);
  const number = (label, value, text) => ({ label, value, number: true, text: (cost) => (value(cost) ? text(value(cost)) : "") });
  const columns = [
    { label: "layer", value: (cost) => cost.layer, text: (cost) => layers.name[cost.layer], action: (cost) => onLayer(cost.layer) },
    { label: "type", value: (cost) => types[layers.type[cost.layer]] },
    { ...number("time per step", (cost) => cost.total, formatSeconds), share: (cost) => cost.total / longest },
    number("forward", (cost) => cost.forward, formatSeconds), number("backward", (cost) => cost.backward, formatSeconds),
    number("recompute", (cost) => cost.recompute, formatSeconds), number("update", (cost) => cost.update, formatSeconds),
    number("copies", (cost) => cost.copies, formatSeconds),
    number("FLOPs", (cost) => layers.flops[cost.layer], formatCount),
    number("parameters", (cost) => layers.parameters[cost.layer], formatCount),
    number("bytes of tops", (cost) => layers.bytes[cost.layer], formatBytes),
  ].filter((column) => !["copies", "recompute"].includes(column.label) || costs.some((cost) => column.value(cost)));
  return table(columns, costs, { caption: "Costs by layer", sortBy: 2, filter: (cost) => layers.name[cost.layer] });
}

// What the details of a layer show of the step: its ops, and its buffers with the decision for each.
function layerDetails(arena, view) {
  const { instructions: each, names, kinds, unit, boxes, buffers, buffer_kinds: bufferKinds } = arena;
  const stays = new Map(); // residencies by owner
  for (let i = 0; i < boxes.count; i++) {
    const owner = buffers.layer[boxes.buffer[i]];
    if (owner >= 0) stays.set(owner, [...(stays.get(owner) || []), i]);
  }
  const offloaded = new Set();
  for (let tick = 0; tick < each.count; tick++) if (kinds[each.kind[tick]] === "offload") offloaded.add(names[each.what[tick]]);
  return {
    ops: (ticks) => table([
      { label: "op", text: (tick) => names[each.what[tick]], action: (tick) => view.reveal(tick) },
      { label: "kind", text: (tick) => (each.recompute[tick] ? "recompute" : kinds[each.kind[tick]]) },
      { label: "tick", number: true, text: (tick) => String(tick) },
      { label: "time", number: true, text: (tick) => formatSeconds(each.duration[tick] * unit) },
    ], ticks, { caption: "Ops of the layer" }),
    buffers: (layer) => {
      const byBuffer = new Map();
      for (const i of stays.get(layer) || []) byBuffer.set(boxes.buffer[i], [...(byBuffer.get(boxes.buffer[i]) || []), i]);
      if (!byBuffer.size) return null;
      const decision = ([buffer, rows]) => {
        const again = rows.filter((i) => view.origins[i] === 2).length, name = names[buffers.name[buffer]];
        if (offloaded.has(name)) return "offloaded";
        return again ? `recomputed${again > 1 ? ` ${again} times` : ""}` : "kept";
      };
      return table([
        { label: "buffer", text: ([buffer]) => names[buffers.name[buffer]] },
        { label: "kind", text: ([buffer]) => KIND_NAMES[bufferKinds[buffers.kind[buffer]]] },
        { label: "bytes", number: true, text: ([buffer]) => formatBytes(buffers.bytes[buffer]) },
        { label: "decision", text: decision },
        { label: "ticks", number: true, text: ([, rows]) => rows.map((i) => `${boxes.begin[i]}–${boxes.end[i]}`).join(", ") },
      ], [...byBuffer], { caption: "Buffers of the layer" });
    },
  };
}
