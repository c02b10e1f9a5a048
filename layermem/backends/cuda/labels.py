"""What losses share: labels, what a sum of losses is divided by, and how it is summed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from layermem.backends.cuda.channel_sums import FLOAT, Columns, channel_sums
from layermem.backends.cuda.launch import Addresses, Launch, Workspace, launch


def labels(layer: Any, b: Addresses, address: int, classes: int) -> Mapping[str, int]:
    ignore = getattr(layer, "ignore_label", None)
    return {
        "labels": address, "error_flag": b["error_flag"], "classes": classes, "ignore": ignore or 0,
        "has_ignore": ignore is not None,
    }  # fmt: skip


def normalizer(layer: Any, counted: int) -> Mapping[str, float]:
    """The layer's own, or the number at `counted` where labels have to be counted first."""
    known = layer.normalizer
    return {"counted": counted if known is None else 0, "otherwise": 0.0 if known is None else float(known)}


def divided_by(number: float) -> Mapping[str, float]:
    return {"counted": 0, "otherwise": float(number)}


def ratio(y: int, total: int, by: Mapping[str, float], factor: float = 1.0) -> Launch:
    """y = factor total / normalizer"""
    return launch("softmax", "loss_ratio", "RatioArgs", 1, 1, y=y, sum=total, normalizer=by, factor=factor)


def sum_rows(each: int, rows: int, terms: int, workspace: Workspace) -> tuple[int, Iterator[Launch]]:
    """Where the sums of each [rows][terms] will be, and the launches."""
    at = Columns(rows, terms)
    sums = workspace.take(FLOAT * terms)
    return sums, channel_sums(at, sums, each, False, workspace.take(at.part_bytes()))


def sum_rows_bytes(rows: int, terms: int) -> int:
    workspace = Workspace()
    workspace.take(FLOAT * terms)
    workspace.take(Columns(rows, terms).part_bytes())
    return workspace.nbytes
