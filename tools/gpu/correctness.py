"""Every kernel against double precision on the host, or against kernels whose bits it must have; twice, with the same
bits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

from layermem.backends.cuda import implicit_gemm, warpgroup
from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.implicit_gemm import ENGINES
from layermem.backends.cuda.warpgroup import WARPGROUP_TILES, WarpgroupTile
from tests.backends.cuda.harness import Case, Way, case_of
from tests.backends.cuda.on_gpu import Gpu
from tests.cases import CASES, CONV_EDGES, PRECISION_BOUNDS, edge_case, select
from tools.gpu.exact import PRODUCTS as EXACT_PRODUCTS
from tools.gpu.exact import Exact, exact_cases
from tools.gpu.results import Options, Results

BY_WARPGROUPS = "Convolution by quads", "InnerProduct"  # products that GPUs of compute capability 9.0 compute so
PRODUCTS = ("Convolution by quads", "Convolution", "Convolution, grouped", "Deconvolution", "InnerProduct",
            "Convolution + ReLU", "Convolution + residual + ReLU")  # fmt: skip
FEW = ("Convolution by quads", "ReLU", "BatchNorm by quads", "Pooling MAX 3/2", "SoftmaxWithLoss and its softmax",
       "Dropout")  # fmt: skip


class Check(NamedTuple):
    """A case by name; `tile` is the only one that products may choose, by warpgroups if it is one of theirs."""

    name: str
    precision: str
    make: Callable[[Way], Case | Exact]
    tile: implicit_gemm.Tile | WarpgroupTile | None = None

    def way(self, gpu: Gpu) -> Way:
        """The capability is that of warpgroups only where these are checked."""
        capability = warpgroup.CAPABILITY if isinstance(self.tile, WarpgroupTile) else ""
        return Way(precision=self.precision, gpu=gpu, capability=capability)

    def runs_on(self, driver: Driver) -> bool:
        return not isinstance(self.tile, WarpgroupTile) or driver.gpu.capability == warpgroup.CAPABILITY

    @contextmanager
    def tiles(self) -> Iterator[None]:
        """Products choose among `tile` alone inside, and all run by warpgroups if it is one of theirs."""
        kept = implicit_gemm.TILES, warpgroup.WARPGROUP_TILES, warpgroup.PAYS
        if isinstance(self.tile, WarpgroupTile):
            warpgroup.WARPGROUP_TILES, warpgroup.PAYS = (self.tile,), warpgroup.ALWAYS
        elif self.tile:
            implicit_gemm.TILES = (self.tile,)
        yield
        implicit_gemm.TILES, warpgroup.WARPGROUP_TILES, warpgroup.PAYS = kept


def run(results: Results, options: Options) -> None:
    driver = Driver(0)
    gpu = Gpu(driver)
    for check in checks(options.brief):
        if not check.runs_on(driver):
            continue
        key = {"name": check.name, "precision": check.precision}

        def work(check: Check = check, key: dict[str, str] = key) -> None:
            began = time.perf_counter()
            try:
                error = twice(check, check.way(gpu))
            except AssertionError as wrong:
                results.add(**key, passed=False, says=str(wrong).strip().splitlines()[0])
            else:
                results.add(**key, passed=True, error=error, seconds=time.perf_counter() - began)

        with check.tiles():
            results.attempt(work, **key)
    driver.close()


def twice(check: Check, way: Way) -> float:
    """The largest relative error; AssertionError if one is too large, or if the second run gives other bits."""
    first, second = check.make(way), check.make(way)
    one, two = first.check(), second.check()
    for role, array in one.items():
        assert array.tobytes() == two[role].tobytes(), f"{role} differs from run to run"
    return max(first.errors.values(), default=0.0)


def checks(brief: bool) -> Iterator[Check]:
    for name in FEW if brief else [case.name for case in select("small")]:
        yield Check(name, "fp32", partial(case_of, CASES[name]))
    for precision in ENGINES:
        for name in PRODUCTS[: 1 if brief else None]:
            for tile in ENGINES[precision].tiles[-1 if brief else 0 :]:
                yield Check(f"{name}, {tile.name}", precision, partial(case_of, CASES[name]), tile)
    yield from warpgroup_checks(brief)
    for name, make in exact_cases(brief):
        for precision in ENGINES if name.startswith(EXACT_PRODUCTS) else ["fp32"]:
            yield Check(name, precision, make)
    if brief:
        return
    for kind in ("Convolution", "Deconvolution"):
        for name in CONV_EDGES:
            for precision in ENGINES:
                yield Check(f"{kind}: {name}", precision, partial(convolution, kind, name))


def warpgroup_checks(brief: bool) -> Iterator[Check]:
    for precision in warpgroup.PRECISIONS:
        for name in BY_WARPGROUPS[: 1 if brief else None]:
            for tile in WARPGROUP_TILES[-1:] if brief else WARPGROUP_TILES:
                yield Check(f"{name}, warpgroups {tile.name}", precision, partial(case_of, CASES[name]), tile)


def convolution(kind: str, name: str, way: Way) -> Case:
    rng, edge = np.random.default_rng(17), edge_case(name, kind)
    layer = edge.layer("small")
    sums, long_sums, _ = {"fp32": (2e-6, 1e-5, 0), **PRECISION_BOUNDS}[way.precision]
    xs, ws = edge.inputs(layer, rng)
    return Case(layer, xs, ws, way=way, bounds={"y0": sums, "dx0": sums, "dw0": long_sums}, rng=rng)
