"""Models that PyTorch exports: their outputs, and training that starts from them.  Skipped where torch is absent."""

import io
import warnings

import numpy as np
import pytest

from layermem.integrations.onnx import convert, load
from layermem.proto.weights import read_weights
from tests.integrations.onnx.running import run_net
from tests.integrations.onnx.test_importing import net_and_values

torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):
    """A block of a ResNet-18."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.down = (
            nn.Sequential()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.down(x))


def resnet18(width=4):
    sizes = [(1, 1, 1), (1, 1, 1), (1, 2, 2), (2, 2, 1), (2, 4, 2), (4, 4, 1), (4, 8, 2), (8, 8, 1)]
    blocks = [Block(width * a, width * b, stride) for a, b, stride in sizes]
    first = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


class Inverted(nn.Module):
    """A block of a MobileNetV2."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.add, wide = stride == 1 and inputs == outputs, 6 * inputs
        layers = [nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        layers += [nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return x + self.layers(x) if self.add else self.layers(x)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean([2, 3])


def mobilenet2():
    first = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()]
    blocks = [Inverted(8, 8, 1), Inverted(8, 12, 2), Inverted(12, 12, 1)]
    return nn.Sequential(*first, *blocks, Mean(), nn.Dropout(0.2), nn.Linear(12, 10))


def exported(net, x, opset, tmp_path):
    """The file that PyTorch exports for any batch."""
    net.eval()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.2)
                module.running_var.uniform_(0.5, 2)
    path, names = tmp_path / "m.onnx", {"input_names": ["data"], "output_names": ["score"], "opset_version": opset}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if opset < 18:
            axes = {"data": {0: "batch"}, "score": {0: "batch"}}
            torch.onnx.export(net, (x,), path, dynamo=False, dynamic_axes=axes, **names)
        else:
            pytest.importorskip("onnxscript")
            shapes = ({0: torch.export.Dim("batch")},)
            torch.onnx.export(net, (x,), path, dynamo=True, dynamic_shapes=shapes, verbose=False, **names)
    return path


@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize("make", [resnet18, mobilenet2])
def test_pytorchs_models_give_pytorchs_outputs(make, opset, tmp_path):
    torch.manual_seed(0)
    net, x = make(), torch.randn(2, 3, 64, 64)
    path = exported(net, x, opset, tmp_path)
    ours, values = net_and_values(load(path, batch=2))
    (score,) = run_net(ours, {"data": x.numpy()}, values).values()
    assert abs(score - net(x).detach().numpy()).max() <= 1e-4


def test_a_model_of_pytorch_can_be_fine_tuned(tmp_path, layermem):
    torch.manual_seed(0)
    path = exported(mobilenet2(), torch.randn(2, 3, 32, 32), 17, tmp_path)
    imported, weights = convert(path, tmp_path / "deploy.prototxt", batch=4)
    data = 'layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {'
    shapes = "shape { dim: 4 dim: 3 dim: 32 dim: 32 } shape { dim: 4 }"
    loss = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" }\n'
    del imported.net.layer[0]
    filler = 'data_filler { type: "gaussian" } data_filler { value: 3 }'
    (tmp_path / "train.prototxt").write_text(f"{data} {shapes} {filler} }} }}\n{imported.prototxt}{loss}")
    solver = f'net: "{tmp_path}/train.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 max_iter: 8 display: 1\n'
    (tmp_path / "solver.prototxt").write_text(f'{solver} snapshot_prefix: "{tmp_path}/tuned"')
    ended = layermem("train", "--solver", tmp_path / "solver.prototxt", "--weights", weights)
    losses = [float(line.rsplit("loss = ", 1)[1]) for line in io.StringIO(ended.err + ended.out) if ", loss = " in line]
    assert ended.code == 0 and losses[-1] < losses[0]
    before, after = read_weights(weights), read_weights(tmp_path / "tuned_iter_8.caffemodel")
    name = next(iter(before))
    assert before[name][0].shape == after[name][0].shape and not np.array_equal(before[name][0], after[name][0])
