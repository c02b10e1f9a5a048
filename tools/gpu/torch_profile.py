"""Profiles a training step in PyTorch by layers and by kernels: python -m tools.gpu.torch_profile NET.json PRECISION
[DEVICE]

Prints a line of JSON: a list of {"op": name, "ms": per step, "calls": per step}.  The sum of all kernels comes first;
then a row for each layer, "conv1.forward" and "conv1.backward", with the time of its kernels, the slowest first, and
"update" for the optimizer; then the kernels.  A Scale is part of the BatchNorm before it.  DEVICE cpu runs the same
code without a GPU.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from tools.gpu.torch_net import training_step
from tools.torch_peer import Blobs, Layer, PeerNet

WARM, STEPS, ROWS = 4, 3, 60
LAYER, BACKWARD, UPDATE = "layer ", "autograd::engine::evaluate_function: ", "Optimizer.step"


class LabelledNet(PeerNet):
    """A net in which each layer's forward is a range of the profiler."""

    def _run(self, i: int, layer: Layer, blobs: Blobs, begin: int) -> None:
        with record_function(LAYER + layer["name"]):
            super()._run(i, layer, blobs, begin)


def main(path: str, precision: str, device: str = "cuda") -> None:
    with open(path, encoding="utf-8") as file:
        step = training_step(json.load(file), "eager", precision, device, LabelledNet)
    for _ in range(WARM):
        step()
    gpu = device == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * gpu]) as recorded:
        for _ in range(STEPS):
            step()
        if gpu:
            torch.cuda.synchronize()

    def spent(event: Any) -> float:
        return event.self_device_time_total if gpu else event.self_cpu_time_total  # microseconds

    def spent_within(event: Any) -> float:
        return event.device_time_total if gpu else event.cpu_time_total

    events = sorted(recorded.key_averages(), key=spent, reverse=True)
    kernels = [event for event in events if not gpu or (event.device_type == DeviceType.CUDA and is_kernel(event))]
    rows = [{"op": "all", "ms": sum(map(spent, kernels)) / STEPS / 1e3, "calls": 1}]
    by_layer: dict[str, float] = defaultdict(float)
    for op, event in by_op(event for event in recorded.events() if event.device_type == DeviceType.CPU):
        by_layer[op] += spent_within(event)
    layers = sorted(by_layer, key=by_layer.__getitem__, reverse=True)
    rows += [{"op": op, "ms": by_layer[op] / STEPS / 1e3, "calls": 1} for op in layers]
    rows += [
        {"op": event.key[:120], "ms": spent(event) / STEPS / 1e3, "calls": event.count / STEPS}
        for event in kernels[:ROWS]
    ]
    print(json.dumps(rows))


def is_kernel(event: Any) -> bool:
    """Whether the event is no range; the profiler lists ranges among kernels too."""
    return not getattr(event, "is_user_annotation", False) and not event.key.startswith(LAYER)


def by_op(events: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the outermost events of each op.  A backward has the sequence number of its forward."""
    every, layers = list(events), dict[int, str]()
    for event in every:
        if event.name.startswith(LAYER):
            yield f"{event.name.removeprefix(LAYER)}.forward", event
        elif event.name.startswith(UPDATE):
            yield "update", event
        elif event.sequence_nr >= 0 and (layer := layer_of(event)):
            layers[event.sequence_nr] = layer
    for event in every:
        if event.name.startswith(BACKWARD) and event.sequence_nr in layers:
            yield f"{layers[event.sequence_nr]}.backward", event


def layer_of(event: Any) -> str:
    """The layer whose range contains the event, or ""."""
    while event is not None and not event.name.startswith(LAYER):
        event = event.cpu_parent
    return "" if event is None else event.name.removeprefix(LAYER)


if __name__ == "__main__":
    main(*sys.argv[1:4])
