"""Modelled time of each op of a net's training step, for a GPU that runs nothing else.

A block of the engine's kernels takes what is before its main loop, one latency of DRAM until its first stage is there,
its stages, and what comes after; co-resident blocks do the same at the same time.  Blocks come in waves over all
multiprocessors, the last one with those that are left.  No launch is faster than its traffic: what it reads through L2,
and the bytes of its op in DRAM.  All other kernels are bound by DRAM, at the share of a copy's rate that SHARES names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import ceil, prod
from pathlib import Path
from struct import unpack_from
from typing import NamedTuple, Protocol

from layermem.api import build_net, job_of
from layermem.backends.cuda import CudaDevice
from layermem.backends.cuda.base import CudaCall, cuda_kernels
from layermem.backends.cuda.implicit_gemm import DEPTH
from layermem.backends.cuda.launch import Launch
from layermem.backends.cuda.struct_layout import Layout, layout
from layermem.ops import Feed
from layermem.proto.schema import SolverParameter
from layermem.report.plan_report import evaluate
from layermem.schedule.ir import Instruction, Schedule
from layermem.solver.rules import settings
from tools.sass.engine import NAME, kernels_of, parts_of, stage_rate
from tools.sass.gpus import SUB_PARTITIONS, WARP, Gpu, Model, blocks_at_once
from tools.sass.pipeline import GLOBAL_LATENCY, duration, issues_of
from tools.sass.trace import traced

ROOT = Path(__file__).resolve().parents[2]
LINK = 3.5e10  # bytes a second at which a kernel reads the host's memory
STEP_GAP = 1e-3  # seconds in which the GPU waits for the host between steps
FLOAT = 4

# Kernels that read blobs which their op counts once: their struct, bytes for each element of a blob.
PASSES = (
    (re.compile("batch_moments"), "MomentsArgs", 4), (re.compile("gradient_sums"), "GradientSumsArgs", 8),
    (re.compile("channel_sums"), "ChannelSumsArgs", 4),
)  # fmt: skip
# Share of the rate of a copy, where it is not nearly all: few loads in flight, arithmetic, bytes one at a time.
SHARES = (
    (re.compile("batch_moments|channel_sums"), 0.62), (re.compile("gradient_sums"), 0.85),
    (re.compile("lrn_across"), 0.33), (re.compile("pool_max_backward"), 0.6), (re.compile(""), 0.92),
)  # fmt: skip


class OpTime(NamedTuple):
    """`kind` is fprop, dgrad or wgrad for the engine's kernels, else the op's own; `limit`: what bounds its longest
    launch, "pipeline", "L2" or "DRAM"; `kernel` that launch's."""

    name: str
    kind: str
    seconds: float
    limit: str
    kernel: str
    flops: int


class Limits(NamedTuple):
    """Seconds of a launch by each of its bounds, without the start."""

    pipeline: float
    l2: float
    dram: float

    @property
    def seconds(self) -> float:
        return max(self)

    @property
    def name(self) -> str:
        return ("pipeline", "L2", "DRAM")[self.index(max(self))]


# -- the ops of a step -------------------------------------------------------------------------------------------------


def step_of(name: str, batch: int, precision: str) -> Schedule:
    """A training step of a net of prototxt/, without a budget."""
    net = build_net(ROOT / "prototxt" / name / "train_val.prototxt", batch=batch, stages=["dummy"])
    return evaluate(job_of(net, device=CudaDevice(precision=precision))).program.train


def net_times(name: str, batch: int, precision: str, model: Model) -> Iterator[OpTime]:
    schedule = step_of(name, batch, precision)
    for instruction in schedule.instructions:
        op = instruction.op
        if op is None:
            continue
        if isinstance(op.record, Feed):
            yield OpTime(op.name, op.kind, op.nbytes / LINK, "link", "", 0)
        elif cuda_kernels.implements(op.record, op.step):
            yield launches_time(op.name, launches_of(instruction, schedule, precision), precision, op, model)


def launches_of(instruction: Instruction, schedule: Schedule, precision: str) -> Sequence[Launch]:
    """As the cuda device binds them.  Buffers have equal addresses where they share bytes."""
    op = instruction.op
    assert op is not None
    offsets = {role: schedule.residencies[number].offset for role, number in instruction.roles.items()}
    numbers = {offset: number for number, offset in enumerate(dict.fromkeys(offsets.values()), start=1)}
    call = CudaCall(
        addresses={role: numbers[offset] << 32 for role, offset in offsets.items()},
        counts={role: schedule.graph.buffers[buffer].tensor.count for role, buffer in op.roles.items()},
        accumulated=frozenset(op.accumulates),
        context={**settings(SolverParameter()), "seed": 1, "step": 0, "iteration": 0, "rate": 0.0},
        layer=op.layer_name,
        precision=precision,
        error_flag=1 << 31,
    )
    return list(cuda_kernels.bind(op.record, op.step, call))


class Work(Protocol):
    """What is known of an op beside its launches."""

    @property
    def kind(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def flops(self) -> int: ...


def launches_time(name: str, launches: Sequence[Launch], precision: str, work: Work, model: Model) -> OpTime:
    """Launches one after the other; the op's own bytes are those of the largest one that has no others."""
    own = [each for each in launches if passes_bytes(each) is None]
    main = max(own, key=lambda each: prod(each.grid), default=None)
    seconds, longest, kind = 0.0, (0.0, "", ""), work.kind
    for each in launches:
        nbytes = passes_bytes(each)
        if nbytes is None:
            nbytes = work.nbytes if each is main else 0
        if found := NAME.match(each.function):
            kind = found[1]
            limits = product_limits(each, precision, work.nbytes, model)
        else:
            limits = Limits(0.0, 0.0, nbytes / model.gpu.dram / share_of(each.function) * model.memory)
        seconds += limits.seconds + model.launch
        longest = max(longest, (limits.seconds, limits.name, each.function))
    return OpTime(name, kind, seconds, longest[1], longest[2], work.flops)


def passes_bytes(each: Launch) -> float | None:
    """In DRAM, of a kernel beside the one that the op's bytes are counted for."""
    for pattern, struct, nbytes in PASSES:
        if pattern.match(each.function):
            values = fields(each, struct)
            return nbytes * values["at.rows"] * values["at.columns"]
    if each.function == "sum_parts":
        values = fields(each, "PartsArgs")
        return FLOAT * values["count"] * (values["splits"] + 1)
    return None


def share_of(function: str) -> float:
    return next(share for pattern, share in SHARES if pattern.match(function))


# -- products ----------------------------------------------------------------------------------------------------------

STRUCTS = {"fprop": "ConvFpropArgs", "dgrad": "ConvDgradArgs", "wgrad": "ConvWgradArgs"}


def fields(each: Launch, name: str) -> dict[str, int]:
    """The integers of a launch's arguments by member; nested ones as `problem.images`."""
    return dict(_fields(layout(each.module, name), each.args, 0, ""))


def _fields(members: Layout, data: bytes, base: int, prefix: str) -> Iterator[tuple[str, int]]:
    for member in members.members:
        at = base + member.offset
        if isinstance(member.kind, Layout):
            yield from _fields(member.kind, data, at, f"{prefix}{member.name}.")
        else:
            yield prefix + member.name, unpack_from(member.kind, data, at)[0]


def stages_of(each: Launch) -> int:
    """Stages of a block, the average over the phases of a strided dgrad."""
    operation, _, _ = parts_of(each.function)
    values = fields(each, STRUCTS[operation])
    problem = {name.removeprefix("problem."): value for name, value in values.items()}
    taps = problem["kernel_h"] * problem["kernel_w"]
    depth: float = {
        "fprop": taps * problem["channels"],
        "dgrad": taps * problem["outputs"] / (problem["stride_h"] * problem["stride_w"]),
        "wgrad": values.get("images_each", 0) * problem["maps_h"] * problem["maps_w"],
    }[operation]
    return max(1, ceil(depth / DEPTH))


def product_limits(each: Launch, precision: str, nbytes: int, model: Model) -> Limits:
    gpu = model.gpu
    kernel = kernels_of(each.module, gpu.architecture)[each.function]
    operation, tile, _ = parts_of(each.function)
    stages, blocks = stages_of(each), prod(each.grid)
    slots = blocks_at_once(gpu, kernel.threads, kernel.registers, kernel.shared + each.shared)
    waves, rest = divmod(blocks, slots * gpu.multiprocessors)
    cycles = waves * block_cycles(each, precision, slots, stages, gpu)
    if rest:
        cycles += block_cycles(each, precision, ceil(rest / gpu.multiprocessors), stages, gpu)
    read = blocks * stages * DEPTH * (tile.m + tile.n) * FLOAT
    cycles *= model.products.get((precision, operation), 1.0)
    return Limits(cycles / gpu.clock, read / gpu.l2, nbytes / gpu.dram)


def block_cycles(each: Launch, precision: str, together: int, stages: int, gpu: Gpu) -> float:
    """Cycles of a block beside `together` - 1 others on its multiprocessor."""
    around = ends_cycles(each.module, each.function, each.args, each.grid, together, gpu)
    return around + GLOBAL_LATENCY + stages * stage_rate(precision, each.function, gpu, together).cycles


@cache
def ends_cycles(module: str, function: str, args: bytes, grid: tuple[int, int, int], together: int, gpu: Gpu) -> float:
    """Before and after the main loop."""
    kernel = kernels_of(module, gpu.architecture)[function]
    trace = traced(kernel, args, grid)
    warps = max(1, round(together * kernel.threads / WARP / SUB_PARTITIONS))
    return sum(duration(issues_of(part, gpu), warps) for part in (trace.before, trace.after))


# -- totals ------------------------------------------------------------------------------------------------------------


def by_kind(times: Iterable[OpTime]) -> Mapping[str, float]:
    """Seconds of fprop, dgrad, wgrad, and of all else as "rest", the gap between steps included."""
    totals = {"fprop": 0.0, "dgrad": 0.0, "wgrad": 0.0, "rest": STEP_GAP}
    for each in times:
        totals[each.kind if each.kind in totals else "rest"] += each.seconds
    return totals
