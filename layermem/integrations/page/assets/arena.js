"use strict";
// The training step: boxes in the arena, bytes in use under them, and the streams, over one axis of time or ticks.

const GUTTER = 74, STREAM_HEIGHT = 20, ENVELOPE_HEIGHT = 92, AXIS_HEIGHT = 30, GAP = 14, LEGIBLE = 34;

class ArenaView {
  constructor(arena, net, onLayer) {
    Object.assign(this, { arena, net, onLayer, by: "kind", axis: "time", cursor: null, hidden: new Set() });
    this.origins = originsOf(arena);
    this.canvas = element("canvas", {
      tabindex: "0", role: "application", "aria-label":
        "The arena over the step. Left and right arrows move the cursor by one tick, plus and minus zoom, 0 shows all.",
    });
    this.tip = element("div", { class: "tip", hidden: true });
    this.frame = element("div", { class: "canvas" }, this.canvas, this.tip);
    this.legend = element("ul", { class: "legend" });
    this.details = element("div", { class: "details", "aria-live": "polite" });
    this.listen();
    this.reset();
    this.paintLegend();
    whenResized(this.frame, () => this.paint());
  }

  controls() {
    const axis = select([["time", "predicted time"], ["ticks", "ticks"]], (value) => { this.axis = value; this.reset(); });
    const by = select([["kind", "kind of buffer"], ["origin", "origin"]], (value) => {
      this.by = value;
      this.hidden.clear();
      this.paintLegend();
      this.paint();
    });
    return element("div", { class: "controls" }, labelled("Axis", axis), labelled("Colours", by),
      element("span", { class: "buttons" },
        button("Zoom in", () => this.zoom(0.5)), button("Zoom out", () => this.zoom(2)),
        button("All", () => this.reset()), button("Peak", () => this.moveTo(this.arena.peak_tick, true))));
  }

  // -- what is where ----------------------------------------------------------------------------------------------

  reset() {
    this.x0 = 0;
    this.x1 = this.extent;
    this.y0 = 0;
    this.y1 = this.top;
    this.paint();
  }

  get extent() {
    return this.axis === "time" ? this.arena.total : this.arena.instructions.count;
  }

  get top() {
    const { peak_bytes: peak, budget_bytes: budget } = this.arena;
    return (budget && budget <= 1.25 * peak ? Math.max(peak, budget) : peak) * 1.04;
  }

  begins() {
    return this.axis === "time" ? this.arena.boxes.from : this.arena.boxes.begin;
  }

  ends() {
    return this.axis === "time" ? this.arena.boxes.to : this.arena.live.stop;
  }

  tickBegin(tick) {
    return this.axis === "time" ? this.arena.instructions.begin[tick] : tick;
  }

  tickEnd(tick) {
    return this.axis === "time" ? this.arena.instructions.end[tick] : tick + 1;
  }

  layout() {
    const width = this.frame.clientWidth;
    const height = Math.max(260, Math.min(520, Math.round(window.innerHeight * 0.48)));
    const used = this.arena.streams.filter((_, stream) => this.arena.instructions.stream.includes(stream));
    const envelope = height + GAP, streams = envelope + ENVELOPE_HEIGHT + GAP;
    return {
      width, left: GUTTER, right: width - 8, arena: [26, height], envelope: [envelope, envelope + ENVELOPE_HEIGHT],
      streams: used.map((name, i) => ({ name, index: this.arena.streams.indexOf(name), y: streams + i * STREAM_HEIGHT })),
      bottom: streams + used.length * STREAM_HEIGHT, height: streams + used.length * STREAM_HEIGHT + AXIS_HEIGHT,
    };
  }

  x(value) {
    const { left, right } = this.place;
    return left + (value - this.x0) / (this.x1 - this.x0) * (right - left);
  }

  y(bytes) {
    const [top, bottom] = this.place.arena;
    return bottom - (bytes - this.y0) / (this.y1 - this.y0) * (bottom - top);
  }

  valueAt(x) {
    const { left, right } = this.place;
    return this.x0 + (x - left) / (right - left) * (this.x1 - this.x0);
  }

  bytesAt(y) {
    const [top, bottom] = this.place.arena;
    return this.y0 + (bottom - y) / (bottom - top) * (this.y1 - this.y0);
  }

  // -- painting ---------------------------------------------------------------------------------------------------

  paint() {
    if (!this.frame.clientWidth) return;
    this.place = this.layout();
    const { width, height } = this.place, ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    const context = this.context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "11px system-ui, sans-serif";
    this.ink = colour("ink");
    this.faint = colour("faint");
    this.paintArena();
    this.paintEnvelope();
    this.paintStreams();
    this.paintAxis();
    this.paintCursor();
  }

  clip(top, bottom, paint) {
    const { left, right } = this.place, { context } = this;
    context.save();
    context.beginPath();
    context.rect(left, top, right - left, bottom - top);
    context.clip();
    paint();
    context.restore();
  }

  classes() {
    return this.by === "kind" ? this.arena.buffer_kinds : ORIGINS;
  }

  classOf(i) {
    return this.by === "kind" ? this.arena.boxes.kind[i] : this.origins[i];
  }

  paintArena() {
    const { context, arena: { boxes, names, buffers } } = this, [top, bottom] = this.place.arena;
    const begins = this.begins(), ends = this.ends(), labels = [];
    this.marks(ticksBetween(this.y0, this.y1, 5, 1024), (bytes) => this.y(bytes), formatBytes, top, bottom);
    this.clip(top, bottom, () => {
      for (let index = 0; index < this.classes().length; index++) {
        if (this.hidden.has(index)) continue;
        context.fillStyle = colour(`${this.by}-${index}`);
        for (let i = 0; i < boxes.count; i++) {
          if (this.classOf(i) !== index || ends[i] <= this.x0 || begins[i] >= this.x1) continue;
          const low = boxes.offset[i], high = low + boxes.bytes[i];
          if (high <= this.y0 || low >= this.y1) continue;
          const left = this.x(begins[i]), right = this.x(ends[i]), up = this.y(high), down = this.y(low);
          const wide = right - left, tall = down - up;
          context.fillRect(left, up, Math.max(wide > 3 ? wide - 0.7 : wide, 0.7), Math.max(tall > 3 ? tall - 0.7 : tall, 0.7));
          if (wide > LEGIBLE && tall > 11) labels.push([i, left, right, up, down]);
        }
      }
      context.fillStyle = "#fff";
      context.textBaseline = "middle";
      for (const [i, left, right, up, down] of labels) {
        const from = Math.max(left, this.place.left), room = Math.min(right, this.place.right) - from - 6;
        const text = shorten(names[buffers.name[boxes.buffer[i]]], room);
        if (text) context.fillText(text, from + 4, (Math.max(up, top) + Math.min(down, bottom)) / 2);
      }
      this.level(this.arena.peak_bytes, `peak ${formatBytes(this.arena.peak_bytes)}`, []);
      const budget = this.arena.budget_bytes;
      if (budget && budget <= this.top) this.level(budget, `budget ${formatBytes(budget)}`, [5, 4]);
    });
    this.heading("arena", 7);
  }

  level(bytes, text, dash) {
    const { context } = this, y = this.y(bytes), { left, right } = this.place;
    context.strokeStyle = context.fillStyle = this.ink;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(left, y);
    context.lineTo(right, y);
    context.stroke();
    context.setLineDash([]);
    context.textBaseline = "alphabetic";
    const x = dash.length ? left + 4 : right - context.measureText(text).width - 4;
    context.fillText(text, x, y - 3);
  }

  heading(text, y) {
    const { context } = this;
    context.fillStyle = this.ink;
    context.textBaseline = "middle";
    context.fillText(text, 2, y);
  }

  marks(values, place, format, top, bottom) {
    const { context } = this;
    context.textBaseline = "middle";
    for (const value of values) {
      const y = place(value);
      if (y < top - 1 || y > bottom + 1) continue;
      context.fillStyle = colour("grid");
      context.fillRect(this.place.left, y, this.place.right - this.place.left, 1);
      context.fillStyle = this.faint;
      const text = format(value);
      context.fillText(text, this.place.left - context.measureText(text).width - 6, y);
    }
  }

  // Bytes in use, stacked by kind: of each column of pixels the tick with the most.
  paintEnvelope() {
    const { context, arena: { live, instructions, max_live_bytes: most, buffer_kinds: kinds } } = this;
    const [top, bottom] = this.place.envelope, { left, right } = this.place, columns = Math.ceil(right - left);
    const newest = new Int32Array(columns).fill(-1);
    for (let tick = 0; tick < instructions.count; tick++) {
      const from = this.tickBegin(tick), to = this.tickEnd(tick);
      if (to < this.x0 || from > this.x1) continue;
      const last = Math.min(columns - 1, Math.ceil(this.x(to) - left));
      for (let column = Math.max(0, Math.floor(this.x(from) - left)); column <= last; column++) {
        if (newest[column] < 0 || live.total[tick] > live.total[newest[column]]) newest[column] = tick;
      }
    }
    const scale = (bottom - top) / (most * 1.05);
    this.marks(ticksBetween(0, most, 2, 1024), (bytes) => bottom - bytes * scale, formatBytes, top, bottom);
    for (let column = 0; column < columns; column++) {
      let y = bottom;
      for (let kind = 0; kind < kinds.length && newest[column] >= 0; kind++) {
        const tall = live.byKind[kind][newest[column]] * scale;
        if (!tall) continue;
        context.fillStyle = colour(`kind-${kind}`);
        context.fillRect(left + column, y - tall, 1, tall);
        y -= tall;
      }
    }
    this.heading("in use", top - 5);
  }

  paintStreams() {
    const { context, arena: { instructions: each } } = this;
    const fills = STEP_KINDS.map((_, index) => colour(`step-${index}`));
    for (const { name, index, y } of this.place.streams) {
      this.heading(name, y + STREAM_HEIGHT / 2);
      context.fillStyle = colour("panel");
      context.fillRect(this.place.left, y + 1, this.place.right - this.place.left, STREAM_HEIGHT - 3);
      this.clip(y, y + STREAM_HEIGHT, () => {
        for (let tick = 0; tick < each.count; tick++) {
          const from = this.tickBegin(tick), to = this.tickEnd(tick);
          if (each.stream[tick] !== index || to < this.x0 || from > this.x1) continue;
          const left = this.x(from), wide = this.x(to) - left;
          context.fillStyle = fills[stepKind(this.arena, tick)];
          context.fillRect(left, y + 1, Math.max(wide > 3 ? wide - 0.6 : wide, 0.6), STREAM_HEIGHT - 3);
        }
      });
    }
  }

  paintAxis() {
    const { context, place: { left, right, bottom } } = this, unit = this.axis === "time" ? this.arena.unit : 1;
    const marks = ticksBetween(this.x0 * unit, this.x1 * unit, Math.max(2, Math.floor((right - left) / 110)));
    context.textBaseline = "top";
    for (const mark of marks) {
      const x = this.x(mark / unit);
      context.fillStyle = this.faint;
      context.fillRect(x, bottom, 1, 5);
      const text = this.axis === "time" ? formatSeconds(mark) : `tick ${Math.round(mark).toLocaleString("en")}`;
      const wide = context.measureText(text).width;
      context.fillText(text, Math.min(Math.max(x - wide / 2, left), right - wide), bottom + 8);
    }
    const turn = this.arena.backward_tick;
    if (turn === null) return;
    const x = this.x(this.tickBegin(turn));
    if (x < left || x > right) return;
    context.strokeStyle = context.fillStyle = this.ink;
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(x, 12);
    context.lineTo(x, bottom);
    context.stroke();
    context.setLineDash([]);
    context.textBaseline = "middle";
    const text = "backward begins", wide = context.measureText(text).width;
    context.fillText(text, Math.min(x + 4, right - wide), 7);
  }

  paintCursor() {
    if (this.cursor === null) return;
    const { context, place: { left, right, bottom } } = this;
    const from = Math.max(left, this.x(this.tickBegin(this.cursor))), to = Math.min(right, this.x(this.tickEnd(this.cursor)));
    if (to < left || from > right) return;
    context.fillStyle = colour("cursor");
    context.fillRect(from, 14, Math.max(to - from, 1.5), bottom - 14);
  }

  paintLegend() {
    const present = new Set();
    for (let i = 0; i < this.arena.boxes.count; i++) present.add(this.classOf(i));
    const items = this.classes().map((name, index) => present.has(index) && element("li", {},
      button(KIND_NAMES[name] || name, (event) => {
        if (!this.hidden.delete(index)) this.hidden.add(index);
        event.currentTarget.setAttribute("aria-pressed", String(!this.hidden.has(index)));
        this.paint();
      }, { "aria-pressed": "true", class: `swatch ${this.by}-${index}` })));
    const steps = new Set(this.arena.instructions.stream.map((_, tick) => stepKind(this.arena, tick)));
    const streams = STEP_KINDS.map((name, index) =>
      steps.has(index) && element("li", { class: `swatch step-${index}` }, name));
    this.legend.replaceChildren(element("li", { class: "heading" }, "Arena"), ...items.filter(Boolean),
      element("li", { class: "break" }), element("li", { class: "heading" }, "Streams"), ...streams.filter(Boolean));
  }

  // -- pointer and keys -------------------------------------------------------------------------------------------

  listen() {
    let start = null;
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.button === 0) start = { at: place(event), x0: this.x0, x1: this.x1 };
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (start && (event.pointerType === "touch" || event.shiftKey)) {
        this.pan(start.x0 - (x - start.at[0]) / (this.place.right - this.place.left) * (start.x1 - start.x0) - this.x0);
      } else if (start && event.buttons && Math.abs(x - start.at[0]) > 4) {
        this.paint();
        this.context.fillStyle = colour("cursor");
        const [top, bottom] = this.zoomed(start.at, [x, y]).y;
        this.context.fillRect(start.at[0], top, x - start.at[0], bottom - top);
        this.tip.hidden = true;
      } else {
        this.showTip(x, y);
      }
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const end = place(event), from = start;
      start = null;
      if (!from) return;
      if (Math.abs(end[0] - from.at[0]) > 4 && event.pointerType !== "touch" && !event.shiftKey) this.zoomTo(from.at, end);
      else if (Math.abs(end[0] - from.at[0]) <= 4) this.moveTo(this.tickAt(...end));
    });
    for (const name of ["pointerleave", "pointercancel"]) {
      this.canvas.addEventListener(name, () => { start = null; this.tip.hidden = true; });
    }
    this.canvas.addEventListener("dblclick", () => this.reset());
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.valueAt(place(event)[0]));
    }, { passive: false });
    this.canvas.addEventListener("keydown", (event) => {
      const { count } = this.arena.instructions, at = this.cursor ?? this.arena.peak_tick;
      const step = event.shiftKey ? Math.ceil(count / 50) : 1;
      const action = {
        ArrowLeft: () => this.moveTo(Math.max(at - step, 0), true),
        ArrowRight: () => this.moveTo(Math.min(at + step, count - 1), true),
        Home: () => this.moveTo(0, true), End: () => this.moveTo(count - 1, true),
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.reset(),
        Escape: () => this.reset(),
      }[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    });
  }

  // The part of the picture between two points: an interval of time, and of addresses if both lie in the arena.
  zoomed(from, to) {
    const [top, bottom] = this.place.arena, inside = (y) => y >= top && y <= bottom;
    const both = inside(from[1]) && inside(to[1]) && Math.abs(to[1] - from[1]) > 12;
    return { both, y: both ? [Math.min(from[1], to[1]), Math.max(from[1], to[1])] : [top, this.place.bottom] };
  }

  zoomTo(from, to) {
    const { both, y } = this.zoomed(from, to), [a, b] = [this.valueAt(from[0]), this.valueAt(to[0])];
    if (both) [this.y1, this.y0] = [this.bytesAt(y[0]), this.bytesAt(y[1])];
    this.setRange(Math.min(a, b), Math.max(a, b));
  }

  zoom(factor, about = null) {
    const cursor = this.cursor === null ? NaN : (this.tickBegin(this.cursor) + this.tickEnd(this.cursor)) / 2;
    const middle = about ?? (cursor >= this.x0 && cursor <= this.x1 ? cursor : (this.x0 + this.x1) / 2);
    if (factor > 1 && (this.x1 - this.x0) * factor >= this.extent) this.reset();
    else this.setRange(middle - (middle - this.x0) * factor, middle + (this.x1 - middle) * factor);
  }

  setRange(x0, x1) {
    const least = this.extent / 1e6, wide = Math.min(Math.max(x1 - x0, least), this.extent);
    this.x0 = Math.min(Math.max(x0, 0), this.extent - wide);
    this.x1 = this.x0 + wide;
    this.paint();
  }

  pan(distance) {
    this.setRange(this.x0 + distance, this.x1 + distance);
  }

  // -- what is under the pointer ----------------------------------------------------------------------------------

  boxAt(x, y) {
    const { boxes } = this.arena, begins = this.begins(), ends = this.ends();
    const value = this.valueAt(x), bytes = this.bytesAt(y), reach = (this.x1 - this.x0) / (this.place.right - this.place.left);
    let best = -1;
    for (let i = 0; i < boxes.count; i++) {
      if (boxes.offset[i] > bytes || boxes.offset[i] + boxes.bytes[i] < bytes || this.hidden.has(this.classOf(i))) continue;
      if (begins[i] <= value + reach && ends[i] > value - reach && (best < 0 || begins[i] <= value)) best = i;
    }
    return best;
  }

  tickAt(x, y) {
    const { instructions: each } = this.arena, value = this.valueAt(x);
    if (this.axis === "ticks") return Math.min(Math.max(Math.floor(value), 0), each.count - 1);
    const lane = this.place.streams.find((stream) => y >= stream.y && y < stream.y + STREAM_HEIGHT) || this.place.streams[0];
    let best = 0, distance = Infinity;
    for (let tick = 0; tick < each.count; tick++) {
      if (each.stream[tick] !== lane.index) continue;
      const away = Math.max(each.begin[tick] - value, value - each.end[tick], 0);
      if (away < distance) [best, distance] = [tick, away];
    }
    return best;
  }

  showTip(x, y) {
    const [top, bottom] = this.place.arena, { left, right } = this.place;
    let lines = null;
    if (x >= left && x <= right) {
      const box = y >= top && y <= bottom ? this.boxAt(x, y) : -1;
      if (box >= 0) lines = this.describeBox(box);
      else if (y > bottom) lines = this.describeTick(this.tickAt(x, y));
    }
    this.tip.hidden = !lines;
    if (!lines) return;
    this.tip.replaceChildren(element("strong", {}, lines[0]), facts(lines[1]));
    const wide = this.tip.offsetWidth, tall = this.tip.offsetHeight;
    this.tip.style.left = `${Math.max(0, x + wide + 24 > this.place.width ? x - wide - 14 : x + 14)}px`;
    this.tip.style.top = `${Math.max(0, Math.min(y + 12, this.place.height - tall))}px`;
  }

  describeBox(i) {
    const { boxes, buffers, names, shapes, instructions: each, unit } = this.arena;
    const buffer = boxes.buffer[i], maker = boxes.maker[i], owner = ownerOf(this.arena, i);
    const made = maker < 0 ? "before the step" : names[each.what[maker]];
    return [names[buffers.name[buffer]], [
      ["kind", KIND_NAMES[this.arena.buffer_kinds[boxes.kind[i]]]], ["shape", shapes[buffers.shape[buffer]]],
      ["bytes", formatExactBytes(boxes.bytes[i])], ["layer", owner >= 0 && this.net ? this.net.layers.name[owner] : ""],
      ["made by", maker >= 0 && this.origins[i] === 3 ? `copy in (tick ${maker})` : maker < 0 ? made : `${made} (tick ${maker})`],
      ["origin", ORIGINS[this.origins[i]]], ["ticks", `${boxes.begin[i]} to ${boxes.end[i]}`],
      ["time", `${formatSeconds(boxes.from[i] * unit)} for ${formatSeconds((boxes.to[i] - boxes.from[i]) * unit)}`],
      ["offset", formatExactBytes(boxes.offset[i])],
      ["in place of", boxes.over[i] >= 0 ? names[buffers.name[boxes.buffer[boxes.over[i]]]] : ""],
    ]];
  }

  describeTick(tick) {
    const { instructions: each, names, kinds, streams, unit, live, max_live_bytes: most } = this.arena;
    const layer = each.layer[tick];
    return [names[each.what[tick]], [
      ["tick", `${tick} of ${each.count}`], ["stream", streams[each.stream[tick]]],
      ["kind", each.recompute[tick] ? "recompute" : kinds[each.kind[tick]]],
      ["layer", layer >= 0 && this.net ? this.net.layers.name[layer] : ""],
      ["starts", formatSeconds(each.begin[tick] * unit)], ["takes", formatSeconds(each.duration[tick] * unit)],
      ["waits for", each.awaited[tick].map((other) => names[each.what[other]]).join(", ")],
      ["in use", `${formatBytes(live.total[tick])}, ${formatShare(live.total[tick], most)} of the most`],
    ]];
  }

  moveTo(tick, scroll = false) {
    this.cursor = tick;
    const from = this.tickBegin(tick), to = this.tickEnd(tick), wide = this.x1 - this.x0;
    if (scroll && (to < this.x0 || from > this.x1)) this.setRange(from - wide / 2, from + wide / 2);
    else this.paint();
    this.showDetails(tick);
  }

  showDetails(tick) {
    const { boxes, buffers, names, buffer_kinds: kinds, live } = this.arena, rows = [];
    for (let i = 0; i < boxes.count; i++) {
      if (boxes.begin[i] <= tick && tick < live.stop[i]) rows.push(i);
    }
    rows.sort((a, b) => boxes.bytes[b] - boxes.bytes[a]);
    const [name, lines] = this.describeTick(tick), layer = this.arena.instructions.layer[tick];
    const columns = [
      { label: "buffer", text: (i) => names[buffers.name[boxes.buffer[i]]] },
      { label: "kind", text: (i) => KIND_NAMES[kinds[boxes.kind[i]]] },
      { label: "bytes", number: true, text: (i) => formatBytes(boxes.bytes[i]), share: (i) => boxes.bytes[i] / live.total[tick] },
      { label: "offset", number: true, text: (i) => formatBytes(boxes.offset[i]) },
      { label: "origin", text: (i) => ORIGINS[this.origins[i]] },
    ];
    const used = table(columns, rows.slice(0, 200), { caption: `Buffers in use at tick ${tick}` });
    this.details.replaceChildren(
      element("div", {}, element("h3", {}, name), facts(lines),
        layer >= 0 && this.onLayer ? button("Show the layer in the net", () => this.onLayer(layer)) : null),
      element("div", {}, element("h3", {}, `In use at this tick: ${plural(rows.length, "buffer")}`), used));
  }
}
