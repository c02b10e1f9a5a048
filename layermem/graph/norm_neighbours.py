"""Which convolutions have a BatchNorm behind them, as a field of their records.

A device may leave moments for that BatchNorm in the epilogue of the convolution (conv_moments.py), and choose another
kernel for it, of other bits, where that pays.  What it chooses by has to be the same in every step: this follows
from the layers alone, also where a step is without that fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from layermem.layers import Layer
from layermem.layers.convolution import Convolution
from layermem.layers.normalization import BatchNorm
from layermem.ops import Conv


class Wired(Protocol):
    """What is read of a node of the net (net.py)."""

    @property
    def layer(self) -> Layer: ...
    @property
    def bottoms(self) -> tuple[str, ...]: ...
    @property
    def tops(self) -> tuple[str, ...]: ...


def mark_before_norm(nodes: Sequence[Wired]) -> None:
    """Sets before_norm of the convolutions among `nodes` whose output a BatchNorm normalizes by its own statistics."""
    read = {node.bottoms[0] for node in nodes if _is_norm(node.layer)}
    for layer in (node.layer for node in nodes if not read.isdisjoint(node.tops)):
        if isinstance(layer, Convolution) and isinstance(layer.record, Conv):
            layer.record = replace(layer.record, before_norm=True)


def _is_norm(layer: Layer) -> bool:
    return isinstance(layer, BatchNorm) and not layer.norm.global_stats
