"""setup-cuda: PyCUDA for the cuda device, built without a CUDA toolkit and without a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

from layermem.cli.options import Verbs, add_verb
from layermem.utils.text import printable, wrap

EXAMPLE = """\
  layermem setup-cuda
"""


def add_verbs(verbs: Verbs) -> None:
    description = "build PyCUDA, which the cuda device needs, with NVIDIA's wheels or a toolkit, and install it"
    parser = add_verb(verbs, "setup-cuda", description, EXAMPLE)
    parser.add_argument(
        "--toolkit", metavar="DIR", type=Path,
        help="a CUDA toolkit, with include/cuda.h (default: CUDA_HOME, nvcc's, or headers of NVIDIA's wheels)",
    )  # fmt: skip
    parser.add_argument("--cache", metavar="DIR", type=Path, help="keeps the wheel (default: ~/.cache/layermem/pycuda)")
    parser.add_argument("--wheel-only", action="store_true", help="build the wheel, and do not install it")
    parser.set_defaults(run=run_setup_cuda)


def run_setup_cuda(arguments: argparse.Namespace) -> int:
    from layermem.backends.cuda import pycuda_wheel

    version = pycuda_wheel.installed()
    if version is None or arguments.wheel_only:
        wheel = pycuda_wheel.cached_wheel(arguments.cache or pycuda_wheel.default_cache(), arguments.toolkit, _say)
        if arguments.wheel_only:
            print(printable(str(wheel)))
            return 0
        _say(f"installing {wheel.name}")
        pycuda_wheel.install(str(wheel))
        version = pycuda_wheel.installed()
    if not pycuda_wheel.compiles_kernels():
        _say(f"installing {pycuda_wheel.NVRTC}, which compiles the kernels")
        pycuda_wheel.install(pycuda_wheel.NVRTC)
    _say(f"PyCUDA {version} is installed; `layermem devices` says whether it finds a GPU")
    return 0


def _say(step: str) -> None:
    print(wrap(printable(step)), flush=True)
