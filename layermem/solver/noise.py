"""Noise that replaces the data sets of a net: values of the right shapes, and indices that its layers accept.

    --data noise       the same noise in every run                --data noise:7     another one
    top of the data    noise
    data               numbers in [-1, 1)
    label              0 to classes - 1, where a layer that reads it states their number
    true boxes         between a tenth and half of the image along each axis, the same number for each image, of classes
                       that their readers know
    others             numbers in [0, 1): targets, probabilities

A batch depends only on the seed of the noise, the phase, the layer and the number of the batch.  Arrays that replace
data are in data/given.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from layermem.data import Feed, probe_files
from layermem.data.given import names_arrays, read_arrays
from layermem.data.noise_feed import NoiseFeed
from layermem.errors import InputError
from layermem.graph.net import Net, NetOptions, Node
from layermem.layers.data import FEEDS
from layermem.layers.given_arrays import OF_TEST, Arrays, given_arrays
from layermem.proto.read import SolverFile
from layermem.solver.build import Nets, build_nets

Data = str | Mapping[str, Any] | None  # as a user gives it: noise, a file of arrays, arrays
NOISE = re.compile(r"noise(?::([0-9]{1,18}))?")


def noise_seed(data: Data) -> int | None:
    """The seed in `noise` (0) or `noise:SEED`; None for arrays, and for the data that the net names."""
    if data is None or names_arrays(data):
        return None
    match = NOISE.fullmatch(str(data))
    if match is None:
        forms = "noise or noise:SEED, with a whole number from 0 as the seed, or a file of arrays such as data.npz"
        raise InputError(f"unknown data '{data}'; use {forms}")
    return int(match[1] or 0)


def index_limits(net: Net) -> dict[str, int]:
    """The exclusive limit of every blob that holds indices: the smallest limit of the layers that read it."""
    limits: dict[str, int] = {}
    for node in reversed(net.nodes):
        tops = [limits[top] for top in node.tops if top in limits] if node.layer.moves_values else []
        for index, blob in enumerate(node.bottoms):
            limit = node.layer.index_limit(index)
            found = [*tops, *([] if limit is None else [limit]), *([limits[blob]] if blob in limits else [])]
            if found:
                limits[blob] = min(found)
    return limits


def truth_labels(net: Net) -> dict[str, tuple[int, ...]]:
    """The labels of every blob that holds true boxes: those that all its readers know."""
    labels: dict[str, tuple[int, ...]] = {}
    for node in net.nodes:
        for index, blob in enumerate(node.bottoms):
            known = node.layer.truth_labels(index)
            if known:
                labels[blob] = tuple(each for each in labels.get(blob, known) if each in known)
    return labels


def noise_feed(net: Net, node: Node, noise: int) -> Feed:
    """Noise for the input layer `node`."""
    limits, labels = index_limits(net), truth_labels(net)
    shapes = tuple(top.shape for top in node.layer.tops)
    key = (net.phase, node.layer.name)
    feed = NoiseFeed(shapes, [limits.get(top) for top in node.tops], noise, key, [labels.get(top) for top in node.tops])
    feed.path, feed.layer = str(net.path), node.layer.name
    return feed


def nets_of_run(file: SolverFile, options: NetOptions, data: Data = None) -> Nets:
    """The nets that a Solver with these arguments trains and tests."""
    if noise_seed(data) is not None:
        return build_nets(file, replace(options, noise=True))
    if options.inputs:
        raise InputError("shapes of inputs are for noise, and data sets have their own; add data='noise'")
    files = partial(probe_files, remedy="train on noise, --data noise")
    if not isinstance(data, str | Mapping):
        return build_nets(file, replace(options, inputs=None), files)
    arrays = read_arrays(data)
    nets = build_nets(file, replace(options, inputs=None, arrays=arrays), files)
    _check_read(arrays, nets)
    return nets


def _check_read(arrays: Arrays, nets: Nets) -> None:
    """InputError for an array that no net reads, but those for tests of a solver without any."""
    layers = [(node.layer.param, net.phase) for net in nets.all for node in net.nodes if node.layer.type in FEEDS]
    read = {name for layer, phase in layers for name in given_arrays(arrays, layer, phase)}
    for name in arrays:
        if name not in read and (nets.tests or not name.startswith(OF_TEST)):
            tops = [top for layer, phase in layers if phase == nets.train.phase for top in layer.top]
            known = f"those of the train net are {', '.join(tops)}" if tops else "the train net has none"
            what = f"is given an array '{name}', and no input layer has a top of that name"
            remedy = f"rename it ({known}, and those of test nets begin with '{OF_TEST}')"
            raise InputError(f"{what}; {remedy}", path=str(nets.train.path))
