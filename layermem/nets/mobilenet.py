"""MobileNet v1 and v2, width 1.0, as prototxt.

A depthwise convolution is a Convolution whose group is its number of channels; ReLU6 is a Clip to [0, 6].
source  Howard et al.: MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications, 2017, table 1
        Sandler et al.: MobileNetV2: Inverted Residuals and Linear Bottlenecks, 2018, tables 1 and 2
"""

from __future__ import annotations

from collections.abc import Callable

from layermem.errors import InputError
from layermem.nets.prototext import MSRA, NetFiles, NetText, Value, dummy_solver, solver

SEPARABLE = (  # outputs, stride of the depthwise convolution
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (1024, 2),
    (1024, 1),
)
BOTTLENECKS = (  # expansion, outputs, repeats, stride of the first
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)

Activation = Callable[[NetText, str, str], str]


def relu(net: NetText, name: str, blob: str) -> str:
    return net.relu(f"{name}/relu", blob)


def relu6(net: NetText, name: str, blob: str) -> str:
    """Add a ReLU6, not in place because backward of Caffe's Clip reads its bottom."""
    return net.layer(f"{name}/relu6", "Clip", blob, f"{name}/relu6", clip_param={"min": 0, "max": 6})


def conv_norm(
    net: NetText,
    name: str,
    bottom: str,
    outputs: int,
    activation: Activation | None,
    *,
    kernel: int = 1,
    stride: int = 1,
    depthwise: bool = False,
) -> str:
    """Add Convolution, BatchNorm, Scale and optionally an activation."""
    group: dict[str, Value] = {"group": outputs} if depthwise else {}
    shape: dict[str, Value] = {"num_output": outputs, "kernel_size": kernel, "pad": kernel // 2, "stride": stride}
    x = net.convolution(name, bottom, {**shape, **group, "bias_term": False, "weight_filler": MSRA})
    net.batch_norm(f"{name}/bn", f"{name}/scale", x)
    return activation(net, name, x) if activation else x


def started(name: str, note: str) -> NetText:
    net = NetText(name, notes=[note, "Written by tools/make_net.py; change layermem/nets, not this file."])
    net.imagenet(224, 32, 50, unit=True)
    return net


def finish(net: NetText, bottom: str, *, dropout: float = 0.0) -> NetText:
    x = net.pool("pool", bottom, "AVE", global_pooling=True)
    if dropout:
        x = net.dropout("drop", x, dropout)
    net.imagenet_head(net.fc("fc", x, num_output=1000, weight_filler=MSRA))
    return net


def version1() -> NetText:
    net = started("MobileNet v1", "MobileNet v1: Howard et al., MobileNets, 2017.")
    x, channels = conv_norm(net, "conv1", "data", 32, relu, kernel=3, stride=2), 32
    for number, (outputs, stride) in enumerate(SEPARABLE, start=2):
        x = conv_norm(net, f"conv{number}/dw", x, channels, relu, kernel=3, stride=stride, depthwise=True)
        x, channels = conv_norm(net, f"conv{number}/sep", x, outputs, relu), outputs
    return finish(net, x)


def inverted_residual(
    net: NetText, name: str, bottom: str, channels: int, outputs: int, expansion: int, stride: int
) -> str:
    """Add 1x1 to `expansion` times the channels, depthwise 3x3, and 1x1 without an activation, plus the bottom if
    shapes agree."""
    x, wide = bottom, expansion * channels
    if expansion > 1:
        x = conv_norm(net, f"{name}/expand", x, wide, relu6)
    x = conv_norm(net, f"{name}/dw", x, wide, relu6, kernel=3, stride=stride, depthwise=True)
    x = conv_norm(net, f"{name}/project", x, outputs, None)
    return net.add(f"{name}/sum", [bottom, x]) if stride == 1 and channels == outputs else x


def version2() -> NetText:
    net = started("MobileNet v2", "MobileNet v2: Sandler et al., Inverted Residuals and Linear Bottlenecks, 2018.")
    x, channels, number = conv_norm(net, "conv1", "data", 32, relu6, kernel=3, stride=2), 32, 1
    for expansion, outputs, repeats, stride in BOTTLENECKS:
        for index in range(repeats):
            number += 1
            x = inverted_residual(net, f"conv{number}", x, channels, outputs, expansion, stride if index == 0 else 1)
            channels = outputs
    return finish(net, conv_norm(net, f"conv{number + 1}", x, 1280, relu6), dropout=0.2)


VERSIONS = {1: version1, 2: version2}


def net_files(version: int) -> NetFiles:
    if version not in VERSIONS:
        raise InputError(f"MobileNet v{version} is not defined (choose from {', '.join(map(str, VERSIONS))})")
    decay = 0.00004
    text = solver(
        ["150 passes over ILSVRC 2012 at a batch of 256 (8 times 32); the rate falls linearly to 0."],
        net="train_val.prototxt",
        test_iter=1000,
        test_interval=5000,
        test_initialization=False,
        base_lr=0.1,
        lr_policy="poly",
        power=1,
        max_iter=750000,
        momentum=0.9,
        weight_decay=decay,
        iter_size=8,
        display=20,
        snapshot=10000,
        snapshot_prefix=f"out/mobilenet{version}",
    )
    noise = dummy_solver(
        f"out/mobilenet{version}_dummy", base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=decay
    )
    return NetFiles(VERSIONS[version](), text, noise)
