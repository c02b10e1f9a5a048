"""The kernel sources that belong to this package: where they are and what they include."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3]
SOURCES = next(f for f in (PACKAGE / "cuda_kernels", PACKAGE.parent / "cuda") if f.is_dir())


def modules() -> Sequence[str]:
    """The names of all kernel sources."""
    return sorted(path.stem for path in SOURCES.glob("*.cu"))


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
