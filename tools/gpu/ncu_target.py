"""Launches a dozen kernels once each, for Nsight Compute to look at: python -m tools.gpu.ncu_target [--small]"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from layermem.backends.cuda.launch import Launch
from layermem.ops import Conv
from tests.cases import select
from tools.gpu.gpu import Gpu
from tools.gpu.layers import CONTEXT, layer_of_case, ops

PRODUCTS = ((0, "tf32"), (1, "tf32"), (0, "bf16"))  # of the cases for a GPU, three kernels each
MOST = 12


def launches(gpu: Gpu, small: bool) -> Iterator[list[Launch]]:
    """Of one op each: products first, then what memory bounds."""
    layers = [layer_of_case(case, small) for case in select("gpu")]
    products = [layer for layer in layers if isinstance(layer.record, Conv)]
    for number, precision in PRODUCTS if int(gpu.driver.gpu.capability) >= 80 else ((0, "fp32"),):
        for _, found, _, _ in ops(gpu, products[number], precision):
            yield found[:1]
    for layer in layers:
        if not isinstance(layer.record, Conv):
            yield next(ops(gpu, layer, "fp32"))[1][:1]


def main(small: bool) -> None:
    gpu = Gpu(small=True)  # without a warm-up, whose work is none of these kernels
    for number, found in enumerate(launches(gpu, small)):
        if number == MOST:
            break
        gpu.starter(found, CONTEXT)()
        gpu.driver.synchronize()
    gpu.driver.close()


if __name__ == "__main__":
    main("--small" in sys.argv)
