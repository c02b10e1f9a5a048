"""The convolution engine's kernels: compiled, traced and run through the model, one row for each tile and precision."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from layermem.backends.cuda import implicit_gemm
from layermem.backends.cuda.conv_pool import conv_fprop_pool
from layermem.backends.cuda.implicit_gemm import (
    ALL_TILES,
    BF16_OF_DATA,
    ENGINES,
    PACKED_BF16,
    PATCH_TILES,
    WIDENING,
    DgradPart,
    Engine,
    Tile,
    conv_dgrad,
    conv_dgrad_merged,
    conv_fprop,
    conv_wgrad,
)
from layermem.backends.cuda.kernel_images import build, sources
from layermem.backends.cuda.kernel_images.nvrtc import Nvrtc
from layermem.backends.cuda.launch import Launch
from layermem.backends.cuda.moments import NormOperands
from layermem.ops import NARROW, Conv, ConvPool, ConvProblem, Pool, Tensor, Window
from layermem.utils.files import write_atomically
from tools.sass.disassembly import Kernel, disassembled, disassembler
from tools.sass.gpus import SUB_PARTITIONS, WARP, Gpu, Model, blocks_at_once
from tools.sass.loops import COPY, product_of
from tools.sass.pipeline import Rate, flops, issues_of, simulate
from tools.sass.trace import Step, traced

CUBINS = Path(__file__).resolve().parents[2] / "build" / "sass"
OPERATIONS = ("fprop", "dgrad", "wgrad")
PRODUCTS = {"fp32x3": 3}  # multiplications for one of the sum; 1 for the other precisions
SUMS = "_sums_"  # in the name of a dgrad that leaves sums for a BatchNorm
MERGED = "_merged_"  # of two dgrads
POOL = "_pool_"  # in the name of a fprop with the pooling behind it
PATCH = "_patch_"  # in the name of a fprop that reads a patch of the image
NAME = re.compile(r"conv_(fprop|dgrad|wgrad)(_data|_sums|_merged|_pool|_moments)?(_patch)?_(\d+x\d+)_v([148]|41)$")
MODELLED = {  # by precision, and storage where that is not fp32
    **ENGINES,
    "bf16 on bf16": PACKED_BF16,
    **{f"{precision} on {word}": ENGINES[precision].on(word) for precision in WIDENING for word in NARROW},
}


class Row(NamedTuple):
    """A kernel of the engine under the model.

    instructions  that a warp issues in one stage, 32 deep       products   of them, FFMA or HMMA
    registers     of a thread        shared   bytes of a block, those of its launch and of the driver included
    blocks        that share a multiprocessor
    cycles        of a stage of all blocks on a multiprocessor   tflops     of the whole GPU with every block slot taken
    busy          the pipe that is busiest, and its share of the cycles
    """

    precision: str
    kernel: str
    instructions: float
    products: float
    registers: int
    shared: int
    blocks: int
    cycles: float
    tflops: float
    busy: tuple[str, float]

    @property
    def per_product(self) -> float:
        return self.instructions / self.products


class MainLoop(NamedTuple):
    """A kernel's main loop: what a warp executes in `stages` stages, which are one iteration."""

    kernel: Kernel
    steps: Sequence[Step]
    stages: int


def find_compiler() -> build.Compiler | None:
    """nvcc, as in tools/ptxas_report.py, else NVRTC: their register allocations differ slightly."""
    return build.Nvcc.find() or Nvrtc.find()


def can_run() -> bool:
    return find_compiler() is not None and disassembler() is not None


@cache
def kernels_of(module: str, architecture: str) -> dict[str, Kernel]:
    """Kernels of cuda/<module>.cu by name."""
    return disassembled(cubin_of(module, architecture))


def cubin_of(module: str, architecture: str) -> bytes:
    """cuda/<module>.cu compiled, or what an earlier run has kept of the same source."""
    compiler = find_compiler()
    if compiler is None or disassembler() is None:
        raise SystemExit("it takes nvcc or NVRTC, and nvdisasm: pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm")
    source = build.whole_source(module)
    digest = hashlib.sha256(repr((source, build.FLAGS, architecture, compiler.version)).encode()).hexdigest()
    path = CUBINS / f"{module}-{architecture}-{digest[:24]}.cubin"
    if not path.exists():
        CUBINS.mkdir(parents=True, exist_ok=True)
        write_atomically(path, compiler.cubin(source, f"sm_{sources.architecture(module, architecture)}", build.FLAGS))
    return path.read_bytes()


def engine_of(precision: str, name: str) -> Engine:
    """That of a kernel; `precision` is a key of MODELLED."""
    engine = MODELLED[precision]
    if "_data_" not in name:
        return engine
    return BF16_OF_DATA if engine.is_packed else ENGINES[engine.precision].on(engine.storage, wide_image=True)


def compile_all(precisions: Iterable[str], architecture: str) -> None:
    """The modules side by side, so that the first use of each does not wait for its compiler."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda precision: cubin_of(MODELLED[precision].module, architecture), set(precisions)))


@cache
def example_launch(precision: str, name: str) -> Launch:
    """A launch of the kernel for a convolution with long sums; addresses are not used."""
    operation, tile, vector = parts_of(name)
    engine, axis = engine_of(precision, name), Window(size=58, kernel=3, stride=1, pad=1)
    if PATCH in name:
        return conv_fprop(engine, ConvProblem(32, 3, tile.n, axis, axis), 0, 0, 0)
    channels, outputs = 256 if vector in (4, 8) else 255, 256 if vector > 1 else 255
    problem = ConvProblem(32, channels, outputs, axis, axis)
    with patch.object(implicit_gemm, "TILES", (tile,)):  # else the shape decides
        if POOL in name:
            return conv_fprop_pool(engine, pooled(problem), 0, 0, 0, 0)
        if operation == "fprop":
            return conv_fprop(engine, problem, 0, 0, 0)
        if operation == "dgrad":
            if MERGED in name:
                return conv_dgrad_merged(engine, 0, *(DgradPart(problem, 0, 0) for _ in range(2)))
            norm = {"parts": 0, **NormOperands(0, 0, 0).struct} if SUMS in name else None
            return conv_dgrad(engine, problem, 0, 0, 0, norm=norm)
        return next(iter(conv_wgrad(engine, problem, 0, 0, 0, False, 0)))


def pooled(problem: ConvProblem) -> ConvPool:
    """A convolution with its ReLU and the MAX pooling of 2 x 2 pixels behind it."""
    rows, columns = (Window(size, 2, 2) for size in problem.maps.shape[2:])
    y = Tensor((problem.n, problem.k, rows.floor_out, columns.floor_out))
    pool = Pool("MAX", problem.maps, y, rows, columns, bottom_relu=True)
    return ConvPool(Conv(problem, bias=True, relu=True), pool)


def parts_of(name: str) -> tuple[str, Tile, int]:
    """Operation, tile and elements in one access of a kernel of the engine."""
    found = NAME.match(name)
    if not found:
        raise ValueError(f"{name} is no kernel of the engine")
    tiles = PATCH_TILES if found[3] else ALL_TILES
    return found[1], next(tile for tile in tiles if tile.name == found[4]), int(found[5])


@cache
def main_loop_of(precision: str, name: str, architecture: str) -> MainLoop:
    engine, (_, tile, _) = engine_of(precision, name), parts_of(name)
    kernel = kernels_of(engine.module, architecture)[name]
    launch = example_launch(precision, name)
    steps = traced(kernel, launch.args, launch.grid).loop
    stage = 2 * tile.m * tile.n * engine.depth * PRODUCTS.get(precision, 1) * WARP // kernel.threads
    total = sum(flops(step.instruction) for step in steps if not step.off)
    if total == 0 or total % stage:
        raise ValueError(f"{name}: a warp's main loop multiplies {total} FLOP, and a stage has {stage}")
    return MainLoop(kernel, steps, total // stage)


def issued_a_product(precision: str, name: str, architecture: str = "90") -> float:
    """Instructions that a warp executes for each product of the main loop."""
    loop = main_loop_of(precision, name, architecture)
    return len(loop.steps) / sum(step.instruction.name == product_of(loop.kernel) for step in loop.steps)


@cache
def stage_rate(precision: str, name: str, gpu: Gpu, blocks: int) -> Rate:
    """Of one stage, with so many blocks on every multiprocessor."""
    loop = main_loop_of(precision, name, gpu.architecture)
    issues = issues_of(loop.steps, gpu)
    warps = max(1, round(blocks * loop.kernel.threads / WARP / SUB_PARTITIONS))
    rate = simulate(issues, warps)
    return Rate(rate.cycles / loop.stages, rate.busy)


def row_of(precision: str, name: str, model: Model) -> Row:
    gpu, loop = model.gpu, main_loop_of(precision, name, model.gpu.architecture)
    shared = loop.kernel.shared + example_launch(precision, name).shared
    blocks = blocks_at_once(gpu, loop.kernel.threads, loop.kernel.registers, shared)
    rate = stage_rate(precision, name, gpu, blocks)
    operation, tile, _ = parts_of(name)
    cycles = rate.cycles * model.products.get((precision, operation), 1.0)
    products = sum(step.instruction.name == product_of(loop.kernel) for step in loop.steps)
    done = 2 * tile.m * tile.n * engine_of(precision, name).depth * blocks
    return Row(
        precision, name, len(loop.steps) / loop.stages, products / loop.stages, loop.kernel.registers, shared, blocks,
        cycles, done / cycles * gpu.sm_clock / 1e12, max(rate.busy.items(), key=lambda item: item[1]),
    )  # fmt: skip


def engine_kernels(precision: str, architecture: str, pattern: str = "") -> list[str]:
    """Names of an engine's kernels that contain the pattern: those of one kind together, by their tiles.  Not those
    whose copies all go through registers, as weight gradients of blobs that are widened: the model has no such loop."""
    kernels = kernels_of(MODELLED[precision].module, architecture)
    names = (name for name in kernels if NAME.match(name) and re.search(pattern, name))
    return sorted((name for name in names if any(each.name == COPY for each in kernels[name].code)), key=_place)


def _place(name: str) -> tuple[str, str, str, int, int]:
    """In the table."""
    found = NAME.match(name)
    assert found is not None
    m, n = map(int, found[4].split("x"))
    return found[5], found[2] or "", found[3] or "", -m * n, OPERATIONS.index(found[1])
