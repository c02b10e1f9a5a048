"""One nominal GPU per architecture, for which the tiles of matrix products are chosen (gemm_tiles.py).

A tile changes no bit, so errors of these estimates only cost time.  The splits of weight gradients and of inner
products, which determine bits, follow the H200 on every GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FP32X3_PRODUCTS = 3  # tf32 products per product


class NominalGpu(NamedTuple):
    """
    multiprocessors   their number
    l2                bytes per cycle that one multiprocessor reads from the L2 cache when all of them read
    shared_bytes      shared memory of a multiprocessor; each block also takes `reserved_bytes` of it
    fp32, tf32        multiply-adds of a multiprocessor per cycle; in tf32 by mma.sync, in bf16 twice as many
    """

    multiprocessors: int
    l2: int
    shared_bytes: int
    fp32: int
    tf32: int
    reserved_bytes: int = 1 << 10

    @property
    def l2_rate(self) -> int:
        """Bytes per cycle that all multiprocessors together read from the L2 cache."""
        return self.l2 * self.multiprocessors

    def rate(self, precision: str) -> int:
        """Multiply-adds of a multiprocessor per cycle."""
        rates = {"fp32": self.fp32, "fp32x3": self.tf32 // FP32X3_PRODUCTS, "tf32": self.tf32, "bf16": 2 * self.tf32}
        return rates[precision]

    def paces(self, paces: Sequence[int], block_bytes: int, products: int, precision: str) -> Sequence[int]:
        """Convert the cycles of a stage with 1, 2, .. blocks on a multiprocessor from those of the H200, for as many
        blocks as fit the shared memory.  The `products` of blocks run one after the other, while the other blocks load
        and wait; a single block does all of this in turn."""
        cycles = products // self.rate(precision)
        alone = paces[0] + cycles - products // H200.rate(precision)
        most = max(1, self.shared_bytes // (block_bytes + self.reserved_bytes))
        return tuple(max(pace, alone, blocks * cycles) for blocks, pace in enumerate(paces[:most], 1))


H200 = NominalGpu(132, 24, 228 << 10, 128, 1024)
# By compute capability: RTX 2080 Ti, A100, RTX 3090, RTX 4090, H200, B200, RTX 5090.  L2 rates other than the H200's
# follow from clocks and reported rates.  The B200 is listed without its tcgen05 instructions; the RTX 2080 Ti runs only
# fp32.
GPUS = {
    75: NominalGpu(68, 16, 64 << 10, 64, 64, reserved_bytes=0),
    80: NominalGpu(108, 21, 164 << 10, 64, 512),
    86: NominalGpu(82, 14, 100 << 10, 128, 128),
    89: NominalGpu(128, 16, 100 << 10, 128, 128),
    90: H200,
    100: NominalGpu(148, 24, 228 << 10, 128, 512),
    120: NominalGpu(170, 14, 100 << 10, 128, 128),
}


def nominal_gpu(capability: str, multiprocessors: int = 0) -> NominalGpu:
    """The nominal GPU of an architecture, or of the one before it, with the given number of multiprocessors unless that
    is 0; the H200 if no architecture is named."""
    if not capability:
        return H200
    nominal = GPUS[max(each for each in GPUS if each <= max(int(capability), min(GPUS)))]
    return nominal._replace(multiprocessors=multiprocessors or nominal.multiprocessors)
