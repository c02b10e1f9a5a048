"""The gradients that a net needs, their flow, and the values that forward stashes for them (Caffe net.cpp, Init)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from layermem.graph.net import Net
from layermem.graph.nodes import OpNode, op_nodes
from layermem.layers.base import has_gradient

Wants = tuple[tuple[str, ...], ...]  # roles per node


@dataclass(frozen=True)
class Needs:
    """Per node of a net.

    wants    gradient roles (dx*, dw*) that its backward writes; empty without a backward
    flows    whether the node takes part in backward at all
    saved    bottoms and tops that another node's backward reads
    stash    stash roles that some backward op or a recomputation reads
    learned  parameters that get a gradient, in the order in which the net names them
    unreached  other parameters that a solver updates, in the same order: they get no gradient, and decay
    """

    wants: Wants
    flows: tuple[bool, ...]
    saved: tuple[frozenset[str], ...]
    stash: Wants
    learned: tuple[str, ...]
    unreached: tuple[str, ...] = ()

    @staticmethod
    def nothing(nodes: Sequence[OpNode]) -> Needs:
        """The needs of a forward pass without a backward."""
        none: Wants = ((),) * len(nodes)
        return Needs(none, (False,) * len(nodes), (frozenset(),) * len(nodes), none, ())


def needs_of(
    net: Net,
    nodes: Sequence[OpNode] | None = None,
    *,
    force_backward: bool = False,
    fed: Collection[str] = (),
    without: Collection[str] = (),
    data_only: bool = False,
) -> Needs:
    """Gradients flow to every blob above a learned parameter (or every blob, if forced) that lies under a loss.

    `force_backward: true` in the file does more, as in Caffe: parameters of lr_mult 0 have a gradient too.

    nodes     nodes of the training graph; by default one for each layer of `net`
    fed       blobs whose gradient comes from outside; layers below them count as being under a loss
    without   layers without a backward
    data_only   leave out the gradients of parameters
    """
    nodes = op_nodes(net) if nodes is None else nodes
    wants = wants_of(net, nodes, force_backward=force_backward, fed=fed, without=without, data_only=data_only)
    learned = dict.fromkeys(
        name for node, roles in zip(nodes, wants) for i, name in enumerate(node.params) if f"dw{i}" in roles
    )
    saved = _saved(nodes, wants)
    stash = _stashes(nodes, wants, saved)
    has_loss = any(any(node.loss_weights) for node in nodes)
    unreached = (name for name in net.params if has_loss and is_updated(net, name) and name not in learned)
    return Needs(wants, tuple(bool(w) for w in wants), saved, stash, tuple(learned), tuple(unreached))


def wants_of(
    net: Net,
    nodes: Sequence[OpNode],
    *,
    force_backward: bool = False,
    fed: Collection[str] = (),
    without: Collection[str] = (),
    data_only: bool = False,
) -> Wants:
    """Per node, the gradients that it writes; the arguments are those of needs_of."""
    upward = _candidates(net, nodes, force_backward or net.message.force_backward)
    if without:
        upward = tuple(
            () if all(layer.name in without for layer in node.layers) else roles for node, roles in zip(nodes, upward)
        )
    if data_only:
        upward = tuple(tuple(role for role in roles if role.startswith("dx")) for roles in upward)
    return _under_losses(nodes, upward, fed)


def _candidates(net: Net, nodes: Sequence[OpNode], force: bool) -> Wants:
    """Per node, the gradients it would write if one reached its tops."""
    carries: dict[str, bool] = {}  # per blob: does a gradient of it serve a learned parameter?
    candidates = []
    for node in nodes:
        roles = []
        if has_gradient(node.emitter.type):
            roles += [f"dx{i}" for i, b in enumerate(node.bottoms) if node.propagate[i] and (force or carries[b])]
            roles += [f"dw{i}" for i, name in enumerate(node.params) if is_updated(net, name)]
        candidates.append(tuple(roles))
        for top in node.tops:
            carries[top] = bool(roles)
    return tuple(candidates)


def is_updated(net: Net, parameter: str) -> bool:
    """Whether a solver updates the parameter.  Decay and momentum update it even without a gradient, unless lr_mult is
    0 and no gradient is forced."""
    param = net.params[parameter].param
    return param.learned and (param.lr_mult != 0 or bool(net.message.force_backward))


def _under_losses(nodes: Sequence[OpNode], candidates: Wants, fed: Collection[str]) -> Wants:
    """The candidates that lie under a loss; a label's slot in a loss layer never gets a gradient."""
    reached: set[str] = set(fed)
    wants: list[tuple[str, ...]] = []
    for node, roles in zip(reversed(nodes), reversed(candidates)):
        under = any(node.loss_weights) or any(top in reached for top in node.tops)
        written: set[str] = set()
        if under and roles:
            written = {r for step in node.emitter.backward(roles) for r in (*step.writes, *step.updates)}
        wanted = tuple(r for r in roles if r in written)
        wants.append(wanted)
        reached |= {node.bottoms[int(r[2:])] for r in wanted if r.startswith("dx")}
    return tuple(reversed(wants))


def _saved(nodes: Sequence[OpNode], wants: Wants) -> tuple[frozenset[str], ...]:
    """Per node, the bottoms and tops that another node's backward reads."""
    readers: dict[str, set[int]] = {}
    for index, (node, roles) in enumerate(zip(nodes, wants)):
        for step in node.emitter.backward(roles) if roles else ():
            for role in step.reads:
                for stem, names in (("x", node.bottoms), ("y", node.tops)):
                    if role[0] == stem and role[1:].isdigit():
                        readers.setdefault(names[int(role[1:])], set()).add(index)
    return tuple(
        frozenset(
            f"{stem}{i}"
            for stem, names in (("x", node.bottoms), ("y", node.tops))
            for i, name in enumerate(names)
            if readers.get(name, set()) - {index}
        )
        for index, node in enumerate(nodes)
    )


def _stashes(nodes: Sequence[OpNode], wants: Wants, saved: tuple[frozenset[str], ...]) -> Wants:
    """Per node, the stash roles that its backward or its recomputation reads."""
    stashes = []
    for node, roles, others in zip(nodes, wants, saved):
        read = {role for step in (node.emitter.backward(roles, others) if roles else ()) for role in step.reads}
        recompute = node.emitter.recompute()
        if recompute is not None:  # also where no gradient flows: the output may be needed again
            read |= set(recompute.reads)
        stashes.append(tuple(name for name in node.emitter.stash if name in read))
    return tuple(stashes)
