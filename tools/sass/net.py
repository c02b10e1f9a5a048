"""Modelled time of each op of a net's training step, for a GPU that runs nothing else.

A block of the engine's kernels takes what is before its main loop, one latency of DRAM until its first stage is there,
its stages, and what comes after; co-resident blocks do the same at the same time.  Blocks come in waves over all
multiprocessors, the last one with those that are left.  No launch is faster than its traffic: what it reads through L2,
and in DRAM the bytes that tools/traffic.py counts.  All other kernels are bound by DRAM, at the rate that their loads
in flight admit (loads.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from math import ceil, prod
from pathlib import Path
from struct import unpack_from
from typing import NamedTuple

from layermem.api import build_net, job_of
from layermem.backends.cuda import CudaDevice
from layermem.backends.cuda.base import cuda_kernels
from layermem.backends.cuda.implicit_gemm import DEPTH, FEW, ROW_BYTES
from layermem.backends.cuda.launch import Launch
from layermem.backends.cuda.struct_layout import Layout, layout
from layermem.backends.cuda.warpgroup import CAPABILITY
from layermem.errors import InputError
from layermem.ops import FP32, ITEMSIZE, Feed
from layermem.planning.costs import MODELS
from layermem.report.plan_report import evaluate
from layermem.schedule.ir import Instruction, Schedule
from layermem.schedule.joined import joined
from layermem.schedule.upload_ahead import free_from
from tools.sass.direct import GROUPS, is_direct, pipeline_seconds
from tools.sass.engine import MERGED, NAME, PATCH, POOL, SUMS, engine_of, kernels_of, parts_of, stage_rate
from tools.sass.gpus import SUB_PARTITIONS, WARP, WARPGROUPS, Gpu, Model, blocks_at_once
from tools.sass.loads import launch_bytes, resident_blocks, share_of, thread_bytes
from tools.sass.loops import BARRIER
from tools.sass.pipeline import GLOBAL_LATENCY, duration, issues_of, waiting_for_copies
from tools.sass.trace import traced
from tools.sass.warpgroup import TilesOf, depth_of, launch_seconds, tile_of
from tools.traffic import group_launches

ROOT = Path(__file__).resolve().parents[2]


class MemoryTime(NamedTuple):
    """All launches of a kernel that DRAM bounds.  The last three are of its largest launch: bytes that a thread and the
    whole GPU have in flight, and blocks of a multiprocessor."""

    kernel: str
    launches: int
    moved: int
    seconds: float
    thread_bytes: int
    in_flight: int
    blocks: int


class OpTime(NamedTuple):
    """`kind` is fprop, dgrad or wgrad for kernels of the engine and of cuda/grouped.cu, else the op's own; `limit`:
    what bounds its longest launch, "pipeline", "L2" or "DRAM"; `kernel` that launch's; `launches` with copies over the
    link."""

    name: str
    kind: str
    seconds: float
    limit: str
    kernel: str
    flops: int
    launches: int


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


class NetStep(NamedTuple):
    """A training step of a net, without a budget, and the element types of its buffers; `precision` as in MODELLED,
    with WARPGROUPS behind it on a GPU which has those."""

    schedule: Schedule
    precision: str
    dtypes: Mapping[str, str]
    capability: str

    def launches(self) -> Iterator[tuple[Sequence[Instruction], Sequence[Launch], Sequence[int]]]:
        """Of ops that are launched together, one or several, and that the kernels of cuda/ run as they are; and the
        bytes that each launch moves."""
        of_products, _ = parts_of_precision(self.precision)
        for group in joined(self.schedule.instructions):
            op = group[0].op
            if op is not None and not op.passes and cuda_kernels.implements(op.record, op.step):
                yield group, *group_launches(self.schedule, group, of_products, self.dtypes, self.capability)


def step_of(name: str, batch: int, precision: str) -> NetStep:
    """Of a net of prototxt/."""
    path = ROOT / "prototxt" / name / "train_val.prototxt"
    try:
        net = build_net(path, batch=batch)
    except InputError:  # its data are not here, and it does not state their shapes
        net = build_net(path, batch=batch, stages=["dummy"])
    of_products, storage = parts_of_precision(precision)
    job = job_of(net, device=CudaDevice(precision=of_products, storage=storage))
    dtypes = {name: buffer.tensor.dtype for name, buffer in job.graphs[0].buffers.items()}
    capability = CAPABILITY if precision.endswith(WARPGROUPS) else ""
    return NetStep(evaluate(job).program.train, precision.removesuffix(WARPGROUPS), dtypes, capability)


def parts_of_precision(precision: str) -> tuple[str, str]:
    """Of products, and of storage."""
    of_products, _, storage = precision.removesuffix(WARPGROUPS).partition(" on ")
    return of_products, storage or FP32


def net_times(name: str, batch: int, precision: str, model: Model) -> Iterator[OpTime]:
    step = step_of(name, batch, precision)
    precision = step.precision
    launched = {group[0].tick: (group, launches, moved) for group, launches, moved in step.launches()}
    feeds: list[Instruction] = []
    seconds = [0.0] * len(step.schedule.instructions)  # by tick
    for instruction in step.schedule.instructions:
        op = instruction.op
        if op is None:
            continue
        if isinstance(op.record, Feed):
            feeds.append(instruction)
            continue
        if op.passes:  # between conversions: by the bytes that the graph counts
            busy = op.nbytes / model.gpu.dram * model.memory + op.launches * model.launch
            time = OpTime(op.name, op.kind, busy, "DRAM", "conversions", op.flops, op.launches)
        elif instruction.tick in launched:
            group, launches, moved = launched[instruction.tick]
            flops = sum(each.op.flops for each in group if each.op is not None)
            time = launches_time(op.name, op.kind, flops, launches, moved, precision, model)
        else:
            continue
        seconds[instruction.tick] = time.seconds
        yield time
    yield from (feed_time(step.schedule, each, seconds, model) for each in feeds)


def feed_time(schedule: Schedule, feed: Instruction, seconds: Sequence[float], model: Model) -> OpTime:
    """What the step waits for its batch.  Images in bytes are copied beside the end of the step before."""
    op = feed.op
    assert op is not None and isinstance(op.record, Feed)
    numbers, waits = op.nbytes, 0.0
    if "workspace" in feed.roles and op.record.images is not None:
        workspace = schedule.residencies[feed.roles["workspace"]]
        free = free_from(workspace, schedule.residencies, len(seconds))
        numbers -= ITEMSIZE["float32"] * op.record.images.count
        waits = max(0.0, workspace.nbytes / model.link - sum(seconds[free:]))
    return OpTime(op.name, op.kind, waits + numbers / model.link, "link", "", 0, op.record.tops)


def memory_times(name: str, batch: int, precision: str, model: Model) -> list[MemoryTime]:
    """Of the kernels that DRAM bounds, the one of most bytes first."""
    found = defaultdict[str, list[tuple[Launch, int]]](list)
    for _, launches, moved in step_of(name, batch, precision).launches():
        for each, nbytes in zip(launches, moved, strict=True):
            if not NAME.match(each.function):
                found[each.function].append((each, nbytes))
    rows = [_memory_time(kernel, launches, model) for kernel, launches in found.items()]
    return sorted(rows, key=lambda row: -row.moved)


def _memory_time(kernel: str, launches: Sequence[tuple[Launch, int]], model: Model) -> MemoryTime:
    largest, _ = max(launches, key=lambda pair: pair[1])
    seconds = sum(memory_seconds(each, nbytes, model) for each, nbytes in launches)
    of_largest = thread_bytes(largest, model.gpu), launch_bytes(largest, model.gpu), resident_blocks(largest, model.gpu)
    return MemoryTime(kernel, len(launches), sum(nbytes for _, nbytes in launches), seconds, *of_largest)


def memory_seconds(each: Launch, nbytes: int, model: Model) -> float:
    return nbytes / model.gpu.dram / share_of(each, model.gpu) * model.memory


def launches_time(
    name: str, kind: str, flops: int, launches: Sequence[Launch], moved: Sequence[int], precision: str, model: Model
) -> OpTime:
    """Launches one after the other, each of which moves so many bytes of DRAM."""
    seconds, longest = 0.0, (0.0, "", "")
    for each, nbytes in zip(launches, moved, strict=True):
        if found := NAME.match(each.function):
            kind = found[1]
            limits = product_limits(each, precision, nbytes, model)
        elif is_direct(each):
            kind = operation_of(each)
            busy = pipeline_seconds(each, model.gpu) * model.products.get((GROUPS, kind), 1.0)
            limits = Limits(busy, 0.0, memory_seconds(each, nbytes, model))
        else:
            limits = Limits(0.0, 0.0, memory_seconds(each, nbytes, model))
        seconds += limits.seconds + model.launch
        longest = max(longest, (limits.seconds, limits.name, each.function))
    return OpTime(name, kind, seconds, longest[1], longest[2], flops, len(launches))


# -- products ----------------------------------------------------------------------------------------------------------

OWN_ENGINE = "_sm90a"  # how the modules of the engine by warpgroups end
STRUCTS = {"fprop": "ConvFpropArgs", "dgrad": "ConvDgradArgs", "wgrad": "ConvWgradArgs"}
INNER = {SUMS: ("ConvDgradSumsArgs", "dgrad."), POOL: ("ConvFpropPoolArgs", "conv.")}  # where the struct has more
SHAPE = ("kernel_h", "kernel_w", "stride_h", "stride_w", "outputs")  # of a problem
CLEARED_AT_ONCE, CLEAR_ISSUES = 4, 12  # elements of a store of zeros, and what is issued for it


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


def product_fields(each: Launch) -> dict[str, int]:
    """Those of a product, and of its problem by their own names."""
    beside = next((its for its in INNER if its in each.function), "")
    name, inner = INNER.get(beside, (STRUCTS[operation_of(each)], ""))
    values = fields(each, name).items()
    return {member.removeprefix(inner).removeprefix("problem."): value for member, value in values}


def operation_of(each: Launch) -> str:
    return each.function.split("_")[1]


def matrix_of(each: Launch) -> tuple[int, int]:
    """Rows and columns of a product.  A strided dgrad has a matrix for each phase."""
    of = product_fields(each)
    return {
        "fprop": (of["images"] * of["maps_h"] * of["maps_w"], of["outputs"]),
        "dgrad": (
            of["images"] * ceil(of["height"] / of["stride_h"]) * ceil(of["width"] / of["stride_w"]), of["channels"],
        ),
        "wgrad": (of["outputs"], of["kernel_h"] * of["kernel_w"] * of["channels"]),
    }[operation_of(each)]  # fmt: skip


def stages_of(each: Launch, stage: int) -> int:
    """Stages of a block, of `stage` elements of k; the average over the phases of a strided dgrad."""
    operation, problem = operation_of(each), product_fields(each)
    taps = problem["kernel_h"] * problem["kernel_w"]
    depth: float = {
        "fprop": taps * problem["channels"],
        "dgrad": taps * problem["outputs"] / (problem["stride_h"] * problem["stride_w"]),
        "wgrad": problem.get("windows_each", 0),
    }[operation]
    return max(1, ceil(depth / stage))


class Blocks(NamedTuple):
    """Blocks of a launch that compute `products` of so many stages in all."""

    count: int
    stages: int
    products: int = 1


def blocks_of(each: Launch, stage: int) -> Sequence[Blocks]:
    """Of two merged dgrads, those of phases that have a tap of one of them compute both; the others clear pixels."""
    if MERGED not in each.function:
        return [Blocks(prod(each.grid), stages_of(each, stage))]
    of = fields(each, "ConvDgradMergedArgs")
    phases = of["last.problem.stride_h"] * of["last.problem.stride_w"]
    tiles = prod(each.grid) // phases
    parts = [{axis: of[f"{part}.problem.{axis}"] for axis in SHAPE} for part in ("first", "last")]
    reached = max(min(its["kernel_h"], its["stride_h"]) * min(its["kernel_w"], its["stride_w"]) for its in parts)
    depths = (its["kernel_h"] * its["kernel_w"] * its["outputs"] / reached for its in parts)
    stages = sum(max(1, ceil(depth / stage)) for depth in depths)
    return [Blocks(tiles * reached, stages, len(parts)), Blocks(tiles * (phases - reached), 0, 0)]


def stage_bytes(each: Launch) -> int:
    """What a stage of a block reads through L2, of the rows and columns that are there.  Copies of single elements go
    through L1, where neighbouring windows meet the same pixels: what a row of DEPTH windows sees of the image is read
    once, in those rows of the kernel that the tile has."""
    operation, tile, vector = parts_of(each.function)
    if PATCH in each.function:
        return ROW_BYTES * tile.n
    if MERGED in each.function:
        return ROW_BYTES * (tile.m + tile.n)
    if vector != FEW:
        rows, columns = matrix_of(each)
        return ROW_BYTES * (min(tile.m, rows) + min(tile.n, columns))
    values = fields(each, STRUCTS[operation])
    of = {name: values[f"problem.{name}"] for name in ("kernel_h", "kernel_w", "stride_w", "channels")}
    rows = min(of["kernel_h"], ceil(tile.n / (of["kernel_w"] * of["channels"])) + 1)
    seen = rows * ((DEPTH - 1) * of["stride_w"] + of["kernel_w"]) * of["channels"] * ITEMSIZE["float32"]
    return ROW_BYTES * tile.m + min(ROW_BYTES * tile.n, seen)


def patch_bytes(each: Launch) -> float:
    """What a block reads of the image, on average, where it copies the rows that its windows see once."""
    if PATCH not in each.function:
        return 0.0
    _, tile, _ = parts_of(each.function)
    of = {name.removeprefix("problem."): value for name, value in fields(each, STRUCTS["fprop"]).items()}
    reach = (of["kernel_h"] - 1) * of["dilation_h"] + 1
    lines = 1 + (tile.m - 1) / of["maps_w"]
    images = 1 + (lines - 1) / of["maps_h"]
    rows = images * reach + (lines - images) * of["stride_h"]
    return rows * of["width"] * of["image_pitch"] * ITEMSIZE["float32"]


def product_limits(each: Launch, precision: str, nbytes: int, model: Model) -> Limits:
    gpu = model.gpu
    kernel = kernels_of(each.module, gpu.architecture)[each.function]
    if each.module.endswith(OWN_ENGINE):
        work, tile = tiles_of(each), tile_of(each.function)
        read = work.tiles * work.matrices * work.stages * ROW_BYTES * (tile.m + tile.n)
        seconds = launch_seconds(each, work, gpu) * model.products.get(
            (precision + WARPGROUPS, operation_of(each)), 1.0
        )
        return Limits(seconds, read / gpu.l2, nbytes / gpu.dram)
    operation, _, _ = parts_of(each.function)
    slots = blocks_at_once(gpu, kernel.threads, kernel.registers, kernel.shared + each.shared)
    cycles, read = 0.0, 0
    for blocks in blocks_of(each, engine_of(precision, each.function).depth):
        waves, rest = divmod(blocks.count, slots * gpu.multiprocessors)
        cycles += waves * block_cycles(each, precision, slots, blocks, gpu)
        if rest:
            cycles += block_cycles(each, precision, ceil(rest / gpu.multiprocessors), blocks, gpu)
        read += blocks.count * (patch_bytes(each) + blocks.stages * stage_bytes(each))
    cycles *= model.products.get((precision, operation), 1.0)
    return Limits(cycles / gpu.clock, read / gpu.l2, nbytes / gpu.dram)


def tiles_of(each: Launch) -> TilesOf:
    """Of a launch by warpgroups."""
    tile, (rows, columns) = tile_of(each.function), matrix_of(each)
    tiles, stages = ceil(rows / tile.m) * ceil(columns / tile.n), stages_of(each, depth_of(tile))
    if operation_of(each) == "wgrad":  # whose blocks go on from one matrix to the next
        of = product_fields(each)
        return TilesOf(tiles * of["splits"] * (of["image_pitch"] // of["channels"]), stages, 1)
    return TilesOf(tiles, stages, each.grid[2])


def block_cycles(each: Launch, precision: str, together: int, blocks: Blocks, gpu: Gpu) -> float:
    """Cycles of one of `blocks` beside `together` - 1 others on its multiprocessor."""
    if not blocks.products:
        return clear_cycles(each, together, gpu)
    around = ends_cycles(each.module, each.function, each.args, each.grid, together, gpu)
    filled = blocks.products * GLOBAL_LATENCY
    return around + filled + blocks.stages * stage_rate(precision, each.function, gpu, together).cycles


@cache
def ends_cycles(module: str, function: str, args: bytes, grid: tuple[int, int, int], together: int, gpu: Gpu) -> float:
    """Before and after the main loop."""
    kernel = kernels_of(module, gpu.architecture)[function]
    trace = traced(kernel, args, grid)
    warps = max(1, round(together * kernel.threads / WARP / SUB_PARTITIONS))
    before, after = (issues_of(part, gpu) for part in (trace.before, trace.after))
    return sum(duration([each] * warps) for each in (before, waiting_for_copies(trace.after, after)))


def clear_cycles(each: Launch, together: int, gpu: Gpu) -> float:
    """Of a block that clears its pixels: it lists them, between two barriers, and stores zeros."""
    kernel, (_, tile, _) = kernels_of(each.module, gpu.architecture)[each.function], parts_of(each.function)
    before = traced(kernel, each.args, each.grid).before
    *_, listed = islice((i for i, step in enumerate(before) if step.instruction.name == BARRIER), 2)
    warps = max(1, round(together * kernel.threads / WARP / SUB_PARTITIONS))
    stores = tile.m * tile.n // CLEARED_AT_ONCE // kernel.threads
    return duration([issues_of(before[: listed + 1], gpu)] * warps) + stores * CLEAR_ISSUES * warps


# -- the host ----------------------------------------------------------------------------------------------------------


def host_gap(times: Iterable[OpTime], captured: bool) -> float:
    """Seconds of a step in which the GPU waits for the host, in the terms of layermem/schedule/simulate.py: the host
    needs as long for each launch or copy, and begins when the step before has ended.  As many launches as fit run
    ahead of the GPU.  The scalars of the step are a copy more; a captured step is one launch and that copy."""
    each = MODELS["cuda"].launch
    if captured:
        return 2 * each
    host, gpu, busy = each, 0.0, 0.0
    for op in times:
        if op.launches:
            first, host = host + each, host + op.launches * each
            gpu = max(max(gpu, first) + op.seconds, host)
            busy += op.seconds
    return gpu - busy


# -- totals ------------------------------------------------------------------------------------------------------------


def by_kind(times: Sequence[OpTime], captured: bool = False) -> Mapping[str, float]:
    """Seconds of fprop, dgrad, wgrad, and of all else as "rest", the gap between steps included."""
    totals = {"fprop": 0.0, "dgrad": 0.0, "wgrad": 0.0, "rest": host_gap(times, captured)}
    for each in times:
        totals[each.kind if each.kind in totals else "rest"] += each.seconds
    return totals
