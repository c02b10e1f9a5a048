"""A kernel that waits, so that the host can queue work ahead of a stream."""

from __future__ import annotations

from collections.abc import Callable

from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.support.launch import launch

ONE_WARP = 32  # threads
USUAL_CLOCK = 1.5e9  # Hz, if the driver does not state it
DELAY_SECONDS = 50e-6  # longer than it takes to launch a few kernels


def delay(driver: Driver, stream: str) -> Callable[[], None]:
    """A call that keeps a stream busy for a moment."""
    cycles = int(DELAY_SECONDS * (driver.gpu.clock or USUAL_CLOCK))
    pause = launch("delay", "delay", "DelayArgs", 1, ONE_WARP, cycles=cycles)
    return driver.launcher(pause, pause.args, stream)
