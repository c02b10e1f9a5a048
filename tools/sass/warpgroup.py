"""The kernels of sm_90a under the model: the loops of producers and of consumers (cuda/warpgroup_gemm.cuh).

A scheduler has warps of both.  All run their loops as often as each other, which is what the barriers between them come
to; a wait at such a barrier costs nothing here, and one for products lasts until they are done.  An HGMMA reads B from
shared memory, and A where it lies there too, through the port that all other accesses share.  So does what a bulk
copy (UBLKCP) writes, which one warp of the block starts; it comes bit by bit, beside the copies of other threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from math import ceil, prod
from typing import NamedTuple

from layermem.backends.cuda.implicit_gemm import DEPTH, DGRAD_SUMS, PACKED, PACKED_BF16, PRODUCTS, ROW_BYTES, VECTOR
from layermem.backends.cuda.launch import Launch
from layermem.backends.cuda.warpgroup import (
    FPROP_MOMENTS,
    PACKED_PRECISION,
    PACKED_TILES,
    PRECISIONS,
    PRODUCERS,
    WARPGROUP_TILES,
    WarpgroupTile,
)
from tools.sass.disassembly import Instruction, Kernel
from tools.sass.engine import Row, kernels_of
from tools.sass.gpus import SUB_PARTITIONS, WARP, Gpu, Model
from tools.sass.loops import loops
from tools.sass.pipeline import GLOBAL_LATENCY, PRODUCTS_DONE, TENSOR_LATENCY, Issue, duration, issues_of
from tools.sass.trace import Step, followed

ITERATIONS = 16  # that are simulated, of which the first half fills the pipes
PORT = 128  # bytes a cycle
IN_SHARED = "gdesc"  # as operand: a descriptor
BULK_COPY = "UBLKCP"  # of the whole B of a stage


class WarpgroupRow(NamedTuple):
    """A kernel under the model.

    loads, products   instructions that a producer and a consumer warp issue in a stage; `wgmma` of the latter
    cycles            of a stage of all blocks on a multiprocessor
    tflops            of the whole GPU in these loops; `bound` is what L2 lets through
    """

    precision: str
    kernel: str
    loads: int
    products: int
    registers: int
    blocks: int
    cycles: float
    tflops: float
    bound: float
    wgmma: int
    shared: int
    busy: tuple[str, float]

    def in_table(self, precision: str) -> Row:
        """As a row beside those of the engine of every GPU: instructions of both warps."""
        return Row(
            precision, self.kernel, self.loads + self.products, self.wgmma, self.registers, self.shared, self.blocks,
            self.cycles, self.tflops, self.busy,
        )  # fmt: skip


def rows_of(precision: str, model: Model) -> Iterator[WarpgroupRow]:
    """`precision` is one of PRECISIONS, or PACKED_PRECISION."""
    if precision == PACKED_PRECISION:
        for tile in PACKED_TILES:
            for product in tile.products:
                yield row_of(precision, f"{product}_{tile.name}_v{PACKED}", tile, model)
        return
    for tile in WARPGROUP_TILES:
        for product in (*PRODUCTS, FPROP_MOMENTS, DGRAD_SUMS):
            yield row_of(precision, f"{product}_{tile.name}_v{VECTOR}", tile, model)


def module_of(precision: str) -> str:
    return f"{PACKED_BF16.module}_sm90a" if precision == PACKED_PRECISION else f"convolution_{precision}_sm90a"


def depth_of(tile: WarpgroupTile) -> int:
    """Elements of k in a stage."""
    return PACKED_BF16.depth if tile.is_packed else DEPTH


def row_of(precision: str, name: str, tile: WarpgroupTile, model: Model) -> WarpgroupRow:
    gpu, module = model.gpu, module_of(precision)
    kernel = kernels_of(module, gpu.architecture)[name]
    loads, products = loop_with(kernel, "LDGSTS"), loop_with(kernel, "HGMMA")
    cycles = stage_cycles(module, name, tile.blocks, gpu)
    done = 2 * tile.m * tile.n * depth_of(tile) * tile.blocks
    read = (tile.m + tile.n) * ROW_BYTES * tile.blocks
    return WarpgroupRow(
        precision, name, len(loads), len(products), kernel.registers, tile.blocks, cycles,
        done / cycles * gpu.sm_clock / 1e12, done / read * gpu.l2 / 1e12,
        sum(each.name == "HGMMA" for each in products), kernel.shared + tile.shared_bytes(precision),
        busiest(kernel, tile, cycles, gpu),
    )  # fmt: skip


def busiest(kernel: Kernel, tile: WarpgroupTile, cycles: float, gpu: Gpu) -> tuple[str, float]:
    """The pipe that is busiest in a stage of so many cycles, and its share of them."""
    busy = Counter[str]()
    for issues, threads in (
        (issues_of_loads(kernel, gpu), PRODUCERS),
        (issues_of_products(kernel, gpu), tile.consumers),
    ):
        for issue in issues:
            busy[issue.pipe] += issue.cycles * (tile.blocks * threads // WARP // SUB_PARTITIONS)
    pipe = max(filter(None, busy), key=lambda each: busy[each])
    return pipe, busy[pipe] / cycles


def loop_with(kernel: Kernel, name: str) -> Sequence[Instruction]:
    """The smallest loop that waits at a barrier in shared memory and has such an instruction."""
    found = [loop.of(kernel.code) for loop in loops(kernel)]
    whole = [code for code in found if {name, "SYNCS"} <= {each.name for each in code}]
    if not whole:
        raise ValueError(f"{kernel.name} has no loop with {name}")
    return min(whole, key=len)


@cache
def stage_cycles(module: str, function: str, blocks: int, gpu: Gpu) -> float:
    """Of a stage of so many blocks on a multiprocessor."""
    kernel, tile = kernels_of(module, gpu.architecture)[function], tile_of(function)
    loads, products = issues_of_loads(kernel, gpu), issues_of_products(kernel, gpu)
    producers = blocks * PRODUCERS // WARP // SUB_PARTITIONS
    consumers = blocks * tile.consumers // WARP // SUB_PARTITIONS

    def time(iterations: int) -> float:
        return duration([products * iterations] * consumers + [loads * iterations] * producers)

    return (time(ITERATIONS) - time(ITERATIONS // 2)) / (ITERATIONS - ITERATIONS // 2)


class TilesOf(NamedTuple):
    """What the blocks of a launch have to do: tiles of one matrix, each of so many stages, of so many matrices."""

    tiles: int
    stages: int
    matrices: int


def launch_seconds(each: Launch, work: TilesOf, gpu: Gpu) -> float:
    """By the pipeline alone.  A block's tiles follow each other; the loads of the next one wait for neither the
    products nor the stores of this one, so only the first tile waits for memory; no product overlaps with stores."""
    tile = tile_of(each.function)
    together = min(tile.blocks, ceil(prod(each.grid) / gpu.multiprocessors))
    waves = ceil(prod(each.grid) / (tile.blocks * gpu.multiprocessors))
    blocks = prod(each.grid) // work.matrices
    begin, end = ends_cycles(each.module, each.function, each.args, each.grid, together, gpu)
    one = work.stages * stage_cycles(each.module, each.function, together, gpu) + end
    return waves * (begin + GLOBAL_LATENCY + ceil(work.tiles / blocks) * one) / gpu.clock


@cache
def ends_cycles(
    module: str, function: str, args: bytes, grid: tuple[int, int, int], together: int, gpu: Gpu
) -> tuple[float, float]:
    """Of the first warps: what a producer issues before the first stage, and a consumer behind the last one."""
    kernel, tile = kernels_of(module, gpu.architecture)[function], tile_of(function)
    loads = list(followed(kernel, args, grid))
    products = list(followed(kernel, args, grid, number=PRODUCERS))
    before = loads[: next(i for i, step in enumerate(loads) if step.instruction.name == "LDGSTS" and not step.off)]
    after = products[1 + max(i for i, step in enumerate(products) if step.instruction.name == "HGMMA") :]
    warps = together * PRODUCERS // WARP // SUB_PARTITIONS, together * tile.consumers // WARP // SUB_PARTITIONS
    begin, end = (duration([issues_of(part, gpu)] * each) for part, each in zip((before, after), warps, strict=True))
    return begin, end


def tile_of(function: str) -> WarpgroupTile:
    own = PACKED_TILES if function.endswith(f"_v{PACKED}") else WARPGROUP_TILES
    return next(tile for tile in own if f"_{tile.name}_" in function)


def issues_of_loads(kernel: Kernel, gpu: Gpu) -> list[Issue]:
    code = loop_with(kernel, "LDGSTS")
    issues = issues_of([Step(each, False) for each in code], gpu)
    if any(each.name == BULK_COPY for each in code):
        written = tile_of(kernel.name).n * ROW_BYTES / PORT  # cycles
        each = written / sum(instruction.name == "LDGSTS" for instruction in code)
        issues = [
            issue._replace(cycles=issue.cycles + each) if instruction.name == "LDGSTS" else issue
            for instruction, issue in zip(code, issues, strict=True)
        ]
    return issues


def issues_of_products(kernel: Kernel, gpu: Gpu) -> list[Issue]:
    """Those of the loop, with the reads of B and the waits for products."""
    code = loop_with(kernel, "HGMMA")
    issues: list[Issue] = []
    for instruction, issue in zip(code, issues_of([Step(each, False) for each in code], gpu), strict=True):
        if instruction.name == "HGMMA":
            m, n, k = shape_of(instruction)
            element = DEPTH // k  # bytes: 32 of each row
            rows = n + (m if instruction.operands[1].startswith(IN_SHARED) else 0)  # and columns that it reads there
            share = gpu.wgmma[element != 4]
            rate = SUB_PARTITIONS * gpu.tensor * share * (1 if element == 4 else 2)
            cycles = 2 * m * n * k / rate
            issues.append(issue._replace(pipe="tensor", cycles=cycles, latency=cycles + TENSOR_LATENCY,
                                         written=PRODUCTS_DONE))  # fmt: skip
            issues.append(Issue("shared", rows * k * element / PORT, 0.0, 0.0, 1, (), None, None))
        elif instruction.name == "WARPGROUP" and "DEPBAR" in instruction.opcode:
            issues.append(issue._replace(pipe="", wait=(*issue.wait, PRODUCTS_DONE)))
        else:
            issues.append(issue)
    return issues


@cache
def shape_of(instruction: Instruction) -> tuple[int, int, int]:
    """HGMMA.64x128x8.F32.TF32: 64, 128, 8."""
    m, n, k = map(int, instruction.opcode.split(".")[1].split("x"))
    return m, n, k


def warpgroup_table(rows: Sequence[WarpgroupRow]) -> list[str]:
    lines = [
        "| precision, kernel | issued: loads | products | registers | blocks | cycles | TFLOP/s: loops | L2 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.precision} `{row.kernel}` | {row.loads} | {row.products} | {row.registers} | {row.blocks} | "
        f"{row.cycles:.0f} | {row.tflops:.0f} | {row.bound:.0f} |"
        for row in rows
    ]
    return lines


def all_rows(model: Model) -> list[WarpgroupRow]:
    return [row for precision in (*PRECISIONS, PACKED_PRECISION) for row in rows_of(precision, model)]
