"""Compiles the images that a step needs and that are not kept yet, before the step, with parallel processes.

One line states their number and the expected time; a terminal also shows a bar.  Ranks and other processes that need
the same images divide them, by the locks of build.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

from layermem.backends.cuda.kernel_images import build, sources
from layermem.errors import DeviceError, LayermemError
from layermem.utils import progress
from layermem.utils.processes import core_count, on_all_cores
from layermem.utils.progress import announce, show_progress

# Seconds that NVRTC 13.0 takes for a module on a core of an Intel Xeon at 2.5 GHz; rounded.
SECONDS = {
    "convolution": 14, "convolution_bf16": 28, "convolution_bf16_on_bf16": 34, "convolution_bf16_on_bf16_sm90a": 4,
    "convolution_bf16_sm90a": 8, "convolution_fp32x3": 25, "convolution_on_bf16": 26, "convolution_on_fp16": 26,
    "convolution_tf32": 33, "convolution_tf32_on_bf16": 35, "convolution_tf32_on_fp16": 35,
    "convolution_tf32_sm90a": 6, "activation": 3, "depthwise": 7, "grouped": 6, "normalization": 5,
}  # fmt: skip
LESS_COMMON = re.compile(r"^convolution_.*(bf16|fp16|fp32x3)")
USUAL_SECONDS = 1  # of all other modules
START_SECONDS = 1  # of starting the processes


class Compiled(NamedTuple):
    """The result of compiling one module."""

    seconds: float
    error: str  # the compiler's error; empty if the image was made


def compile_missing(modules: Collection[str], capability: str, *, reports_progress: bool = True) -> None:
    """Compile the images of `modules` that are neither prebuilt nor kept.  DeviceError if the compiler refuses one.

    reports_progress   whether this process reports it, of all that compile the same modules
    """
    with ExitStack() as locks:
        missing = missing_images(modules, capability)
        locked = {module: locks.enter_context(build.locked(path, wait=False)) for module, path in missing.items()}
        mine = [module for module, path in missing.items() if locked[module] and not path.exists()]
        _compile(mine, capability, reports_progress)
    others = [module for module, is_mine in locked.items() if not is_mine]
    if others and reports_progress:
        announce(f"waiting for {_counted(others)} that another process compiles")
    for module in others:
        build.image(module, capability)


def modules_of(capability: str, *, is_all: bool) -> list[str]:
    """The modules that a GPU of this capability runs: all of them, or those of fp32 and tf32 with fp32 blobs."""
    own = [module for module in sources.modules() if sources.runs_on(module, capability)]
    return [module for module in own if is_all or not LESS_COMMON.search(module)]


def missing_images(modules: Collection[str], capability: str) -> dict[str, Path]:
    """Map modules without a prebuilt or kept image to the paths of their images; empty without a cache."""
    wanted = [module for module in sorted(modules) if build.prebuilt(module) is None]
    if not wanted or not build.has_cache():
        return {}
    paths = {module: build.recipe_of(module, capability).path for module in wanted}
    return {module: path for module, path in paths.items() if not path.exists()}


def _compile(modules: Sequence[str], capability: str, reports_progress: bool) -> None:
    if sum(map(_seconds, modules)) <= START_SECONDS:  # each is compiled when it is loaded
        return
    seconds = expected_seconds(modules, core_count())
    if reports_progress and seconds >= progress.DELAY_SECONDS:
        announce(f"compiling {_counted(modules)} for sm_{capability}, once: about {seconds} s")
    with show_progress(len(modules), "compiling kernels") if reports_progress else nullcontext(_silent) as show:
        for done, (module, compiled) in enumerate(side_by_side(modules, capability), 1):
            if compiled.error:
                raise DeviceError(compiled.error)
            show(module, done)


def side_by_side(modules: Collection[str], capability: str) -> Iterator[tuple[str, Compiled]]:
    """Compile modules on all cores; yield each when it is done."""
    yield from on_all_cores(partial(compiled, capability), longest_first(modules))


def longest_first(modules: Collection[str]) -> list[str]:
    """Modules sorted so that the slowest are compiled first."""
    return sorted(modules, key=_seconds, reverse=True)


def compiled(capability: str, module: str) -> Compiled:
    """Compile one module in this process, whether it is already kept or not."""
    began, error = time.perf_counter(), ""
    try:
        build.recipe_of(module, capability).compiled()
    except LayermemError as refused:
        error = str(refused)
    return Compiled(time.perf_counter() - began, error)


def expected_seconds(modules: Collection[str], cores: int) -> int:
    """Expected seconds of compiling modules in parallel: those of the slowest, or the share of a core."""
    each = list(map(_seconds, modules))
    return START_SECONDS + round(max(max(each), sum(each) / cores))


def _seconds(module: str) -> int:
    return SECONDS.get(module, USUAL_SECONDS)


def _counted(modules: Collection[str]) -> str:
    return f"{len(modules)} kernel module{'s' if len(modules) > 1 else ''}"


def _silent(doing: str, done: int) -> None:
    """Show no progress."""
