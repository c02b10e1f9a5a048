"""Evaluation of weights on the TEST phase of a net."""

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.train import forward_graph
from layermem.proto.read import read_net_text
from layermem.proto.schema import TEST
from layermem.proto.weights import write_weights
from layermem.solver.scoring import Scoring, outputs_of
from tests.compiling import compile
from tests.nets import NETS

REFERENCE = get_device("reference")


@pytest.fixture
def scoring():
    net = Net(read_net_text(NETS["chain"]), TEST)
    program = compile([forward_graph(net, REFERENCE, [output.version for output in outputs_of(net)])])
    with Scoring(net, program, REFERENCE, seed=3) as scoring:
        yield scoring


def test_outputs_are_what_no_layer_reads(scoring):
    assert [(output.name, output.weight) for output in outputs_of(scoring.net)] == [("accuracy", 0), ("loss", 1)]


def test_means_are_those_of_the_batches(scoring):
    batches = list(scoring.run(3))
    assert [number for number, _ in batches] == [0, 1, 2]
    for name, mean in scoring.means.items():
        assert mean == pytest.approx(np.mean([values[name] for _, values in batches], axis=0))


def test_layers_without_weights_are_named_and_keep_their_initial_values(scoring, tmp_path):
    path = tmp_path / "w.caffemodel"
    bias = np.arange(5, dtype=np.float32)
    weight = np.zeros_like(scoring.parameters.layers()["score"][0])
    write_weights(path, "tiny", {"score": ("InnerProduct", [weight, bias])})
    assert scoring.load([str(path)]) == ["conv1", "conv2"]
    assert scoring.parameters.layers()["score"][1].tolist() == bias.tolist()
    assert scoring.parameters.layers()["conv1"][0].any()


def test_weights_that_do_not_fit_are_refused_with_their_file(scoring, tmp_path):
    path = tmp_path / "w.caffemodel"
    write_weights(path, "tiny", {"conv1": ("Convolution", [np.zeros((1, 1), np.float32)])})
    with pytest.raises(InputError, match="has 1 blobs in the file, and 2 in the net") as caught:
        scoring.load([str(path)])
    assert caught.value.path == str(path) and caught.value.layer == "conv1"
