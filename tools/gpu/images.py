"""Compiles every kernel for this machine's GPU into the cache of layermem: python -m tools.gpu.images

Each core compiles modules in its own process.  A module of convolutions takes NVRTC half a minute or more; on 16 cores
the total is about the longest module.
"""

from __future__ import annotations

import time

from layermem.backends.cuda.driver.context import gpus
from layermem.backends.cuda.kernel_images.ahead import missing_images, side_by_side
from layermem.backends.cuda.kernel_images.sources import modules


def main() -> None:
    began, capability = time.perf_counter(), gpus()[0].capability
    found = dict(side_by_side(missing_images(modules(), capability), capability))
    wrong = [f"{module}: {compiled.error.splitlines()[0]}" for module, compiled in found.items() if compiled.error]
    if wrong:
        raise SystemExit("; ".join(wrong))
    slowest = max(found, key=lambda module: found[module].seconds, default="none")
    seconds = found[slowest].seconds if found else 0.0
    spent = time.perf_counter() - began
    print(f"images of {len(found)} modules: {spent:.1f} s, the slowest {slowest} with {seconds:.1f} s")


if __name__ == "__main__":
    main()
