"""Nodes of the training graph: emitters of ops, with their wiring.

A node is one layer, or several layers whose ops run as one (fusion.py).  Both have the interface `Emitter`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from layermem.graph.net import Net
from layermem.layers import Layer, Param, Step
from layermem.ops import OpRecord, Tensor


class Emitter(Protocol):
    """The properties of a node that the training graph reads; every Layer has them (layers/base.py)."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def bottoms(self) -> tuple[Tensor, ...]: ...
    @property
    def tops(self) -> tuple[Tensor, ...]: ...
    @property
    def bottom_names(self) -> tuple[str, ...]: ...
    @property
    def top_names(self) -> tuple[str, ...]: ...
    @property
    def params(self) -> tuple[Param, ...]: ...
    @property
    def stash(self) -> Mapping[str, Tensor]: ...
    @property
    def record(self) -> OpRecord: ...
    @property
    def recompute_kind(self) -> str: ...
    def forward(self) -> Step: ...
    def recompute(self) -> Step | None: ...
    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]: ...


@dataclass(frozen=True)
class OpNode:
    """An emitter with its wiring: versioned bottoms and tops, parameter names, and where gradients may flow.

    layers         the layers that the emitter stands for, in the order of the net
    propagate      per bottom: may a gradient flow into it?
    loss_weights   per top
    """

    emitter: Emitter
    layers: tuple[Layer, ...]
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    params: tuple[str, ...]
    propagate: tuple[bool, ...]
    loss_weights: tuple[float, ...]


def op_nodes(net: Net) -> list[OpNode]:
    """A node for every layer of `net`."""
    return [OpNode(n.layer, (n.layer,), n.bottoms, n.tops, n.params, n.propagate, n.loss_weights) for n in net.nodes]
