"use strict";
// The net as a graph of layers and of groups that fold (page/net.py), laid out by dagre.

const NODE_HEIGHT = 42, LARGEST_GRAPH = 320, CHARACTER = 7, MARGIN = 12, LEAST_SCALE = 0.75, SHARE_OF_WINDOW = 0.77, COSTLIEST = 8;
const METRICS = [["seconds", "time"], ["flops", "FLOPs"], ["parameters", "parameters"], ["bytes", "bytes of tops"]];

class NetView {
  constructor(net, costs, onTick) {
    Object.assign(this, { net, costs, onTick, open: new Set(), chosen: null, metric: costs ? "seconds" : "flops" });
    this.count = net.layers.name.length;
    this.values = Object.fromEntries(METRICS.map(([name]) => [name, runningSums(this.metricOf(name))]));
    this.children = net.groups.label.map(() => []);
    this.outermost = [];
    net.groups.parent.forEach((parent, group) => (parent < 0 ? this.outermost : this.children[parent]).push(group));
    this.note = element("p", { class: "note", role: "status" });
    this.picture = element("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "The net" });
    this.details = element("div", { class: "details", "aria-live": "polite" });
    this.scale = null; // of the first graph: as large as fits in sight
    onTheme.push(() => this.paint());
    this.paint();
    this.describeNet();
  }

  metricOf(name) {
    return name === "seconds" ? (this.costs ? this.costs.map((cost) => cost.total) : this.net.layers.name.map(() => 0))
      : this.net.layers[name];
  }

  controls() {
    const names = this.net.layers.name;
    const list = element("datalist", { id: "layer-names" }, names.slice(0, 2000).map((value) => element("option", { value })));
    const find = element("input", {
      type: "search", list: "layer-names", placeholder: "Name of a layer",
      onchange: (event) => {
        const words = event.target.value.toLowerCase();
        const exact = names.findIndex((name) => name.toLowerCase() === words);
        const layer = exact >= 0 ? exact : names.findIndex((name) => name.toLowerCase().includes(words));
        if (words && layer >= 0) this.show(layer);
        else if (words) this.note.textContent = `No layer has a name with “${event.target.value}”.`;
      },
    });
    const metrics = METRICS.filter(([name]) => name !== "seconds" || this.costs);
    return element("div", { class: "controls" }, labelled("Find", find), list,
      labelled("Bars show", select(metrics, (name) => { this.metric = name; this.paint(); })),
      element("span", { class: "buttons" },
        button("Unfold all", () => this.unfold()), button("Fold all", () => { this.open.clear(); this.paint(); }),
        button("+", () => this.resize(1.25), { "aria-label": "Larger" }),
        button("−", () => this.resize(0.8), { "aria-label": "Smaller" })));
  }

  resize(factor) {
    this.scale = Math.min(Math.max(this.scale * factor, 0.3), 2);
    this.paint();
  }

  // Opens groups from the outermost on, while the graph stays small enough to read.
  unfold() {
    const closed = (groups) => groups.flatMap((group) => (this.open.has(group) ? closed(this.children[group]) : [group]));
    let left = false;
    for (let level = closed(this.outermost); level.length; level = closed(this.outermost)) {
      const before = this.open.size;
      for (const group of level) {
        this.open.add(group);
        if (this.members().nodes.length > LARGEST_GRAPH) { this.open.delete(group); left = true; break; }
      }
      if (left || this.open.size === before) break;
    }
    this.paint();
    this.note.textContent = left ? "Some groups stay folded: unfold them one by one." : "";
  }

  show(layer) {
    for (let group = 0; group < this.children.length; group++) {
      const { begin, end } = this.net.groups;
      if (begin[group] <= layer && layer < end[group]) this.open.add(group);
    }
    this.choose(`l${layer}`);
    this.picture.scrollIntoView({ block: "nearest" });
    this.picture.querySelector(".chosen")?.scrollIntoView({ block: "nearest", inline: "center" });
  }

  // -- what is visible --------------------------------------------------------------------------------------------

  // Nodes {id, group | layer, cluster}, the clusters of open groups, and the node that stands for each layer.
  members() {
    const { begin, end, label } = this.net.groups, nodes = [], clusters = [], stands = new Array(this.count);
    const visit = (groups, first, last, cluster) => {
      let position = first;
      const layersTo = (stop) => {
        for (; position < stop; position++) nodes.push({ id: (stands[position] = `l${position}`), layer: position, cluster });
      };
      for (const group of groups) {
        layersTo(begin[group]);
        if (this.open.has(group)) {
          clusters.push({ id: `c${group}`, group, cluster, label: label[group] });
          visit(this.children[group], begin[group], end[group], `c${group}`);
        } else {
          nodes.push({ id: `g${group}`, group, cluster });
          stands.fill(`g${group}`, begin[group], end[group]);
        }
        position = end[group];
      }
      layersTo(last);
    };
    visit(this.outermost, 0, this.count, null);
    return { nodes, clusters, stands };
  }

  edges(stands) {
    const { from, to } = this.net, pairs = new Set();
    for (let i = 0; i < from.length; i++) {
      const a = stands[from[i]], b = stands[to[i]];
      if (a !== b) pairs.add(`${a} ${b}`);
    }
    return [...pairs].map((pair) => pair.split(" "));
  }

  rangeOf({ group, layer }) {
    return group === undefined ? [layer, layer + 1] : [this.net.groups.begin[group], this.net.groups.end[group]];
  }

  titleOf({ group, layer }) {
    return group === undefined ? this.net.layers.name[layer] : this.net.groups.label[group];
  }

  subtitleOf(node) {
    const [begin, end] = this.rangeOf(node), { layers, types } = this.net;
    if (node.group !== undefined) return plural(end - begin, "layer");
    const name = types[layers.type[node.layer]];
    return layers.runsIn[node.layer] >= 0 ? `${name}, fused` : name;
  }

  // Share of layers with ops that are recomputed, and whether something of them is offloaded.
  decisionsOf([begin, end]) {
    let recomputed = 0, offloaded = 0;
    for (let layer = begin; this.costs && layer < end; layer++) {
      recomputed += this.costs[layer].recompute > 0;
      offloaded += this.costs[layer].offloads > 0;
    }
    return { recomputed, offloaded };
  }

  // -- painting ---------------------------------------------------------------------------------------------------

  paint() {
    const { nodes, clusters, stands } = this.members();
    const graph = new dagre.graphlib.Graph({ compound: true });
    graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 26, marginx: MARGIN, marginy: MARGIN });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const node of nodes) {
      const letters = Math.min(Math.max(this.titleOf(node).length, this.subtitleOf(node).length), 30);
      graph.setNode(node.id, { width: letters * CHARACTER + 30, height: NODE_HEIGHT });
    }
    for (const cluster of clusters) graph.setNode(cluster.id, {});
    for (const { id, cluster } of [...nodes, ...clusters]) if (cluster) graph.setParent(id, cluster);
    for (const [from, to] of this.edges(stands)) graph.setEdge(from, to);
    dagre.layout(graph);
    const { width, height } = graph.graph();
    const reach = graph.edges().flatMap((edge) => graph.edge(edge).points.map(({ x }) => x)); // dagre leaves them out
    const left = Math.min(0, ...reach) - 4, wide = Math.max(width, ...reach) + 4 - left;
    this.scale ??= Math.min(1, Math.max(LEAST_SCALE, SHARE_OF_WINDOW * window.innerHeight / (height + 8)));
    const svg = svgElement("svg", {
      width: Math.round(wide * this.scale), height: Math.round((height + 8) * this.scale),
      viewBox: `${left} -8 ${wide} ${height + 8}`,
    }, this.arrow());
    clusters.forEach((cluster) => svg.append(this.clusterShape(cluster, graph.node(cluster.id))));
    for (const edge of graph.edges()) svg.append(edgeShape(graph.edge(edge).points));
    const largest = Math.max(...nodes.map((node) => this.sum(this.rangeOf(node))), 0);
    nodes.forEach((node) => svg.append(this.nodeShape(node, graph.node(node.id), largest)));
    const { scrollTop, scrollLeft } = this.picture;
    this.picture.replaceChildren(svg);
    Object.assign(this.picture, { scrollTop, scrollLeft });
    this.note.textContent = "";
  }

  sum([begin, end]) {
    const sums = this.values[this.metric];
    return sums[end] - sums[begin];
  }

  arrow() {
    return svgElement("defs", {}, svgElement("marker", {
      id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto",
    }, svgElement("path", { d: "M0 0L8 4L0 8z", class: "tip-of-edge" })));
  }

  clusterShape({ group, label }, { x, y, width, height }) {
    const fold = () => { this.open.delete(group); this.choose(`g${group}`); };
    return svgElement("g", {
      class: "cluster", tabindex: "0", role: "button", "aria-expanded": "true", "aria-label": `Fold ${label}`,
      onclick: fold, onkeydown: onEnter(fold),
    },
    svgElement("rect", { x: x - width / 2, y: y - height / 2 - 6, width, height: height + 6, rx: 8 }),
    svgElement("text", { x: x - width / 2 + 8, y: y - height / 2 + 8 }, `− ${label}`));
  }

  nodeShape(node, { x, y, width, height }, largest) {
    const left = x - width / 2, top = y - height / 2, range = this.rangeOf(node), title = this.titleOf(node);
    const { recomputed, offloaded } = this.decisionsOf(range), value = this.sum(range);
    const folds = node.group !== undefined, act = () => this.activate(node);
    const marks = [recomputed && "recomputed", offloaded && "offloaded"].filter(Boolean);
    return svgElement("g", {
      class: ["node", folds && "folds", node.id === this.chosen && "chosen", ...marks].filter(Boolean).join(" "),
      tabindex: "0", role: "button", "aria-expanded": folds ? "false" : null, "data-node": node.id,
      "aria-label": `${title}, ${this.subtitleOf(node)}${marks.length ? `, ${marks.join(", ")}` : ""}`,
      onclick: act, onkeydown: onEnter(act),
    },
    folds ? svgElement("rect", { class: "under", x: left + 4, y: top + 4, width, height, rx: 6 }) : null,
    svgElement("rect", { class: "body", x: left, y: top, width, height, rx: 6 }),
    svgElement("text", { x: left + 12, y: top + 17, class: "name" }, cut(`${folds ? "+ " : ""}${title}`, 32)),
    svgElement("text", { x: left + 12, y: top + 32, class: "kind" }, cut(this.subtitleOf(node), 32)),
    recomputed ? svgElement("rect", { class: "mark step-3", x: left, y: top + 5, width: 4, height: height / 2 - 5 }) : null,
    offloaded ? svgElement("rect", { class: "mark step-4", x: left, y: y, width: 4, height: height / 2 - 5 }) : null,
    value ? svgElement("rect", {
      class: "metric", x: left + 6, y: top + height - 5, height: 3, width: Math.max((width - 12) * value / largest, 1),
    }) : null);
  }

  activate(node) {
    if (node.group !== undefined) {
      if (this.members().nodes.length > LARGEST_GRAPH) {
        this.note.textContent = "Too many layers to draw: fold something first.";
        return;
      }
      this.open.add(node.group);
      this.describeGroup(node.group);
      this.paint();
      return;
    }
    this.choose(node.id);
  }

  choose(id) {
    this.chosen = id;
    this.paint();
    const focus = this.picture.querySelector(".chosen");
    if (this.picture.contains(document.activeElement) || document.activeElement === document.body) focus?.focus({ preventScroll: true });
    const number = Number(id.slice(1));
    if (id.startsWith("l")) this.describeLayer(number);
    else this.describeGroup(number);
  }

  // -- details ----------------------------------------------------------------------------------------------------

  describeNet() {
    const { name, layers } = this.net, costs = (this.costs || []).filter((cost) => cost.total);
    const costliest = costs.sort((a, b) => b.total - a.total).slice(0, COSTLIEST);
    this.describeRange(name || "The net", [0, this.count]);
    if (!costliest.length) return;
    this.details.append(element("h4", {}, "Layers that take the most time"), table([
      { label: "layer", text: (cost) => layers.name[cost.layer], action: (cost) => this.show(cost.layer) },
      { label: "time per step", number: true, text: (cost) => formatSeconds(cost.total), share: (cost) => cost.total / costliest[0].total },
    ], costliest, { caption: "Layers that take the most time" }));
  }

  describeGroup(group) {
    const { begin, end, label } = this.net.groups;
    this.describeRange(label[group], [begin[group], end[group]]);
  }

  describeRange(title, range) {
    const total = (name) => this.values[name][range[1]] - this.values[name][range[0]];
    const { recomputed, offloaded } = this.decisionsOf(range);
    this.details.replaceChildren(element("h3", {}, title), facts([
      ["layers", (range[1] - range[0]).toLocaleString("en")], ["parameters", total("parameters").toLocaleString("en")],
      ["FLOPs", formatCount(total("flops"))], ["bytes of tops", formatBytes(total("bytes"))],
      ["time per step", this.costs ? formatSeconds(total("seconds")) : ""],
      ["recomputed", recomputed ? plural(recomputed, "layer") : ""], ["offloaded", offloaded ? `outputs of ${plural(offloaded, "layer")}` : ""],
    ]));
  }

  describeLayer(layer) {
    const { layers, types, shapes } = this.net, cost = this.costs?.[layer], other = layers.runsIn[layer];
    const parts = [element("h3", {}, layers.name[layer]), facts([
      ["type", types[layers.type[layer]]], ["shape", shapes[layers.shape[layer]]],
      ["parameters", layers.parameters[layer].toLocaleString("en")],
      ["FLOPs", layers.flops[layer] ? `${formatCount(layers.flops[layer])} (forward)` : ""],
      ["bytes of tops", formatBytes(layers.bytes[layer])],
      ["runs in the op of", other >= 0 ? layers.name[other] : ""],
      ["time per step", cost && cost.total ? formatSeconds(cost.total) : ""],
    ])];
    if (other >= 0) parts.push(button(`Show ${layers.name[other]}`, () => this.show(other)));
    if (cost && cost.ticks.length) parts.push(element("h4", {}, "Ops"), this.onTick.ops(cost.ticks));
    const buffers = this.onTick ? this.onTick.buffers(layer) : null;
    if (buffers) parts.push(element("h4", {}, "Buffers and decisions"), buffers);
    this.details.replaceChildren(...parts);
  }
}

function edgeShape(points) {
  const [first, ...rest] = points.map(({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`);
  return svgElement("path", { class: "edge", d: `M${first}L${rest.join("L")}`, "marker-end": "url(#arrow)" });
}

function onEnter(action) {
  return (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    action();
  };
}

function cut(text, letters) {
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}

function runningSums(values) {
  const result = [0];
  for (const value of values) result.push(result[result.length - 1] + value);
  return result;
}
