"use strict";
// The data of the page: JSON, deflated, in base64 (layermem/integrations/page/).  Columns are unpacked into typed arrays.

async function readData() {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// Running sums of differences.
function sums(differences) {
  const values = new Float64Array(differences.length);
  let total = 0;
  for (let i = 0; i < differences.length; i++) values[i] = total += differences[i];
  return values;
}

// page/net.py: layers by index, with the edges between them.
function unpackNet(net) {
  const { layers, edges } = net;
  layers.runsIn = layers.runs_in.map((distance, i) => distance + i);
  net.from = sums(edges.from);
  net.to = net.from.map((from, i) => from + edges.to[i]);
  return net;
}

// page/arena.py: instructions and residencies, with times in units of `unit` seconds.
function unpackArena(arena) {
  const { instructions: each, residencies: rows, buffers } = arena;
  const count = each.stream.length;
  each.count = count;
  each.begin = new Float64Array(count);
  each.end = new Float64Array(count);
  each.awaited = [];
  const free = arena.streams.map(() => 0);
  let position = 0;
  for (let tick = 0; tick < count; tick++) {
    each.begin[tick] = free[each.stream[tick]] + each.start[tick];
    each.end[tick] = free[each.stream[tick]] = each.begin[tick] + each.duration[tick];
    each.awaited.push(each.after.slice(position, position + each.waits[tick]).map((back) => tick - back));
    position += each.waits[tick];
  }
  const size = rows.buffer.length;
  const begin = sums(rows.begin);
  const end = begin.map((tick, i) => tick + rows.ticks[i]);
  arena.boxes = {
    count: size,
    buffer: rows.buffer,
    begin,
    end,
    offset: Float64Array.from(rows.offset, (offset) => offset * arena.align),
    bytes: Float64Array.from(rows.buffer, (buffer) => buffers.bytes[buffer]),
    kind: rows.buffer.map((buffer) => buffers.kind[buffer]),
    maker: rows.maker.map((ticks, i) => (ticks < 0 ? -1 : begin[i] + ticks)),
    over: rows.over.map((back, i) => (back ? i - back : -1)),
    from: Float64Array.from(begin, (tick, i) => each.begin[tick] + rows.from[i]),
    to: Float64Array.from(end, (tick, i) => each.end[tick - 1] + rows.to[i]),
  };
  arena.total = arena.seconds / arena.unit;
  arena.live = liveBytes(arena);
  return arena;
}

// Bytes in use at each tick, by kind; a chain of residencies that are laid over each other counts once, as its newest.
function liveBytes(arena) {
  const { boxes, align, buffer_kinds: kinds } = arena;
  const ticks = arena.instructions.count;
  const stop = Float64Array.from(boxes.end);
  for (let i = 0; i < boxes.count; i++) {
    if (boxes.over[i] >= 0) stop[boxes.over[i]] = Math.min(stop[boxes.over[i]], boxes.begin[i]);
  }
  const byKind = kinds.map(() => new Float64Array(ticks + 1));
  for (let i = 0; i < boxes.count; i++) {
    const bytes = Math.ceil(boxes.bytes[i] / align) * align;
    byKind[boxes.kind[i]][boxes.begin[i]] += bytes;
    byKind[boxes.kind[i]][stop[i]] -= bytes;
  }
  const total = new Float64Array(ticks);
  for (const change of byKind) {
    for (let tick = 0; tick < ticks; tick++) {
      if (tick) change[tick] += change[tick - 1];
      total[tick] += change[tick];
    }
  }
  return { total, byKind, stop };
}

// ---- what the data of the arena say

const KIND_NAMES = {
  parameter: "parameters", history: "optimizer state", gradient: "parameter gradients", state: "state of layers",
  stash: "stashes", data: "activations", diff: "gradients", workspace: "workspace",
};
const ORIGINS = ["persistent", "made once", "recomputed", "fetched from the host"];
const STEP_KINDS = ["forward", "backward", "update", "recompute", "offload", "prefetch"];

function stepKind(arena, tick) {
  const { instructions: each, kinds } = arena;
  return each.recompute[tick] ? 3 : STEP_KINDS.indexOf(kinds[each.kind[tick]]);
}

// The layer of a residency: that of the op that makes it, else the one that owns the buffer.
function ownerOf(arena, i) {
  const maker = arena.boxes.maker[i], owner = arena.buffers.layer[arena.boxes.buffer[i]];
  return owner >= 0 || maker < 0 ? owner : arena.instructions.layer[maker];
}

// Index into ORIGINS of each residency.
function originsOf(arena) {
  const { boxes, instructions: each, kinds, buffer_kinds: bufferKinds } = arena;
  const lasting = ["parameter", "history", "state"].map((name) => bufferKinds.indexOf(name));
  return Array.from({ length: boxes.count }, (_, i) => {
    const maker = boxes.maker[i];
    if (maker >= 0 && kinds[each.kind[maker]] === "prefetch") return 3;
    if (maker >= 0 && each.recompute[maker] && boxes.kind[i] !== bufferKinds.indexOf("workspace")) return 2;
    return lasting.includes(boxes.kind[i]) ? 0 : 1;
  });
}
