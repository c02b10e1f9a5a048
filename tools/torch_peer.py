"""Times training steps of a net in PyTorch, for tools/bench_cpu.py.  Needs only PyTorch.

    python tools/torch_peer.py NET.json --mode channels_last --compile --steps 10

NET.json is the description of a net by tools/cpu/description.py: its layers with their blobs, in order.  Runs the steps
in a row and prints a line of JSON: `seconds` of each step, `bytes` (peak resident set), `parameters` (their count).

A BatchNorm and its Scale become one BatchNorm2d, and a ReLU that is the only reader of its blob works in place, as is
usual in PyTorch.  SGD is the fused implementation.  `checkpoint` keeps about sqrt(n) of n stages, with boundaries where
few blobs are alive, and recomputes the others (torch.utils.checkpoint), in channels_last.  With --compile the net runs
under torch.compile, which compiles forward and backward in the first step.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint
except ModuleNotFoundError:  # --help works without PyTorch
    torch, Tensor, nn = None, object, SimpleNamespace(Module=object)

Blobs = dict[str, Tensor]
Layer = dict[str, Any]
LOSS = "(loss)"  # the sum of all losses so far; not the name of any blob


def module_of(layer: Layer) -> nn.Module | None:
    """The module of a layer; None for layers that are functions."""
    kind = layer["type"]
    if kind == "Convolution":
        return nn.Conv2d(
            layer["channels"],
            layer["outputs"],
            layer["kernel"],
            layer["stride"],
            layer["pad"],
            layer["dilation"],
            layer["group"],
            layer["bias"],
        )
    if kind == "InnerProduct":
        return nn.Linear(layer["inputs"], layer["outputs"], layer["bias"])
    if kind == "BatchNorm":
        return nn.BatchNorm2d(layer["channels"], layer["eps"], momentum=1 - layer["fraction"])
    if kind == "LRN":
        return nn.LocalResponseNorm(layer["size"], layer["alpha"], layer["beta"], layer["shift"])
    if kind == "Dropout":
        return nn.Dropout(layer["ratio"])
    if kind == "Pooling" and layer["method"] == "MAX":
        return nn.MaxPool2d(layer["kernel"], layer["stride"], layer["pad"], ceil_mode=True)
    if kind == "Pooling":
        return nn.AvgPool2d(layer["kernel"], layer["stride"], layer["pad"], ceil_mode=True)
    if kind in ("ReLU", "Eltwise", "Concat", "SoftmaxWithLoss"):
        return None
    raise SystemExit(f"layer '{layer['name']}' of type {kind} is not supported")


def merge_scales(layers: list[Layer]) -> list[Layer]:
    """The layers without Scale layers, which are merged into the BatchNorm before them."""
    result: list[Layer] = []
    for layer in layers:
        if layer["type"] == "Scale":
            if not result or result[-1]["type"] != "BatchNorm" or result[-1]["tops"] != layer["bottoms"]:
                raise SystemExit(f"layer '{layer['name']}' scales something else than a BatchNorm")
            result[-1] = {**result[-1], "tops": layer["tops"]}
        else:
            result.append(layer)
    return result


class PeerNet(nn.Module):
    """Runs the layers over named blobs; returns the sum of the weighted losses."""

    def __init__(self, layers: list[Layer], recompute: bool):
        super().__init__()
        self.layers = merge_scales(layers)
        modules = {str(i): module_of(layer) for i, layer in enumerate(self.layers)}
        self.modules_of = nn.ModuleDict({i: module for i, module in modules.items() if module is not None})
        self.readers = Counter(blob for layer in self.layers for blob in layer["bottoms"])
        self.first = {top: i for i, layer in enumerate(self.layers) for top in layer["tops"]}
        self.cuts = self._cuts() if recompute else []

    def forward(self, blobs: Blobs) -> Tensor:
        if not self.cuts:
            return self._segment(blobs, 0, len(self.layers))[LOSS]
        begin = 0
        for end in self.cuts:
            names = sorted(blobs)

            def run(*values: Tensor, names: list[str] = names, begin: int = begin, end: int = end) -> Blobs:
                return self._segment(dict(zip(names, values)), begin, end)

            blobs = checkpoint(run, *(blobs[name] for name in names), use_reentrant=False)
            begin = end
        return self._segment(blobs, begin, len(self.layers))[LOSS]

    def _segment(self, blobs: Blobs, begin: int, end: int) -> Blobs:
        """Run layers [begin, end) and return the blobs alive after them."""
        blobs = dict(blobs)
        last = self._last()
        for i in range(begin, end):
            layer = self.layers[i]
            self._run(i, layer, blobs, begin)
            for name in {*layer["bottoms"], *layer["tops"]}:
                if last.get(name, -1) <= i:
                    blobs.pop(name, None)
        return blobs

    def _run(self, i: int, layer: Layer, blobs: Blobs, begin: int) -> None:
        x, kind = [blobs[name] for name in layer["bottoms"]], layer["type"]
        if kind == "ReLU":
            name = layer["bottoms"][0]
            y = F.relu(x[0], inplace=self.readers[name] == 1 and self.first[name] >= begin)  # not a kept blob
        elif kind == "Eltwise":
            y = x[0] + x[1]
            for more in x[2:]:
                y = y + more
        elif kind == "Concat":
            y = torch.cat(x, 1)
        elif kind == "InnerProduct":
            y = self.modules_of[str(i)](x[0].flatten(1))
        elif kind == "SoftmaxWithLoss":
            y = F.cross_entropy(x[0], x[1])
            blobs[LOSS] = blobs.get(LOSS, torch.zeros(())) + layer["weight"] * y
            return
        else:
            y = self.modules_of[str(i)](x[0])
        blobs[layer["tops"][0]] = y

    def _last(self) -> dict[str, int]:
        return {blob: i for i, layer in enumerate(self.layers) for blob in layer["bottoms"]}

    def _cuts(self) -> list[int]:
        """Ends of about sqrt(n) segments, each at the nearby position with the fewest bytes alive."""
        last, alive = self._last(), []
        for end in range(1, len(self.layers)):
            alive.append(sum(i < end <= last.get(blob, -1) for blob, i in self.first.items()))
        count = round(math.sqrt(len(self.layers)))
        step = len(self.layers) / count
        ends = []
        for k in range(1, count):
            near = range(max(1, int((k - 0.4) * step)), min(len(self.layers) - 1, int((k + 0.4) * step)) + 1)
            ends.append(min(near, key=lambda end: (alive[end - 1], abs(end - k * step))))
        return sorted(set(ends))


def peak_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def check_preloads() -> None:
    """Stop if a library of LD_PRELOAD is not loaded: the dynamic linker only warns."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        maps = file.read()
    for library in os.environ.get("LD_PRELOAD", "").replace(":", " ").split():
        if os.path.basename(os.path.realpath(library)) not in maps:
            raise SystemExit(f"LD_PRELOAD: '{library}' cannot be loaded")


def training_step(description: dict[str, Any], mode: str, compiled: bool) -> tuple[Callable[[], None], int]:
    """A function that runs one training step, and the number of parameters of its net."""
    net = PeerNet(description["layers"], mode == "checkpoint")
    x = torch.rand(description["data"]) * 256 - 128
    label = torch.randint(description["classes"], (description["data"][0],))
    if mode != "nchw":
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    rule = torch.optim.SGD(net.parameters(), lr=0.0, momentum=0.9, weight_decay=0.0005, fused=True)
    forward = torch.compile(net) if compiled else net

    def step() -> None:
        rule.zero_grad(set_to_none=True)
        forward({"data": x, "label": label}).backward()
        rule.step()

    return step, sum(parameter.numel() for parameter in net.parameters())


def time_steps(step: Callable[[], None], count: int) -> list[float]:
    """Seconds of each of `count` steps in a row."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", help="the description of a net by bench_cpu.py")
    parser.add_argument("--mode", choices=("nchw", "channels_last", "checkpoint"), default="nchw")
    parser.add_argument("--compile", action="store_true", help="run the net under torch.compile")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if torch is None:
        parser.error("PyTorch is not installed; pip install torch")

    check_preloads()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    with open(options.net, encoding="utf-8") as file:
        step, parameters = training_step(json.load(file), options.mode, options.compile)
    report = {"parameters": parameters, "is": f"PyTorch {torch.__version__}"}
    report |= {"seconds": time_steps(step, options.steps), "bytes": peak_bytes()}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
