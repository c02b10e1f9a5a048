"""Wide residual networks for CIFAR-10 as prototxt.

    wrn(28, 10)    depth = 6n + 4: three stages of n blocks, 10 times as wide as those of ResNet

A block normalizes before each of its two 3x3 convolutions; where its width or size changes, the shortcut is a 1x1
convolution of the first normalization.
source  Zagoruyko, Komodakis: Wide Residual Networks, 2016; trained with the settings of its section 3
"""

from __future__ import annotations

from layermem.errors import InputError
from layermem.nets.prototext import MSRA, WEIGHT_AND_BIAS, NetFiles, NetText, Value, dummy_solver, solver
from layermem.nets.resnet import cifar_data

DEPTH, WIDENING = 28, 10


def norm_relu(net: NetText, bottom: str, name: str) -> str:
    """Add BatchNorm to a top of its own, and Scale and ReLU in place."""
    x = net.layer(f"{name}_bn", "BatchNorm", bottom, f"{name}_bn")
    net.layer(f"{name}_scale", "Scale", x, x, scale_param={"bias_term": True})
    return net.relu(f"{name}_relu", x)


def conv(net: NetText, bottom: str, name: str, outputs: int, kernel: int, stride: int) -> str:
    fields: dict[str, Value] = {"num_output": outputs, "kernel_size": kernel, "stride": stride, "bias_term": False}
    return net.convolution(name, bottom, {**fields, "pad": kernel // 2, "weight_filler": MSRA})


def block(net: NetText, x: str, name: str, width: int, stride: int, project: bool) -> str:
    first = norm_relu(net, x, f"{name}a")
    shortcut = conv(net, first, f"{name}_shortcut", width, 1, stride) if project else x
    y = conv(net, first, f"{name}a_conv", width, 3, stride)
    y = conv(net, norm_relu(net, y, f"{name}b"), f"{name}b_conv", width, 3, 1)
    return net.add(name, [shortcut, y])


def wrn(depth: int, widening: int) -> NetText:
    each, odd = divmod(depth - 4, 6)
    if odd or each < 1:
        raise InputError(f"WRN-{depth} is not defined; use a depth of 6n + 4: 16, 22, 28, 40, ...")
    net = NetText(
        f"WRN-{depth}-{widening}",
        notes=[
            f"WRN-{depth}-{widening} for CIFAR-10: Zagoruyko, Komodakis, Wide Residual Networks, 2016.",
            "Training images carry a border of 4 (tools/make_cifar10.py --pad 4); 32x32 is cropped at random.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    cifar_data(net, 128, 100)
    x = conv(net, "data", "conv1", 16, 3, 1)
    for stage, width in enumerate((16, 32, 64), start=2):
        for index in range(each):
            first = index == 0
            stride = 2 if first and stage > 2 else 1
            x = block(net, x, f"conv{stage}_{index + 1}", width * widening, stride, first)
    x = net.pool("pool", norm_relu(net, x, "last"), "AVE", global_pooling=True)
    x = net.fc("fc10", x, param=WEIGHT_AND_BIAS, num_output=10, weight_filler=MSRA)
    net.accuracy("accuracy", x)
    net.loss("loss", x)
    return net


def net_files() -> NetFiles:
    folder = f"wrn{DEPTH}_{WIDENING}"
    text = solver(
        ["200 epochs of 391 batches; a fifth of the rate after epochs 60, 120 and 160: as in the paper."],
        net="train_val.prototxt",
        test_iter=100,
        test_interval=391,
        test_initialization=False,
        base_lr=0.1,
        lr_policy="multistep",
        gamma=0.2,
        stepvalue=[391 * epoch for epoch in (60, 120, 160)],
        max_iter=391 * 200,
        momentum=0.9,
        weight_decay=0.0005,
        type="Nesterov",
        display=20,
        snapshot=391 * 20,
        snapshot_prefix=f"out/{folder}",
    )
    noise = dummy_solver(
        f"out/{folder}_dummy", base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.0005, type="Nesterov"
    )
    return NetFiles(wrn(DEPTH, WIDENING), text, noise)
