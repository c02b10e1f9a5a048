"""The bytes that BVLC Caffe itself takes for a net: the baseline of comparisons.

    data, diff     of every blob, for the whole run; an in-place top shares both with its bottom
    splits         a blob with several readers gets a Split, whose tops share its data and have a diff each
    state          what layers keep between forward and backward
    parameters     values, gradients, and the optimizer's state

An LSTM or RNN takes the bytes of its unrolled net, whose layers are parts of ours too (layers/recurrent.py).

Not counted, since they depend on the machine: workspace of convolutions, the CUDA context, prefetched batches.
A test net of a solver shares the parameters, has the rest for itself, and has no diffs.
source  Caffe net.cpp, insert_splits.cpp, sgd_solver.cpp; for the state the layers' Reshape and Forward
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from layermem.graph.net import Net
from layermem.layers import Layer
from layermem.layers.base import PARTS
from layermem.proto.schema import TRAIN

FLOAT = 4  # bytes of a value, an index or a mask element: Caffe uses 32 bits for all of them
AVE = 1  # PoolingParameter.PoolMethod
MAX = 2  # EltwiseParameter.EltwiseOp
WITHIN_CHANNEL = 1  # LRNParameter.NormRegion


@dataclass(frozen=True)
class CaffeBytes:
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
    train = net.phase == TRAIN
    copies = 2 + history_count if train else 1
    return CaffeBytes(
        data=sum(_own_bytes(node.layer, DATA_SHARED) for node in net.nodes),
        diff=sum(_own_bytes(node.layer, DIFF_SHARED) for node in net.nodes) if train else 0,
        splits=_split_diffs(net) if train else 0,
        state=sum(STATE[node.layer.type](node.layer) for node in net.nodes if node.layer.type in STATE),
        parameters=copies * sum(each.param.tensor.nbytes for each in net.params.values() if not each.param.carried),
    )


def beside(test: CaffeBytes) -> int:
    """Bytes that a test net adds to a train net with the same parameters."""
    return test.total - test.parameters


# -- blobs -----------------------------------------------------------------------------------------------------

STATES = {"StateWrite", "Exposed"}  # what takes the last hidden state of a recurrent layer: no layer of Caffe's net
DIFF_SHARED = {"Flatten", "Reshape", *PARTS} - {"StateRead"}  # the top is the bottom under another shape
DATA_SHARED = {*DIFF_SHARED, "Split"}


def _own_bytes(layer: Layer, shared: set[str]) -> int:
    if layer.type in shared:
        return 0
    return sum(top.nbytes for name, top in zip(layer.top_names, layer.tops) if name not in layer.bottom_names)


def _split_diffs(net: Net) -> int:
    readers = Counter(blob for node in net.nodes if node.layer.type not in STATES for blob in node.bottoms)
    for node in net.nodes:
        for blob, weight in zip(node.tops, node.loss_weights):
            readers[blob] += 1 if weight and readers[blob] else 0  # the objective reads it too
    return sum(net.blobs[blob].nbytes * count for blob, count in readers.items() if count > 1)


# -- state of layers -------------------------------------------------------------------------------------------

StateBytes = Callable[[Layer], int]
STATE: dict[str, StateBytes] = {}


def _state(*types: str) -> Callable[[StateBytes], StateBytes]:
    """Register the bytes of state that Caffe's layers of these types keep."""

    def register(rule: StateBytes) -> StateBytes:
        STATE.update(dict.fromkeys(types, rule))
        return rule

    return register


def _in_place(layer: Layer) -> bool:
    return layer.top_names[0] == layer.bottom_names[0]


@_state("BatchNorm")
def _batch_norm(layer: Layer) -> int:
    """x normalised, its standard deviation at every element, and where in place a copy of the gradient."""
    copies = 2 + (_in_place(layer) and layer.phase == TRAIN)
    return copies * layer.bottoms[0].nbytes


@_state("Scale", "PReLU")
def _copy_of_bottom(layer: Layer) -> int:
    """The input, which the output overwrites where the layer works in place."""
    return layer.bottoms[0].nbytes if _in_place(layer) else 0


@_state("Pooling")
def _argmax(layer: Layer) -> int:
    """Where the maximum is, unless a second top says so."""
    kept = layer.param.pooling_param.pool != AVE and len(layer.tops) == 1
    return FLOAT * layer.tops[0].count if kept else 0


@_state("BN")
def _normalized_and_buffer(layer: Layer) -> int:
    return 2 * layer.bottoms[0].nbytes


@_state("ROIPooling")
def _place_of_maximum(layer: Layer) -> int:
    return FLOAT * layer.tops[0].count


@_state("SmoothL1Loss")
def _differences_errors_and_ones(layer: Layer) -> int:
    return 3 * layer.bottoms[0].nbytes


@_state("Normalize")
def _norms_and_an_image(layer: Layer) -> int:
    """The norm of each image or pixel, and one image that a step works on."""
    x = layer.bottoms[0]
    norms = x.shape[0] if layer.param.norm_param.across_spatial else x.count // x.shape[1]
    return FLOAT * norms + x.nbytes // max(1, x.shape[0])


@_state("Eltwise")
def _winner(layer: Layer) -> int:
    return FLOAT * layer.tops[0].count if layer.param.eltwise_param.operation == MAX else 0


@_state("LRN")
def _scales(layer: Layer) -> int:
    """Across channels the scale of each element; within them the blobs of a small net: split, square, pool, power."""
    return layer.bottoms[0].nbytes * (1 if layer.param.lrn_param.norm_region != WITHIN_CHANNEL else 5)


@_state("MVN")
def _means(layer: Layer) -> int:
    """A mean and a variance of each map, a blob between, and the ones that sums multiply with."""
    n, c, h, w = layer.tops[0].shape
    return layer.tops[0].nbytes + FLOAT * (2 * n * c + h * w * (c if layer.param.mvn_param.across_channels else 1))


@_state("Embed")
def _ones(layer: Layer) -> int:
    """The ones that the gradient of the bias multiplies with."""
    return FLOAT * layer.bottoms[0].count if layer.param.embed_param.bias_term else 0


@_state("Dropout")
def _mask(layer: Layer) -> int:
    return FLOAT * layer.bottoms[0].count if layer.phase == TRAIN else 0


@_state("SoftmaxWithLoss", "InfogainLoss", "SigmoidCrossEntropyLoss", "EuclideanLoss", "ContrastiveLoss")
def _as_large_as_the_first_bottom(layer: Layer) -> int:
    """The probabilities, or the differences, that backward reads."""
    return layer.bottoms[0].nbytes


@_state(*STATES)
def _diff_of_the_last_cells(layer: Layer) -> int:
    """Caffe's net copies c_T alone: a Split, whose top has a diff."""
    return layer.bottoms[0].nbytes if layer.name.endswith("/c_T") else 0


@_state("LSTMUnit")
def _gates_and_their_diffs(layer: Layer) -> int:
    return 2 * layer.bottoms[1].nbytes


@_state("Swish")
def _sigmoid_and_its_input(layer: Layer) -> int:
    return 2 * layer.bottoms[0].nbytes
