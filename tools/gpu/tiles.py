"""Times every tile and split on the products of whole nets: tile_times.jsonl.

A line is one candidate: op, precision, shape, rows, columns and depth of its matrices, launched function, tile, parts,
blocks of its grid and per multiprocessor, milliseconds.  Candidates include tiles of warpgroups, on GPUs that have
these, and products of blobs in bfloat16.  Special kernels of a shape or type of blobs have separate names: "patch
128x64", "few 64x64", "single 128x64" (one element per access), "warpgroups 256x128".  No function is timed twice for a
shape and split.

Operands are whole numbers (whole_numbers.py): the result of a candidate is compared with that of the first one, which
is compared with the naive kernel.  A candidate that differs gives a failed row instead of a line.

Weight gradients are timed in every tile with the split that split_of() chooses, then in the fastest tiles with other
splits: of images, and of pieces of images.  Inner products of few rows are timed with every number of parts
(inner_parts.py) in their fastest tiles.

Rows of the results show for each op the fastest candidate and the one that is chosen now.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple
from unittest.mock import patch

from layermem.api import build_net
from layermem.backends.cuda.base import FLOAT, CudaCall
from layermem.backends.cuda.inner_product import conv_problem
from layermem.backends.cuda.products import conv_patch, gemm_tiles, inner_parts, warpgroup, wgrad
from layermem.backends.cuda.products.gemm_tiles import (
    DGRAD,
    ENGINES,
    FPROP,
    PACKED_BF16,
    PRODUCTS,
    WGRAD,
    GemmEngine,
    group_channels,
    takes_narrow,
    windows,
)
from layermem.backends.cuda.products.implicit_gemm import NO_EPILOGUE, conv_dgrad, conv_fprop
from layermem.backends.cuda.products.wgrad import MAX_PARTS, SplitK, conv_wgrad, split_of
from layermem.backends.cuda.support.launch import Launch, ceil_div
from layermem.errors import DeviceError
from layermem.ops import Conv, ConvProblem, InnerProduct, Window
from tools.gpu.gpu import Gpu
from tools.gpu.loaded import LoadedKernels
from tools.gpu.process import ROOT
from tools.gpu.results import Options, Results, Row, times
from tools.gpu.whole_numbers import Operands, Places

NETS = ("resnet50:128", "vgg16:64", "alexnet:256", "googlenet:128")
TIMES = "tile_times.jsonl"
PACKED, WARPGROUPS = "bf16 on bf16", "warpgroups "  # a precision, and a prefix of names of tiles
PRECISIONS = ("tf32", PACKED, "bf16", "fp32", "fp32x3")  # most important first
SHAPES, INNER_SHAPES, RUNS = 28, 4, 4  # numbers of shapes of convolutions and of inner products; runs
CANDIDATE_SECONDS = 10  # after which a candidate counts as hung
FASTEST = 3  # tiles of weight gradients and inner products that are timed in every split
MAX_PART_BYTES = 2 << 30
MAX_ROWS = 512  # most rows of an inner product whose sums are split into parts
LEAST_PIECE = 2 * gemm_tiles.DEPTH  # smallest number of windows of a piece of an image
FEWEST_CHANNELS = 4  # smallest number of channels of an image that is not the data of a net
OPS = ("fprop", "dgrad", "wgrad")
STEPS = {"fprop": FPROP, "dgrad": DGRAD, "wgrad": WGRAD}
SMALL = {
    ConvProblem(2, 4, 8, Window(6, 3, 1, 1), Window(6, 3, 1, 1)): 1,
    ConvProblem(2, 256, 8, inner_parts.PIXEL, inner_parts.PIXEL): 1,
}
FUNCTION = re.compile(r"conv_[a-z]+(?P<data>_data)?(?P<patch>_patch)?_(?P<tile>\d+x\d+)_v(?P<width>\d+)$")
NOWHERE = Places(0, 0, 0, 0, lambda *given: 0)


class Candidate(NamedTuple):
    """A candidate; `split` of a weight gradient, `parts` of it or of an inner product."""

    op: str
    launches: Sequence[Launch]
    parts: int = 1
    split: SplitK | None = None

    @property
    def function(self) -> str:
        """The function of the product; the sum of its parts follows from it."""
        return f"{self.launches[0].module}.{self.launches[0].function}"

    @property
    def tile(self) -> str:
        return tile_of(self.function)

    @property
    def key(self) -> tuple[Any, ...]:
        return self.op, self.function, self.parts, self.split


def run(results: Results, options: Options) -> None:
    gpu = Gpu(options.small, partial(results.launching, most=CANDIDATE_SECONDS))
    kernels, path = LoadedKernels(gpu.driver), results.path.with_name(TIMES)
    shapes = SMALL if options.small else shapes_of_nets()
    precisions = PRECISIONS if int(gpu.driver.gpu.capability) >= 80 else ("fp32",)
    for precision in precisions[: 1 if options.brief else None]:
        for problem, count in shapes.items():
            if not takes(precision, problem):
                continue
            key = {"precision": precision, "shape": name_of(problem)}

            def work(problem: ConvProblem = problem, count: int = count, key: Row = key) -> None:
                found = measured(gpu, kernels, problem, key["precision"], options, partial(results.add, **key))
                with open(path, "a", encoding="utf-8") as file:
                    for line in found:
                        file.write(json.dumps({**key, **describe(problem), "count": count, **line}) + "\n")
                for row in bests(problem, key["precision"], found, gpu.driver.gpu.capability):
                    results.add(**key, **row)

            results.attempt(work, **key)
    gpu.driver.close()


def shapes_of_nets(nets: Sequence[str] = NETS) -> dict[ConvProblem, int]:
    """The products with the most arithmetic, and their number in the nets: of convolutions, then of inner products."""
    found: Counter[ConvProblem] = Counter()
    for what in nets:
        name, batch = what.split(":")
        net = build_net(ROOT / "prototxt" / name / "train_val.prototxt", batch=int(batch), stages=["dummy"])
        found.update(problem for node in net.nodes for problem in problems(node.layer.record))
    ordered = sorted(found, key=lambda problem: found[problem] * work_of(problem), reverse=True)
    inner = [problem for problem in ordered if is_inner(problem)]
    convolutions = [problem for problem in ordered if not is_inner(problem)]
    return {problem: found[problem] for problem in (*convolutions[:SHAPES], *inner[:INNER_SHAPES])}


def is_inner(problem: ConvProblem) -> bool:
    """Whether the problem is an inner product: one pixel."""
    return problem.h * problem.w == 1 == prod(problem.kernel)


def problems(record: Any) -> Iterator[ConvProblem]:
    if isinstance(record, Conv):
        yield record.problem
    elif isinstance(record, InnerProduct):
        yield conv_problem(record)


def work_of(problem: ConvProblem) -> int:
    """FLOPs of one of its products."""
    return 2 * problem.maps.count * prod(problem.kernel) * problem.c // problem.groups


def name_of(problem: ConvProblem) -> str:
    kernel, stride = "x".join(map(str, problem.kernel)), "x".join(map(str, problem.stride))
    group = f" in {problem.groups} groups" if problem.groups > 1 else ""
    return f"{problem.n} x {problem.c}->{problem.k} @{problem.h}x{problem.w}, {kernel} by {stride}{group}"


def describe(problem: ConvProblem) -> Row:
    return {
        "n": problem.n,
        "c": problem.c,
        "k": problem.k,
        "h": problem.h,
        "w": problem.w,
        "kernel": list(problem.kernel),
        "stride": list(problem.stride),
        "pad": list(problem.pad),
        "dilation": list(problem.dilation),
        "groups": problem.groups,
    }


def matrices(problem: ConvProblem, op: str) -> tuple[int, int, int, int]:
    """Rows, columns and depth of an op's matrices, and their number (gemm_tiles.py)."""
    channels, outputs = group_channels(problem)
    taps, (stride_h, stride_w) = prod(problem.kernel), problem.stride
    if op == "fprop":
        return problem.positions, outputs, taps * channels, problem.groups
    if op == "wgrad":
        return outputs, taps * channels, problem.positions, problem.groups
    phases = stride_h * stride_w
    rows = problem.n * ceil_div(problem.h, stride_h) * ceil_div(problem.w, stride_w)
    return rows, channels, ceil_div(taps, phases) * outputs, problem.groups * phases


def measured(
    gpu: Gpu,
    kernels: LoadedKernels,
    problem: ConvProblem,
    precision: str,
    options: Options,
    wrong: Callable[..., object],
) -> list[Row]:
    """A line for each correct candidate; `wrong` is called with the others."""
    engine, parts = engine_of(precision), max(parts_bytes(problem), problem.filter.nbytes)
    operands = Operands(gpu, problem, engine.storage, parts_bytes=parts)
    places = operands.places()

    def clock(each: Candidate) -> Row | None:
        if gpu.driver.fitting(each.launches[0]).function != each.launches[0].function:
            return None  # a tile that does not fit this GPU
        try:
            start = gpu.starter(each.launches, {})
        except DeviceError:
            return None
        operands.clear(STEPS[each.op], each.parts)
        gpu.cold_seconds(start)
        spent = times([gpu.cold_seconds(start) for _ in range(1 if options.small else RUNS)])
        differing = operands.wrong(STEPS[each.op], each.function)
        for function, says in differing.items():
            wrong(op=each.op, kernel=titled(function, each.parts), passed=False, says=says)
        return None if each.function in differing else spent

    lines = []
    its = gpu.driver.gpu
    engines = [engine, *by_warpgroups(precision, problem, its.capability, its.multiprocessors)]
    for each, row in timed(engines, problem, places, clock):
        m, n, depth, repeat = matrices(problem, each.op)
        if each.split:
            repeat, depth = repeat * each.parts, each.split.windows_each(problem)
        line = {"op": each.op, "m": m, "n_columns": n, "depth": depth, "repeat": repeat, "function": each.function}
        line |= {
            "tile": each.tile,
            "parts": each.parts,
            "split": list(each.split or ()),
            "grid": prod(each.launches[0].grid),
        }
        line |= {"blocks": kernels.describe(each.launches[0])["blocks"], **row}
        lines.append(line | {"TFLOP/s": work_of(problem) / row["min ms"] / 1e9})
    return lines


def timed(
    engines: Sequence[GemmEngine], problem: ConvProblem, places: Places, clock: Callable[[Candidate], Row | None]
) -> Iterator[tuple[Candidate, Row]]:
    """Yield all candidates of the first round, then those of the second round for the fastest tiles of each op."""
    tried: set[tuple[Any, ...]] = set()

    def all_of(found: Iterable[Candidate]) -> Iterator[tuple[Candidate, Row]]:
        for each in found:
            if each.key in tried:
                continue
            tried.add(each.key)
            if (row := clock(each)) is not None:
                yield each, row

    for op in ops_of(problem):
        first = [pair for engine in engines for pair in all_of(candidates(engine, problem, places, op))]
        yield from first
        fastest = sorted(first, key=lambda pair: pair[1]["ms"])[:FASTEST]
        functions = {each.function for each, _ in fastest}
        for engine in engines:
            more = further(engine, problem, places, op)
            yield from all_of(each for each in more if each.op != "wgrad" or each.function in functions)


def ops_of(problem: ConvProblem) -> Sequence[str]:
    """The ops of a problem; an image of few channels is the data of a net and has no gradient."""
    is_data = not is_inner(problem) and group_channels(problem)[0] < FEWEST_CHANNELS
    return ("fprop", "wgrad") if is_data else OPS


def engine_of(precision: str) -> GemmEngine:
    """The engine of the tiles that every GPU has."""
    return PACKED_BF16 if precision == PACKED else ENGINES[precision]


def takes(precision: str, problem: ConvProblem) -> bool:
    """Whether all three products can be computed in this precision."""
    if precision != PACKED:
        return True
    return all(takes_narrow("bf16", problem, step, "bf16", wide_image=False) for step in ("forward", "dgrad", "wgrad"))


def call_of(precision: str, capability: str) -> CudaCall:
    """A call that selects the engine of a product."""
    if precision == PACKED:
        return CudaCall({}, precision="bf16", storage="bf16", narrow=("x0",), capability=capability)
    return CudaCall({}, precision=precision, capability=capability)


def by_warpgroups(
    precision: str, problem: ConvProblem, capability: str, multiprocessors: int = 0
) -> Iterator[GemmEngine]:
    """Yield the engine that computes all products of the problem by warpgroups, if there are kernels, even where it is
    slower."""
    call = replace(call_of(precision, capability), multiprocessors=multiprocessors)
    with patch.object(warpgroup, "THRESHOLDS", warpgroup.NO_THRESHOLDS):
        engine = warpgroup.engine_of(call, "x0", problem)
    if engine.by_warpgroups:
        yield engine


def candidates(engine: GemmEngine, problem: ConvProblem, places: Places, op: str) -> Iterator[Candidate]:
    """Yield the candidates of every tile that the op may use, some with special kernels for few channels or groups."""
    for products, patched in tiles_of(engine):
        with patched:
            if STEPS[op] not in products:
                continue
            if op == "fprop":
                weights = places.weights(engine, FPROP)
                yield Candidate(op, [conv_fprop(engine, problem, places.out, places.image, weights)])
                with patch.object(conv_patch, "pays", lambda *given: False):
                    yield Candidate(op, [conv_fprop(engine, problem, places.out, places.image, weights)])
            elif op == "dgrad":
                weights = places.weights(engine, DGRAD)
                yield Candidate(op, [conv_dgrad(engine, problem, places.out, places.maps, weights)])
            else:
                yield of_wgrad(engine, problem, places, split_of(problem))


def further(engine: GemmEngine, problem: ConvProblem, places: Places, op: str) -> Iterator[Candidate]:
    """Yield candidates in other splits and parts."""
    for products, patched in tiles_of(engine):
        with patched:
            if STEPS[op] not in products:
                continue
            if op == "wgrad":
                yield from (of_wgrad(engine, problem, places, split) for split in splits(problem))
            elif not engine.is_packed and not engine.by_warpgroups:  # inner_parts.py
                yield from (in_parts(engine, problem, places, op, parts) for parts in inner_counts(problem, op))


def of_wgrad(engine: GemmEngine, problem: ConvProblem, places: Places, split: SplitK) -> Candidate:
    launches = conv_wgrad(engine, problem, places.out, places.maps, places.image, False, places.parts, split=split)
    return Candidate("wgrad", list(launches), split.parts, split)


def in_parts(engine: GemmEngine, problem: ConvProblem, places: Places, op: str, parts: int) -> Candidate:
    """The candidate of an inner product in parts, as in inner_parts.py."""
    rows, inner, outputs = problem.n, problem.c, problem.k
    workspace, weights = places.parts, places.weights(engine, STEPS[op])
    if op == "fprop":
        each = ConvProblem(rows, inner, parts * outputs, inner_parts.PIXEL, inner_parts.PIXEL, parts)
        product = conv_fprop(engine, each, workspace, places.image, weights, filter_pitch=inner)
        return Candidate(
            op, [product, inner_parts.sum_parts(rows, outputs, parts, places.out, workspace, NO_EPILOGUE)], parts
        )
    each = ConvProblem(rows, parts * inner, outputs, inner_parts.PIXEL, inner_parts.PIXEL, parts)
    product = conv_dgrad(engine, each, workspace, places.maps, weights)
    return Candidate(
        op, [product, inner_parts.sum_parts(rows, inner, parts, places.out, workspace, NO_EPILOGUE)], parts
    )


def tiles_of(engine: GemmEngine) -> Iterator[tuple[Collection[str], AbstractContextManager[Any]]]:
    """Yield the products that have a tile, and a context in which only that tile can be chosen."""
    if engine.by_warpgroups:
        for own in warpgroup.tiles_of(engine):
            only = patch.object(warpgroup, "PACKED_TILES" if engine.is_packed else "WARPGROUP_TILES", (own,))
            yield engine.by_warpgroups.intersection(own.products), only
        return
    yield PRODUCTS, nullcontext()
    for tile in gemm_tiles.ALL_TILES:  # includes 64x32, which only kernels of few channels have
        yield tile.products, patch.object(gemm_tiles, "TILES", (tile,))


def tile_of(function: str) -> str:
    """Its name in the lines: a kernel with 16-byte accesses has the name of its tile; others have a prefix."""
    found = FUNCTION.search(function)
    assert found is not None, function
    if "_sm90a." in function:
        return WARPGROUPS + found["tile"]
    if found["patch"]:
        return f"patch {found['tile']}"
    kind = {"1": "single ", str(gemm_tiles.MIXED_WIDTH): "few "}.get(found["width"], "")
    return kind + found["tile"]


def splits(problem: ConvProblem) -> list[SplitK]:
    """Splits of images, with the number of parts doubling up to one per image; then of pieces of images, doubling; and
    the chosen split."""
    most = min(MAX_PARTS // problem.groups, max(1, MAX_PART_BYTES // problem.filter.nbytes))
    found, parts, pieces = [split_of(problem)], 1, 2
    while parts <= min(problem.n, most):
        each = ceil_div(problem.n, parts)
        found.append(SplitK(each, ceil_div(problem.n, each)))
        parts *= 2
    while problem.n * pieces <= most and windows(problem) >= pieces * LEAST_PIECE:
        count = ceil_div(windows(problem), wgrad.piece_windows(problem, pieces))
        found.append(SplitK(1, problem.n * count, count))
        pieces *= 2
    return list(dict.fromkeys(found))


def inner_counts(problem: ConvProblem, op: str) -> list[int]:
    """Numbers of parts of an inner product of few rows: powers of two that cut sums into multiples of four."""
    if not is_inner(problem) or problem.n > MAX_ROWS:
        return []
    depth, columns = (problem.c, problem.k) if op == "fprop" else (problem.k, problem.c)
    counts = [2**each for each in range(1, 9)]
    fits = [count for count in counts if depth % (4 * count) == 0 and depth // count >= inner_parts.LEAST_DEPTH]
    return [count for count in fits if FLOAT * count * problem.n * columns <= MAX_PART_BYTES]


def parts_bytes(problem: ConvProblem) -> int:
    """Bytes of the largest split, or of the most parts."""
    of_inner = [
        FLOAT * count * problem.n * (problem.k if op == "fprop" else problem.c)
        for op in ("fprop", "dgrad")
        for count in inner_counts(problem, op)
    ]
    return max(of_inner + [problem.filter.nbytes * split.parts for split in splits(problem)])


def chosen(problem: ConvProblem, op: str, precision: str, capability: str) -> tuple[str, int]:
    """The function that a run launches for the op, and its parts."""
    engine = warpgroup.engine_of(call_of(precision, capability), "x0", problem)
    parts = inner_chosen(problem, op) if not engine.is_packed else 1
    if op == "wgrad":
        found = of_wgrad(engine, problem, NOWHERE, split_of(problem))
    elif parts > 1:
        found = in_parts(engine_of(precision), problem, NOWHERE, op, parts)
    else:
        make = conv_fprop if op == "fprop" else conv_dgrad
        found = Candidate(op, [make(engine, problem, 0, 0, 0)])
    return found.function, found.parts


def inner_chosen(problem: ConvProblem, op: str) -> int:
    """Parts of an inner product; 1 for any other problem."""
    if op == "wgrad" or not is_inner(problem):
        return 1
    columns, depth = (problem.k, problem.c) if op == "fprop" else (problem.c, problem.k)
    return inner_parts.parts_of(STEPS[op], problem.n, columns, depth).number


def bests(problem: ConvProblem, precision: str, lines: Sequence[Row], capability: str) -> Iterator[Row]:
    """Yield, for each op, the fastest candidate and the chosen one; if the latter was not timed, the one of the same
    function with the nearest number of parts."""
    for op in ops_of(problem):
        of_op = [line for line in lines if line["op"] == op]
        if not of_op:
            continue
        fastest = min(of_op, key=lambda line: line["ms"])
        row = {"op": op, "best": titled(fastest["function"], fastest["parts"]), "ms": fastest["ms"]}
        function, parts = chosen(problem, op, precision, capability)
        of_function = [line for line in of_op if line["function"] == function]
        nearest = min(of_function, key=lambda line: abs(line["parts"] - parts), default={"ms": None})
        yield row | {"TFLOP/s": fastest["TFLOP/s"], "chosen": titled(function, parts), "chosen ms": nearest["ms"]}


def titled(function: str, parts: int) -> str:
    return function if parts == 1 else f"{function} x {parts}"
