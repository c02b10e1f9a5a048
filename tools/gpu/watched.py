"""Watches launches: kernels in quarantine are refused, and the results record which kernel runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.support.families import FAMILIES, family_of
from layermem.backends.cuda.support.launch import Launch
from layermem.schedule.ir import COMPUTE
from tests.backends.cuda.on_gpu import Gpu
from tools.gpu.results import Results

LAUNCH_SECONDS = 5  # after which a launch in a check of results counts as hung
FIRST_SECONDS = 10  # the same for the first launch of a module


@contextmanager
def refusing(results: Results) -> Iterator[None]:
    """A context in which every driver refuses to bind kernels in quarantine: NotTried."""
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
    """A GPU that waits for each launch, so that an error or a hang can be attributed to its kernel."""

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
