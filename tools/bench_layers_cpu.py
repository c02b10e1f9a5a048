"""Times of the ops of every kind of layer on the cpu device, against the bytes that they access (tests/cases.py).

    python tools/bench_layers_cpu.py                        # all of them, on blobs larger than any cache
    python tools/bench_layers_cpu.py --only Softmax LRN     # layers whose names contain one of these words
    python tools/bench_layers_cpu.py --isa avx2 --rounds 9

Each layer is alone in a net, between a batch of noise and a sum, with the gradient of the batch.  A time is the median
of the rounds.  `of a copy` is the bandwidth of the op (each of its buffers counted once) over that of a 128 MiB copy
(read and write): at 1 or above, the op is memory bound.  Convolutions and inner products are compute bound;
bench_kernels_cpu.py times them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem._native import cpu
from layermem.backends.cpu import CpuDevice
from layermem.backends.cpu.launch import launch
from layermem.data import probe
from layermem.graph.net import Net
from layermem.graph.train import train_graph
from layermem.layers import LAYERS
from layermem.planning.pipeline import compile
from layermem.proto.read import read_net_text
from layermem.solver.benchmark import Benchmark
from tests.cases import select
from tests.op_case import OpCase

COPIED = 2**26  # bytes
WITHOUT_GRADIENT = ("Accuracy", "ArgMax")


def net_of(case: OpCase) -> Net:
    """Noise, the layer, and a sum as the objective unless the layer is a loss; all labels are 1."""
    kind = case.text.split('"')[1]
    lines = []
    for i, shape in enumerate(case.shapes("timing")):
        dims = " ".join(f"dim: {d}" for d in shape)
        constant = i == case.labels and kind != "SigmoidCrossEntropyLoss"
        filler = 'type: "constant" value: 1' if constant else 'type: "gaussian" std: 1'
        feed = f"dummy_data_param {{ shape {{ {dims} }} data_filler {{ {filler} }} }}"
        lines.append(f'layer {{ name: "x{i}" type: "DummyData" top: "x{i}" {feed} }}')
    bottoms = " ".join(f'bottom: "x{i}"' for i in range(len(case.shapes("timing"))))
    tops = " ".join(f'top: "y{i or ""}"' for i in range(max(1, LAYERS[kind].top_range[0])))
    lines.append(f'layer {{ name: "it" {case.text} {bottoms} {tops} }}')
    if kind not in WITHOUT_GRADIENT:
        lines.append("force_backward: true")
        if not LAYERS[kind].is_loss:
            lines.append('layer { name: "sum" type: "Reduction" bottom: "y" top: "sum" loss_weight: 1 }')
    return Net(read_net_text("\n".join(lines)), 0, probe=probe)


def ops_of(case: OpCase, device: CpuDevice, rounds: int) -> Iterator[tuple[str, float, int]]:
    """(step, seconds, bytes) of each op of the layer."""
    net = net_of(case)
    graph = train_graph(net, device)
    seconds = Benchmark(net, compile([graph], strategy="liveness"), device).ops(rounds)
    for op in graph.ops:
        if op.name in ("it.forward", "it.backward"):
            yield op.name.removeprefix("it."), seconds[op.name], op.nbytes


def copy_rate(rounds: int) -> float:
    """Bytes per second, read and written, of a copy."""
    x, y = np.ones(COPIED // 4, np.float32), np.empty(COPIED // 4, np.float32)
    copy = launch("pointwise", "scale", x.size, out=y.ctypes.data, a=x.ctypes.data, alpha=1.0)
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        copy()
        seconds.append(time.perf_counter() - began)
    return 2 * COPIED / statistics.median(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORD", help="layers whose names contain one of these"
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each op (5)")
    parser.add_argument("--threads", type=int, default=2, help="threads (2)")
    parser.add_argument("--isa", default="auto", help="instruction set: base, avx2, avx512 or auto")
    options = parser.parse_args()
    cpu.set_isa(options.isa)
    device = CpuDevice(options.threads)
    rate = copy_rate(options.rounds)
    print(f"{device.describe()}; a copy moves {rate / 1e9:.1f} GB/s\n")
    print("| layer | op | ms | GB/s | of a copy |\n|---|---|---|---|---|")
    for case in select("timing"):
        if any(word in case.name for word in options.only):
            for step, seconds, nbytes in ops_of(case, device, options.rounds):
                own = nbytes / seconds
                figures = f"{1e3 * seconds:.2f} | {own / 1e9:.1f} | {own / rate:.2f}"
                print(f"| {case.name} | {step} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
