"""What tools/gpu/layers.py times beside our kernels: the same step by PyTorch, as calls that answer with seconds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

if not torch.cuda.is_available():
    raise ImportError("this PyTorch sees no card")

Peers = dict[str, Callable[[], float]]
torch.backends.cudnn.benchmark = True


def timed(run: Callable[[], object]) -> Callable[[], float]:
    def clock() -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        run()
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end)

    return clock


def noise(*shape: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(shape, device="cuda", dtype=kind)
    return x.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else x


def convolution(shape, precision: str) -> Peers:
    """Forward, data gradient and weight gradient of a tools.gpu.layers.Shape."""
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    x = noise(shape.n, shape.c, shape.size, shape.size, kind=kind)
    w = noise(shape.k, shape.c, shape.window, shape.window, kind=kind)
    dy = noise(*F.conv2d(x, w, None, shape.stride, shape.pad).shape, kind=kind)
    two = lambda n: [n, n]  # noqa: E731

    def backward(data: bool) -> Callable[[], object]:
        return lambda: torch.ops.aten.convolution_backward(
            dy, x, w, None, two(shape.stride), two(shape.pad), [1, 1], False, [0, 0], 1, [data, not data, False]
        )

    def forward() -> torch.Tensor:
        y = F.conv2d(x, w, None, shape.stride, shape.pad)
        return y.relu_() if shape.relu else y

    return {
        "forward": timed(forward),
        "backward_data": timed(backward(True)),
        "backward_weights": timed(backward(False)),
    }


def mover(name: str, shape: tuple[int, ...]) -> Peers:
    """Forward and backward of a layer that memory bounds; a backward goes through autograd, over one graph."""
    x, other = noise(*shape).requires_grad_(), noise(*shape)
    channels = shape[1]
    weight, bias = torch.ones(channels, device="cuda"), torch.zeros(channels, device="cuda")
    forward: dict[str, Callable[[], torch.Tensor]] = {
        "BatchNorm": lambda: F.batch_norm(x, None, None, weight, bias, training=True),
        "ReLU": lambda: F.relu(x),
        "max pooling": lambda: F.max_pool2d(x, 3, 2, ceil_mode=True),
        "Eltwise sum": lambda: x + other,
        "Eltwise sum and ReLU": lambda: (x + other).relu_(),
        "BatchNorm, sum and ReLU": lambda: (F.batch_norm(x, None, None, weight, bias, training=True) + other).relu_(),
        "LRN": lambda: F.local_response_norm(x, 5, 1e-4, 0.75),
        "Dropout": lambda: F.dropout(x, 0.5),
    }
    y = forward[name]()
    dy = torch.randn_like(y)
    peers = {"forward": timed(forward[name])}
    if "and ReLU" not in name:  # whose backward is more than one op, or gives more than one gradient, here
        peers["backward"] = timed(lambda: torch.autograd.grad(y, x, dy, retain_graph=True))
    return peers
