"""Compiles what most tests of CUDA kernels share, so that no test waits while another one compiles it:

    python -m tests.emulator.prebuild

The fake driver, the kernels of every module in mode `plain`, and the emulator itself in the other modes.
"""

from __future__ import annotations

from layermem.backends.cuda.kernel_images.sources import modules
from tests.emulator import build as builder
from tests.emulator import fake_driver


def main() -> None:
    for mode in builder.MODES:
        builder.machine(mode)
    fake_driver.prebuild()
    builder.build_many((f"cuda/{module}.cu", "plain") for module in modules())


if __name__ == "__main__":
    main()
