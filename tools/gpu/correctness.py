"""Compares every kernel with double precision on the host, or with kernels whose bits it must have; twice, with the
same bits.  Products are also compared with naive kernels at the sizes of real layers (large.py)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.products.gemm_tiles import ENGINES
from tests.backends.cuda.harness import Case, Way, case_of
from tests.cases import CASES
from tests.cases.convolution import CONV_EDGES, PRECISION_BOUNDS, edge_case
from tools.gpu.every_kernel import Check, every_kernel
from tools.gpu.exact import PRODUCTS as EXACT_PRODUCTS
from tools.gpu.exact import exact_cases
from tools.gpu.large import large_checks
from tools.gpu.results import Options, Results
from tools.gpu.watched import WatchedGpu

MORE_PRODUCTS = (
    "Convolution, grouped",
    "Deconvolution",
    "InnerProduct",
    "Convolution + ReLU",
    "Convolution + residual + ReLU",
)


def run(results: Results, options: Options) -> None:
    driver = Driver(0)
    gpu = WatchedGpu(driver, results)
    for check in checks(options.brief, options.small):
        if not check.runs_on(driver.gpu.capability):
            continue
        key = {"name": check.name, "precision": check.precision}

        def work(check: Check = check, key: dict[str, str] = key) -> None:
            began = time.perf_counter()
            try:
                error, refused = twice(check, check.way(gpu))
            except AssertionError as wrong:
                results.add(**key, passed=False, says=str(wrong).strip().splitlines()[0])
            else:
                row = {"passed": None, "says": f"not tried: {'; '.join(refused)}"} if refused else {"passed": True}
                results.add(**key, **row, error=error, seconds=time.perf_counter() - began)

        with check.tiles():
            results.attempt(work, **key)
    driver.close()


def twice(check: Check, way: Way) -> tuple[float, list[str]]:
    """Return the largest relative error and the refused ops; AssertionError if an error is too large, or if the second
    run gives other bits."""
    first, second = check.make(way), check.make(way)
    one, two = first.check(), second.check()
    for role, array in one.items():
        assert array.tobytes() == two[role].tobytes(), f"{role} differs from run to run"
    return max(first.errors.values(), default=0.0), [str(error) for error in getattr(first, "refused", ())]


def checks(brief: bool, small: bool = False) -> Iterator[Check]:
    """Yield checks of every kernel, and of more products; `small` limits large ones for an emulated GPU."""
    yield from every_kernel(brief)
    yield from large_checks(brief, small)
    if brief:
        return
    for precision in ENGINES:
        for name in MORE_PRODUCTS:
            for tile in ENGINES[precision].tiles:
                yield Check(f"{name}, {tile.name}", precision, partial(case_of, CASES[name]), tile)
    for name, make in exact_cases(brief):
        for precision in list(ENGINES)[1:] if name.startswith(EXACT_PRODUCTS) else []:
            yield Check(name, precision, make)
    for kind in ("Convolution", "Deconvolution"):
        for name in CONV_EDGES:
            for precision in ENGINES:
                yield Check(f"{kind}: {name}", precision, partial(convolution, kind, name))


def convolution(kind: str, name: str, way: Way) -> Case:
    rng, edge = np.random.default_rng(17), edge_case(name, kind)
    layer = edge.layer("small")
    sums, long_sums, _ = {"fp32": (2e-6, 1e-5, 0), **PRECISION_BOUNDS}[way.precision]
    xs, ws = edge.inputs(layer, rng)
    return Case(layer, xs, ws, way=way, bounds={"y0": sums, "dx0": sums, "dw0": long_sums}, rng=rng)
