"""Layouts of the structs that CUDA kernels take, as declared in the kernels' sources.

A struct template over the element type of blobs contains pointers to them, so its layout is the same for all types.
"""

from __future__ import annotations

from functools import cache

from layermem.backends.cuda.kernel_images.sources import closure
from layermem.backends.struct_layout import Declarations, StructLayout


def layout(module: str, name: str) -> StructLayout:
    """The struct `name` as declared in cuda/<module>.cu or its headers."""
    return declarations(module).struct(name)


@cache
def declarations(module: str) -> Declarations:
    """The declarations in cuda/<module>.cu and its headers."""
    return Declarations(path.read_text(encoding="utf-8") for path in closure(module))
