"""A net and its plan as a picture: a box for each op of the forward pass, a wire for each blob that it reads.

    +---------------------------------+
    | conv1        Convolution 7x7/2  |   a line for each layer of the op (graph/fusion.py)
    | conv1_relu                ReLU  |
    | 32x64x112x112         98.0 MiB  |   a line for each top
    +---------------------------------+

Boxes and wires show the decision of the plan for the blob (decisions.py).  A wire that would cross a large part of the
picture, from an input layer to a loss or from one of many readers, ends in a small box that names its other end.
drawing.py arranges and writes a picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from layermem.graph.net import Net, Node
from layermem.graph.ops import DATA, Op
from layermem.layers.data import FEEDS
from layermem.layers.known_types import family_of
from layermem.proto.schema import Message, enum_name
from layermem.report.decisions import FREED, FUSED, BufferDecision, buffer_decisions, forward_ops
from layermem.report.folding import Fold, find_folds
from layermem.report.plan_report import PlanReport
from layermem.utils.units import format_bytes, format_seconds

TOPS_SHOWN = 3
LONG = 8  # ranks that any wire may span
CROWDED = 12  # from this number of wires at a box on, long ones are cut


@dataclass(frozen=True)
class BoxLine:
    """One line of a box: text on the left, smaller text on the right; `family` is the family of its layer."""

    left: str
    right: str
    family: str = ""


@dataclass(frozen=True)
class NetBox:
    """A box of lines for layers and tops; `reference` marks a box that names the other end of a wire."""

    layers: tuple[BoxLine, ...]
    tops: tuple[BoxLine, ...]
    decision: str
    tooltip: str
    in_place: bool = False
    ends: bool = False  # whether it is an input layer or has no readers
    reference: bool = False


@dataclass(frozen=True)
class Wire:
    """A blob, from the box that writes it to one that reads it."""

    source: int
    target: int
    decision: str
    tooltip: str


@dataclass(frozen=True)
class Stage:
    """Boxes first .. first + period - 1, which stand for `count` repetitions."""

    first: int
    period: int
    count: int
    tooltip: str


@dataclass(frozen=True)
class NetPicture:
    """The boxes and wires; `totals` counts blobs and bytes by decision, before folding."""

    title: str
    subtitle: str
    boxes: tuple[NetBox, ...]
    wires: tuple[Wire, ...]
    totals: dict[str, tuple[int, int]]
    in_place: int = 0
    stages: tuple[Stage, ...] = ()


def net_picture(report: PlanReport, *, fold: bool = False) -> NetPicture:
    """The first net of `report` with the decisions of its plan; `fold` draws repeated stages once."""
    net, schedule = report.job.nets[0], report.program.train
    decisions = buffer_decisions(schedule)
    ops = forward_ops(schedule)
    nodes = {node.layer.name: node for node in net.nodes}
    read = {buffer for op in ops for buffer in op.reads}
    boxes = tuple(_box(op, net, nodes, decisions, read) for op in ops)
    writer = {buffer: index for index, op in enumerate(ops) for buffer in op.writes}
    wires = tuple(
        Wire(writer[buffer], index, decisions[buffer].decision, _blob_text(buffer, net, decisions[buffer]))
        for index, op in enumerate(ops)
        for buffer in (*op.reads, *op.updates)
        if buffer in writer and schedule.graph.buffers[buffer].kind == DATA
    )
    counts: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    blobs = {name: each for name, each in decisions.items() if schedule.graph.buffers[name].kind == DATA}
    for each in blobs.values():
        counts[each.decision] += 1
        nbytes[each.decision] += each.nbytes
    totals = {name: (counts[name], nbytes[name]) for name in counts}
    fused = sum(len(op.layers) - 1 for op in ops)
    if fused:
        totals[FUSED] = fused, 0
    in_place = sum(each.in_place_of is not None for each in blobs.values())
    phase = "TEST" if net.phase else "TRAIN"
    budget = "" if report.budget_bytes is None else f" of a budget of {format_bytes(report.budget_bytes)}"
    picture = NetPicture(
        f"{report.job.title} {phase}",
        f"strategy {report.strategy}, peak {format_bytes(report.peak_bytes)}{budget}, "
        f"{format_seconds(report.seconds)} per step (predicted)",
        boxes,
        wires,
        totals,
        in_place,
    )
    return _cut_long_wires(_folded(picture) if fold else picture)


def message_picture(message: Message, *, rates: bool = False) -> NetPicture:
    """The layers of a NetParameter alone, without shapes and without a plan; with `rates`, their lr_mult too."""
    boxes: list[NetBox] = []
    wires: list[Wire] = []
    writers: dict[str, list[int]] = {}  # by blob: several where layers of both phases make it
    read = {blob for layer in message.layer for blob in layer.bottom}
    for index, layer in enumerate(message.layer):
        lr = f", lr {' '.join(f'{param.lr_mult:g}' for param in layer.param)}" if rates and layer.param else ""
        line = BoxLine(layer.name, _detail(layer) + lr, family_of(layer.type))
        in_place = bool(layer.top) and set(layer.top) <= set(layer.bottom)
        ends = not layer.bottom or not read.intersection(layer.top)
        tops = () if in_place else tuple(BoxLine(top, "") for top in layer.top)
        text = f"{layer.name}: {_detail(layer)}"
        boxes.append(NetBox((line,), tops, FREED, text, in_place=in_place, ends=ends))
        sources = [(writer, blob) for blob in layer.bottom for writer in writers.get(blob, ())]
        wires += [Wire(writer, index, FREED, f"blob {blob}") for writer, blob in sources]
        for top in layer.top:
            writers[top] = [index] if top in layer.bottom else [*writers.get(top, ()), index]
    return _cut_long_wires(NetPicture(message.name or "net", f"{len(boxes)} layers", tuple(boxes), tuple(wires), {}))


# -- boxes ---------------------------------------------------------------------------------------------------------


def _box(op: Op, net: Net, nodes: dict[str, Node], decisions: Mapping[str, BufferDecision], read: set[str]) -> NetBox:
    members = [nodes[name] for name in op.layers]
    lines = tuple(BoxLine(node.layer.name, _detail(node.layer.param), family_of(node.layer.type)) for node in members)
    tops = [buffer for role, buffer in op.roles.items() if role[0] == "y" and role[1:].isdigit()]
    shown = [
        BoxLine(
            f"{top}  {net.blobs[top]}" if len(tops) > 1 else str(net.blobs[top]), format_bytes(decisions[top].nbytes)
        )
        for top in tops[: TOPS_SHOWN if len(tops) <= TOPS_SHOWN else TOPS_SHOWN - 1]
    ]
    if len(shown) < len(tops):
        rest = sum(decisions[top].nbytes for top in tops[len(shown) :])
        shown.append(BoxLine(f"and {len(tops) - len(shown)} more", format_bytes(rest)))
    first = decisions[tops[0]] if tops else None
    return NetBox(
        lines,
        tuple(shown),
        first.decision if first else FREED,
        _tooltip(op, members, net, decisions, tops),
        in_place=bool(first and first.in_place_of),
        ends=members[0].layer.type in FEEDS or not read.intersection(tops),
    )


def _tooltip(
    op: Op, members: Sequence[Node], net: Net, decisions: Mapping[str, BufferDecision], tops: Sequence[str]
) -> str:
    lines = [f"{node.layer.name}: {node.layer.type} {_sizes(node.layer.param)}".rstrip() for node in members]
    lines += [_blob_text(top, net, decisions[top]) for top in tops]
    for buffer in op.writes:
        if buffer not in tops and buffer in decisions:
            lines.append(f"stash {buffer}: {format_bytes(decisions[buffer].nbytes)}, {decisions[buffer].decision}")
    params = [name for node in members for name in node.params if name in decisions]
    if params:
        total = sum(decisions[name].nbytes for name in params)
        words = Counter(decisions[name].decision for name in params)
        lines.append(f"parameters: {format_bytes(total)}, {' and '.join(words)}")
    return "\n".join(lines)


def _blob_text(name: str, net: Net, decision: BufferDecision) -> str:
    over = f", in place of {decision.in_place_of}" if decision.in_place_of else ""
    return f"blob {name}: {net.blobs[name]}, {format_bytes(decision.nbytes)}, {decision.decision}{over}"


def _detail(param: Message) -> str:
    """The type of a layer with its sizes."""
    return f"{param.type} {_sizes(param)}".rstrip()


def _sizes(param: Message) -> str:
    """The window and the number of outputs of a layer: "3x3/2, 64"."""
    if param.HasField("convolution_param"):
        p = param.convolution_param
        return f"{_window(p)}, {p.num_output}" if p.num_output else _window(p)
    if param.HasField("pooling_param"):
        p = param.pooling_param
        return f"{enum_name(p, 'pool')} {'global' if p.global_pooling else _window(p)}"
    if param.HasField("inner_product_param"):
        return str(param.inner_product_param.num_output)
    if param.HasField("eltwise_param"):
        return enum_name(param.eltwise_param, "operation")
    if param.HasField("dropout_param"):
        return f"{param.dropout_param.dropout_ratio:g}"
    return ""


def _window(p: Message) -> str:
    """Return "3x3/2" for a kernel of 3 and a stride of 2."""
    sizes = [*p.kernel_size] if hasattr(p.kernel_size, "__len__") else [p.kernel_size]
    strides = [*p.stride] if hasattr(p.stride, "__len__") else [p.stride]
    if p.HasField("kernel_h"):
        sizes = [p.kernel_h, p.kernel_w]
    if p.HasField("stride_h"):
        strides = [p.stride_h, p.stride_w]
    sizes = sizes * 2 if len(sizes) == 1 else sizes
    text = "x".join(map(str, sizes))
    return text + ("" if all(s == 1 for s in strides) else "/" + "x".join(map(str, dict.fromkeys(strides))))


# -- fewer boxes and shorter wires ---------------------------------------------------------------------------------


def _folded(picture: NetPicture) -> NetPicture:
    """The picture with each repeated stage drawn once."""
    boxes, wires = picture.boxes, picture.wires
    inputs: list[list[int]] = [[] for _ in boxes]
    for wire in wires:
        inputs[wire.target].append(wire.source)
    kinds = [
        (box.decision, box.in_place, box.ends, tuple(line.right for line in box.layers), _shapes(box)) for box in boxes
    ]
    folds = find_folds(kinds, inputs)
    keep = [True] * len(boxes)
    instead = [*range(len(boxes))]
    for fold in folds:
        for index in range(fold.first + fold.period, fold.first + fold.period * fold.repeats):
            keep[index] = False
            instead[index] = fold.first + (index - fold.first) % fold.period
    number = {index: i for i, index in enumerate(i for i, kept in enumerate(keep) if kept)}
    kept_wires: dict[tuple[int, int], Wire] = {}
    for wire in wires:
        source = wire.source if keep[wire.source] else instead[wire.source]
        if keep[wire.target] and source < wire.target:
            ends = number[source], number[wire.target]
            kept_wires.setdefault(ends, replace(wire, source=ends[0], target=ends[1]))
    stages = tuple(Stage(number[f.first], f.period, f.repeats, _stage_text(f, boxes)) for f in folds)
    kept = tuple(box for box, kept in zip(boxes, keep) if kept)
    return replace(picture, boxes=kept, wires=tuple(kept_wires.values()), stages=stages)


def _shapes(box: NetBox) -> tuple[str, ...]:
    return tuple(line.left.split("  ")[-1] for line in box.tops)


def _stage_text(fold: Fold, boxes: Sequence[NetBox]) -> str:
    last = fold.first + fold.period * (fold.repeats - 1)
    return f"{fold.repeats} times: {boxes[fold.first].layers[0].left} to {boxes[last].layers[0].left}"


def ranks_of(count: int, wires: Sequence[Wire]) -> list[int]:
    """The rank of each box: below all its inputs; a box that the first one does not lead to is right above its
    reader."""
    inputs: list[list[int]] = [[] for _ in range(count)]
    outputs: list[list[int]] = [[] for _ in range(count)]
    for wire in wires:
        inputs[wire.target].append(wire.source)
        outputs[wire.source].append(wire.target)
    order = _topological(inputs, outputs)
    rank, led_to = [0] * count, [False] * count
    for i in order:
        rank[i] = max((rank[source] + 1 for source in inputs[i]), default=0)
        led_to[i] = i == 0 or any(led_to[source] for source in inputs[i])
    for i in reversed(order):
        if outputs[i] and not led_to[i]:
            rank[i] = min(rank[target] for target in outputs[i]) - 1
    return rank


def _topological(inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> list[int]:
    waiting = [len(sources) for sources in inputs]
    order = [i for i, number in enumerate(waiting) if not number]
    for i in order:
        for target in outputs[i]:
            waiting[target] -= 1
            if not waiting[target]:
                order.append(target)
    return order


def _cut_long_wires(picture: NetPicture) -> NetPicture:
    """Replace a long wire from an input layer, or at a box with many of them, by a box that names its other end."""
    boxes, wires = list(picture.boxes), []
    rank = ranks_of(len(boxes), picture.wires)
    outputs, inputs = Counter(w.source for w in picture.wires), Counter(w.target for w in picture.wires)
    for wire in picture.wires:
        source, target = picture.boxes[wire.source], picture.boxes[wire.target]
        is_input = source.layers[0].family == "input"
        if rank[wire.target] - rank[wire.source] <= LONG:
            wires.append(wire)
        elif is_input or outputs[wire.source] >= CROWDED:
            blob = wire.tooltip.removeprefix("blob ").partition(":")[0]
            boxes.append(_reference(f"{blob} from {source.layers[-1].left}", wire))
            wires.append(replace(wire, source=len(boxes) - 1))
        elif inputs[wire.target] >= CROWDED:
            boxes.append(_reference(f"to {target.layers[0].left}", wire))
            wires.append(replace(wire, target=len(boxes) - 1))
        else:
            wires.append(wire)
    return replace(picture, boxes=tuple(boxes), wires=tuple(wires))


def _reference(text: str, wire: Wire) -> NetBox:
    return NetBox((BoxLine(text, ""),), (), wire.decision, wire.tooltip, ends=True, reference=True)
