"""What the model assumes of a GPU.

Sizes and peak rates are NVIDIA's; the other numbers are estimates, none of them measured by this project:
`--calibrate` of tools/sass_model.py replaces what `tools/gpu_check.py` has measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

SUB_PARTITIONS = 4  # of a multiprocessor, each with a scheduler
REGISTERS, REGISTERS_OF_WARP = 65536, 256  # of a multiprocessor; a warp takes a multiple of these
BLOCKS = 32  # at most, on a multiprocessor
WARP = 32
WARPGROUPS = ", warpgroups"  # behind a precision: by the engine that sm_90a has
LAUNCH = 3e-6  # seconds from the end of a kernel to the start of the next one's work
SHARE = 0.88  # of the tensor cores' peak, as libraries reach it by wgmma in large products
LINK = 3.5e10  # bytes a second at which a kernel reads the host's memory


class Gpu(NamedTuple):
    """A GPU and its rates.

    tensor    FLOP a cycle and sub-partition at the tensor cores' peak, for tf32; 16-bit operands go twice as fast
    mma       share of that peak which mma.sync reaches
    lanes     FFMA a cycle and sub-partition
    shared    bytes of shared memory of a multiprocessor
    dram, l2  bytes a second: what a copy moves (read and written), what all multiprocessors read
    wgmma     share of the peak which wgmma reaches, of operands of 4 and of 2 bytes
    """

    name: str
    architecture: str
    multiprocessors: int
    clock: float
    tensor: int
    mma: float
    lanes: int
    shared: int
    threads: int
    dram: float
    l2: float
    wgmma: tuple[float, float] = (SHARE, SHARE)

    @property
    def sm_clock(self) -> float:
        """Cycles a second of all multiprocessors together."""
        return self.multiprocessors * self.clock


GPUS = {
    gpu.architecture: gpu
    for gpu in (
        Gpu("A100", "80", 108, 1.410e9, 256, 1.0, 16, 167936, 2048, 1.75e12, 4.0e12),
        Gpu("A40", "86", 84, 1.740e9, 128, 1.0, 32, 102400, 1536, 0.6e12, 2.0e12),
        Gpu("L40S", "89", 142, 2.520e9, 128, 1.0, 32, 102400, 1536, 0.75e12, 4.0e12),
        Gpu("H200", "90", 132, 1.755e9, 512, 0.625, 32, 233472, 2048, 3.9e12, 5.5e12),
    )
}


def blocks_at_once(gpu: Gpu, threads: int, registers: int, shared: int) -> int:
    """Blocks that share a multiprocessor; `shared` are the bytes of one, those of the driver included."""
    warps = -(-threads // WARP)
    of_warp = -(-registers * WARP // REGISTERS_OF_WARP) * REGISTERS_OF_WARP
    of_scheduler = REGISTERS // SUB_PARTITIONS // of_warp  # warps; registers are a sub-partition's own
    by_registers = of_scheduler * SUB_PARTITIONS // warps
    return min(BLOCKS, by_registers, gpu.shared // max(shared, 1), gpu.threads // (warps * WARP))


class Model(NamedTuple):
    """The GPU, seconds of a launch, bytes a second of the link, and what measurements make of the model's times
    (tools/sass/calibration.py).

    products   factors of the pipeline's cycles, by precision and operation; of the engine by warpgroups, WARPGROUPS is
               behind the precision; "groups" in its place: of cuda/grouped.cu
    memory     factor of memory-bound kernels' times
    """

    gpu: Gpu
    launch: float = LAUNCH
    link: float = LINK
    products: Mapping[tuple[str, str], float] = MappingProxyType({})
    memory: float = 1.0
