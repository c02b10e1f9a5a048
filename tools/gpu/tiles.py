"""Every tile and split over the products of whole nets, on the clock: tile_times.json, and the tile table that fits it
best.

A line of tile_times.json is one candidate: op, precision, shape, rows, columns and depth of its matrices, tile, parts,
blocks of its grid and of a multiprocessor, milliseconds.  Tiles of warpgroups are among them on GPUs that have these,
and products of blobs in bfloat16.  tools/gpu/fit_tiles.py makes a table of them, here and at any time later.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from math import prod
from typing import Any, NamedTuple
from unittest.mock import patch

from layermem.api import build_net
from layermem.backends.cuda import implicit_gemm, warpgroup
from layermem.backends.cuda.base import FLOAT, CudaCall
from layermem.backends.cuda.half import narrow
from layermem.backends.cuda.implicit_gemm import (
    DGRAD,
    FPROP,
    WGRAD,
    Engine,
    Split,
    conv_dgrad,
    conv_fprop,
    conv_wgrad,
    group_channels,
    split_of,
    takes_narrow,
    tile_for,
)
from layermem.backends.cuda.inner_product import conv_problem
from layermem.backends.cuda.launch import Launch, ceil_div
from layermem.backends.cuda.warpgroup import WarpgroupEngine
from layermem.errors import DeviceError
from layermem.ops import NARROW, Conv, ConvProblem, InnerProduct, Window
from tools.gpu import fit_tiles
from tools.gpu.gpu import Gpu
from tools.gpu.loaded import LoadedKernels
from tools.gpu.process import ROOT
from tools.gpu.results import Options, Results, Row, all_seconds, times

NETS = ("resnet50:128", "vgg16:64", "alexnet:256", "googlenet:128")
PRECISIONS = ("tf32", fit_tiles.PACKED, "bf16", "fp32", "fp32x3")  # in the order of what is worth most
SHAPES, RUNS = 25, 5
MOST_PARTS, MOST_PART_BYTES = 256, 2 << 30
OPS = ("fprop", "dgrad", "wgrad")
SMALL = {ConvProblem(2, 4, 8, Window(6, 3, 1, 1), Window(6, 3, 1, 1)): 1}


class Candidate(NamedTuple):
    op: str
    tile: str
    parts: int
    launches: list[Launch]


def run(results: Results, options: Options) -> None:
    gpu = Gpu(options.small)
    kernels, path = LoadedKernels(gpu.driver), options.out / "tile_times.json"
    lines: list[Row] = json.loads(path.read_text(encoding="utf-8")) if results.rows and path.exists() else []
    shapes = SMALL if options.small else shapes_of_nets()
    precisions = PRECISIONS if int(gpu.driver.gpu.capability) >= 80 else ("fp32",)
    for precision in precisions[: 1 if options.brief else None]:
        for problem, count in shapes.items():
            if not takes(precision, problem):
                continue
            key = {"precision": precision, "shape": name_of(problem)}

            def work(problem: ConvProblem = problem, count: int = count, key: Row = key) -> None:
                found = measured(gpu, kernels, problem, key["precision"], options)
                lines.extend({**key, **describe(problem), "count": count, **line} for line in found)
                path.write_text(json.dumps(lines), encoding="utf-8")
                for op in OPS:
                    results.add(**key, op=op, **best(problem, op, key["precision"], found, gpu.driver.gpu.capability))

            results.attempt(work, **key)
    table = fit_tiles.fitted(lines)
    pays = fit_tiles.paying(lines)
    (options.out / "tile_table.json").write_text(json.dumps({**table, "PAYS": pays}, indent=1), encoding="utf-8")
    results.add(precision="all", shape="", op="fit", says=fit_tiles.text(table))
    for name, row in pays.items():
        results.add(precision="all", shape=name, op="warpgroups", **row)
    gpu.driver.close()


def shapes_of_nets(nets: Sequence[str] = NETS) -> dict[ConvProblem, int]:
    """The products of most arithmetic, and how often the nets have each."""
    found: Counter[ConvProblem] = Counter()
    for what in nets:
        name, batch = what.split(":")
        net = build_net(ROOT / "prototxt" / name / "train_val.prototxt", batch=int(batch), stages=["dummy"])
        found.update(problem for node in net.nodes for problem in problems(node.layer.record))
    ordered = sorted(found, key=lambda problem: found[problem] * work_of(problem), reverse=True)
    return {problem: found[problem] for problem in ordered[:SHAPES]}


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
        "n": problem.n, "c": problem.c, "k": problem.k, "h": problem.h, "w": problem.w,
        "kernel": list(problem.kernel), "stride": list(problem.stride), "pad": list(problem.pad),
        "dilation": list(problem.dilation), "groups": problem.groups,
    }  # fmt: skip


def matrices(problem: ConvProblem, op: str) -> tuple[int, int, int, int]:
    """Rows, columns and depth of an op's matrices, and how many there are (implicit_gemm.py)."""
    channels, outputs = group_channels(problem)
    taps, (stride_h, stride_w) = prod(problem.kernel), problem.stride
    if op == "fprop":
        return problem.positions, outputs, taps * channels, problem.groups
    if op == "wgrad":
        return outputs, taps * channels, problem.positions, problem.groups
    phases = stride_h * stride_w
    rows = problem.n * ceil_div(problem.h, stride_h) * ceil_div(problem.w, stride_w)
    return rows, channels, ceil_div(taps, phases) * outputs, problem.groups * phases


def measured(gpu: Gpu, kernels: LoadedKernels, problem: ConvProblem, precision: str, options: Options) -> list[Row]:
    """A line for each candidate."""
    engine = fit_tiles.engine_of(precision)
    sizes = {"maps": problem.maps.nbytes, "image": problem.image.nbytes, "filter": problem.filter.nbytes}
    sizes["parts"] = max(problem.filter.nbytes, min(problem.filter.nbytes * problem.n, MOST_PART_BYTES))
    places, lines = operands(gpu, sizes, engine), []
    engines = [engine, *by_warpgroups(precision, problem, gpu.driver.gpu.capability)]
    for op, tile, parts, launches in chain.from_iterable(candidates(each, problem, places) for each in engines):
        try:
            start = gpu.starter(launches, {})
        except DeviceError:  # a tile that does not fit this GPU
            continue
        seconds = all_seconds(start, gpu.cold_seconds, 1 if options.small else RUNS)
        m, n, k, repeat = matrices(problem, op)
        line = {"op": op, "m": m, "n_columns": n, "depth": k, "repeat": repeat, "tile": tile, "parts": parts}
        line |= {"grid": prod(launches[0].grid), "blocks": kernels.describe(launches[0])["blocks"], **times(seconds)}
        lines.append(line | {"TFLOP/s": work_of(problem) / min(seconds) / 1e12})
    return lines


def takes(precision: str, problem: ConvProblem) -> bool:
    """Whether all three products are computed so."""
    if precision != fit_tiles.PACKED:
        return True
    return all(takes_narrow("bf16", problem, step, "bf16", wide_image=False) for step in ("forward", "dgrad", "wgrad"))


def operands(gpu: Gpu, sizes: Mapping[str, int], engine: Engine) -> dict[str, int]:
    """Addresses of buffers of random numbers, which a packed engine reads in 16 bits."""
    places = gpu.filled({**sizes, **({"wide": max(sizes.values())} if engine.is_packed else {})})
    if engine.is_packed:
        of_operands = [narrow(places[role], places["wide"], sizes[role] // FLOAT, NARROW[engine.storage])
                       for role in ("maps", "image", "filter")]  # fmt: skip
        gpu.starter(of_operands, {})()
    return places


def call_of(precision: str, capability: str) -> CudaCall:
    """Which chooses the engine of a product."""
    if precision == fit_tiles.PACKED:
        return CudaCall({}, precision="bf16", storage="bf16", narrow=("x0",), capability=capability)
    return CudaCall({}, precision=precision, capability=capability)


def by_warpgroups(precision: str, problem: ConvProblem, capability: str) -> Iterator[Engine]:
    """The engine of all products of the problem by warpgroups, where there are kernels, whether they pay or not."""
    with patch.object(warpgroup, "PAYS", warpgroup.ALWAYS):
        engine = warpgroup.engine_of(call_of(precision, capability), "x0", problem)
    if engine.by_warpgroups:
        yield engine


def candidates(engine: Engine, problem: ConvProblem, places: Mapping[str, int]) -> Iterator[Candidate]:
    maps, image, weights = places["maps"], places["image"], places["filter"]
    dw = places["wide"] if engine.is_packed else weights
    for name, products, patched in tiles_of(engine):
        with patched:
            if FPROP in products:
                yield Candidate("fprop", name, 1, [conv_fprop(engine, problem, maps, image, weights)])
            if DGRAD in products:
                yield Candidate("dgrad", name, 1, [conv_dgrad(engine, problem, image, maps, weights)])
            for split in splits(problem) if WGRAD in products else ():
                wgrad = conv_wgrad(engine, problem, dw, maps, image, False, places["parts"], split=split)
                yield Candidate("wgrad", name, split.parts, list(wgrad))


def tiles_of(engine: Engine) -> Iterator[tuple[str, Collection[str], AbstractContextManager[Any]]]:
    """Names, products that have the tile, and a context in which no other is chosen."""
    if engine.by_warpgroups:
        for own in warpgroup.tiles_of(engine):
            only = patch.object(warpgroup, "PACKED_TILES" if engine.is_packed else "WARPGROUP_TILES", (own,))
            yield fit_tiles.WARPGROUPS + own.name, engine.by_warpgroups.intersection(own.products), only
        return
    for tile in engine.tiles:
        yield tile.name, tile.products, patch.object(implicit_gemm, "TILES", (tile,))


def splits(problem: ConvProblem) -> Iterable[Split]:
    """One part, and twice as many as often as there are images for them."""
    found, wanted = {}, 1
    while wanted <= min(problem.n, MOST_PARTS, max(1, MOST_PART_BYTES // problem.filter.nbytes)):
        each = ceil_div(problem.n, wanted)
        found[ceil_div(problem.n, each)] = Split(each, ceil_div(problem.n, each))
        wanted *= 2
    return found.values()


def best(problem: ConvProblem, op: str, precision: str, lines: Sequence[Row], capability: str) -> Row:
    """The fastest candidate of an op beside the one that is chosen now, as far as it was tried."""
    of_op = [line for line in lines if line["op"] == op]
    fastest = min(of_op, key=lambda line: line["ms"])
    row = {"best": f"{fastest['tile']} x {fastest['parts']}", "ms": fastest["ms"], "TFLOP/s": fastest["TFLOP/s"]}
    m, n, depth, repeat = matrices(problem, op)
    engine, parts = fit_tiles.engine_of(precision), 1
    if op == "wgrad":
        split = split_of(problem)
        parts, repeat, depth = split.parts, repeat * split.parts, split.windows_each(problem)
    now = tile_for(engine, f"conv_{op}", (m, n, repeat), depth).name
    own = warpgroup.engine_of(call_of(precision, capability), "x0", problem)
    if isinstance(own, WarpgroupEngine) and f"conv_{op}" in own.by_warpgroups:
        now = fit_tiles.WARPGROUPS + own.tile_of(f"conv_{op}", (m, n, repeat)).name
    of_tile = [line for line in of_op if line["tile"] == now]
    nearest = min(of_tile, key=lambda line: abs(line["parts"] - parts))
    return row | {"chosen": f"{now} x {parts}", "chosen ms": nearest["ms"]}
