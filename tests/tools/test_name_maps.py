"""Maps from the weights of torchvision: they name every tensor that it publishes once, with as many numbers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from layermem.cli.main import main as command
from layermem.graph.net import Net, NetOptions
from layermem.proto.read import read_net
from layermem.proto.weight_names import read_names
from layermem.proto.weights import read_weights
from layermem.solver.parameters import match_weights
from tools.name_maps import NETS, ROOT, main

# Of the sorted lines "TENSOR COUNT" of each model's state_dict without num_batches_tracked, torchvision 0.29.1.
PUBLISHED = {
    "vgg16": "1c0287ed0e864fb3",
    "vgg19": "9f20996ac9868b20",
    "squeezenet1_0": "90608a632eacff69",
    "resnext50_32x4d": "58ccaa6747491a42",
    "densenet121": "6ae7c11f144bc6f0",
    "densenet161": "60eb571be21c4956",
    "mobilenet_v2": "1341a11fcb9cfc25",
}


def net_of(name):
    return Net(read_net(ROOT / "prototxt" / name / "train_val.prototxt"), 0, NetOptions(stages=("dummy",)))


def map_of(name):
    return read_names(ROOT / "prototxt" / name / "torchvision.names")


def test_the_maps_are_those_that_the_tool_writes():
    assert main(["--check"]) == 0


@pytest.mark.parametrize("name", NETS)
def test_a_map_names_the_tensors_that_torchvision_publishes(name):
    lines, counts = map_of(name).lines, {}
    for layer in net_of(name).layers:
        for index, (_, param) in enumerate(layer.params):
            tensor = lines[layer.name, index].tensor
            if tensor is not None:
                assert tensor not in counts
                counts[tensor] = param.tensor.count
    assert len(counts) == sum(line.tensor is not None for line in lines.values())
    text = "\n".join(sorted(f"{tensor} {count}" for tensor, count in counts.items()))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == PUBLISHED[NETS[name][0]]


@pytest.mark.parametrize("name", ["squeezenet10", "mobilenet2"])
def test_weights_by_the_names_of_torchvision_go_to_the_layers(name, tmp_path):
    net, names, random = net_of(name), map_of(name), np.random.default_rng(0)
    theirs, ours = {}, {}
    for layer in net.layers:
        for index, (_, param) in enumerate(layer.params):
            line = names.lines[layer.name, index]
            value = (
                np.full(param.shape, 1, np.float32) if line.tensor is None else random.random(param.shape, np.float32)
            )
            ours[layer.name, index] = value
            if line.tensor is not None:
                theirs[line.tensor] = np.squeeze(value) if layer.name == "fc" else value
    source, target = tmp_path / "theirs.npz", tmp_path / "ours.caffemodel"
    np.savez(source, **theirs)
    words = ("convert", source, target, "--names", ROOT / "prototxt" / name / "torchvision.names")
    assert command([str(word) for word in words]) == 0
    values, left = match_weights([net], read_weights(target))
    assert not left and len(values) == len(ours)
    for layer in net.layers:
        for index, (param, _) in enumerate(layer.params):
            np.testing.assert_array_equal(np.asarray(values[param]), ours[layer.name, index])
