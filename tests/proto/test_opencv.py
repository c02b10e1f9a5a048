"""OpenCV imports deploy nets with our weights: the outputs of both agree."""

from pathlib import Path

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.graph.net import Net
from layermem.graph.train import forward_graph
from layermem.proto.read import read_net
from layermem.proto.schema import TEST, NetParameter
from layermem.proto.weights import write_weights
from layermem.runtime.runner import Runner
from layermem.solver.parameters import Parameters
from tests.compiling import compile
from tests.prototxt.calculator import layers

cv2 = pytest.importorskip("cv2", reason="needs OpenCV below 5")

PROTOTXT = Path(__file__).resolve().parents[2] / "prototxt"
NOT_DEPLOYED = ("Data", "DummyData", "Accuracy", "SoftmaxWithLoss")
NETS = {  # shape of one image, smaller than the net's if possible; OpenCV has no Clip
    "mnist": (1, 28, 28),
    "caffenet": (3, 227, 227),
    "googlenet": (3, 224, 224),
    "inception_v3": (3, 139, 139),
    "mobilenet1": (3, 64, 64),
    "resnet50": (3, 224, 224),
    "resnext50": (3, 64, 64),
    "squeezenet10": (3, 67, 67),
}


def deploy(folder: str, image: tuple[int, ...]) -> NetParameter:
    """The layers that the last loss of the net depends on, with an Input layer and a Softmax."""
    chosen = layers(PROTOTXT / folder / "train_val.prototxt", TEST)
    wanted = [layer for layer in chosen if layer.type == "SoftmaxWithLoss"][-1].bottom[0]
    net = NetParameter(name=folder)
    net.layer.add(name="data", type="Input", top=["data"]).input_param.shape.add(dim=[2, *image])
    needed, kept = {wanted}, []
    for layer in reversed(chosen):
        if layer.type not in NOT_DEPLOYED and needed & set(layer.top):
            needed |= set(layer.bottom)
            kept.append(layer)
    for layer in reversed(kept):
        net.layer.add().CopyFrom(layer)
    net.layer.add(name="prob", type="Softmax", bottom=[wanted], top=["prob"])
    return net


def randomize(runner: Runner, net: Net, rng: np.random.Generator) -> None:
    """Set statistics and biases to random values as after training: the fillers' zeros would hide mistakes."""
    for node in net.nodes:
        for index, name in enumerate(node.params):
            shape = node.layer.params[index].shape
            if node.layer.type == "BatchNorm":
                runner.write(name, [rng.normal(0, 0.1, shape), rng.uniform(0.5, 1.5, shape), np.ones(shape)][index])
            elif index == 1:
                runner.write(name, rng.normal(0, 0.1, shape))


@pytest.mark.samples(4)
@pytest.mark.parametrize("folder", NETS)
def test_opencv_gives_the_outputs_of_our_weights(folder, tmp_path):
    path = tmp_path / "deploy.prototxt"
    path.write_text(str(deploy(folder, NETS[folder])))
    rng, device = np.random.default_rng(3), get_device("cpu")
    net = Net(read_net(path), TEST)
    image = rng.normal(size=(2, *NETS[folder])).astype(np.float32)
    context = {"seed": 1, "step": 0, "iteration": 0, "rate": 0.0, "batch": {"data": [image]}}
    runner = Runner(compile([forward_graph(net, device)]), device, context)
    parameters = Parameters((net,), runner, 0)
    parameters.fill(1)
    randomize(runner, net, rng)
    ours = runner.run()["prob"]
    write_weights(tmp_path / "net.caffemodel", folder, parameters.file_layers())

    theirs = cv2.dnn.readNetFromCaffe(str(path), str(tmp_path / "net.caffemodel"))
    (tmp_path / "net.caffemodel").unlink()  # pytest keeps the folder
    theirs.setInput(image, "data")
    expected = theirs.forward("prob")
    np.testing.assert_allclose(ours.reshape(expected.shape), expected, rtol=0, atol=1e-4 * expected.max())
    assert (expected.max(1) > 1.01 * expected.min(1)).all()  # the outputs depend on the image
