"""setup-cuda: builds PyCUDA for the cuda device without a CUDA toolkit, and kernels for the GPUs of this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from layermem.cli.parser import Verbs, add_verb
from layermem.utils.text import printable, wrap

EXAMPLE = """\
  layermem setup-cuda
"""


def add_verbs(verbs: Verbs) -> None:
    description = "build PyCUDA, which the cuda device needs, with NVIDIA's wheels or a toolkit, and install it"
    parser = add_verb(verbs, "setup-cuda", description, EXAMPLE)
    parser.add_argument(
        "--toolkit",
        metavar="DIR",
        type=Path,
        help="a CUDA toolkit, with include/cuda.h (default: CUDA_HOME, nvcc's, or headers of NVIDIA's wheels)",
    )
    parser.add_argument("--cache", metavar="DIR", type=Path, help="keeps the wheel (default: ~/.cache/layermem/pycuda)")
    parser.add_argument("--wheel-only", action="store_true", help="build the wheel, and do not install it")
    parser.add_argument(
        "--kernels",
        choices=("common", "all", "none"),
        default="common",
        help="which kernels are compiled now for the GPUs that are here: those of fp32 and tf32, half a minute to two "
        "minutes, those of all precisions, up to four, or none; the others are compiled by the first run that needs "
        "them (%(default)s)",
    )
    parser.set_defaults(run=run_setup_cuda)


def run_setup_cuda(arguments: argparse.Namespace) -> int:
    from layermem.backends.cuda.kernel_images.cuda_version import driver_version
    from layermem.cli import pycuda_wheel

    version = pycuda_wheel.installed()
    if version is None or arguments.wheel_only or not pycuda_wheel.suits_driver():
        wheel = pycuda_wheel.cached_wheel(arguments.cache or pycuda_wheel.default_cache(), arguments.toolkit, _say)
        if arguments.wheel_only:
            print(printable(str(wheel)))
            return 0
        _say(f"installing {wheel.name}")
        pycuda_wheel.install(str(wheel))
        version = pycuda_wheel.installed()
    if not pycuda_wheel.compiles_kernels():
        nvrtc = pycuda_wheel.packages_for(driver_version()).nvrtc
        _say(f"installing {nvrtc}, which compiles the kernels")
        pycuda_wheel.install(nvrtc)
    _say(f"PyCUDA {version} is installed; `layermem devices` says whether it finds a GPU")
    if arguments.kernels != "none":
        _compile_kernels(is_all=arguments.kernels == "all")
    return 0


def _compile_kernels(*, is_all: bool) -> None:
    """Compile kernels for the GPUs of this machine, if there are any."""
    from layermem.backends.cuda.driver.context import gpus
    from layermem.backends.cuda.kernel_images import ahead
    from layermem.errors import CudaUnavailable

    try:
        capabilities = sorted({gpu.capability for gpu in gpus()})
    except CudaUnavailable:
        return
    for capability in capabilities:
        ahead.compile_missing(ahead.modules_of(capability, is_all=is_all), capability)
        _say(f"kernels for sm_{capability} are compiled")


def _say(step: str) -> None:
    print(wrap(printable(step)), flush=True)
