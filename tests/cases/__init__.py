"""The one list of op cases: every layer type and every record kind that a backend runs.

A case is a layer as prototxt writes it, maybe with an epilogue, and the shapes of its bottoms in up to five sizes:

    small    tens of elements: every mode of the CUDA emulator, and a GPU
    medium   tens to thousands: gradients by central differences, the cpu backend against the reference
    edges    odd counts, other axes and boundaries of blocks: emulated kernels in fp32 against the reference
    timing   larger than any cache: tools/bench_ops_cpu.py
    gpu      for the clock of a GPU: tools/gpu/layers.py

CASES     name -> OpCase                RECORDS   name -> RecordCase: ops that no layer makes (updates, fills, host I/O)
select()  the cases that have a size    CONV_EDGES   geometries at the edges of the tiles of implicit GEMM
CPU_EDGES of kernels of the cpu backend
FUSED     geometries of fused ops       DEPTHWISE, GROUPED   of kernels for groups of few channels
OCTETS, PACKED   of tiles of 16 bits   slices.py   layers in slices of a batch

A new layer or record kind is one line of a module here; tests/test_cases.py fails for those without a case.
"""

# isort: off
# Modules add their cases in this order.
from tests.cases.base import CASES, add, select
from tests.cases import activation
from tests.cases.convolution import CONV_EDGES, CPU_EDGES, DEPTHWISE, GROUPED, OCTETS, PACKED, RELU_EDGES
from tests.cases.convolution import PRECISION_BOUNDS, SLICED_DEPTHWISE
from tests.cases.convolution import conv_case, conv_text, edge_case, edge_layer, edge_problem
from tests.cases import windows, detection, normalization, shapes, loss
from tests.cases.records import RECORDS
from tests.cases.fused import FUSED, OF_OCTETS, first_layer, problem_of
