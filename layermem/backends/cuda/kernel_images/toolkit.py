"""Finds the programs of NVIDIA's toolkit: in a toolkit, or in its parts as Python packages."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path


def program(name: str) -> str | None:
    """The path of `nvcc`, `ptxas` or another, or None.

    The PATH comes first; then the toolkit that CUDA_HOME or CUDA_PATH names, the packages nvidia-cuda-*, and the folder
    that toolkits are installed to by default.
    """
    found = (shutil.which(name, path=str(folder)) for folder in _folders())
    return shutil.which(name) or next(filter(None, found), None)


def _folders() -> Iterator[Path]:
    for toolkit in filter(None, map(os.environ.get, ("CUDA_HOME", "CUDA_PATH"))):
        yield Path(toolkit) / "bin"
    for folder in filter(None, sys.path):
        for inside in ("nvidia/cu*/bin", "nvidia/cuda_nvcc/bin"):
            yield from sorted(Path(folder).glob(inside), reverse=True)
    yield Path("/usr/local/cuda/bin")
