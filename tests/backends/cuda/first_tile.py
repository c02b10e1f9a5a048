"""The source of an engine's module with the kernels of one tile, which a compiler makes in seconds."""

from __future__ import annotations

from layermem.backends.cuda.kernel_images.build import whole_source


def first_tile(module: str) -> str:
    """The kernels of the module's first line alone; they do not depend on the others."""
    source = whole_source(module)
    kernels = [line for line in source[source.index(f'#line 1 "{module}.cu"') :].splitlines() if line.startswith("LM_")]
    for each in kernels[1:]:
        source = source.replace(f"\n{each}\n", "\n\n")
    return source
