"""A training step of a net in PyTorch on a GPU: python -m tools.gpu.torch_net NET.json MODE PRECISION [DEVICE]

MODE is eager, checkpoint (as in tools/torch_peer.py), save_on_cpu, or `compile B` with activation budget B.  Prints a
line of JSON: milliseconds a step (median), most bytes allocated.  DEVICE cpu tries the same code without a GPU.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from importlib import import_module

import torch

from tools.torch_peer import PeerNet

WARM, ROUNDS = 4, 10


def main(path: str, mode: str, precision: str, device: str = "cuda") -> None:
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    net = PeerNet(request["layers"], mode == "checkpoint").to(device).to(memory_format=torch.channels_last)
    x = torch.rand(request["data"], device=device).contiguous(memory_format=torch.channels_last)
    label = torch.randint(request["classes"], (request["data"][0],), device=device)
    gpu = device == "cuda"
    rule = torch.optim.SGD(net.parameters(), lr=0.0, momentum=0.9, weight_decay=0.0005, fused=True)
    forward = net
    if mode.startswith("compile"):
        import_module("torch._functorch.config").activation_memory_budget = float(mode.split()[1])
        forward = torch.compile(net)

    def step() -> None:
        away = torch.autograd.graph.save_on_cpu(pin_memory=gpu) if mode == "save_on_cpu" else contextlib.nullcontext()
        rule.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"), away:
            loss = forward({"data": x, "label": label})
        loss.backward()
        rule.step()

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
    milliseconds = statistics.median(clock() for _ in range(ROUNDS))
    most = torch.cuda.max_memory_allocated() if gpu else 0
    print(json.dumps({"ms": milliseconds, "bytes": most, "says": torch.__version__}))


if __name__ == "__main__":
    main(*sys.argv[1:5])
