"""Layouts of the structs that CUDA kernels take, as the kernels' sources declare them.

A struct that is a template of the element type of blobs has pointers to these: its layout is that of every type.
"""

from __future__ import annotations

from functools import cache

from layermem.backends.cuda.kernel_images.sources import closure
from layermem.backends.struct_layout import Declarations, Layout


def layout(module: str, name: str) -> Layout:
    """The struct `name` as cuda/<module>.cu, or a header of it, declares it."""
    return declarations(module).struct(name)


@cache
def declarations(module: str) -> Declarations:
    """Those of cuda/<module>.cu and of its headers."""
    return Declarations(path.read_text(encoding="utf-8") for path in closure(module))
