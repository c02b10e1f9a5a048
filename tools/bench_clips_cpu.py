"""Times of C3D's convolutions on the cpu device beside PyTorch's Conv3d.

    python tools/bench_clips_cpu.py --clips 4 --rounds 5

A time of layermem is that of all parts of the layer: the blob as images, the convolution, its top (layers/images.py).
PyTorch's is the better of its two layouts.  Both take turns in every round; a time is the median of the rounds, a ratio
is layermem / PyTorch (below 1: layermem is faster).  Without PyTorch only layermem's times are printed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem._native import cpu
from layermem.backends.cpu.base import CpuCall, cpu_kernels
from layermem.graph.net import Net
from layermem.layers import Layer, Step
from layermem.proto.read import read_net_text

try:
    import torch
except ImportError:
    torch = None

IDLE_SECONDS = 0.02  # after which idle threads no longer spin
# name, channels, frames, height and width, outputs: "Learning Spatiotemporal Features with 3D Convolutional Networks"
LAYERS = (
    ("conv1a", 3, 16, 112, 64),
    ("conv2a", 64, 16, 56, 128),
    ("conv3a", 128, 8, 28, 256),
    ("conv3b", 256, 8, 28, 256),
    ("conv4a", 256, 4, 14, 512),
    ("conv4b", 512, 4, 14, 512),
    ("conv5a", 512, 2, 7, 512),
)
Run = Callable[[], object]


def launches_of(layer: Layer, step: Step, rng: np.random.Generator) -> Run:
    """The op of a layer, on arrays of noise."""
    tensors = {"x0": layer.bottoms[0], "y0": layer.tops[0]} | {f"w{i}": p.tensor for i, p in enumerate(layer.params)}
    roles = (*step.reads, *step.writes)
    arrays = {role: rng.random(tensors[role.removeprefix("d")].count, np.float32) for role in roles}
    record = step.record or layer.record
    arrays["workspace"] = np.empty(cpu_kernels.workspace_bytes(record, step.step, roles) // 4 + 1, np.float32)
    launches = cpu_kernels.bind(record, step.step, CpuCall.from_arrays(arrays, {}))

    def run(kept: object = arrays) -> None:
        for launch in launches or ():
            launch()

    return run


def ours(shape: Sequence[int], outputs: int) -> dict[str, list[Run]]:
    """The ops of the layer's parts, by direction."""
    dims = " ".join(f"dim: {d}" for d in shape)
    net = Net(
        read_net_text(
            f"""layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }}
            layer {{ name: "conv" type: "Convolution" bottom: "x" top: "y"
                    convolution_param {{ num_output: {outputs} kernel_size: 3 pad: 1 }} }}"""
        ),
        0,
    )
    rng, layers = np.random.default_rng(1), [node.layer for node in net.nodes[1:]]
    wants = ("dw0", "dw1", "dx0")
    return {
        "forward": [launches_of(layer, layer.forward(), rng) for layer in layers],
        "backward": [launches_of(layer, step, rng) for layer in layers for step in layer.backward(wants)],
    }


def theirs(shape: Sequence[int], outputs: int) -> dict[str, list[Run]]:
    """The same in PyTorch, in either layout."""
    runs: dict[str, list[Run]] = {"forward": [], "backward": []}
    where = ([1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1)  # stride, pad, dilation, transposed, output pad, groups
    for layout in (torch.contiguous_format, torch.channels_last_3d):
        x = torch.rand(*shape).to(memory_format=layout)
        w = torch.rand(outputs, shape[1], 3, 3, 3).to(memory_format=layout)
        bias, dy = torch.rand(outputs), torch.rand(shape[0], outputs, *shape[2:]).to(memory_format=layout)
        runs["forward"].append(lambda x=x, w=w, bias=bias: torch.nn.functional.conv3d(x, w, bias, padding=1))
        runs["backward"].append(
            lambda dy=dy, x=x, w=w: torch.ops.aten.convolution_backward(dy, x, w, [outputs], *where, [True] * 3)
        )
    return runs


def seconds(runs: Sequence[Run]) -> float:
    """Of all runs, after an untimed one that wakes the threads."""
    time.sleep(IDLE_SECONDS)
    runs[-1]()
    began = time.perf_counter()
    for run in runs:
        run()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=4, help="clips of a batch (4)")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (5)")
    parser.add_argument("--threads", type=int, default=2, help="threads (2)")
    parser.add_argument("--only", nargs="+", default=[name for name, *_ in LAYERS], help="names of layers")
    options = parser.parse_args()
    cpu.set_threads(options.threads)
    if torch is not None:
        torch.set_num_threads(options.threads)
    version = torch.__version__ if torch else "not installed"
    print(f"{options.threads} threads, {cpu.active_isa()}, PyTorch {version}, {options.clips} clips\n")
    print("| layer | op | layermem ms | GFLOP/s | PyTorch ms | ratio |\n|---|---|---|---|---|---|")
    for name, channels, frames, size, outputs in LAYERS:
        if name not in options.only:
            continue
        shape = (options.clips, channels, frames, size, size)
        own, other = ours(shape, outputs), theirs(shape, outputs) if torch else {}
        for step, runs in own.items():
            times, peers = list[float](), [list[float]() for _ in other.get(step, ())]
            for _ in range(options.rounds):
                times.append(seconds(runs))
                for peer, run in zip(peers, other.get(step, ()), strict=True):
                    peer.append(seconds([run]))
            mine = statistics.median(times)
            flops = 2 * 27 * channels * outputs * options.clips * frames * size**2 * (1 + (step == "backward"))
            beside = min((statistics.median(peer) for peer in peers), default=float("nan"))
            figures = f"{1e3 * mine:.1f} | {flops / mine / 1e9:.0f} | {1e3 * beside:.1f} | {mine / beside:.2f}"
            print(f"| {name} | {step} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
