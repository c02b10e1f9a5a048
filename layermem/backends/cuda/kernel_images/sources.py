"""The kernel sources of this package: their folder and their includes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from layermem.planning.gpus import TENSOR_CORES

PACKAGE = Path(__file__).resolve().parents[3]
SOURCES = next(f for f in (PACKAGE / "cuda_kernels", PACKAGE.parent / "cuda") if f.is_dir())


def modules() -> Sequence[str]:
    """The names of all kernel sources."""
    return sorted(path.stem for path in SOURCES.glob("*.cu"))


def architecture(module: str, capability: str) -> str:
    """The architecture of cuda/<module>.cu on GPUs of a compute capability: 90a for convolution_tf32_sm90a and "90".

    Such a module uses instructions that other architectures lack; its kernels refuse to run there."""
    own = re.search(r"_sm(\d+)[a-z]$", module)
    return module.rpartition("_sm")[2] if own and own[1] == capability else capability


def runs_on(module: str, capability: str) -> bool:
    """Whether GPUs of a compute capability have the instructions of a module."""
    own = re.search(r"_sm(\d+)[a-z]$", module)
    needs_tensor_cores = re.match("convolution_(tf32|bf16|fp32x3)", module) is not None
    return (own is None or own[1] == capability) and (not needs_tensor_cores or int(capability) >= TENSOR_CORES)


@cache
def closure(module: str) -> tuple[Path, ...]:
    """cuda/<module>.cu and every header that it includes, headers first."""
    files: list[Path] = []

    def visit(path: Path) -> None:
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            if SOURCES / name not in files:
                visit(SOURCES / name)
        files.append(path)

    visit(SOURCES / f"{module}.cu")
    return tuple(files)
