"""In-place layers for which BVLC Caffe computes a wrong gradient without an error.

In Caffe a blob is one array: an in-place layer overwrites values that the backward of an earlier layer, or its own,
still reads.  Here blobs are versioned, so the gradient is right under every plan; the warning explains differences from
Caffe.

    norm1 (LRN) -> norm1, relu1 (ReLU) in place on it      LRN's backward reads its top: the values before ReLU
    relu1 in place, bn1 (BatchNorm) in place on the same   ReLU's backward reads signs that BatchNorm changed
    pow1 (Power) in place                                  its backward reads what it has overwritten itself

source  Caffe's layers, forward and backward; BVLC/caffe issues 2015, 2853, 4388
"""

from __future__ import annotations

from layermem.graph.needs import Wants
from layermem.graph.net import Net, Node

REMEDY = "the gradient is right here and wrong in BVLC Caffe; give the top a name of its own to have it right in both"


def inplace_hazards(net: Net, wants: Wants) -> tuple[str, ...]:
    """A sentence for each layer whose gradient Caffe would get wrong; `wants` are the gradients that each writes."""
    array = _arrays(net)
    writers: dict[str, list[int]] = {}  # array -> nodes that write it in place
    for index, node in enumerate(net.nodes):
        for top in _in_place(node):
            writers.setdefault(array[top], []).append(index)
    hazards = []
    for index, node in enumerate(net.nodes):
        if not wants[index]:
            continue
        if _in_place(node) and not node.layer.right_in_place:
            hazards.append(f"{_name(node)} works in place, but its backward needs what it overwrites: {REMEDY}")
            continue
        for role in _caffe_reads(node, wants[index]):
            stem, number = role[0], int(role[1:])
            blob = (node.bottoms if stem == "x" else node.tops)[number]
            later = [net.nodes[i] for i in writers.get(array[blob], ()) if i > index]
            if node.layer.type == "ReLU":
                later = [writer for writer in later if not writer.layer.keeps_signs]
            if later:
                side, names = ("bottom", node.layer.bottom_names) if stem == "x" else ("top", node.layer.top_names)
                hazards.append(
                    f"{_name(node)} reads its {side} '{names[number]}' in backward, but {_name(later[0])} has "
                    f"overwritten it in place by then: {REMEDY}"
                )
                break
    return tuple(hazards)


def _arrays(net: Net) -> dict[str, str]:
    """Map each version of a blob to the version that names its array in Caffe: the first one in the same array."""
    array: dict[str, str] = {}
    for node in net.nodes:
        for name, top in zip(node.layer.top_names, node.tops):
            if name in node.layer.bottom_names:
                array[top] = array[node.bottoms[node.layer.bottom_names.index(name)]]
            elif node.layer.shares_data:
                array[top] = array[node.bottoms[0]]
            else:
                array[top] = top
    return array


def _name(node: Node) -> str:
    return f"layer '{node.layer.name}' ({node.layer.type})"


def _in_place(node: Node) -> list[str]:
    """Tops that have the name of a bottom."""
    return [top for name, top in zip(node.layer.top_names, node.tops) if name in node.layer.bottom_names]


def _caffe_reads(node: Node, wants: tuple[str, ...]) -> list[str]:
    """Roles whose arrays Caffe's backward reads: x0, x1 .., y0 .."""
    layer = node.layer
    of_weights = layer.reads_x_for_weights and any(role.startswith("dw") for role in wants)
    stems = "x" if of_weights else layer.caffe_reads
    return [f"{stem}{i}" for stem in stems for i in range(len(node.bottoms if stem == "x" else node.tops))]
