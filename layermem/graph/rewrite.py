"""Rewrites of a finished graph: two ops become one, or one op does part of the work of the other.

    rule      first writes the buffer that second reads as role `joined`, and the device runs the result of `make`

    Conv.dgrad+relu        conv2.dgrad          dy                         dy, 0 where the bit of a mask is not set;
                           conv1.relu_backward  dy cleared where y <= 0    conv1.forward leaves the mask
    Conv.forward+moments   conv1.forward        y                          y, and its moments in units of rows
                           bn1.forward          moments of y, then y       merges them, and reads y once
    Conv.dgrad+sums        conv2.dgrad          dy                         dy, and the sums of its units
                           bn1.backward         sums of dy and x, then dx  merges them, and reads both once
    InnerProduct+update    fc.wgrad             dw                         a few rows of w at a time: dw is never stored
                           fc.w0.update         w, h by dw                 as a whole

A graph is rewritten after slices, ranks and storage, so a rule sees the ops that run.  Results have the same bits.

A rule that is offered does not change the graph: a plan may run its op in place of the two (Graph.fused_updates).  Each
other rule needs additional bytes, so it is optional: `Graph.less_fused` is the same step without the rules that extend
the lifetime of an input, and its `less_fused` applies none.  The Compiler uses these steps if the bytes do not fit.

source  Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited Resources" (LOMO), 2023, for the
        update
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from layermem.graph.device import Device
from layermem.graph.ops import BACKWARD, DIFF, FORWARD, SLICE, STASH, UPDATE, Buffer, Graph, Op
from layermem.layers.activation import bits
from layermem.ops import (
    CONV_MOMENTS,
    DGRAD_SUMS_FUSION,
    MASKED_DGRAD,
    NARROW,
    NORM_OPERANDS,
    BatchNorm,
    BatchNormScale,
    BatchSlice,
    Conv,
    EndsInRelu,
    InnerProduct,
    InnerProductUpdate,
    ReluMask,
    Tensor,
    Update,
)

MASK_CHANNELS = 8  # bits in a byte of a mask: each item has whole bytes
UPDATES = "InnerProduct+update"  # InnerProductUpdate.fusion
BOTTOM_MASK = "bottom_mask"  # the role of the mask in a dgrad
NONE: Mapping[str, str] = {}
Rewritten = dict[str, Op | None]  # op name -> the op in its place, or None for no op


class Work:
    """A graph while it is rewritten: its ops by name, in order, and its buffers."""

    def __init__(self, graph: Graph, device: Device):
        self.device = device
        self.ops = {op.name: op for op in graph.ops}
        self.buffers = dict(graph.buffers)
        self.declared: list[str] = []  # buffers that the current rule has declared
        self.relus = {  # names of the ops that end in a ReLU, by buffer and items
            (op.roles["y0"], op.record.batch_slice): op.name
            for op in graph.of_kind(FORWARD)
            if isinstance(op.record, EndsInRelu) and "y0" in op.roles
        }

    @cached_property
    def touch_counts(self) -> Counter[str]:
        """The number of ops that touch each buffer; for rules that are offered, since these leave the ops unchanged."""
        return Counter(buffer for op in self.ops.values() for buffer in set(op.touches))

    def declare(self, name: str, kind: str, tensor: Tensor) -> str:
        """Declare a buffer, unless another slice of the op has, and return its name."""
        if name not in self.buffers:
            self.buffers[name] = Buffer(name, kind, tensor, self.device.nbytes(tensor))
            self.declared.append(name)
        return name

    def nbytes(self, name: str, items: BatchSlice | None) -> int:
        """Bytes of a buffer, or of some of its items."""
        return self.buffers[name].nbytes if items is None else items.fraction_of(self.buffers[name].nbytes)

    def with_roles(self, op: Op, nbytes: int, reads: Mapping[str, str] = NONE, writes: Mapping[str, str] = NONE) -> Op:
        """`op` with more roles and `nbytes` more bytes of traffic."""
        roles = {**op.roles, **reads, **writes}
        return replace(
            op,
            roles=roles,
            reads=tuple(dict.fromkeys((*op.reads, *reads.values()))),
            writes=(*op.writes, *writes.values()),
            nbytes=op.nbytes + nbytes,
            workspace_bytes=self.device.workspace_bytes(op.record, op.step, roles.keys()),
        )

    def are_taken(self, ops: Iterable[Op]) -> bool:
        """Whether the kernels of these ops take all their 16-bit operands without conversion."""
        for op in ops:
            dtypes = {role: self.buffers[name].tensor.dtype for role, name in op.roles.items()}
            narrow = {role for role, dtype in dtypes.items() if dtype in NARROW.values()}
            if narrow and not narrow <= self.device.takes(op.record, op.step, dtypes, op.accumulates):
                return False
        return True


@dataclass(frozen=True)
class Rule:
    """One kind of pair of ops, and the ops that replace it.

    name    name of the fusion, as in Device.fusions
    first   whether an op may be the first of the two, the last one that writes the buffer
    second  whether an op may be the second of the two, which reads the buffer
    joined  the role of the buffer in the second op
    alone   no op between the two reads the buffer
    make    returns the ops in place of the two, or None to leave them unchanged
    early   the first op needs an input of the second one
    offered the rule is not applied: its op is offered to plans, and covers the two
    """

    name: str
    first: Callable[[Op], bool]
    second: Callable[[Op], bool]
    joined: str
    make: Callable[[Op, Op, Work], Rewritten | None]
    alone: bool = False
    early: bool = False
    offered: bool = False


# ---- which ops -------------------------------------------------------------------------------------------------------


def _is_whole(op: Op) -> bool:
    """Whether `op` computes all items at once, without conversions of operands."""
    return op.record.batch_slice is None and not op.part_passes


def _is_dgrad(op: Op) -> bool:
    is_conv = isinstance(op.record, Conv) and op.record.pairs == 1 and op.step == "dgrad"
    return is_conv and op.recompute is None and not op.part_passes


def _is_plain_conv(op: Op) -> bool:
    record = op.record
    is_conv = isinstance(record, Conv) and record.pairs == 1 and not record.relu and not record.residual
    return is_conv and op.kind == FORWARD and _is_whole(op) and "moments" not in op.roles


def _is_norm(op: Op) -> bool:
    """Whether `op` is a step of a BatchNorm that uses the statistics of its batch."""
    norm = op.record.norm if isinstance(op.record, BatchNormScale) else op.record
    return isinstance(norm, BatchNorm) and not norm.global_stats and _is_whole(op)


# ---- the resulting ops -----------------------------------------------------------------------------------------------


def _mask_dgrad(dgrad: Op, relu: Op, work: Work) -> Rewritten | None:
    """Clear the gradient where dgrad stores it.  The forward op of the ReLU leaves a mask, even if its y is kept."""
    shape = work.buffers[relu.roles["dy0"]].tensor.shape
    if (
        dgrad.record.batch_slice != relu.record.batch_slice
        or relu.part_passes
        or len(shape) != 4
        or shape[1] % MASK_CHANNELS
    ):
        return None
    made: Rewritten = {relu.name: None}
    if "mask" in relu.roles:
        mask, items = relu.roles["mask"], relu.views.get("mask")
    else:
        y = relu.roles["y0"]
        maker = work.ops[work.relus[y, relu.record.batch_slice]]
        if maker.part_passes:
            return None
        slice_of_y = "".join(SLICE.findall(y))
        mask = work.declare(f"{relu.layer_name}.mask{slice_of_y}", STASH, bits(work.buffers[y].tensor))
        items = maker.views.get("y0")
        again = None if maker.recompute is None else _leave_mask(maker.recompute, mask, work)
        made[maker.name] = replace(_leave_mask(maker, mask, work), recompute=again)
    masked = work.with_roles(dgrad, work.nbytes(mask, items), {BOTTOM_MASK: mask})
    made[dgrad.name] = masked if items is None else replace(masked, views={**masked.views, BOTTOM_MASK: items})
    return made


def _leave_mask(op: Op, mask: str, work: Work) -> Op:
    """The forward op `op` with the mask of its items as another output."""
    items, is_written = op.views.get("y0"), op.roles["y0"] in op.writes
    return replace(
        op,
        roles={**op.roles, "mask": mask},
        writes=(*op.writes, mask) if is_written else op.writes,
        updates=op.updates if is_written else (*op.updates, mask),
        views=op.views if items is None else {**op.views, "mask": items},
        nbytes=op.nbytes + work.nbytes(mask, items),
    )


def _leave_moments(conv: Op, norm: Op, work: Work) -> Rewritten | None:
    assert isinstance(conv.record, Conv)
    moments = work.declare(f"{conv.layer_name}.moments", STASH, conv.record.problem.moments)
    nbytes = work.buffers[moments].nbytes
    leaves = work.with_roles(conv, nbytes, writes={"moments": moments})
    return {conv.name: leaves, norm.name: work.with_roles(norm, nbytes, {"moments": moments})}


def _leave_sums(dgrad: Op, norm: Op, work: Work) -> Rewritten | None:
    """Let dgrad leave sums for the BatchNorm; only the latter's op counts the read of x.  With a stride, dgrad is one
    problem per phase, whose rows are not the rows of a unit: then the rule does not apply."""
    assert isinstance(dgrad.record, Conv)
    if dgrad.record.problem.stride != (1, 1) or not _is_whole(dgrad):
        return None
    has_relu = isinstance(norm.record, BatchNormScale) and norm.record.relu
    own = ("x0", "mean", "inv_std", *(("w3", "w4") if has_relu else ()))
    operands = {role: norm.roles[each] for role, each in zip(NORM_OPERANDS, own)}
    sums = work.declare(f"{dgrad.layer_name}.norm_sums", DIFF, dgrad.record.problem.norm_sums)
    if isinstance(norm.record, BatchNormScale):  # y > 0 is tested on y as it is stored
        dgrad = replace(dgrad, record=replace(dgrad.record, relu_dtype=norm.record.relu_dtype))
    nbytes = work.buffers[sums].nbytes
    leaves = work.with_roles(dgrad, nbytes, operands, {"norm_sums": sums})
    return {dgrad.name: leaves, norm.name: work.with_roles(norm, nbytes, {"norm_sums": sums})}


def _update_rows(wgrad: Op, update: Op, work: Work) -> Rewritten | None:
    """Return one op, called backward_update; None if dw has other readers, or is a sum over slices or steps."""
    assert isinstance(wgrad.record, InnerProduct) and isinstance(update.record, Update)
    gradient = work.buffers[update.roles["dw0"]]
    is_used = work.touch_counts[gradient.name] > 2
    is_sum = wgrad.updates or gradient.persistent or wgrad.record.batch_slice is not None
    if not wgrad.record.by_rows or wgrad.roles.get("dw0") != gradient.name or is_used or is_sum:
        return None
    record = InnerProductUpdate(wgrad.record, update.record)
    roles = {role: name for role, name in {**wgrad.roles, **update.roles}.items() if name != gradient.name}
    fused = replace(
        wgrad,
        name=".backward_update".join(wgrad.name.rsplit(".wgrad", 1)),
        record=record,
        step="backward_update",
        roles=roles,
        writes=tuple(name for name in wgrad.writes if name != gradient.name),
        updates=update.updates,
        accumulates=(),
        overlays=(),
        recompute=None,
        share_of=None,
        workspace_bytes=work.device.workspace_bytes(record, "backward_update", roles.keys()),
        flops=wgrad.flops + update.flops,
        nbytes=wgrad.nbytes + update.nbytes - 2 * gradient.nbytes,
        covers=(wgrad.name, update.name),
    )
    return {fused.name: fused}


RULES = (
    Rule(
        MASKED_DGRAD,
        _is_dgrad,
        lambda op: isinstance(op.record, ReluMask) and op.kind == BACKWARD,
        "dy0",
        _mask_dgrad,
        alone=True,
    ),
    Rule(CONV_MOMENTS, _is_plain_conv, lambda op: op.step == "forward" and _is_norm(op), "x0", _leave_moments),
    Rule(
        DGRAD_SUMS_FUSION, _is_dgrad, lambda op: op.step == "backward" and _is_norm(op), "dy0", _leave_sums, early=True
    ),
    Rule(
        UPDATES,
        lambda op: isinstance(op.record, InnerProduct) and op.step == "wgrad",
        lambda op: isinstance(op.record, Update) and op.kind == UPDATE,
        "dw0",
        _update_rows,
        alone=True,
        offered=True,
    ),
)


# ---- the engine ------------------------------------------------------------------------------------------------------


def rewrite(graph: Graph, device: Device) -> Graph:
    """`graph` with every rule that `device` runs, and the same step with fewer rules (Graph.less_fused)."""
    rules = [rule for rule in RULES if rule.name in device.fusions and not rule.offered]
    full, used = _apply(graph, device, rules)
    early = {rule.name for rule in rules if rule.early} & used
    less: Graph | None = None
    for dropped in (used, early):  # the step without any is the last of the chain
        if dropped and (less is None or less.not_fused != tuple(sorted(dropped))):
            fewer, _ = _apply(graph, device, [rule for rule in rules if rule.name not in dropped])
            less = replace(fewer, not_fused=tuple(sorted(dropped)), less_fused=less)
    return replace(full, less_fused=less) if used else graph


def offer_updates(graph: Graph, device: Device) -> Graph:
    """`graph` with the ops that it offers to plans; planning/fused_updates.py selects those that save memory."""
    work, found = Work(graph, device), []
    for rule in RULES:
        if rule.offered and rule.name in device.fusions:
            found += [op for made in _matches(rule, work) for op in made.values() if op is not None]
    return replace(graph, fused_updates=tuple(found))


def _apply(graph: Graph, device: Device, rules: Iterable[Rule]) -> tuple[Graph, set[str]]:
    """`graph` with these rules applied, and the names of the rules that matched."""
    work, used = Work(graph, device), set()
    for rule in rules:
        for made in _matches(rule, work):
            used.add(rule.name)
            for name, op in made.items():
                if op is None:
                    del work.ops[name]
                else:
                    work.ops[name] = op
    return replace(graph, buffers=work.buffers, ops=tuple(work.ops.values())), used


def _matches(rule: Rule, work: Work) -> Iterable[Rewritten]:
    """Yield the result of the rule for each pair that it matches, in the order of the second ops."""
    writer: dict[str, str] = {}  # by buffer, the name of the last op to write it, and of the last one to touch it
    toucher: dict[str, str] = {}
    for name in list(work.ops):
        second = work.ops[name]
        buffer = second.roles.get(rule.joined)
        if buffer in writer and rule.second(second):
            first = work.ops[writer[buffer]]
            if rule.first(first) and (not rule.alone or toucher[buffer] == first.name):
                work.declared.clear()
                made = rule.make(first, second, work)
                if made is not None and work.are_taken(op for op in made.values() if op is not None):
                    yield made
                else:
                    for other in work.declared:
                        del work.buffers[other]
        if name in work.ops:
            op = work.ops[name]
            toucher |= dict.fromkeys(op.touches, name)
            writer |= dict.fromkeys((*op.updates, *op.writes), name)
