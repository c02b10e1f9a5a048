"""InnerProducts whose weights are transposed, or whose rows do not lie in memory as they are multiplied.

A transposed weight is the other factor of the same products: forward runs as a data gradient does, the data gradient
as a forward, and in the weight gradient x and dy change places.  Blobs that lie otherwise are copied into scratch.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from layermem._native import cpu
from layermem.backends.cpu.base import Args, Launch
from layermem.backends.cpu.moves import arranged, arranged_bytes, padded, reordered
from layermem.layers import Tensor


def flat(it: Any) -> tuple[Tensor, Tensor]:
    """x and y as the matrices that they are."""
    return Tensor((it.rows, it.inner)), Tensor((it.rows, it.outputs))


def room_of(it: Any) -> tuple[int, int]:
    """Scratch for x and for y in those orders.  A gradient of x always goes through it where weights are transposed,
    since forward's kernel cannot add."""
    x, y = flat(it)
    for_x = arranged_bytes(it.bottoms[0], x) or (padded(x.nbytes) if it.transpose else 0)
    return for_x, arranged_bytes(it.tops[0], y)


def weights_bytes(it: Any) -> int:
    n, k = (it.inner, it.outputs) if it.transpose else (it.outputs, it.inner)
    products = cpu.inner_product_backward_weights_workspace(it.rows, n, k)
    return padded(int(max(products, cpu.column_sums_workspace(it.rows, it.outputs))))


def scratch(it: Any, roles: Collection[str]) -> int:
    gradients = "dw0" in roles or "dw1" in roles
    return sum(room_of(it)) + (weights_bytes(it) if gradients else 0)


def forward(a: Args, it: Any, relu: bool) -> list[Launch]:
    for_x, _ = room_of(it)
    flat_x, flat_y = flat(it)
    x, launches = arranged(a, "x0", it.bottoms[0], flat_x, 0)
    moves = not flat_y.ordered_like(it.tops[0])
    y = a.scratch + for_x if moves else a["y0"]
    if it.transpose:
        launches.append(
            cpu.inner_product_backward_data(it.rows, it.inner, it.outputs, dx=y, dy=x, w=a["w0"], accumulate=False)
        )
        if it.has_bias:
            launches.append(cpu.bias_forward(cpu.Channels(it.rows, it.outputs), y=y, x=y, bias=a["w1"]))
    else:
        launches.append(cpu.inner_product_forward(it.rows, it.outputs, it.inner, y=y, x=x, w=a["w0"], bias=a["w1"]))
    if moves:
        launches += reordered(a["y0"], it.tops[0], y, flat_y, y + padded(flat_y.nbytes))
    if relu:
        launches.append(cpu.relu_forward(a.count("y0"), y=a["y0"], x=a["y0"], mask=a["mask"]))
    return launches


def backward_data(a: Args, it: Any) -> list[Launch]:
    for_x, _ = room_of(it)
    flat_x, flat_y = flat(it)
    dy, launches = arranged(a, "dy0", it.tops[0], flat_y, for_x)
    adds, through = a.adds("dx0"), not flat_x.ordered_like(it.bottoms[0]) or (it.transpose and a.adds("dx0"))
    dx = a.scratch if through else a["dx0"]
    if it.transpose:
        launches.append(cpu.inner_product_forward(it.rows, it.inner, it.outputs, y=dx, x=dy, w=a["w0"]))
    else:
        launches.append(
            cpu.inner_product_backward_data(
                it.rows, it.outputs, it.inner, dx=dx, dy=dy, w=a["w0"], accumulate=adds and not through
            )
        )
    if through:
        launches += reordered(a["dx0"], it.bottoms[0], dx, flat_x, dx + padded(flat_x.nbytes), adds)
    return launches


def backward_weights(a: Args, it: Any) -> list[Launch]:
    for_x, for_y = room_of(it)
    flat_x, flat_y = flat(it)
    dy, launches = arranged(a, "dy0", it.tops[0], flat_y, for_x)
    room = a.scratch + for_x + for_y
    if a.has("dw0"):
        x, before = arranged(a, "x0", it.bottoms[0], flat_x, 0)
        n, k, factors = it.outputs, it.inner, {"x": x, "dy": dy}
        if it.transpose:
            n, k, factors = it.inner, it.outputs, {"x": dy, "dy": x}
        gradient = cpu.inner_product_backward_weights(
            it.rows, n, k, dw=a["dw0"], **factors, accumulate=a.adds("dw0"), scratch=room
        )
        launches += [*before, gradient]
    if a.has("dw1"):
        adds = a.adds("dw1")
        launches.append(cpu.column_sums(it.rows, it.outputs, out=a["dw1"], x=dy, accumulate=adds, scratch=room))
    return launches
