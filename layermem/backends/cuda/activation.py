"""Activations: one kernel a function and a direction, with the function's numbers in a, b and c."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from layermem.backends.cuda.channel_sums import Columns, channel_sums, columns_of
from layermem.backends.cuda.launch import Addresses, Launch, ceil_div, divider, kernel, launch, workspace_bytes

PER_BLOCK = 2048  # elements: 256 threads, two groups of four each

Numbers = tuple[float, ...]
NUMBERS: dict[str, Callable[[Any], Numbers]] = {
    "ReLU": lambda it: (it.negative_slope,),
    "Clip": lambda it: (it.min, it.max),
    "ELU": lambda it: (it.alpha,),
    "Sigmoid": lambda it: (),
    "TanH": lambda it: (),
    "AbsVal": lambda it: (),
    "Power": lambda it: (it.shift, it.scale, it.power),
    "Exp": lambda it: (it.inner, it.outer),
    "Log": lambda it: (it.factor, it.shift, it.scale),
    "BNLL": lambda it: (),
    "Swish": lambda it: (it.beta,),
    "Threshold": lambda it: (it.threshold,),
}


def numbers(values: Numbers) -> dict[str, Any]:
    return dict(zip("abc", (*values, 0.0, 0.0, 0.0), strict=False))


@kernel(*(f"{name}.forward" for name in NUMBERS))
def forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    count = layer.tops[0].count
    name = layer.type.lower() + "_forward" + ("_mask" if "mask" in b else "")
    yield launch(
        "activation", name, "ForwardArgs", ceil_div(count, PER_BLOCK), y=b["y0"], x=b["x0"], mask=b["mask"],
        count=count, **numbers(NUMBERS[layer.type](layer)),
    )  # fmt: skip


@kernel(*(f"{name}.backward" for name in NUMBERS if name != "Threshold"))
def backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    count, values = layer.tops[0].count, NUMBERS[layer.type](layer)
    source = next((b[role] for role in ("y0", "x0") if role in b), 0)
    name, per_block = f"{layer.type.lower()}_backward", PER_BLOCK
    if "mask" in b:
        name, values = "mask_backward", values if layer.type == "ReLU" else ()
    elif not source:  # Power, linear in x
        name, values, per_block = "scaled_backward", (layer.power * layer.scale,), 2 * PER_BLOCK
    yield launch(
        "activation", name, "BackwardArgs", ceil_div(count, per_block), dx=b["dx0"], dy=b["dy0"], source=source,
        mask=b["mask"], count=count, accumulate=b.accumulates("dx0"), **numbers(values),
    )  # fmt: skip


# -- of another layer, in place ----------------------------------------------------------------------------------------


def relu_in_place(y: int, count: int, mask: int) -> Launch:
    """y = max(y, 0), with a bit for each element where `mask` is an address."""
    return launch(
        "activation", "relu_forward_mask" if mask else "relu_forward", "ForwardArgs", ceil_div(count, PER_BLOCK), y=y,
        x=y, mask=mask, count=count, **numbers(()),
    )  # fmt: skip


def apply_mask(dy: int, count: int, *, mask: int, y: int) -> Launch:
    """dy is cleared where its bit is, or where y is not positive if there is no mask."""
    return launch(
        "activation", "mask_backward" if mask else "relu_backward", "BackwardArgs", ceil_div(count, PER_BLOCK), dx=dy,
        dy=dy, source=y, mask=mask, count=count, accumulate=False, **numbers(()),
    )  # fmt: skip


# -- with a learned slope ----------------------------------------------------------------------------------------------


def prelu(layer: Any, b: Addresses, out: str, given: str) -> Launch:
    _, channels, inner = layer.bottoms[0].around(1)
    count = layer.tops[0].count
    return launch(
        "activation", "prelu", "PreluArgs", ceil_div(count, PER_BLOCK), out=b[out], x=b["x0"], slopes=b["w0"],
        by_inner=divider(inner), by_channels=divider(1 if layer.shared else channels), count=count,
        accumulate=b.accumulates(out), **{"in": b[given]},
    )  # fmt: skip


def slope_columns(layer: Any) -> Columns:
    return Columns(layer.bottoms[0].count, 1) if layer.shared else columns_of(layer.bottoms[0])


@kernel("PReLU.forward")
def prelu_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield prelu(layer, b, "y0", "x0")


@kernel("PReLU.backward")
def prelu_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    if "dw0" in b:  # before dx, which may lie on x or dy
        at = slope_columns(layer)
        yield from channel_sums(at, b["dw0"], b["dy0"], b.accumulates("dw0"), b["workspace"], kind="_prelu", b=b["x0"])
    if "dx0" in b:
        yield prelu(layer, b, "dx0", "dy0")


@workspace_bytes("PReLU.backward")
def prelu_backward_bytes(layer: Any, roles: Collection[str]) -> int:
    return slope_columns(layer).part_bytes() if "dw0" in roles else 0
