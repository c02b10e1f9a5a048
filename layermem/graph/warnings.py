"""Sentences about a net that is valid, but may not be what its author meant.

    --stage dumy                                a stage that no rule of the net names turns nothing on
    --level 2                                   the same for a level
    a net without a loss                        its step is a forward pass
    loss1 (SoftmaxWithLoss) -> Power            Caffe drops the default weight of a loss that another layer reads
    engine: MKLDNN                              fields of forks that change nothing (proto/forks.py)
    noise_param { }                             fields of forks that change pixels only (proto/unread.py)

source  Caffe insert_splits.cpp: only a loss_weight that the layer states counts as a reader of its top
"""

from __future__ import annotations

from layermem.graph.net import Net
from layermem.proto.filter import has_level_rules, stages_of_rules
from layermem.proto.schema import TRAIN
from layermem.utils.similar import did_you_mean


def net_warnings(net: Net) -> tuple[str, ...]:
    """The warnings about a net, one sentence each."""
    return (
        *net.file.ignored,
        *_unknown_stages(net),
        *_unused_level(net),
        *_missing_loss(net),
        *_losses_that_are_read(net),
        *_unread(net),
    )


def _unread(net: Net) -> list[str]:
    errors = [net.placed(node.layer.unread) for node in net.nodes if node.layer.unread]
    return [f"the net can be planned, but its data cannot be read: {error}" for error in errors]


def _unknown_stages(net: Net) -> list[str]:
    known = stages_of_rules(net.file)
    names = f"its stages are {' '.join(known)}" if known else "it has none"
    return [
        f"no rule of the net names stage '{stage}'; {did_you_mean(stage, known) or names}"
        for stage in dict.fromkeys(net.options.stages)
        if stage not in known
    ]


def _unused_level(net: Net) -> list[str]:
    if not net.options.level or has_level_rules(net.file):
        return []
    return [f"no rule of the net has a level, so level {net.options.level} changes nothing"]


def _missing_loss(net: Net) -> list[str]:
    if net.phase != TRAIN or any(weight for node in net.nodes for weight in node.loss_weights):
        return []
    return ["the net has no loss: the step is a forward pass, without gradients and updates; add one"]


def _losses_that_are_read(net: Net) -> list[str]:
    read = {blob for node in net.nodes for blob in node.bottoms}
    return [
        f"layer '{node.layer.name}' ({node.layer.type}) has a top that another layer reads: its default loss_weight 1 "
        "is part of the gradient here and not in BVLC Caffe; state loss_weight: 1 to have it in both, 0 in neither"
        for node in net.nodes
        if net.phase == TRAIN and node.layer.is_loss and not node.layer.param.loss_weight and node.tops[0] in read
    ]
