"""ResNeXt-50 and -101 (32x4d) as prototxt: residual nets whose 3x3 convolutions have 32 groups.

source  Xie, Girshick, Dollar, Tu, He: Aggregated Residual Transformations for Deep Neural Networks, 2016, table 1
"""

from __future__ import annotations

from layermem.errors import InputError
from layermem.nets.prototext import MSRA, NetFiles, NetText, dummy_solver, solver
from layermem.nets.resnet import conv_norm

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
CARDINALITY, BASE_WIDTH = 32, 4


def block(net: NetText, bottom: str, name: str, width: int, stride: int, project: bool) -> str:
    """Add 1x1, 3x3 in groups with the stride, 1x1 to twice the width, and the shortcut."""
    shortcut = bottom
    if project:
        shortcut = conv_norm(
            net,
            bottom,
            f"{name}_shortcut",
            f"_{name}_shortcut",
            False,
            num_output=2 * width,
            kernel_size=1,
            stride=stride,
            bias_term=False,
        )
    x = conv_norm(net, bottom, f"{name}_a", f"_{name}_a", True, num_output=width, kernel_size=1, bias_term=False)
    x = conv_norm(
        net,
        x,
        f"{name}_b",
        f"_{name}_b",
        True,
        num_output=width,
        kernel_size=3,
        pad=1,
        stride=stride,
        group=CARDINALITY,
        bias_term=False,
    )
    x = conv_norm(net, x, f"{name}_c", f"_{name}_c", False, num_output=2 * width, kernel_size=1, bias_term=False)
    return net.relu(f"{name}_relu", net.add(name, [shortcut, x]))


def resnext(depth: int) -> NetText:
    net = NetText(
        f"ResNeXt-{depth} ({CARDINALITY}x{BASE_WIDTH}d)",
        notes=[
            f"ResNeXt-{depth}: Xie et al., Aggregated Residual Transformations for Deep Neural Networks, 2016.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    net.imagenet(224, 32, 50, unit=True)
    x = conv_norm(net, "data", "conv1", "_conv1", True, num_output=64, kernel_size=7, pad=3, stride=2, bias_term=False)
    x = net.pool("pool1", x, "MAX", kernel_size=3, stride=2)
    for stage, count in enumerate(BLOCKS[depth]):
        for index in range(count):
            width, stride = CARDINALITY * BASE_WIDTH << stage, 2 if stage and not index else 1
            x = block(net, x, f"stage{stage + 2}_{index + 1}", width, stride, index == 0)
    x = net.pool("pool5", x, "AVE", global_pooling=True)
    net.imagenet_head(net.fc("fc1000", x, num_output=1000, weight_filler=MSRA))
    return net


def net_files(depth: int) -> NetFiles:
    if depth not in BLOCKS:
        raise InputError(f"ResNeXt-{depth} is not defined (choose from {', '.join(map(str, BLOCKS))})")
    text = solver(
        ["90 passes over ILSVRC 2012 at the paper's batch of 256 (8 times 32), a tenth of the rate at 30, 60 and 80."],
        net="train_val.prototxt",
        test_iter=1000,
        test_interval=5000,
        test_initialization=False,
        base_lr=0.1,
        lr_policy="multistep",
        gamma=0.1,
        stepvalue=[150000, 300000, 400000],
        max_iter=450000,
        momentum=0.9,
        weight_decay=0.0001,
        iter_size=8,
        display=20,
        snapshot=10000,
        snapshot_prefix=f"out/resnext{depth}",
    )
    noise = dummy_solver(
        f"out/resnext{depth}_dummy", base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.0001
    )
    return NetFiles(resnext(depth), text, noise)
