"""Which gradients a net needs, where they flow, and what forward must stash for them (Caffe net.cpp, Init)."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.graph.net import Net

NO_GRADIENT = {"Accuracy", "ArgMax", "Silence", "Threshold"}  # nothing flows back through these
Wants = tuple[tuple[str, ...], ...]  # roles per node


@dataclass(frozen=True)
class Needs:
    """Per node of a net.

    wants    gradient roles (dx*, dw*) that its backward writes; empty where it has none
    flows    whether the node takes part in backward at all
    saved    bottoms and tops that the backward of another node reads anyway
    stash    stash roles that some backward op or a recomputation reads
    learned  parameters that get a gradient, in the order in which the net names them
    """

    wants: Wants
    flows: tuple[bool, ...]
    saved: tuple[frozenset[str], ...]
    stash: Wants
    learned: tuple[str, ...]

    @staticmethod
    def nothing(net: Net) -> Needs:
        none: Wants = ((),) * len(net.nodes)
        return Needs(none, (False,) * len(net.nodes), (frozenset(),) * len(net.nodes), none, ())


def needs_of(net: Net, *, force_backward: bool = False) -> Needs:
    """Gradients flow to every blob above a learned parameter (or every blob, if forced) that lies under a loss."""
    force = force_backward or net.message.force_backward
    upward, carries = _from_below(net, force)
    wants = _from_above(net, upward, carries)
    learned = [name for node, roles in zip(net.nodes, wants) for i, name in enumerate(node.params) if f"dw{i}" in roles]
    saved = _saved(net, wants)
    stash = _stashes(net, wants, saved)
    return Needs(wants, tuple(bool(w) for w in wants), saved, stash, tuple(dict.fromkeys(learned)))


def _from_below(net: Net, force: bool) -> tuple[list[tuple[str, ...]], dict[str, bool]]:
    """Per node, the gradients it would write if one reached it; per blob, whether it has one to give."""
    carries: dict[str, bool] = {}
    upward = []
    for node in net.nodes:
        roles = []
        if node.layer.type not in NO_GRADIENT and node.layer.recompute_kind != "never":
            roles += [f"dx{i}" for i, b in enumerate(node.bottoms) if node.propagate[i] and (force or carries[b])]
            roles += [
                f"dw{i}"
                for i, name in enumerate(node.params)
                if net.params[name].param.learned and net.params[name].param.lr_mult != 0
            ]
        upward.append(tuple(roles))
        for top in node.tops:
            carries[top] = bool(roles)
    return upward, carries


def _from_above(net: Net, upward: list[tuple[str, ...]], carries: dict[str, bool]) -> Wants:
    """The same, for nodes that lie under a loss; a label's slot in a loss layer never gets a gradient."""
    reached: set[str] = set()
    wants: list[tuple[str, ...]] = []
    for node, roles in zip(reversed(net.nodes), reversed(upward)):
        under = any(node.loss_weights) or any(top in reached for top in node.tops)
        given: set[str] = set()
        if under and roles:
            given = {r for step in node.layer.backward(roles) for r in (*step.writes, *step.updates)}
        kept = tuple(r for r in roles if r in given)
        wants.append(kept)
        reached |= {node.bottoms[int(r[2:])] for r in kept if r.startswith("dx")}
    return tuple(reversed(wants))


def _saved(net: Net, wants: Wants) -> tuple[frozenset[str], ...]:
    """Per node, the bottoms and tops that the backward of another node reads anyway."""
    keepers: dict[str, set[int]] = {}
    for index, (node, roles) in enumerate(zip(net.nodes, wants)):
        for step in node.layer.backward(roles) if roles else ():
            for role in step.reads:
                for stem, names in (("x", node.bottoms), ("y", node.tops)):
                    if role[0] == stem and role[1:].isdigit():
                        keepers.setdefault(names[int(role[1:])], set()).add(index)
    return tuple(
        frozenset(
            f"{stem}{i}"
            for stem, names in (("x", node.bottoms), ("y", node.tops))
            for i, name in enumerate(names)
            if keepers.get(name, set()) - {index}
        )
        for index, node in enumerate(net.nodes)
    )


def _stashes(net: Net, wants: Wants, saved: tuple[frozenset[str], ...]) -> Wants:
    """Per node, the stash roles that its backward or its recomputation reads."""
    stashes = []
    for node, roles, others in zip(net.nodes, wants, saved):
        read = {role for step in (node.layer.backward(roles, others) if roles else ()) for role in step.reads}
        recompute = node.layer.recompute()
        if recompute is not None:  # also where no gradient flows: the output may be needed again
            read |= set(recompute.reads)
        stashes.append(tuple(name for name in node.layer.stash if name in read))
    return tuple(stashes)
