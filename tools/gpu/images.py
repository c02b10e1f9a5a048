"""Machine code of every kernel for this machine's GPU, into the cache of layermem: python -m tools.gpu.images

Modules are compiled by a process for each core: NVRTC parses one source at a time in a process.  One of convolutions
takes it half a minute and more; on 16 cores all are there after about the longest of them.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TypeVar

from layermem.backends.cuda.driver.context import gpus
from layermem.backends.cuda.kernel_images import build
from layermem.backends.cuda.kernel_images.sources import modules
from layermem.errors import LayermemError

T = TypeVar("T")


def on_all_cores(make: Callable[[str], T], modules: Iterable[str]) -> Iterable[tuple[str, T]]:
    """`make` of every module, by processes; the slowest modules come first, so that they are not waited for in the
    end."""
    names = sorted(modules, key=lambda name: not name.startswith("convolution"))
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        yield from zip(names, pool.map(make, names))


def compiled(capability: str, module: str) -> tuple[float, str]:
    """Seconds that the image took, and what was wrong."""
    began = time.perf_counter()
    try:
        build.image(module, capability)
    except LayermemError as error:
        return time.perf_counter() - began, f"{module}: {str(error).splitlines()[0]}"
    return time.perf_counter() - began, ""


def main() -> None:
    began = time.perf_counter()
    found = dict(on_all_cores(partial(compiled, gpus()[0].capability), modules()))
    wrong = [says for _, says in found.values() if says]
    if wrong:
        raise SystemExit("; ".join(wrong))
    slowest = max(found, key=lambda module: found[module][0])
    spent = time.perf_counter() - began
    print(f"images of {len(found)} modules: {spent:.1f} s, the slowest {slowest} with {found[slowest][0]:.1f} s")


if __name__ == "__main__":
    main()
