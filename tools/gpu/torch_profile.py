"""The kernels of a training step in PyTorch by time: python -m tools.gpu.torch_profile NET.json PRECISION [DEVICE]

Prints a line of JSON: a list of {"op": name, "ms": of a step, "calls": of a step}.  DEVICE cpu tries the same code
without a GPU.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from tools.gpu.torch_net import training_step

WARM, STEPS, ROWS = 4, 3, 60


def main(path: str, precision: str, device: str = "cuda") -> None:
    with open(path, encoding="utf-8") as file:
        step = training_step(json.load(file), "eager", precision, device)
    for _ in range(WARM):
        step()
    gpu = device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as recorded:
        for _ in range(STEPS):
            step()
        if gpu:
            torch.cuda.synchronize()

    def spent(event: Any) -> float:
        return event.self_device_time_total if gpu else event.self_cpu_time_total  # microseconds

    events = sorted(recorded.key_averages(), key=spent, reverse=True)
    rows = [
        {"op": event.key[:120], "ms": spent(event) / STEPS / 1e3, "calls": event.count / STEPS}
        for event in events[:ROWS]
    ]
    print(json.dumps([{"op": "all", "ms": sum(map(spent, events)) / STEPS / 1e3, "calls": 1}, *rows]))


if __name__ == "__main__":
    main(*sys.argv[1:4])
