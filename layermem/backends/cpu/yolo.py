"""YOLO: the loss and the detections of grids of predictions."""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import CpuCall, Launch, kernel, naming_layer
from layermem.backends.cpu.support.launch import StepLaunch, launch, query
from layermem.backends.struct_layout import StructValues
from layermem.ops import GridDetections, GridLoss, RegionLoss


def problem_of(op: RegionLoss) -> StructValues:
    return {
        "items": op.items,
        "side": op.side,
        "classes": op.classes,
        "rows": op.rows,
        "warm_up": op.warm_up,
        "anchors": [v for pair in op.anchors for v in pair],
        "object_scale": op.object_scale,
        "noobject_scale": op.noobject_scale,
        "class_scale": op.class_scale,
        "coord_scale": op.coord_scale,
        "threshold": op.threshold,
        "rescore": op.rescore,
        "bias_match": op.bias_match,
    }


def region_bytes(op: RegionLoss, roles: Collection[str]) -> int:
    return query("region_loss_workspace_bytes", problem_of(op))


def by_step(op: RegionLoss, call: CpuCall, launch: StepLaunch) -> list[Launch]:
    """Wrap a launch that takes the training step, on which only the warm-up depends."""
    return [naming_layer(call, lambda: launch(call.context["step"] if op.warm_up else 0))]


@kernel(RegionLoss, "forward", workspace=region_bytes)
def region_loss_forward(op: RegionLoss, call: CpuCall) -> list[Launch]:
    bound = launch(
        "region_loss_forward", problem_of(op), loss=call["y0"], x=call["x0"], truth=call["x1"], workspace=call.workspace
    )
    return by_step(op, call, bound)


@kernel(RegionLoss, "backward", workspace=region_bytes)
def region_loss_backward(op: RegionLoss, call: CpuCall) -> list[Launch]:
    bound = launch(
        "region_loss_backward",
        problem_of(op),
        dx=call["dx0"],
        dloss=call["dy0"],
        x=call["x0"],
        truth=call["x1"],
        accumulate=call.accumulates("dx0"),
        workspace=call.workspace,
    )
    return by_step(op, call, bound)


def loss_of(op: GridLoss) -> StructValues:
    return {
        "items": op.items,
        "side": op.side,
        "classes": op.classes,
        "rows": op.rows,
        "anchors": [v for pair in op.anchors for v in pair],
        "mask": op.mask,
        "divisor": op.divisor,
        "object_scale": op.object_scale,
        "class_scale": op.class_scale,
        "coord_scale": op.coord_scale,
        "threshold": op.threshold,
        "logistic": op.logistic,
    }


def loss_bytes(op: GridLoss, roles: Collection[str]) -> int:
    return query("grid_loss_workspace_bytes", loss_of(op))


@kernel(GridLoss, "forward", workspace=loss_bytes)
def grid_loss_forward(op: GridLoss, call: CpuCall) -> list[Launch]:
    bound = launch(
        "grid_loss_forward", loss_of(op), loss=call["y0"], x=call["x0"], truth=call["x1"], workspace=call.workspace
    )
    return [naming_layer(call, bound)]


@kernel(GridLoss, "backward", workspace=loss_bytes)
def grid_loss_backward(op: GridLoss, call: CpuCall) -> list[Launch]:
    bound = launch(
        "grid_loss_backward",
        loss_of(op),
        dx=call["dx0"],
        dloss=call["dy0"],
        x=call["x0"],
        truth=call["x1"],
        accumulate=call.accumulates("dx0"),
        workspace=call.workspace,
    )
    return [naming_layer(call, bound)]


def grids_of(op: GridDetections) -> StructValues:
    anchors = [[v for pair in each for v in pair] for each in op.anchors]
    return {
        "items": op.items,
        "classes": op.classes,
        "sides": op.sides,
        "anchors": anchors,
        "divisors": op.divisors,
        "softmax": op.softmax,
        "least_score": op.least_score,
        "threshold": op.threshold,
    }


def grid_bytes(op: GridDetections, roles: Collection[str]) -> int:
    return query("grid_detections_workspace_bytes", grids_of(op))


@kernel(GridDetections, "forward", workspace=grid_bytes)
def grid_detections_forward(op: GridDetections, call: CpuCall) -> list[Launch]:
    xs = [call[f"x{i}"] for i in range(len(op.sides))]
    return [launch("grid_detections", grids_of(op), y=call["y0"], xs=xs, workspace=call.workspace)]
