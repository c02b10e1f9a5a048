"""The ops of one step over named buffers: the graph that strategies plan and schedules run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from layermem.ops import FP32, NARROW, BatchSlice, OpRecord, Tensor

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"

COMPUTE, COMM = "compute", "comm"  # streams of ops: COMM is for communication of ranks

# kinds of buffers
PARAMETER, HISTORY, GRADIENT, STATE = "parameter", "history", "gradient", "state"
DATA, DIFF, STASH = "data", "diff", "stash"
SLICE = re.compile(r"@\d+/\d+$")  # the number of a slice of the batch, behind the name of a buffer or an op


@dataclass(frozen=True)
class Buffer:
    """Bytes with one name.  `nbytes` is the size of `tensor` on the device.  `band_of` is set for a buffer that holds
    some rows of another one (graph/bands.py)."""

    name: str
    kind: str
    tensor: Tensor
    nbytes: int
    persistent: bool = False
    band_of: BandOf | None = None


@dataclass(frozen=True)
class BandOf:
    """The buffer of all rows, which is not in the graph when its bands are, and the first row of this band."""

    whole: Buffer
    first: int


@dataclass(frozen=True)
class BufferOverlay:
    """Permission to place buffer `out` on the bytes of `over`, both of one size (kinds: layers.Overlay)."""

    out: str
    over: str
    kind: str


@dataclass(frozen=True)
class Op:
    """One step of a layer, forward, backward or an update, over named buffers.

    record, step   what it computes (layermem/ops), and which step of the record; both select the backend's kernel
    roles        role -> buffer, for the kernel
    reads, writes, updates   buffers: only read; fully written; read and written.  Each buffer is in one of them.
    accumulates  roles whose result is added to the buffer (one of `updates`) instead of written
    workspace_bytes, host_workspace_bytes   memory of the device and the host that is used only while the op runs
    recompute    the op that computes the outputs again from the same inputs; None if there is none
    views        role -> the items of its buffer that the op uses; it touches no other bytes of it (graph/slices.py)
    covers       names of the ops that it replaces, in this order (Graph.fused_updates)
    share_of     for a band of rows: the name of the op of all rows, and the fraction of them in the band
    stream       COMPUTE, or COMM for communication of ranks
    part_passes  passes over parts of its items, if it converts operands that are stored in 16 bits (graph/storage.py)
    joins        consecutive ops with the same value share one launch; "" for none
    node         index of its node in the training graph, -1 without one; layer_name, layer_type  of that node, or "";
                 layers  the names of all layers that the node stands for
    turns        numbers of the runs of its node that it belongs to, if the node runs in pieces
    """

    name: str
    kind: str
    record: OpRecord
    step: str
    roles: Mapping[str, str]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    updates: tuple[str, ...] = ()
    accumulates: tuple[str, ...] = ()
    overlays: tuple[BufferOverlay, ...] = ()
    workspace_bytes: int = 0
    host_workspace_bytes: int = 0
    flops: int = 0
    nbytes: int = 0
    recompute: Op | None = None
    node: int = -1
    covers: tuple[str, ...] = ()
    layer_name: str = ""
    layer_type: str = ""
    layers: tuple[str, ...] = ()
    views: Mapping[str, BatchSlice] = field(default_factory=dict)
    share_of: tuple[str, float] | None = None
    stream: str = COMPUTE
    part_passes: tuple[Pass, ...] = ()
    joins: str = ""
    turns: tuple[int, ...] = ()

    @cached_property
    def view_of(self) -> dict[str, BatchSlice]:
        """The buffers that the op uses only some items of, with these items."""
        viewed = {self.roles[role]: items for role, items in self.views.items()}
        whole = {buffer for role, buffer in self.roles.items() if role not in self.views}
        return {buffer: items for buffer, items in viewed.items() if buffer not in whole}

    @property
    def node_run(self) -> tuple[int, ...]:
        """The node and its run, which a forward op and the ops of its backward have in common."""
        return self.node, *self.turns

    def of_turn(self, turn: int) -> Op:
        """This op as part of run `turn` of its node."""
        again = None if self.recompute is None else self.recompute.of_turn(turn)
        return replace(self, turns=(*self.turns, turn), recompute=again)

    @cached_property
    def launches(self) -> int:
        """The number of kernel launches and conversions: 1 without passes."""
        return sum(each.launches for each in self.part_passes) or 1

    @property
    def kernel(self) -> str:
        """ "Pool.backward": family of the record, and step."""
        return f"{self.record.family}.{self.step}"

    @property
    def touches(self) -> tuple[str, ...]:
        return (*self.reads, *self.updates, *self.writes)

    @property
    def accesses(self) -> tuple[str, ...]:
        """The buffers, once for each read or write: an updated buffer is listed twice."""
        return (*self.touches, *self.updates)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Operand:
    """An operand of the kernel that runs a part, under one role.

    source   the role of the op whose bytes these are; "" if they are only in the workspace
    tensor   the tensor that the kernel takes
    source_tensor   the tensor in `source`
    place    byte offset in the workspace; None if the kernel works on `source` itself
    """

    source: str
    tensor: Tensor
    source_tensor: Tensor
    place: int | None = None
    reads: bool = False
    writes: bool = False


@dataclass(frozen=True)
class Pass:
    """One pass of an op over parts of its items, with copies of some operands in the workspace.

    ends      the first part; if the op has sums, also the last one, and the second one of three or more.  The other
              parts are derived from these.  Their views refer to the operands of the op
    count     number of parts
    operands  the operands of all parts, by role
    workspace_place, workspace_bytes   the kernel's own workspace, after the copies and the carries
    """

    ends: tuple[Op, ...]
    count: int
    operands: Mapping[str, Operand]
    workspace_place: int = 0
    workspace_bytes: int = 0

    @property
    def workspace_end(self) -> int:
        return self.workspace_place + self.workspace_bytes

    @property
    def launches(self) -> int:
        """The kernels and conversions of all parts."""
        converted = sum(each.reads + each.writes for each in self.operands.values() if each.place is not None)
        return self.count * (1 + converted)

    def parts(self) -> Iterator[Op]:
        first, *others = self.ends
        like, at = (others[0], 1) if len(others) > 1 else (first, 0)
        yield first
        yield from (_moved(like, number - at) for number in range(1, self.count - len(others[-1:])))
        yield from others[-1:]


def _moved(part: Op, by: int) -> Op:
    """The part of an op that is `by` parts after `part`."""
    assert part.record.batch_slice is not None
    record = part.record.of_slice(part.record.batch_slice.moved(by), part.record)
    return replace(part, record=record, views={role: view.moved(by) for role, view in part.views.items()})


class Use(NamedTuple):
    """One touch of a buffer: position in an order of ops, and whether the op reads it, writes it, or both."""

    position: int
    reads: bool
    writes: bool


def uses_of(ops: Iterable[Op]) -> dict[str, list[Use]]:
    """Every buffer's uses when `ops` run in this order."""
    uses: dict[str, list[Use]] = {}
    for position, op in enumerate(ops):
        for buffer in op.reads:
            uses.setdefault(buffer, []).append(Use(position, True, False))
        for buffer in op.updates:
            uses.setdefault(buffer, []).append(Use(position, True, True))
        for buffer in op.writes:
            uses.setdefault(buffer, []).append(Use(position, False, True))
    return uses


@dataclass(frozen=True, repr=False)
class Graph:
    """Ops in the order of the net (forward, then backward in reverse, updates as soon as they can run).

    fused_updates  ops that a plan may run in place of the ops that they cover, at the position of the last of these
                   (rewrite.py)
    slices         the slices of the batch and the bands of rows, in the format of step_slicer.Slices; "" without
    less_fused     the same step without some of the fusions that need additional bytes; None if it has no such fusion
                   (rewrite.py);  not_fused  names of the fusions that this step omits
    """

    name: str
    buffers: Mapping[str, Buffer]
    ops: tuple[Op, ...]
    device: str  # the title of the device
    warnings: tuple[str, ...] = field(default=(), compare=False)
    fused_updates: tuple[Op, ...] = ()
    slices: str = ""
    less_fused: Graph | None = field(default=None, compare=False)
    not_fused: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Graph: {self.name} on {self.device}, {len(self.ops)} ops, {len(self.buffers)} buffers>"

    _fused: dict[frozenset[str], Graph] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def by_name(self) -> dict[str, Op]:
        """Every op that a plan may name."""
        return {op.name: op for op in (*self.ops, *self.fused_updates)}

    def with_fused_updates(self, names: frozenset[str]) -> Graph:
        """The same step with these fused updates in place of the ops that they cover."""
        if not names:
            return self
        if names not in self._fused:
            ops = tuple(self._fusing([fused for fused in self.fused_updates if fused.name in names]))
            used = {b for op in ops for b in op.touches}
            buffers = {b.name: b for b in self.buffers.values() if b.persistent or b.name in used}
            self._fused[names] = Graph(
                self.name, buffers, ops, self.device, self.warnings, slices=self.slices, not_fused=self.not_fused
            )
        return self._fused[names]

    def _fusing(self, chosen: Collection[Op]) -> Iterator[Op]:
        """Yield the ops with each of `chosen` at the position of the last op that it covers.  Ops that read another of
        its results, such as the update of a bias, follow it: in slices they may come before the weights' last read."""
        instead = {fused.covers[-1]: fused for fused in chosen}
        gone = {name for fused in chosen for name in fused.covers[:-1]}
        unmade = {buffer: fused.name for fused in chosen for buffer in fused.writes}
        waiting: dict[str, list[Op]] = {fused.name: [] for fused in chosen}
        for op in self.ops:
            fused = instead.get(op.name)
            maker = next((unmade[buffer] for buffer in (*op.reads, *op.updates) if buffer in unmade), None)
            if fused is not None:
                for buffer in fused.writes:
                    if unmade.get(buffer) == fused.name:
                        del unmade[buffer]
                yield from (fused, *waiting[fused.name])
            elif op.name in gone:
                continue
            elif maker is not None:
                waiting[maker].append(op)
            else:
                yield op

    @cached_property
    def position(self) -> dict[str, int]:
        """Index of each op by name."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def producer(self) -> dict[str, Op]:
        """The op that first writes each buffer."""
        producers: dict[str, Op] = {}
        for op in self.ops:
            for buffer in op.writes:
                producers.setdefault(buffer, op)
        return producers

    @cached_property
    def readers(self) -> dict[str, list[Op]]:
        """Ops that need a buffer's bytes (read or update it), in order."""
        readers: dict[str, list[Op]] = {name: [] for name in self.buffers}
        for op in self.ops:
            for buffer in (*op.reads, *op.updates):
                readers[buffer].append(op)
        return readers

    @cached_property
    def recomputable(self) -> dict[str, Op]:
        """Data, stashes and gradients that their op writes again when it is recomputed, with that op."""
        return {
            name: op
            for name, op in self.producer.items()
            if self.buffers[name].kind in (DATA, STASH, DIFF)
            and op.recompute is not None
            and name in op.recompute.writes
        }

    @cached_property
    def forward_readers(self) -> dict[str, list[str]]:
        """Names of the forward ops among the readers of each buffer."""
        return {name: [op.name for op in ops if op.kind == FORWARD] for name, ops in self.readers.items()}

    @cached_property
    def read_after_forward(self) -> dict[str, tuple[str, ...]]:
        """For each backward and update op: the operands that a recomputed forward op can write again."""
        again = {name for name, op in self.recomputable.items() if op.kind == FORWARD}
        return {
            op.name: tuple(buffer for buffer in (*op.reads, *op.updates) if buffer in again)
            for op in self.ops
            if op.kind != FORWARD
        }

    @cached_property
    def uses(self) -> dict[str, list[Use]]:
        """The uses of every buffer when the ops run once in the order of the graph."""
        return uses_of(self.ops)

    @cached_property
    def phases(self) -> list[list[Op]]:
        """The ops in order; a phase begins with each forward op that follows a backward op (planning/phases.py)."""
        found: list[list[Op]] = [[]]
        seen_backward = False
        for op in self.ops:
            if op.kind == FORWARD and seen_backward:
                found.append([])
                seen_backward = False
            seen_backward |= op.kind == BACKWARD
            found[-1].append(op)
        return found

    @cached_property
    def names_after_forward(self) -> list[str]:
        """Names of all ops but the forward ones, in order."""
        return [op.name for op in self.ops if op.kind != FORWARD]

    @cached_property
    def later_slices(self) -> dict[str, str]:
        """Map the name of each forward or backward op of a later slice to the name of the same op in the first slice;
        empty for a step of one phase."""
        if len(self.phases) == 1:
            return {}
        slices = [
            (op.name, op.name.rpartition("@")[0], op.record.batch_slice)
            for op in self.ops
            if op.record.batch_slice is not None
        ]
        first = {base: name for name, base, batch_slice in slices if batch_slice.is_first}
        return {name: first[base] for name, base, batch_slice in slices if not batch_slice.is_first}

    @cached_property
    def storage(self) -> str:
        """How activations are stored: "fp32", or the member of NARROW that some of them have."""
        dtypes = {b.tensor.dtype for b in self.buffers.values()}
        return next((word for word, dtype in NARROW.items() if dtype in dtypes), FP32)

    @property
    def target(self) -> str:
        """The device, and the storage of activations unless it is fp32: "cpu, storage bf16"."""
        return self.device if self.storage == "fp32" else f"{self.device}, storage {self.storage}"

    def of_kind(self, kind: str) -> list[Op]:
        return [op for op in self.ops if op.kind == kind]

    def persistent(self) -> list[Buffer]:
        return [b for b in self.buffers.values() if b.persistent]

    @cached_property
    def fingerprint(self) -> str:
        """Changes with anything that a plan depends on: ops, shapes, bytes, device."""
        digest = hashlib.sha256(self.device.encode())
        for b in self.buffers.values():
            digest.update(f"{b.name} {b.kind} {b.tensor} {b.tensor.dtype} {b.nbytes} {b.persistent}\n".encode())
        for op in (*self.ops, *self.fused_updates):
            parts = (
                op.name,
                op.layer_type,
                op.kernel,
                op.reads,
                op.writes,
                op.updates,
                op.accumulates,
                op.workspace_bytes,
            )
            digest.update(f"{parts}\n".encode())
            if op.host_workspace_bytes:
                digest.update(f"{op.host_workspace_bytes}\n".encode())
            if op.views:
                digest.update(f"{sorted(op.views.items())}\n".encode())
        return digest.hexdigest()[:16]


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The names in order, each once."""
    return tuple(dict.fromkeys(names))
