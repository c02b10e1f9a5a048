"""Runs nets on layermem's devices and models in ONNX Runtime, with the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime

from layermem.backends.base import get_device
from layermem.graph.net import Net
from layermem.graph.train import forward_graph
from layermem.proto.schema import TEST
from layermem.runtime.runner import Runner
from layermem.solver.parameters import Parameters
from layermem.solver.scoring import outputs_of
from tests.compiling import compile

Arrays = dict[str, np.ndarray]


def run_net(
    net: Net, inputs: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray], device: str = "cpu"
) -> Arrays:
    """The outputs of `net` by name, with parameters `values` in Caffe's shapes; others keep their fillers' values."""
    assert net.phase == TEST
    place = get_device(device)
    outputs = outputs_of(net)
    program = compile([forward_graph(net, place, [output.version for output in outputs])])
    feeds = {layer.name: [inputs[top] for top in layer.tops] for layer in net.layers if layer.type == "Input"}
    runner = Runner(program, place, {"seed": 0, "step": 0, "batch": feeds})
    Parameters((net,), runner, 0).fill(0)
    for name, value in values.items():
        runner.write(name, value)
    results = runner.run()
    return {output.name: results[output.version] for output in outputs}


def values_of(net: Net, rng: np.random.Generator) -> Arrays:
    """Random parameters of `net`; averages of a BatchNorm are positive."""
    values = {}
    for node in net.nodes:
        for name, param in zip(node.params, node.layer.params):
            if not param.carried and name not in values:
                value = 0.5 * rng.standard_normal(param.shape)
                if node.layer.type in ("BatchNorm", "BN"):
                    value = np.abs(value) + 0.5
                values[name] = value.astype(np.float32)
    return values


def run_onnx(model: Any, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """The outputs of a model (onnx.ModelProto) in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = {each.name for each in session.get_inputs()}
    names = [each.name for each in session.get_outputs()]
    given = {name: np.asarray(value, np.float32) for name, value in inputs.items() if name in wanted}
    return dict(zip(names, session.run(names, given)))
