"""Every kernel, tile and precision once: whether the driver loads and launches it, and what it makes of it.

A launch that is refused is a row of its kernel, and the next one is tried.  Results are looked at by the step after
this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.implicit_gemm import ENGINES
from layermem.backends.cuda.launch import Launch
from tests.backends.cuda.harness import case_of
from tests.backends.cuda.on_gpu import Gpu
from tests.cases import CASES, select
from tools.gpu.correctness import FEW, Check, warpgroup_checks
from tools.gpu.exact import exact_cases
from tools.gpu.loaded import LoadedKernels
from tools.gpu.results import Options, Results

PRODUCTS = ("Convolution by quads", "Convolution, wide and odd")  # by 16 bytes at once, and by 4
BY_PATCH = "Convolution"  # of an image of few channels


def run(results: Results, options: Options) -> None:
    driver = Driver(0)
    gpu = NotingGpu(driver, results)
    for check in checks(options.brief):
        if not check.runs_on(driver):
            continue

        def work(check: Check = check) -> None:
            case = check.make(check.way(gpu))
            with suppress(AssertionError):  # wrong numbers are for `correctness`
                case.check_once()

        with check.tiles():
            results.attempt(work, case=check.name, precision=check.precision)
    driver.close()


def checks(brief: bool) -> Iterator[Check]:
    for name in FEW if brief else [case.name for case in select("small")]:
        yield Check(name, "fp32", partial(case_of, CASES[name]))
    for precision in ENGINES:
        for name in PRODUCTS:
            for tile in ENGINES[precision].tiles[-1 if brief else 0 :]:
                yield Check(f"{name}, {tile.name}", precision, partial(case_of, CASES[name]), tile)
        yield Check(f"{BY_PATCH}, patch", precision, partial(case_of, CASES[BY_PATCH]))
    yield from warpgroup_checks(brief)
    for name, make in exact_cases(brief):
        yield Check(name, "fp32", make)


class NotingGpu(Gpu):
    """Adds a row for each kernel at its first launch, which is awaited."""

    def __init__(self, driver: Driver, results: Results):
        super().__init__(driver)
        self.results, self.kernels = results, LoadedKernels(driver)
        self._seen = {row["kernel"] for row in results.rows if "kernel" in row}

    def launch(self, launch: Launch, context: Mapping[str, Any]) -> None:
        chosen = self.driver.fitting(launch)
        name = f"{chosen.module}.{chosen.function}"
        if name in self._seen:
            super().launch(launch, context)
            return
        self._seen.add(name)
        row = {"kernel": name, **self.kernels.describe(chosen)}
        try:
            super().launch(launch, context)
            self.driver.synchronize()
        except Exception as error:
            self.results.add(**row, passed=False, says=str(error))
            raise
        says = "" if row["blocks"] >= row["promised"] else "fewer blocks share a multiprocessor than promised"
        self.results.add(**row, passed=row["blocks"] > 0, says=says)
