"""Modelled time of the kernels of cuda/grouped.cu, which FFMA bounds, or memory.

A thread is followed from its first instruction to its last, and as many warps as a multiprocessor holds run so through
the pipeline; where there are several rounds of blocks, without end, since blocks follow on those that end.  A wait for
asynchronous copies, and a load of an address that was not loaded before, take the latency of DRAM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from math import ceil, prod

from layermem.backends.cuda import grouped
from layermem.backends.cuda.grouped import MODULE, GroupedWgrad
from layermem.backends.cuda.launch import Launch
from layermem.ops import NARROW, ConvProblem, Window
from tools.sass.engine import Row, kernels_of
from tools.sass.gpus import SUB_PARTITIONS, WARP, Gpu, Model, blocks_at_once
from tools.sass.pipeline import duration, issues_of, simulate, waiting_for_copies
from tools.sass.trace import followed

ITERATIONS = 4  # of each warp, of which half are counted
FFMA = "FFMA"
GROUPS = "groups"  # in the place of a precision
EXAMPLE = ConvProblem(128, 256, 256, *[Window(28, 3, pad=1)] * 2, groups=32)


def is_direct(each: Launch) -> bool:
    return each.module == MODULE


def example_launches() -> Iterator[Launch]:
    """Of each kernel, in groups of eight channels."""
    by_two = replace(EXAMPLE, rows=Window(56, 3, stride=2, pad=1), columns=Window(56, 3, stride=2, pad=1))
    for problem, suffix in product((EXAMPLE, by_two), ("", *(f"_{word}" for word in NARROW))):
        yield grouped.fprop(problem, 0, 0, 0, suffix=suffix)
        yield grouped.dgrad(problem, 0, 0, 0, suffix=suffix)
        yield next(GroupedWgrad.of(problem, None).launches(0, 0, 0, False, 0, suffix=suffix))


def group_rows(model: Model) -> Iterator[Row]:
    """As those of the engine, but of a whole block instead of a stage; `cycles` of all blocks that share a
    multiprocessor."""
    gpu = model.gpu
    for each in example_launches():
        kernel, blocks = kernels_of(each.module, gpu.architecture)[each.function], blocks_of(each, gpu)
        steps = list(followed(kernel, each.args, each.grid))
        products = sum(step.instruction.name == FFMA for step in steps)
        seconds = pipeline_seconds(each, gpu)
        busy = 2 * EXAMPLE.macs / seconds / (2 * gpu.lanes * SUB_PARTITIONS * gpu.sm_clock)
        cycles = seconds * gpu.clock * blocks * gpu.multiprocessors / prod(each.grid)
        yield Row(
            GROUPS, each.function, len(steps), products, kernel.registers, kernel.shared + each.shared, blocks, cycles,
            2 * EXAMPLE.macs / seconds / 1e12, ("fma", busy),
        )  # fmt: skip


def pipeline_seconds(each: Launch, gpu: Gpu) -> float:
    """Of rounds of blocks over all multiprocessors, the last one with those that are left."""
    slots, blocks = blocks_of(each, gpu), prod(each.grid)
    rounds, rest = divmod(blocks, slots * gpu.multiprocessors)
    cycles = rounds * _round_cycles(*_code(each), slots, gpu, rounds > 1) if rounds else 0.0
    if rest:
        cycles += _round_cycles(*_code(each), ceil(rest / gpu.multiprocessors), gpu, False)
    return cycles / gpu.clock


def blocks_of(each: Launch, gpu: Gpu) -> int:
    """On a multiprocessor."""
    kernel = kernels_of(each.module, gpu.architecture)[each.function]
    return blocks_at_once(gpu, each.block, kernel.registers, kernel.shared + each.shared)


def _code(each: Launch) -> tuple[str, str, bytes, tuple[int, int, int], int]:
    return each.module, each.function, each.args, each.grid, each.block


@cache
def _round_cycles(
    module: str, function: str, args: bytes, grid: tuple[int, int, int], threads: int, together: int, gpu: Gpu,
    goes_on: bool,
) -> float:  # fmt: skip
    """Of so many blocks on a multiprocessor; `goes_on` if others follow on each of them."""
    kernel = kernels_of(module, gpu.architecture)[function]
    steps = list(followed(kernel, args, grid))
    issues = waiting_for_copies(steps, issues_of(steps, gpu))
    warps = together * threads / WARP / SUB_PARTITIONS
    if goes_on:
        least, share = int(warps), warps - int(warps)
        of = [simulate(issues, count, ITERATIONS).cycles for count in range(max(1, least), ceil(warps) + 1)]
        return of[0] + share * (of[-1] - of[0]) if least else of[0]
    return duration([issues] * max(1, ceil(warps)))
