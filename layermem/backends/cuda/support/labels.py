"""Common parts of losses: labels, normalizers, and the sum of a loss over its parts."""

from __future__ import annotations

from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace
from layermem.backends.cuda.support.channel_sums import Columns, channel_sums
from layermem.backends.cuda.support.launch import Launch, launch
from layermem.backends.struct_layout import StructValues

NO_LABELS: StructValues = {"labels": 0, "error_flag": 0, "classes": 0, "ignore": 0, "has_ignore": 0}


def labels(call: CudaCall, address: int, classes: int, ignore_label: int | None = None) -> StructValues:
    return {
        "labels": address,
        "error_flag": call.error_flag,
        "classes": classes,
        "ignore": ignore_label or 0,
        "has_ignore": ignore_label is not None,
    }


def normalizer(known: float | None, counted: int = 0) -> StructValues:
    """The number that a loss is divided by, or the number at address `counted` if labels have to be counted first."""
    return {"counted": 0, "otherwise": float(known)} if known is not None else {"counted": counted, "otherwise": 0.0}


def divide_loss(y: int, total: int, by: StructValues, factor: float = 1.0) -> Launch:
    """y = factor total / normalizer"""
    return launch("softmax", "loss_ratio", "RatioArgs", 1, 1, y=y, sum=total, normalizer=by, factor=factor)


def sum_rows(each: int, at: Columns, workspace: Workspace, carry: int = 0) -> tuple[int, list[Launch]]:
    """The address of the sums of each [rows][terms], and the launches that compute them.  For a slice of a batch, these
    are the sums of all slices so far, from the `carry` (at.carry_bytes()), and are written only by the last slice."""
    sums, parts = workspace.take(FLOAT * at.columns), workspace.take(at.part_bytes())
    return sums, list(channel_sums(at, sums, each, False, carry or parts))


def sum_rows_bytes(at: Columns) -> int:
    workspace = Workspace()
    sum_rows(0, at, workspace)
    return workspace.nbytes
