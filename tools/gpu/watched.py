"""Launches that are watched: kernels in quarantine are refused, and the results know which kernel runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.families import FAMILIES, family_of
from layermem.backends.cuda.launch import Launch
from layermem.schedule.ir import COMPUTE
from tests.backends.cuda.on_gpu import Gpu
from tools.gpu.results import Results

LAUNCH_SECONDS = 5  # of a launch in checks of results, after which it is taken for hung
FIRST_SECONDS = 10  # of the first one of a module


@contextmanager
def refusing(results: Results) -> Iterator[None]:
    """Every driver refuses inside to bind kernels that are in quarantine: NotTried."""
    launcher = Driver.launcher

    def refuse_or_bind(driver: Driver, wanted: Launch, args: bytes | bytearray, stream: str) -> Callable[[], None]:
        with driver.current():
            chosen = driver.fitting(wanted)
        family = family_of(chosen.module, chosen.function)
        results.binds(f"{chosen.module}.{chosen.function}", family if family in FAMILIES else "")
        return launcher(driver, chosen, args, stream)

    with patch.object(Driver, "launcher", refuse_or_bind):
        yield


class WatchedGpu(Gpu):
    """Waits for each launch, so that an error or a hang is that of its kernel."""

    def __init__(self, driver: Driver, results: Results):
        super().__init__(driver)
        self.results = results
        self._modules: set[str] = set()

    def launch(self, launch: Launch, context: Mapping[str, Any]) -> None:
        start = self.driver.launcher(launch, launch.packed(context), COMPUTE)
        chosen = self.driver.fitting(launch)
        most = LAUNCH_SECONDS if chosen.module in self._modules else FIRST_SECONDS
        self.results.launching(f"{chosen.module}.{chosen.function}", most)
        self._modules.add(chosen.module)
        start()
        self.driver.synchronize()
