"""Softmax, its loss and Accuracy, and the copies of Concat, Slice, Split and Tile."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from layermem._native import cpu
from layermem.backends.cpu.base import Args, Launch, binds
from layermem.backends.cpu.elements import MOST_ARRAYS, copy_unless_same
from layermem.backends.cpu.moves import arranged, arranged_bytes
from layermem.errors import InputError
from layermem.layers import Tensor

# -- scores of classes ------------------------------------------------------------------------------------------------


def axis(layer: Any) -> Any:
    return cpu.Axis(layer.outer, layer.classes, layer.inner)


@binds("Softmax.forward")
def softmax_forward(a: Args) -> list[Launch]:
    return [cpu.softmax_forward(axis(a.layer), y=a["y0"], x=a["x0"])]


@binds("Softmax.backward")
def softmax_backward(a: Args) -> list[Launch]:
    return [cpu.softmax_backward(axis(a.layer), dx=a["dx0"], y=a["y0"], dy=a["dy0"], accumulate=a.adds("dx0"))]


def judging(layer: Any, launch: Launch) -> Launch:
    """A launch whose complaint about a label names the layer."""

    def run() -> None:
        try:
            launch()
        except ValueError as error:
            raise InputError(f"cannot go on: {error}; mend the data, or set ignore_label", layer=layer.name) from None

    return run


def divisor(layer: Any) -> int:
    """What the sum is divided by; 0 for the labels that count."""
    return 0 if layer.normalizer is None else max(1, layer.normalizer)


def positions(layer: Any) -> Tensor:
    """One number per position, in the order of their memory."""
    shape = layer.bottoms[0].shape
    return Tensor((*shape[: layer.along], 1, *shape[layer.along + 1 :]))


def softmax_loss_scratch(layer: Any, roles: Collection[str]) -> int:
    return int(cpu.softmax_loss_workspace(axis(layer))) + arranged_bytes(layer.bottoms[1], positions(layer))


@binds("SoftmaxWithLoss.forward", scratch=softmax_loss_scratch)
def softmax_loss_forward(a: Args) -> list[Launch]:
    it = a.layer
    label, before = arranged(a, "x1", it.bottoms[1], positions(it), int(cpu.softmax_loss_workspace(axis(it))))
    launch = cpu.softmax_loss_forward(
        axis(it), loss=a["y0"], y=a["y1"], x=a["x0"], label=label, ignore_label=it.ignore_label,
        divisor=divisor(it), scratch=a.scratch,
    )  # fmt: skip
    return [*before, judging(it, launch)]


@binds("SoftmaxWithLoss.backward", scratch=softmax_loss_scratch)
def softmax_loss_backward(a: Args) -> list[Launch]:
    it = a.layer
    label, before = arranged(a, "x1", it.bottoms[1], positions(it), int(cpu.softmax_loss_workspace(axis(it))))
    launch = cpu.softmax_loss_backward(
        axis(it), dx=a["dx0"], x=a["x0"], label=label, dloss=a["dy0"], ignore_label=it.ignore_label,
        divisor=divisor(it), accumulate=a.adds("dx0"), scratch=a.scratch,
    )  # fmt: skip
    return [*before, judging(it, launch)]


def accuracy_bytes(layer: Any, by_class: bool) -> int:
    return int(cpu.accuracy_workspace(axis(layer), by_class))


def accuracy_scratch(layer: Any, roles: Collection[str]) -> int:
    return accuracy_bytes(layer, "y1" in roles) + arranged_bytes(layer.bottoms[1], positions(layer))


@binds("Accuracy.forward", scratch=accuracy_scratch)
def accuracy(a: Args) -> list[Launch]:
    it = a.layer
    label, before = arranged(a, "x1", it.bottoms[1], positions(it), accuracy_bytes(it, a.has("y1")))
    launch = cpu.accuracy(
        axis(it), share=a["y0"], by_class=a["y1"], x=a["x0"], label=label, ignore_label=it.ignore_label,
        top_k=it.top_k, scratch=a.scratch,
    )  # fmt: skip
    return [*before, judging(it, launch)]


# -- copies ------------------------------------------------------------------------------------------------------------


def parts(a: Args, whole: str, pieces: str, gather: bool) -> list[Launch]:
    """Copies between `whole` and its pieces along an axis; `gather` writes the whole."""
    it = a.layer
    tensors = it.bottoms if it.type == "Concat" else it.tops
    total = it.tops[0] if it.type == "Concat" else it.bottoms[0]
    rows, size, inner = total.around(it.along)
    launches: list[Launch] = []
    for i, (tensor, start) in enumerate(zip(tensors, it.starts, strict=True)):
        role = f"{pieces}{i}"
        if not a.has(role):
            continue
        width = tensor.shape[it.along] * inner
        at, pitch = a[whole] + 4 * start * inner, size * inner
        if it.view and a[whole] == a[role] and not a.adds(whole if gather else role):
            continue
        if gather:
            launches.append(
                cpu.copy_rows(rows, width, out=at, out_pitch=pitch, x=a[role], x_pitch=width, accumulate=a.adds(whole))
            )
        else:
            launches.append(
                cpu.copy_rows(rows, width, out=a[role], out_pitch=width, x=at, x_pitch=pitch, accumulate=a.adds(role))
            )
    return launches


@binds("Concat.forward")
def concat_forward(a: Args) -> list[Launch]:
    return parts(a, "y0", "x", gather=True)


@binds("Concat.backward")
def concat_backward(a: Args) -> list[Launch]:
    return parts(a, "dy0", "dx", gather=False)


@binds("Slice.forward")
def slice_forward(a: Args) -> list[Launch]:
    return parts(a, "x0", "y", gather=False)


@binds("Slice.backward")
def slice_backward(a: Args) -> list[Launch]:
    return parts(a, "dx0", "dy", gather=True)


@binds("Split.forward")
def split_forward(a: Args) -> list[Launch]:
    return [launch for i in range(len(a.layer.tops)) if a.has(f"y{i}") for launch in copy_unless_same(a, f"y{i}", "x0")]


@binds("Split.backward")
def split_backward(a: Args) -> list[Launch] | None:
    dys = [a[f"dy{i}"] for i in range(len(a.layer.tops)) if a.has(f"dy{i}")]
    if a.adds("dx0"):
        dys.append(a["dx0"])
    if len(dys) > MOST_ARRAYS:
        return None
    if len(dys) == 1:
        return copy_unless_same(a, "dx0", "dy0")
    return [cpu.eltwise_sum(a.count("dx0"), y=a["dx0"], xs=dys, coefficients=[1.0] * len(dys))]


@binds("Tile.forward")
def tile_forward(a: Args) -> list[Launch]:
    outer, size, inner = a.layer.bottoms[0].around(a.layer.along)
    tiles, width = a.layer.tiles, size * inner
    out = [tiles * width, width, 1]
    return [cpu.copy_block([outer, tiles, width], out=a["y0"], out_strides=out, x=a["x0"], x_strides=[width, 0, 1])]


def tiles(layer: Any) -> Any:
    outer, size, inner = layer.bottoms[0].around(layer.along)
    return cpu.Axis(outer, layer.tiles, size * inner)


@binds("Tile.backward", scratch=lambda layer, roles: int(cpu.reduce_workspace(tiles(layer))))
def tile_backward(a: Args) -> list[Launch]:
    return [cpu.reduce(tiles(a.layer), "plain", y=a["dx0"], x=a["dy0"], accumulate=a.adds("dx0"), scratch=a.scratch)]


@binds("Silence.forward")
def silence(a: Args) -> list[Launch]:
    return []
