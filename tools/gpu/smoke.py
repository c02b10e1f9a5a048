"""Every kernel, tile and precision once: whether the driver loads and launches it, and what it makes of it.

A launch that is refused is a row of its kernel, and the next one is tried.  Results are looked at by the step after
this.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.launch import Launch
from tests.backends.cuda.on_gpu import Gpu
from tools.gpu.every_kernel import Check, every_kernel
from tools.gpu.loaded import LoadedKernels
from tools.gpu.results import Options, Results


def run(results: Results, options: Options) -> None:
    driver = Driver(0)
    gpu = NotingGpu(driver, results)
    for check in every_kernel(options.brief):
        if not check.runs_on(driver.gpu.capability):
            continue

        def work(check: Check = check) -> None:
            with suppress(AssertionError):  # wrong numbers are for `correctness`
                check.make(check.way(gpu)).run_once()

        with check.tiles():
            results.attempt(work, case=check.name, precision=check.precision)
    driver.close()


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
        self.results.add(**row, passed=row["blocks"] > 0)
