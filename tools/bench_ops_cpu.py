"""Times ops on the cpu device: every kind of layer compared with a copy of memory, convolutions also with PyTorch.

    python tools/bench_ops_cpu.py                            # the layers of tests/cases, larger than any cache
    python tools/bench_ops_cpu.py --only Softmax LRN         # layers whose names contain one of these words
    python tools/bench_ops_cpu.py --net resnet50:16          # every shape of a convolution in a net of prototxt/
    python tools/bench_ops_cpu.py --net c3d:2                # the 3 x 3 x 3 convolutions of C3D

Each layer is alone in a net, between a batch of noise and a sum, with the gradient of the batch.  A time is the median
of the rounds, in which layermem and PyTorch take turns.  `of a copy` is the bandwidth of the op (each of its buffers
counted once) over that of a 128 MiB copy (read and write): at 1 or above, the op is memory bound.  PyTorch has
tensors in channels_last; `ratio` is layermem / PyTorch (below 1: layermem is faster), and `backward` all gradients.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem._native import cpu
from layermem.api import build_net
from layermem.backends.cpu import CpuDevice
from layermem.backends.cpu.support.launch import launch
from layermem.data import probe
from layermem.graph.net import Net
from layermem.graph.train import train_graph
from layermem.layers import LAYERS
from layermem.planning.costs import model_costs
from layermem.planning.pipeline import Compiler
from layermem.proto.read import read_net_text
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.solver.benchmark import Benchmark
from tests.cases import select

try:
    import torch
except ImportError:
    torch = None

ROOT = Path(__file__).resolve().parents[1]
COPIED = 2**26  # bytes
IDLE_SECONDS = 0.02  # after this, idle threads of the other library no longer spin
WITHOUT_GRADIENT = ("Accuracy", "ArgMax")
# name, channels, frames, height and width, outputs: "Learning Spatiotemporal Features with 3D Convolutional Networks"
C3D = (
    ("conv1a", 3, 16, 112, 64),
    ("conv2a", 64, 16, 56, 128),
    ("conv3a", 128, 8, 28, 256),
    ("conv3b", 256, 8, 28, 256),
    ("conv4a", 256, 4, 14, 512),
    ("conv4b", 512, 4, 14, 512),
    ("conv5a", 512, 2, 7, 512),
)
Peers = dict[str, Callable[[], object]]


class Timed(NamedTuple):
    """A layer to time: the inside of `layer { }`, shapes of its bottoms, and the number of the one with labels."""

    name: str
    text: str
    shapes: Sequence[tuple[int, ...]]
    labels: int | None = None
    has_data_gradient: bool = True

    @property
    def kind(self) -> str:
        return self.text.split('"')[1]


def layers_of_cases(words: Sequence[str]) -> Iterator[Timed]:
    for case in select("timing"):
        if any(word in case.name for word in words):
            yield Timed(case.name, case.text, case.shapes("timing"), case.labels)


def convolutions_of(what: str) -> Iterator[Timed]:
    """Yield each distinct convolution of a net."""
    name, batch = what.split(":")
    if name == "c3d":
        for layer, channels, frames, size, outputs in C3D:
            text = f'type: "Convolution" convolution_param {{ num_output: {outputs} kernel_size: 3 pad: 1 }}'
            yield Timed(layer, text, [(int(batch), channels, frames, size, size)], None, channels > 3)
        return
    seen = set[tuple[str, tuple[int, ...]]]()
    net = build_net(ROOT / "prototxt" / name / "train_val.prototxt", batch=int(batch), stages=["dummy"])
    for node in net.nodes:
        if node.layer.type == "Convolution":
            text, shape = f"convolution_param {{ {node.layer.param.convolution_param} }}", node.layer.bottoms[0].shape
            if (text, shape) not in seen:
                seen.add((text, shape))
                yield Timed(node.layer.name, f'type: "Convolution" {text}', [shape], None, shape[1] > 3)


def net_of(layer: Timed) -> Net:
    """A net of noise, the layer, and a sum as the objective unless the layer is a loss; all labels are 1."""
    lines = []
    for i, shape in enumerate(layer.shapes):
        dims = " ".join(f"dim: {d}" for d in shape)
        constant = i == layer.labels and layer.kind != "SigmoidCrossEntropyLoss"
        filler = 'type: "constant" value: 1' if constant else 'type: "gaussian" std: 1'
        feed = f"dummy_data_param {{ shape {{ {dims} }} data_filler {{ {filler} }} }}"
        lines.append(f'layer {{ name: "x{i}" type: "DummyData" top: "x{i}" {feed} }}')
    bottoms = " ".join(f'bottom: "x{i}"' for i in range(len(layer.shapes)))
    tops = " ".join(f'top: "y{i or ""}"' for i in range(max(1, LAYERS[layer.kind].top_range[0])))
    lines.append(f'layer {{ name: "it" {layer.text} {bottoms} {tops} }}')
    if layer.kind not in WITHOUT_GRADIENT:
        lines += ["force_backward: true"] * layer.has_data_gradient
        if not LAYERS[layer.kind].is_loss:
            lines.append('layer { name: "sum" type: "Reduction" bottom: "y" top: "sum" loss_weight: 1 }')
    return Net(read_net_text("\n".join(lines)), 0, probe=probe)


def peers_of(layer: Timed) -> Peers:
    """The convolution in PyTorch: forward, each gradient, and all gradients."""
    if torch is None or layer.kind != "Convolution":
        return {}
    (shape,), param = layer.shapes, net_of(layer).nodes[1].layer.param.convolution_param
    axes = len(shape) - 2

    def setting(values: Sequence[int], default: int) -> list[int]:
        return [values[0] if values else default] * axes

    where = setting(param.stride, 1), setting(param.pad, 0), setting(param.dilation, 1)
    layout = torch.channels_last if axes == 2 else torch.channels_last_3d
    filters = param.num_output, shape[1] // param.group, *setting(param.kernel_size, 1)
    x, w = (torch.rand(*each).to(memory_format=layout) for each in (shape, filters))
    bias = torch.rand(param.num_output) if param.bias_term else None

    def forward() -> torch.Tensor:
        return torch.convolution(x, w, bias, *where, False, [0] * axes, param.group)

    dy = torch.rand_like(forward())

    def backward(*mask: bool) -> Callable[[], object]:
        arguments = (dy, x, w, None if bias is None else [param.num_output], *where, False, [0] * axes, param.group)
        return lambda: torch.ops.aten.convolution_backward(*arguments, [*mask])

    has_bias, has_data = bias is not None, layer.has_data_gradient
    peers: Peers = {"forward": forward, "wgrad": backward(False, True, False)}
    peers |= {"dgrad": backward(True, False, False)} if has_data else {}
    return peers | {"backward": backward(has_data, True, has_bias)}


class Work(NamedTuple):
    """Seconds, arithmetic and accessed bytes of all ops of one kind."""

    seconds: float
    flops: int
    nbytes: int


def works_of(layer: Timed, device: CpuDevice, rounds: int) -> tuple[dict[str, Work], dict[str, float]]:
    """The work of the layer's ops by the last word of their names, and seconds of PyTorch."""
    net = net_of(layer)
    graph, peers = train_graph(net, device), peers_of(layer)
    bench = Benchmark(net, Compiler(ArenaPlanner([graph], model_costs(graph.device)), "liveness").compile(None), device)
    own, other = [], defaultdict[str, list[float]](list)
    for _ in range(rounds):
        time.sleep(IDLE_SECONDS)
        own.append(bench.ops(1))
        for name, peer in peers.items():
            time.sleep(IDLE_SECONDS)
            other[name].append(seconds_of(peer))
    found = defaultdict[str, Work](lambda: Work(0.0, 0, 0))
    for op in graph.ops:
        if op.name.startswith(("it.", "it/")) and op.kind != "update":
            spent = Work(statistics.median(each[op.name] for each in own), op.flops, op.nbytes)
            names = {op.name.rpartition(".")[2], "forward" if op.kind == "forward" else "backward"}
            for name in names:
                found[name] = Work(*(a + b for a, b in zip(found[name], spent)))
    return found, {name: statistics.median(spent) for name, spent in other.items()}


def seconds_of(run: Callable[[], object]) -> float:
    """Seconds of `run` after an untimed call, which wakes the threads."""
    run()
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def copy_rate(rounds: int) -> float:
    """Bytes per second, read and written, of a copy."""
    x, y = np.ones(COPIED // 4, np.float32), np.empty(COPIED // 4, np.float32)
    copy = launch("pointwise", "scale", x.size, out=y.ctypes.data, a=x.ctypes.data, alpha=1.0)
    return 2 * COPIED / statistics.median(seconds_of(copy) for _ in range(rounds))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", action="append", metavar="NAME:BATCH", help="convolutions of a net (may be repeated)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="layers of tests/cases")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each op (5)")
    parser.add_argument("--threads", type=int, default=2, help="threads (2)")
    parser.add_argument("--isa", default="auto", help="instruction set: base, avx2, avx512 or auto")
    return parser


def main() -> None:
    options = make_parser().parse_args()
    cpu.set_isa(options.isa)
    device = CpuDevice(options.threads)
    if torch is not None:
        torch.set_num_threads(options.threads)
    rate, ratios = copy_rate(options.rounds), defaultdict[str, list[float]](list)
    version = torch.__version__ if torch else "not installed"
    print(f"{device.describe()}; a copy moves {rate / 1e9:.1f} GB/s; PyTorch {version}\n")
    print("| layer | op | ms | GB/s | of a copy | GFLOP/s | PyTorch ms | ratio |\n" + "|---" * 8 + "|")
    layers = [each for net in options.net or () for each in convolutions_of(net)] or layers_of_cases(options.only)
    for layer in layers:
        works, peers = works_of(layer, device, options.rounds)
        for name, (seconds, flops, nbytes) in works.items():
            cells = [f"{1e3 * seconds:.2f}", f"{nbytes / seconds / 1e9:.1f}", f"{nbytes / seconds / rate:.2f}"]
            cells += [f"{flops / seconds / 1e9:.0f}" if flops else ""]
            if name in peers:
                ratios[name].append(seconds / peers[name])
                cells += [f"{1e3 * peers[name]:.2f}", f"{ratios[name][-1]:.2f}"]
            print(f"| {layer.name} | {name} | {' | '.join(cells)} |", flush=True)
    for name, of in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, of)))
        print(f"geometric mean of {name}: {mean:.2f} (worst {max(of):.2f})")


if __name__ == "__main__":
    main()
