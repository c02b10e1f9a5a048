"""Time the ops of every kind of layer on the cpu device against the bytes that they touch.

    python tools/bench_layers_cpu.py                        # all of them, on blobs larger than any cache
    python tools/bench_layers_cpu.py --only Softmax LRN     # those whose name holds one of these words
    python tools/bench_layers_cpu.py --unit avx2 --rounds 9

Each layer stands alone between a batch of noise and a sum, in a net that also asks for the gradient of the batch.  A
time is the median of the rounds.  `of a copy` is the op's bytes a second (its buffers, each once) over those of a copy
of 128 MiB, both directions counted: near 1 or above, memory is all that the op waits for.  Convolutions and inner
products are bound by arithmetic; bench_kernels_cpu.py times them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence

import numpy as np

from layermem._native import cpu
from layermem.backends.cpu import CpuDevice
from layermem.compiler import compile
from layermem.data import probe
from layermem.graph.net import Net
from layermem.graph.train import train_graph
from layermem.layers import LAYERS
from layermem.proto.read import read_net_text
from layermem.solver.benchmark import Benchmark

IMAGE = (64, 64, 56, 56)
PICTURE = (32, 3, 224, 224)
PIXELS = (4, 21, 480, 480)
ROWS = (4096, 1000)
COPIED = 2**26  # bytes
LABELLED = ("SoftmaxWithLoss", "Accuracy", "HingeLoss", "ContrastiveLoss")  # whose last bottom names classes
WITHOUT_GRADIENT = ("Accuracy", "ArgMax")

# name: (the inside of a layer, shapes of its bottoms)
CASES = {
    **{kind: (f'type: "{kind}"', IMAGE) for kind in ("ReLU", "Sigmoid", "TanH", "ELU", "AbsVal", "Exp", "BNLL")},
    **{kind: (f'type: "{kind}"', IMAGE) for kind in ("PReLU", "Swish", "Dropout", "LRN", "BatchNorm", "Scale", "Bias")},
    "Power": ('type: "Power" power_param { power: 2 scale: 0.5 shift: 3 }', IMAGE),
    "Power 1.7": ('type: "Power" power_param { power: 1.7 scale: 0.01 shift: 3 }', IMAGE),
    "Log": ('type: "Log" log_param { scale: 0.01 shift: 9 }', IMAGE),
    "Clip": ('type: "Clip" clip_param { min: -0.5 max: 0.7 }', IMAGE),
    "LRN within": ('type: "LRN" lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }', IMAGE),
    "BatchNorm of pictures": ('type: "BatchNorm"', PICTURE),
    "Scale by N x C": ('type: "Scale" scale_param { axis: 0 }', IMAGE, IMAGE[:2]),
    "Scale by C x H x W": ('type: "Scale" scale_param { num_axes: -1 }', IMAGE),
    "Eltwise SUM": ('type: "Eltwise"', IMAGE, IMAGE),
    "Eltwise PROD": ('type: "Eltwise" eltwise_param { operation: PROD }', IMAGE, IMAGE),
    "Eltwise MAX": ('type: "Eltwise" eltwise_param { operation: MAX }', IMAGE, IMAGE),
    "Concat": ('type: "Concat"', IMAGE, IMAGE),
    "Flatten": ('type: "Flatten"', IMAGE),
    "Tile": ('type: "Tile" tile_param { tiles: 4 }', IMAGE),
    "Crop": ('type: "Crop" crop_param { offset: 3 }', IMAGE, (64, 64, 50, 50)),
    "Interp x 8": ('type: "Interp" interp_param { height: 473 width: 473 }', (4, 21, 60, 60)),
    "Interp x 2": ('type: "Interp" interp_param { height: 111 width: 111 }', (16, 64, 56, 56)),
    "Pooling MAX 3/2": ('type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }', IMAGE),
    "Pooling MAX 3/1": ('type: "Pooling" pooling_param { kernel_size: 3 pad: 1 }', IMAGE),
    "Pooling AVE": ('type: "Pooling" pooling_param { pool: AVE global_pooling: true }', IMAGE),
    "Reduction of items": ('type: "Reduction" reduction_param { operation: SUMSQ axis: 1 }', IMAGE),
    "Reduction of pixels": ('type: "Reduction" reduction_param { axis: 2 }', IMAGE),
    "ArgMax of 21": ('type: "ArgMax" argmax_param { axis: 1 }', PIXELS),
    "ArgMax 5 of 1000": ('type: "ArgMax" argmax_param { top_k: 5 }', ROWS),
    "Softmax of 1000": ('type: "Softmax"', ROWS),
    "Softmax of 21": ('type: "Softmax"', PIXELS),
    "SoftmaxWithLoss of 1000": ('type: "SoftmaxWithLoss"', ROWS, ROWS[:1]),
    "SoftmaxWithLoss of 21": ('type: "SoftmaxWithLoss"', PIXELS, (4, 1, 480, 480)),
    "SoftmaxWithLoss of 2": ('type: "SoftmaxWithLoss"', (8, 2, 480, 480), (8, 1, 480, 480)),
    "Accuracy of 1000": ('type: "Accuracy"', ROWS, ROWS[:1]),
    "Accuracy of 21": ('type: "Accuracy"', PIXELS, (4, 1, 480, 480)),
    "SigmoidCrossEntropyLoss": ('type: "SigmoidCrossEntropyLoss"', IMAGE, IMAGE),
    "EuclideanLoss": ('type: "EuclideanLoss"', IMAGE, IMAGE),
    "HingeLoss": ('type: "HingeLoss"', ROWS, ROWS[:1]),
    "ContrastiveLoss": ('type: "ContrastiveLoss"', ROWS, ROWS, ROWS[:1]),
}


def net_of(text: str, shapes: Sequence[tuple[int, ...]]) -> Net:
    """Noise, the layer, and a sum to be made small where the layer is no loss; all labels are 1."""
    kind = text.split('"')[1]
    lines = []
    for i, shape in enumerate(shapes):
        dims = " ".join(f"dim: {d}" for d in shape)
        labels = kind in LABELLED and i + 1 == len(shapes)
        filler = 'type: "constant" value: 1' if labels else 'type: "gaussian" std: 1'
        feed = f"dummy_data_param {{ shape {{ {dims} }} data_filler {{ {filler} }} }}"
        lines.append(f'layer {{ name: "x{i}" type: "DummyData" top: "x{i}" {feed} }}')
    bottoms = " ".join(f'bottom: "x{i}"' for i in range(len(shapes)))
    lines.append(f'layer {{ name: "it" {text} {bottoms} top: "y" }}')
    if kind not in WITHOUT_GRADIENT:
        lines.append("force_backward: true")
        if not LAYERS[kind].is_loss:
            lines.append('layer { name: "sum" type: "Reduction" bottom: "y" top: "sum" loss_weight: 1 }')
    return Net(read_net_text("\n".join(lines)), 0, probe=probe)


def ops_of(
    text: str, shapes: Sequence[tuple[int, ...]], device: CpuDevice, rounds: int
) -> Iterator[tuple[str, float, int]]:
    """(step, seconds, bytes) of each op of the layer."""
    net = net_of(text, shapes)
    graph = train_graph(net, device)
    found = Benchmark(net, compile([graph], strategy="liveness"), device).ops(rounds)
    for op in graph.ops:
        if op.name in ("it.forward", "it.backward"):
            yield op.name.removeprefix("it."), found[op.name], op.nbytes


def copy_rate(rounds: int) -> float:
    """Bytes a second, read and written, of a copy."""
    x, y = np.ones(COPIED // 4, np.float32), np.empty(COPIED // 4, np.float32)
    launch = cpu.map("scale", x.size, out=y.ctypes.data, a=x.ctypes.data, p=1.0)
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        launch()
        seconds.append(time.perf_counter() - began)
    return 2 * COPIED / statistics.median(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="layers whose name holds one of these")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each op (5)")
    parser.add_argument("--threads", type=int, default=2, help="threads (2)")
    parser.add_argument("--unit", default="auto", help="vector unit: base, avx2, avx512 (the best there is)")
    options = parser.parse_args()
    cpu.set_vector_unit(options.unit)
    device = CpuDevice(options.threads)
    rate = copy_rate(options.rounds)
    print(f"{device.describe()}; a copy moves {rate / 1e9:.1f} GB/s\n")
    print("| layer | op | ms | GB/s | of a copy |\n|---|---|---|---|---|")
    for name, (text, *shapes) in CASES.items():
        if any(word in name for word in options.only):
            for step, seconds, nbytes in ops_of(text, shapes, device, options.rounds):
                own = nbytes / seconds
                print(f"| {name} | {step} | {1e3 * seconds:.2f} | {own / 1e9:.1f} | {own / rate:.2f} |", flush=True)


if __name__ == "__main__":
    main()
