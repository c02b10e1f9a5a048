"""The one list of op cases: every layer type and every record kind that a backend runs.

A case is a layer as prototxt writes it, maybe with an epilogue, and the shapes of its bottoms in up to five sizes:

    small    tens of elements: every mode of the CUDA emulator, and a GPU
    medium   tens to thousands: gradients by central differences, the cpu backend against the reference
    edges    odd counts, other axes and boundaries of blocks: emulated kernels in fp32 against the reference
    timing   larger than any cache: tools/bench_ops_cpu.py
    gpu      for the clock of a GPU: tools/gpu/layers.py

CASES     name -> OpCase                select()   the cases that have a size
RECORDS   of records.py: ops that no layer makes (updates, fills, host I/O)

Each module adds the cases of its kind; the folder is listed. Beside them it holds the lists of shapes and geometries
that tests of single kernels share, such as `NORM_SHAPES` of normalization.py and `FUSED` of fused.py.

A new layer or record kind is one line of a module here; tests/test_cases.py fails for those without a case, and for a
list of shapes in a test of kernels.
"""

from importlib import import_module

from layermem.utils.modules import modules_in
from tests.cases.base import CASES, select

__all__ = ["CASES", "select"]

for name, _ in modules_in(__path__):
    import_module(f"{__name__}.{name}")
