"""One GPU for each architecture, by which tiles of matrix products are chosen (gemm_tiles.py).

A tile changes no bit, so these are estimates that cost at most time.  What bits depend on, the splits of weight
gradients and of inner products, follows the H200 on every GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FP32X3_PRODUCTS = 3  # in tf32, for each product


class NominalGpu(NamedTuple):
    """
    multiprocessors   on which blocks run
    l2                bytes that one of them reads from the L2 cache in a cycle, when all read
    shared_bytes      of a multiprocessor, of which `reserved_bytes` are taken by each block
    fp32, tf32        multiply-adds of a multiprocessor in a cycle; those in tf32 by mma.sync, in bf16 twice as many
    """

    multiprocessors: int
    l2: int
    shared_bytes: int
    fp32: int
    tf32: int
    reserved_bytes: int = 1 << 10

    @property
    def l2_bytes(self) -> int:
        """That all multiprocessors read from the L2 cache in a cycle."""
        return self.l2 * self.multiprocessors

    def rate(self, precision: str) -> int:
        """Multiply-adds of a multiprocessor in a cycle."""
        rates = {"fp32": self.fp32, "fp32x3": self.tf32 // FP32X3_PRODUCTS, "tf32": self.tf32, "bf16": 2 * self.tf32}
        return rates[precision]

    def paces(self, paces: Sequence[int], block_bytes: int, products: int, precision: str) -> Sequence[int]:
        """Cycles of a stage with 1, 2, .. blocks on a multiprocessor, from those of the H200, for as many blocks as
        their shared memory allows.  The `products` of a block take their time in one block after the other, and while
        they do the other blocks load and wait; a block alone does all of that in turn."""
        cycles = products // self.rate(precision)
        alone = paces[0] + cycles - products // H200.rate(precision)
        most = max(1, self.shared_bytes // (block_bytes + self.reserved_bytes))
        return tuple(max(pace, alone, blocks * cycles) for blocks, pace in enumerate(paces[:most], 1))


H200 = NominalGpu(132, 24, 228 << 10, 128, 1024)
# By compute capability: RTX 2080 Ti, A100, RTX 3090, RTX 4090, H200, B200, RTX 5090.  L2 of the others by their clocks
# and the rates that were reported for them; B200 without its tcgen05 instructions;
# RTX 2080 Ti runs fp32 alone.
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
    """That of an architecture, or of the one before it, with its own number of multiprocessors where that is known; the
    H200 where no architecture is named."""
    if not capability:
        return H200
    nominal = GPUS[max(each for each in GPUS if each <= max(int(capability), min(GPUS)))]
    return nominal._replace(multiprocessors=multiprocessors or nominal.multiprocessors)
