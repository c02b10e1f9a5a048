"""PyTorch's version of the steps that tools/gpu/layers.py times, as calls that return seconds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from layermem.ops import Conv

if not torch.cuda.is_available():
    raise ImportError("this PyTorch sees no GPU")

Peers = dict[str, Callable[[], float]]
torch.backends.cudnn.benchmark = True


FLUSHED = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")  # more than any L2 cache holds


def timed(run: Callable[[], object]) -> Callable[[], float]:
    """Time a call with nothing in the L2 cache, and the stream busy before, like layermem's kernels."""

    def clock() -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        FLUSHED.zero_()
        begin.record()
        run()
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end)

    return clock


def noise(*shape: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(shape, device="cuda", dtype=kind)
    return x.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else x


def product_rates(size: int) -> dict[str, float]:
    """FLOPs per second of a product of square matrices, by precision."""
    rates = {}
    for precision in ("fp32", "tf32", "bf16"):
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        kind = torch.bfloat16 if precision == "bf16" else torch.float32
        a, b = noise(size, size, kind=kind), noise(size, size, kind=kind)
        clock = timed(lambda a=a, b=b: a @ b)
        rates[precision] = 2 * size**3 / min(clock() for _ in range(8))
    return rates


def convolution(op: Conv, precision: str) -> Peers:
    """Forward, data gradient and weight gradient of the record."""
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    problem = op.problem
    x, w = noise(*problem.image.shape, kind=kind), noise(*problem.filter.shape, kind=kind)
    dy = noise(*problem.maps.shape, kind=kind)
    settings = list(problem.stride), list(problem.pad), list(problem.dilation)

    def backward(data: bool) -> Callable[[], object]:
        mask = [data, not data, False]
        return lambda: torch.ops.aten.convolution_backward(
            dy, x, w, None, *settings, False, [0, 0], problem.groups, mask
        )

    def forward() -> torch.Tensor:
        y = F.conv2d(x, w, None, *settings, problem.groups)
        return y.relu_() if op.relu else y

    return {"forward": timed(forward), "dgrad": timed(backward(True)), "wgrad": timed(backward(False))}


def memory_bound(name: str, shape: tuple[int, ...]) -> Peers:
    """Forward and backward of a memory-bound layer; backward goes through autograd, over one graph."""
    x, other = noise(*shape).requires_grad_(), noise(*shape)
    channels = shape[1]
    weight, bias = torch.ones(channels, device="cuda"), torch.zeros(channels, device="cuda")

    def batch_norm() -> torch.Tensor:
        return F.batch_norm(x, None, None, weight, bias, training=True)

    forward: dict[str, Callable[[], torch.Tensor]] = {
        "BatchNorm": batch_norm,
        "ReLU": lambda: F.relu(x),
        "Pooling MAX 3/2": lambda: F.max_pool2d(x, 3, 2, ceil_mode=True),
        "Eltwise SUM": lambda: x + other,
        "Eltwise SUM + ReLU": lambda: (x + other).relu_(),
        "BatchNorm + Scale + residual + ReLU": lambda: (
            F.batch_norm(x, None, None, weight, bias, training=True) + other
        ).relu_(),
        "LRN of AlexNet": lambda: F.local_response_norm(x, 5, 1e-4, 0.75),
        "Dropout": lambda: F.dropout(x, 0.5),
    }
    y = forward[name]()
    dy = torch.randn_like(y)
    peers = {"forward": timed(forward[name])}
    if "+ ReLU" not in name:  # its backward is more than one op, or gives several gradients
        peers["backward"] = timed(lambda: torch.autograd.grad(y, x, dy, retain_graph=True))
    return peers
