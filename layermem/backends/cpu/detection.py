"""Detection: compares predicted boxes with true ones."""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import CpuCall, Launch, kernel, naming_layer
from layermem.backends.cpu.support.launch import launch, query
from layermem.backends.struct_layout import StructValues
from layermem.ops import DetectionEvaluate, DetectionOutput, MultiBoxLoss

CODES = {"CORNER": 1, "CENTER_SIZE": 2, "CORNER_SIZE": 3}  # PriorBoxParameter.CodeType
MININGS = {"NONE": 0, "MAX_NEGATIVE": 1, "HARD_EXAMPLE": 2}  # MultiBoxLossParameter.MiningType


def problem_of(op: MultiBoxLoss) -> StructValues:
    s = op.suppression
    return {
        "items": op.items,
        "priors": op.priors,
        "classes": op.classes,
        "loc_classes": op.loc_classes,
        "rows": op.rows,
        "background": op.background,
        "code": CODES[op.code],
        "in_target": op.in_target,
        "mining": MININGS[op.mining],
        "sample_size": op.sample_size,
        "top_k": s.top_k if s else 0,
        "nms_threshold": s.threshold if s else 0,
        "overlap_threshold": op.overlap_threshold if op.per_prediction else -1,
        "neg_pos_ratio": op.neg_pos_ratio,
        "neg_overlap": op.neg_overlap,
        "loc_weight": op.loc_weight,
        "normalizer": op.normalizer or 0,
        "prior_matching": op.prior_matching,
        "prior_suppression": op.prior_suppression,
        "difficult": op.difficult,
        "agnostic": op.agnostic,
        "ignore_crossing": op.ignore_crossing,
        "bp_inside": op.bp_inside,
        "l2": op.l2,
        "logistic": op.logistic,
        "loc": op.loc,
        "conf": op.conf,
    }


def forward_bytes(op: MultiBoxLoss, roles: Collection[str]) -> int:
    return query("multibox_loss_workspace_bytes", problem_of(op), forward=True, match="match" in roles)


def backward_bytes(op: MultiBoxLoss, roles: Collection[str]) -> int:
    return query("multibox_loss_workspace_bytes", problem_of(op), forward=False, match=True)


@kernel(MultiBoxLoss, "forward", workspace=forward_bytes)
def multibox_loss_forward(op: MultiBoxLoss, call: CpuCall) -> list[Launch]:
    bound = launch(
        "multibox_loss_forward",
        problem_of(op),
        loss=call["y0"],
        locations=call["x0"],
        scores=call["x1"],
        boxes=call["x2"],
        truth=call["x3"],
        match=call["match"],
        workspace=call.workspace,
    )
    return [naming_layer(call, bound)]


@kernel(MultiBoxLoss, "backward", workspace=backward_bytes)
def multibox_loss_backward(op: MultiBoxLoss, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "multibox_loss_backward",
            problem_of(op),
            dlocations=call["dx0"],
            dscores=call["dx1"],
            dloss=call["dy0"],
            locations=call["x0"],
            scores=call["x1"],
            boxes=call["x2"],
            truth=call["x3"],
            match=call["match"],
            accumulate_dlocations=call.accumulates("dx0"),
            accumulate_dscores=call.accumulates("dx1"),
            workspace=call.workspace,
        )
    ]


def detection_of(op: DetectionOutput) -> StructValues:
    return {
        "items": op.items,
        "priors": op.priors,
        "classes": op.classes,
        "loc_classes": op.loc_classes,
        "background": op.background,
        "code": CODES[op.code],
        "in_target": op.in_target,
        "clip": op.clip,
        "least_score": op.least_score,
        "threshold": op.threshold,
        "eta": op.eta,
        "candidates": op.candidates,
        "of_item": op.of_item,
    }


def detection_bytes(op: DetectionOutput, roles: Collection[str]) -> int:
    return query("detection_output_workspace_bytes", detection_of(op))


@kernel(DetectionOutput, "forward", workspace=detection_bytes)
def detection_output_forward(op: DetectionOutput, call: CpuCall) -> list[Launch]:
    return [
        launch(
            "detection_output",
            detection_of(op),
            y=call["y0"],
            locations=call["x0"],
            scores=call["x1"],
            boxes=call["x2"],
            workspace=call.workspace,
        )
    ]


def evaluation_of(op: DetectionEvaluate) -> StructValues:
    return {
        "detections": op.detections,
        "truths": op.truths,
        "classes": op.classes,
        "background": op.background,
        "rows": op.y.shape[2],
        "overlap_threshold": op.overlap_threshold,
        "difficult": op.difficult,
        "sized_items": op.sized_items,
    }


def evaluation_bytes(op: DetectionEvaluate, roles: Collection[str]) -> int:
    return query("detection_evaluate_workspace_bytes", evaluation_of(op))


@kernel(DetectionEvaluate, "forward", workspace=evaluation_bytes)
def detection_evaluate_forward(op: DetectionEvaluate, call: CpuCall) -> list[Launch]:
    bound = launch(
        "detection_evaluate",
        evaluation_of(op),
        y=call["y0"],
        detections=call["x0"],
        truth=call["x1"],
        sizes=call["x2"] if op.sized_items else 0,
        workspace=call.workspace,
    )
    return [naming_layer(call, bound)]
