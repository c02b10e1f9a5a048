"""Times a training step of a net in PyTorch on a GPU: python -m tools.gpu.torch_net NET.json MODE PRECISION [DEVICE]

MODE is eager, checkpoint (as in tools/torch_peer.py), save_on_cpu, or `compile B` with activation budget B; with the
suffix `, batch uploaded` every step copies its batch from pinned memory, as layermem does; otherwise the batch stays on
the GPU.  Prints a line of JSON: milliseconds per step (median, least, most), most bytes allocated.  DEVICE cpu runs the
same code without a GPU.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from tools.torch_peer import PeerNet

WARM, ROUNDS = 4, 10
UPLOADED = ", batch uploaded"


def training_step(
    request: Any, mode: str, precision: str, device: str, kind: type[PeerNet] = PeerNet
) -> Callable[[], None]:
    """Return a call that runs one step of the net that tools/cpu/description.py describes."""
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    uploads, mode = mode.endswith(UPLOADED), mode.removesuffix(UPLOADED)
    net = kind(request["layers"], mode == "checkpoint").to(device).to(memory_format=torch.channels_last)
    gpu = device == "cuda"
    batch = torch.rand(request["data"], pin_memory=gpu and uploads)
    x = batch.to(device).contiguous(memory_format=torch.channels_last)
    label = torch.randint(request["classes"], (request["data"][0],), device=device)
    rule = torch.optim.SGD(net.parameters(), lr=0.0, momentum=0.9, weight_decay=0.0005, fused=True)
    forward = net
    if mode.startswith("compile"):
        import_module("torch._functorch.config").activation_memory_budget = float(mode.split()[1])
        forward = torch.compile(net)

    def step() -> None:
        away = torch.autograd.graph.save_on_cpu(pin_memory=gpu) if mode == "save_on_cpu" else contextlib.nullcontext()
        if uploads:
            x.copy_(batch.to(device, non_blocking=True))
        rule.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"), away:
            loss = forward({"data": x, "label": label})
        loss.backward()
        rule.step()

    return step


def main(path: str, mode: str, precision: str, device: str = "cuda") -> None:
    with open(path, encoding="utf-8") as file:
        step = training_step(json.load(file), mode, precision, device)
    gpu = device == "cuda"

    def clock() -> float:
        if not gpu:
            began = time.perf_counter()
            step()
            return 1e3 * (time.perf_counter() - began)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    for _ in range(WARM):
        step()
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    found = [clock() for _ in range(ROUNDS)]
    most = torch.cuda.max_memory_allocated() if gpu else 0
    row = {"ms": statistics.median(found), "min ms": min(found), "max ms": max(found), "bytes": most}
    print(json.dumps(row | {"says": torch.__version__}))


if __name__ == "__main__":
    main(*sys.argv[1:5])
