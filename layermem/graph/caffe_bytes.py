"""The bytes that BVLC Caffe itself takes for a net: the baseline of comparisons.

    data, diff     of every blob, for the whole run; an in-place top shares both with its bottom
    splits         a blob with several readers gets a Split, whose tops share its data and have a diff each
    state          what layers keep between forward and backward
    parameters     values, gradients, and the optimizer's state

An LSTM or RNN takes the bytes of its unrolled net, which has the same layers here (layers/recurrent.py).

Not counted, since they depend on the machine: workspace of convolutions, the CUDA context, prefetched batches.
A test net of a solver shares the parameters, has data and state of its own, and has no diffs.
source  Caffe net.cpp, insert_splits.cpp, sgd_solver.cpp; for the state (Layer.caffe_state_bytes) the layers' Reshape
        and Forward
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from layermem.graph.net import Net
from layermem.layers import Layer
from layermem.proto.schema import TRAIN


@dataclass(frozen=True)
class CaffeBytes:
    """Bytes of BVLC Caffe for one net, by purpose; `total` is their sum."""

    data: int
    diff: int
    splits: int
    state: int
    parameters: int

    @property
    def total(self) -> int:
        return self.data + self.diff + self.splits + self.state + self.parameters


def caffe_bytes(net: Net, *, history_count: int = 1) -> CaffeBytes:
    """Bytes for `net` in its phase; `history_count` blobs per parameter (1 for momentum, 2 for Adam and AdaDelta)."""
    train, layers = net.phase == TRAIN, [node.layer for node in net.nodes]
    copies = 2 + history_count if train else 1
    return CaffeBytes(
        data=sum(_own_bytes(layer) for layer in layers if not layer.shares_data),
        diff=sum(_own_bytes(layer) for layer in layers if not layer.shares_diff) if train else 0,
        splits=_split_diffs(net) if train else 0,
        state=sum(layer.caffe_state_bytes for layer in layers),
        parameters=copies * sum(each.param.tensor.nbytes for each in net.params.values() if not each.param.carried),
    )


def beside(test: CaffeBytes) -> int:
    """Bytes that a test net adds to a train net with the same parameters."""
    return test.total - test.parameters


# -- blobs -----------------------------------------------------------------------------------------------------


def _own_bytes(layer: Layer) -> int:
    return sum(top.nbytes for name, top in zip(layer.top_names, layer.tops) if name not in layer.bottom_names)


def _split_diffs(net: Net) -> int:
    readers = Counter(blob for node in net.nodes if node.layer.in_caffe for blob in node.bottoms)
    for node in net.nodes:
        for blob, weight in zip(node.tops, node.loss_weights):
            readers[blob] += 1 if weight and readers[blob] else 0  # the objective reads it too
    return sum(net.blobs[blob].nbytes * count for blob, count in readers.items() if count > 1)
