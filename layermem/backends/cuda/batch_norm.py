"""BatchNorm: statistics of the batch once, kept; everything else is one sweep, or two, over the blob.

A Scale and a ReLU that follow run in the same sweeps (BatchNormScale): their gradients are the sums that BatchNorm's
own backward needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from layermem.backends.cuda.channel_sums import FLOAT, Columns, channel_sums, columns_of
from layermem.backends.cuda.launch import (
    THREADS,
    Addresses,
    Launch,
    Workspace,
    ceil_div,
    divider,
    kernel,
    launch,
    workspace_bytes,
)

LANES = 4  # channels of a block that merges parts: the other threads share out the parts


NO_EPILOGUE: Mapping[str, int] = MappingProxyType({"factor": 0, "bias": 0, "relu": 0})


def affine_relu(relu: bool, b: Addresses) -> Mapping[str, int]:
    """The Scale, and maybe the ReLU, of a BatchNormScale."""
    return {"factor": b["w3"], "bias": b["w4"], "relu": int(relu)}


def normalize(
    layer: Any, y: int, x: int, mean: int, inv_std: int, accumulate: bool = False,
    epilogue: Mapping[str, int] = NO_EPILOGUE, residual: int = 0,
) -> Launch:  # fmt: skip
    at = columns_of(layer.tops[0])
    count = layer.tops[0].count
    return launch(
        "batch_norm", f"normalize_v{at.v}", "NormalizeArgs", ceil_div(count, THREADS * at.v), y=y, x=x,
        residual=residual, mean=mean, inv_std=inv_std, epilogue=epilogue, by_inner=divider(at.inner),
        by_channels=divider(at.columns), count=count, accumulate=accumulate,
    )  # fmt: skip


def global_statistics(layer: Any, b: Addresses, mean: int, inv_std: int) -> Launch:
    return launch(
        "batch_norm", "global_statistics", "GlobalArgs", ceil_div(layer.channels, 256), mean=mean, inv_std=inv_std,
        sum_means=b["w0"], sum_variances=b["w1"], sum_weights=b["w2"], channels=layer.channels, eps=layer.eps,
    )  # fmt: skip


def batch_statistics(layer: Any, b: Addresses, mean: int, inv_std: int, parts: int) -> Iterator[Launch]:
    at = columns_of(layer.bottoms[0])
    yield launch(
        "batch_norm", f"batch_moments_v{at.v}", "MomentsArgs", at.grid(at.parts), parts=parts, x=b["x0"],
        at=at.struct(),
    )  # fmt: skip
    of_parts = {**Columns(at.parts, at.columns).struct(at.parts), "width": LANES}
    yield launch(
        "batch_norm", "batch_statistics", "StatisticsArgs", ceil_div(at.columns, LANES), mean=mean, inv_std=inv_std,
        sum_means=b["w0"], sum_variances=b["w1"], sum_weights=b["w2"], parts=parts, at=of_parts, eps=layer.eps,
        fraction=layer.fraction,
        unbiased=layer.per_channel / (layer.per_channel - 1) if layer.per_channel > 1 else 1.0,
    )  # fmt: skip


def statistics_places(layer: Any, b: Addresses, workspace: Workspace) -> tuple[int, int]:
    """(mean, inv_std): the stash, or workspace where nobody reads it later."""
    nbytes = FLOAT * layer.channels
    return b["mean"] or workspace.take(nbytes), b["inv_std"] or workspace.take(nbytes)


def moment_bytes(layer: Any) -> int:
    at = columns_of(layer.bottoms[0])
    return FLOAT * 3 * at.parts * at.columns


@kernel("BatchNorm.forward")
def forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    workspace = Workspace(b["workspace"])
    mean, inv_std = statistics_places(layer, b, workspace)
    if layer.global_stats:
        yield global_statistics(layer, b, mean, inv_std)
    else:
        yield from batch_statistics(layer, b, mean, inv_std, workspace.take(moment_bytes(layer)))
    yield normalize(layer, b["y0"], b["x0"], mean, inv_std)


@workspace_bytes("BatchNorm.forward")
def forward_bytes(layer: Any, roles: Collection[str]) -> int:
    workspace = Workspace()
    statistics_places(layer, Addresses(dict.fromkeys(roles, 1)), workspace)
    return workspace.nbytes + (0 if layer.global_stats else moment_bytes(layer))


@kernel("BatchNorm.recompute")
def recompute(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield normalize(layer, b["y0"], b["x0"], b["mean"], b["inv_std"])


@kernel("BatchNorm.backward")
def backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    workspace = Workspace(b["workspace"])
    if layer.global_stats:
        inv_std, unused = workspace.take(FLOAT * layer.channels), workspace.take(FLOAT * layer.channels)
        yield global_statistics(layer, b, unused, inv_std)
        yield normalize(layer, b["dx0"], b["dy0"], 0, inv_std, b.accumulates("dx0"))
        return
    sums, summing = gradient_sums(layer, b, workspace)
    yield from summing
    yield batch_norm_backward(layer, b, sums)


def gradient_sums(
    layer: Any, b: Addresses, workspace: Workspace, epilogue: Mapping[str, int] = NO_EPILOGUE
) -> tuple[int, list[Launch]]:
    """Where the sums of dy and of dy y will be, [2][C], and the launches that bring them there."""
    at = columns_of(layer.bottoms[0])
    parts = workspace.take(FLOAT * 2 * at.parts * at.columns)
    into_parts = launch(
        "batch_norm", f"gradient_sums_v{at.v}", "GradientSumsArgs", at.grid(at.parts), parts=parts, x=b["x0"],
        dy=b["dy0"], mean=b["mean"], inv_std=b["inv_std"], epilogue=epilogue, at=at.struct(),
    )  # fmt: skip
    if at.parts == 1:
        return parts, [into_parts]
    sums = workspace.take(FLOAT * 2 * at.columns)
    return sums, [into_parts, *channel_sums(Columns(at.parts, 2 * at.columns), sums, parts, False, workspace.next)]


def batch_norm_backward(layer: Any, b: Addresses, sums: int, epilogue: Mapping[str, int] = NO_EPILOGUE) -> Launch:
    at, count = columns_of(layer.bottoms[0]), layer.bottoms[0].count
    return launch(
        "batch_norm", f"batch_norm_backward_v{at.v}", "BatchNormBackwardArgs", ceil_div(count, THREADS * at.v),
        dx=b["dx0"], dy=b["dy0"], x=b["x0"], mean=b["mean"], inv_std=b["inv_std"], sums=sums, epilogue=epilogue,
        by_inner=divider(at.inner), by_channels=divider(at.columns), count=count, accumulate=b.accumulates("dx0"),
        share=1 / (count // at.columns),
    )  # fmt: skip


@workspace_bytes("BatchNorm.backward")
def backward_bytes(layer: Any, roles: Collection[str]) -> int:
    if not layer.global_stats:
        return gradient_bytes(layer)
    workspace = Workspace()
    workspace.take(FLOAT * layer.channels)
    workspace.take(FLOAT * layer.channels)
    return workspace.nbytes


def gradient_bytes(layer: Any) -> int:
    at, workspace = columns_of(layer.bottoms[0]), Workspace()
    workspace.take(FLOAT * 2 * at.parts * at.columns)
    if at.parts > 1:
        workspace.take(FLOAT * 2 * at.columns)
        workspace.take(Columns(at.parts, 2 * at.columns).part_bytes())
    return workspace.nbytes


# -- with a Scale, and maybe a ReLU ------------------------------------------------------------------------------


@kernel("BatchNormScale.forward")
def scaled_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from scaled(layer, b, relu=layer.relu)


def scaled(layer: Any, b: Addresses, *, relu: bool, residual: int = 0, recompute: bool = False) -> Iterator[Launch]:
    """y = factor (x - mean) inv_std + bias + residual, or its relu; `recompute`: from the statistics that were kept."""
    mean, inv_std = b["mean"], b["inv_std"]
    if not recompute:
        workspace = Workspace(b["workspace"])
        mean, inv_std = statistics_places(layer.norm, b, workspace)
        yield from batch_statistics(layer.norm, b, mean, inv_std, workspace.take(moment_bytes(layer)))
    yield normalize(layer, b["y0"], b["x0"], mean, inv_std, epilogue=affine_relu(relu, b), residual=residual)


@workspace_bytes("BatchNormScale.forward")
def scaled_forward_bytes(layer: Any, roles: Collection[str]) -> int:
    return forward_bytes(layer.norm, roles)


@kernel("BatchNormScale.recompute")
def scaled_replay(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from scaled(layer, b, relu=layer.relu, recompute=True)


@kernel("BatchNormScale.backward")
def scaled_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    epilogue, channels = affine_relu(layer.relu, b), layer.norm.channels
    sums, summing = gradient_sums(layer, b, Workspace(b["workspace"]), epilogue)
    yield from summing
    for role, place in (("dw4", sums), ("dw3", sums + FLOAT * channels)):
        if role in b:
            yield from channel_sums(Columns(1, channels), b[role], place, b.accumulates(role), 0)
    if "dx0" in b:
        yield batch_norm_backward(layer, b, sums, epilogue)


@workspace_bytes("BatchNormScale.backward")
def scaled_backward_bytes(layer: Any, roles: Collection[str]) -> int:
    return gradient_bytes(layer)
