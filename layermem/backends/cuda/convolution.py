"""Convolution and Deconvolution: conv_fprop, conv_dgrad and conv_wgrad; a Deconvolution exchanges image and output."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from layermem.backends.cuda.channel_sums import channel_sums, columns_of
from layermem.backends.cuda.implicit_gemm import (
    ENGINES,
    ConvProblem,
    Epilogue,
    conv_dgrad,
    conv_fprop,
    conv_wgrad,
    conv_wgrad_bytes,
)
from layermem.backends.cuda.launch import Addresses, Launch, kernel, workspace_bytes


def conv_problem(layer: Any) -> ConvProblem:
    """The geometry of a Convolution, whose image is x, or of a Deconvolution, whose image is y."""
    down, right = layer.windows
    image, out = layer.bottoms[0].shape, layer.tops[0].shape
    if layer.type == "Deconvolution":
        image, out = out, image
    return ConvProblem(
        image[0], down.size, right.size, image[1] // layer.group, down.floor_out, right.floor_out,
        out[1] // layer.group, layer.group, (down.kernel, right.kernel), (down.stride, right.stride),
        (down.pad, right.pad), (down.dilation, right.dilation),
    )  # fmt: skip


@kernel("Convolution.forward")
def convolution_fprop(layer: Any, b: Addresses) -> Iterator[Launch]:
    for i in range(len(layer.bottoms)):
        yield fprop(layer, b, Epilogue(b["w1"]), i)


def fprop(layer: Any, b: Addresses, epilogue: Epilogue, i: int = 0) -> Launch:
    """Bottom i of a Convolution."""
    return conv_fprop(ENGINES[b.precision], conv_problem(layer), b[f"y{i}"], b[f"x{i}"], b["w0"], epilogue)


@kernel("Convolution.dgrad")
def convolution_dgrad(layer: Any, b: Addresses) -> Iterator[Launch]:
    engine, problem = ENGINES[b.precision], conv_problem(layer)
    for i in range(len(layer.bottoms)):
        dx = f"dx{i}"
        if dx in b:
            yield conv_dgrad(engine, problem, b[dx], b[f"dy{i}"], b["w0"], accumulate=b.accumulates(dx))


@kernel("Deconvolution.forward")
def deconvolution_fprop(layer: Any, b: Addresses) -> Iterator[Launch]:
    engine, problem = ENGINES[b.precision], conv_problem(layer)
    for i in range(len(layer.bottoms)):
        yield conv_dgrad(engine, problem, b[f"y{i}"], b[f"x{i}"], b["w0"], b["w1"])


@kernel("Deconvolution.dgrad")
def deconvolution_dgrad(layer: Any, b: Addresses) -> Iterator[Launch]:
    engine, problem = ENGINES[b.precision], conv_problem(layer)
    for i in range(len(layer.bottoms)):
        dx = f"dx{i}"
        if dx in b:
            epilogue = Epilogue(residual=b[dx] if b.accumulates(dx) else 0)
            yield conv_fprop(engine, problem, b[dx], b[f"dy{i}"], b["w0"], epilogue)


@kernel("Convolution.wgrad", "Deconvolution.wgrad")
def wgrad(layer: Any, b: Addresses) -> Iterator[Launch]:
    engine, problem = ENGINES[b.precision], conv_problem(layer)
    out, image = ("x", "dy") if layer.type == "Deconvolution" else ("dy", "x")
    for i in range(len(layer.bottoms)):
        accumulate = {role: i > 0 or b.accumulates(role) for role in ("dw0", "dw1")}
        if "dw0" in b:
            yield from conv_wgrad(
                engine, problem, b["dw0"], b[f"{out}{i}"], b[f"{image}{i}"], accumulate["dw0"], b["workspace"]
            )
        if "dw1" in b:
            at = columns_of(layer.tops[0])
            yield from channel_sums(at, b["dw1"], b[f"dy{i}"], accumulate["dw1"], b["workspace"])


@workspace_bytes("Convolution.wgrad", "Deconvolution.wgrad")
def wgrad_bytes(layer: Any, roles: Collection[str]) -> int:
    return max(
        conv_wgrad_bytes(conv_problem(layer)) if "dw0" in roles else 0,
        columns_of(layer.tops[0]).part_bytes() if "dw1" in roles else 0,
    )
