"""Launches every kernel, tile and precision once, to find those that the driver refuses or that fail.

A refused launch becomes a row of its kernel, and the next one is tried; kernels in quarantine are left out.  The next
step checks results.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.support.launch import Launch
from tests.backends.cuda.refused import NotTried
from tools.gpu.every_kernel import Check, every_kernel
from tools.gpu.loaded import LoadedKernels
from tools.gpu.results import Options, Results
from tools.gpu.watched import WatchedGpu


def run(results: Results, options: Options) -> None:
    driver = Driver(0)
    gpu = NotingGpu(driver, results)
    for check in every_kernel(options.brief):
        if not check.runs_on(driver.gpu.capability):
            continue
        key = {"case": check.name, "precision": check.precision}

        def work(check: Check = check, key: dict[str, str] = key) -> None:
            with suppress(AssertionError):  # wrong results are left to `correctness`
                check.make(check.way(gpu)).run_once()
            results.add(**key, passed=True)  # not run again if this step is restarted

        with check.tiles():
            results.attempt(work, **key)
    driver.close()


class NotingGpu(WatchedGpu):
    """A GPU that adds a row for each kernel at its first launch."""

    def __init__(self, driver: Driver, results: Results):
        super().__init__(driver, results)
        self.kernels = LoadedKernels(driver)
        self._seen = {row["kernel"] for row in results.rows if "kernel" in row}

    def launch(self, launch: Launch, context: Mapping[str, Any]) -> None:
        chosen = self.driver.fitting(launch)
        name = f"{chosen.module}.{chosen.function}"
        is_new = name not in self._seen
        self._seen.add(name)
        row = {"kernel": name, **(self.kernels.describe(chosen) if is_new else {})}
        try:
            super().launch(launch, context)
        except NotTried:
            return  # the other launches of the case are still tried
        except Exception as error:
            if is_new and not self.results.is_fatal(error):  # otherwise the failure that ended the context has a row
                self.results.add(**row, passed=False, says=str(error))
            raise
        if is_new:
            self.results.add(**row, passed=row["blocks"] > 0)
