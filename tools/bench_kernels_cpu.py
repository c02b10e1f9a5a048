"""Times of the cpu device's convolution kernels beside PyTorch's channels_last ones, by shape.

    python tools/bench_kernels_cpu.py                      # every shape of ResNet-50, VGG-16 and GoogLeNet
    python tools/bench_kernels_cpu.py --net resnet50 --kernel 3 --rounds 9 --isa avx2

Both libraries take turns in every round; a time is the median of the rounds, a ratio is layermem / PyTorch (below 1:
layermem is faster).  Before a turn there is a pause, in which the idle threads of the other library stop spinning, and
an untimed run, which wakes the threads of this one.  `sum` is all kernels of a shape.  Without PyTorch only layermem's
times are printed, with their GFLOP/s.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from layermem._native import cpu
from layermem.backends.cpu.convolution import conv_problem
from layermem.backends.cpu.launch import launch, query

try:
    import torch
except ImportError:
    torch = None


IDLE_SECONDS = 0.02  # after which idle threads no longer spin


@dataclass(frozen=True)
class Shape:
    """A convolution with square images and windows; a `first` one has no data gradient."""

    net: str
    n: int
    c: int
    size: int
    k: int
    kernel: int
    stride: int = 1
    pad: int = 0
    first: bool = False

    def __str__(self) -> str:
        return f"{self.c:>4} x {self.size:<3} -> {self.k:<4} {self.kernel}x{self.kernel}/{self.stride}"


def resnet50(n: int = 16) -> Iterator[Shape]:
    yield Shape("resnet50", n, 3, 224, 64, 7, 2, 3, first=True)
    channels, size = 64, 56
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        out = size // stride
        yield Shape("resnet50", n, channels, size, width, 1, stride)  # in Caffe's nets the first 1x1 has the stride
        yield Shape("resnet50", n, channels, size, 4 * width, 1, stride)
        yield Shape("resnet50", n, width, out, width, 3, 1, 1)
        yield Shape("resnet50", n, width, out, 4 * width, 1)
        yield Shape("resnet50", n, 4 * width, out, width, 1)
        channels, size = 4 * width, out


def vgg16(n: int = 8) -> Iterator[Shape]:
    plan = ((3, 224, 64), (64, 224, 64), (64, 112, 128), (128, 112, 128), (128, 56, 256), (256, 56, 256))
    for c, size, k in (*plan, (256, 28, 512), (512, 28, 512), (512, 14, 512)):
        yield Shape("vgg16", n, c, size, k, 3, 1, 1, first=c == 3)


def googlenet(n: int = 32) -> Iterator[Shape]:
    yield Shape("googlenet", n, 3, 224, 64, 7, 2, 3, first=True)
    yield Shape("googlenet", n, 64, 56, 64, 1)
    yield Shape("googlenet", n, 64, 56, 192, 3, 1, 1)
    blocks = {
        28: [(192, 64, 96, 128, 16, 32, 32), (256, 128, 128, 192, 32, 96, 64)],
        14: [(480, 192, 96, 208, 16, 48, 64), (512, 112, 144, 288, 32, 64, 64), (528, 256, 160, 320, 32, 128, 128)],
        7: [(832, 256, 160, 320, 32, 128, 128), (832, 384, 192, 384, 48, 128, 128)],
    }
    for size, rows in blocks.items():
        for c, one, three_in, three, five_in, five, proj in rows:
            for k in (one, three_in, five_in, proj):
                yield Shape("googlenet", n, c, size, k, 1)
            yield Shape("googlenet", n, three_in, size, three, 3, 1, 1)
            yield Shape("googlenet", n, five_in, size, five, 5, 1, 2)


NETS = {"resnet50": resnet50, "vgg16": vgg16, "googlenet": googlenet}


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Normal random floats at a 256-byte boundary, like every buffer of an arena."""
    count = math.prod(shape)
    whole = np.zeros(count + 64, np.float32)
    begin = -whole.ctypes.data % 256 // 4
    view = whole[begin : begin + count].reshape(shape)
    view[...] = np.random.default_rng(0).standard_normal(shape, np.float32)
    return view


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def ours(s: Shape) -> tuple[dict[str, Callable[[], object]], list[np.ndarray]]:
    """The launches of a shape, and the arrays that they use."""
    square = (s.kernel,) * 2, (s.stride,) * 2, (s.pad,) * 2
    g = conv_problem(n=s.n, c=s.c, h=s.size, w=s.size, k=s.k, kernel=square[0], stride=square[1], pad=square[2])
    x, w = aligned((s.n, s.size, s.size, s.c)), aligned((s.k, s.kernel, s.kernel, s.c))
    out = (s.size + 2 * s.pad - s.kernel) // s.stride + 1
    y, dx, dw = aligned((s.n, out, out, s.k)), aligned(x.shape), aligned(w.shape)
    sizes = (
        query("conv_fprop_workspace_bytes", g),
        query("conv_dgrad_workspace_bytes", g),
        query("conv_wgrad_workspace_bytes", g),
    )
    workspace = aligned((max(sizes) // 4,))
    launches: dict[str, Callable[[], object]] = {
        "forward": launch("conv_fprop", g, y=address(y), x=address(x), w=address(w), workspace=address(workspace)),
        "weights": launch("conv_wgrad", g, dw=address(dw), x=address(x), dy=address(y), workspace=address(workspace)),
        "data": launch("conv_dgrad", g, dx=address(dx), dy=address(y), w=address(w), workspace=address(workspace)),
    }
    if s.first:
        del launches["data"]
    return launches, [x, w, y, dx, dw, workspace]


def theirs(s: Shape, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], object]]:
    """The same three through PyTorch, on the same values."""
    tx, tw, ty = (torch.from_numpy(a).permute(0, 3, 1, 2) for a in (x, w, y))
    stride, pad = [s.stride] * 2, [s.pad] * 2

    def backward(mask: list[bool]) -> Callable[[], object]:
        return lambda: torch.ops.aten.convolution_backward(
            ty, tx, tw, None, stride, pad, [1, 1], False, [0, 0], 1, mask
        )

    return {
        "forward": lambda: torch.nn.functional.conv2d(tx, tw, None, stride, pad),
        "weights": backward([False, True, False]),
        "data": backward([True, False, False]),
    }


def median_times(runs: list[Callable[[], object]], rounds: int) -> list[float]:
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, kept in zip(runs, times):
            time.sleep(IDLE_SECONDS)
            run()
            begin = time.perf_counter()
            run()
            kept.append(time.perf_counter() - begin)
    return [statistics.median(kept) for kept in times]


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=NETS, action="append", help="only this net (may be repeated)")
    parser.add_argument("--kernel", type=int, help="only windows of this size")
    parser.add_argument("--direction", choices=("forward", "weights", "data"), action="append")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--isa", default="auto", help="instruction set: base, avx2, avx512 or auto")
    options = parser.parse_args()

    cpu.set_threads(options.threads)
    cpu.set_isa(options.isa)
    if torch is not None:
        torch.set_num_threads(options.threads)
    print(f"{options.threads} threads, {cpu.active_isa()}, PyTorch {torch.__version__ if torch else 'not installed'}")
    shapes = dict.fromkeys(s for net in options.net or NETS for s in NETS[net]())
    ratios: dict[str, list[float]] = {}
    with torch.no_grad() if torch else memoryview(b""):
        for s in shapes:
            if options.kernel in (None, s.kernel):
                print(f"{s.net:<10} {s}  " + "   ".join(row(s, options, ratios)), flush=True)
    if torch is not None:
        print("geometric mean of ours/theirs: ", end="")
        print("   ".join(f"{k} {geometric_mean(v):.2f} (worst {max(v):.2f})" for k, v in ratios.items()), end="   ")
        print(f"all {geometric_mean([r for v in ratios.values() for r in v]):.2f}")


def row(s: Shape, options: argparse.Namespace, ratios: dict[str, list[float]]) -> Iterator[str]:
    launches, arrays = ours(s)
    others = theirs(s, *arrays[:3]) if torch is not None else {}
    out = (s.size + 2 * s.pad - s.kernel) // s.stride + 1
    work = 2 * s.n * out * out * s.k * s.c * s.kernel**2
    sums = [0.0, 0.0]
    for name, run in launches.items():
        if options.direction and name not in options.direction:
            continue
        times = median_times([run, *([others[name]] if others else [])], options.rounds)
        text = f"{name} {times[0] * 1e3:7.2f} ms {work / times[0] / 1e9:4.0f} GF/s"
        if others:
            ratios.setdefault(name, []).append(times[0] / times[1])
            sums = [a + b for a, b in zip(sums, times)]
            text += f" {times[1] * 1e3:7.2f} ms x{times[0] / times[1]:.2f}"
        yield text
    if others:
        ratios.setdefault("sum", []).append(sums[0] / sums[1])
        yield f"sum x{sums[0] / sums[1]:.2f}"


if __name__ == "__main__":
    main()
