"""Residual networks of any depth, as prototxt.

    imagenet(50, split(50), 32, 50)    bottlenecks, depth = 3 * blocks + 2; training batch 32, test batch 50
    cifar(20, 128, 100)                two 3x3 convolutions per block, depth = 6n + 2

Layers have the names in the weights that the authors published (res2a_branch2a, bn2a_branch2a, scale2a_branch2a, ...),
so that `--weights` finds its layers.  In the CIFAR family, shortcuts at which the width grows are 1x1 projections.
source  He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2015
"""

from __future__ import annotations

from layermem.errors import InputError
from layermem.nets.prototext import MSRA, WEIGHT_AND_BIAS, NetFiles, NetText, Value, Word, dummy_solver, filler, solver

PUBLISHED = {
    50: (3, 4, 6, 3),  # He et al. 2015, table 1
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    1001: (3, 57, 270, 3),  # this and the next are the deep nets of Layrub (Liu et al. 2018)
    1517: (3, 83, 416, 3),
}
STAGE_WIDTHS = (64, 128, 256, 512)


def split(depth: int) -> tuple[int, int, int, int]:
    """Blocks of the four stages: as published, otherwise 3 in the outer stages and the rest 1 : 5, as in
    ResNet-1517."""
    if depth in PUBLISHED:
        return PUBLISHED[depth]
    blocks, odd = divmod(depth - 2, 3)
    if odd or blocks < 12:
        raise InputError(f"ResNet-{depth} is not defined; use 3 * blocks + 2, from 38 on, or give the blocks")
    second = max(1, round((blocks - 6) / 6))
    return 3, second, blocks - 6 - second, 3


def block_name(stage: int, index: int, count: int, depth: int) -> str:
    """2a, 2b, 2c; from ResNet-101 on, long stages are named 3a, 3b1, 3b2, ..."""
    long = depth >= 101 and count > 3
    letter = ("a" if index == 0 else f"b{index}") if long else chr(ord("a") + index) if count <= 26 else f"b{index}"
    return f"{stage}{letter}"


def conv_norm(net: NetText, bottom: str, top: str, norm: str, relu: bool, **fields: Value) -> str:
    """Add Convolution, BatchNorm, Scale, and a ReLU unless the sum comes first."""
    net.convolution(top, bottom, {**fields, "weight_filler": MSRA})
    net.batch_norm(f"bn{norm}", f"scale{norm}", top)
    return net.relu(f"{top}_relu", top) if relu else top


def bottleneck(net: NetText, bottom: str, name: str, width: int, stride: int, project: bool) -> str:
    """Add 1x1 reduction, 3x3, 1x1 expansion to four times the width, and the shortcut; the first 1x1 has the stride."""
    shortcut = bottom
    if project:
        shortcut = conv_norm(
            net,
            bottom,
            f"res{name}_branch1",
            f"{name}_branch1",
            False,
            num_output=4 * width,
            kernel_size=1,
            stride=stride,
            bias_term=False,
        )
    x = bottom
    for part, outputs, kernel, step in (("2a", width, 1, stride), ("2b", width, 3, 1), ("2c", 4 * width, 1, 1)):
        pad: dict[str, Value] = {"pad": 1} if kernel == 3 else {}
        x = conv_norm(
            net,
            x,
            f"res{name}_branch{part}",
            f"{name}_branch{part}",
            part != "2c",
            num_output=outputs,
            kernel_size=kernel,
            **pad,
            stride=step,
            bias_term=False,
        )
    return net.relu(f"res{name}_relu", net.add(f"res{name}", [shortcut, x]))


def imagenet(depth: int, blocks: tuple[int, ...], batch: int, test_batch: int) -> NetText:
    net = NetText(
        f"ResNet-{depth}",
        notes=[
            f"ResNet-{depth}: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, 2015.",
            f"Blocks {', '.join(map(str, blocks))}.  "
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    net.imagenet(224, batch, test_batch)
    # The published ResNet-50 has a bias here, the deeper ones have none; BatchNorm cancels it.
    bias: dict[str, Value] = {} if depth == 50 else {"bias_term": False}
    x = conv_norm(net, "data", "conv1", "_conv1", True, num_output=64, kernel_size=7, pad=3, stride=2, **bias)
    x = net.pool("pool1", x, "MAX", kernel_size=3, stride=2)
    for stage, (count, width) in enumerate(zip(blocks, STAGE_WIDTHS), start=2):
        for index in range(count):
            stride = 2 if stage > 2 and index == 0 else 1
            x = bottleneck(net, x, block_name(stage, index, count, depth), width, stride, index == 0)
    x = net.pool("pool5", x, "AVE", kernel_size=7, stride=1)
    x = net.fc("fc1000", x, param=WEIGHT_AND_BIAS, num_output=1000, weight_filler=MSRA)
    net.imagenet_head(x)
    return net


def basic(net: NetText, bottom: str, name: str, width: int, stride: int, project: bool) -> str:
    """Add two 3x3 convolutions and the shortcut."""
    shape: dict[str, Value] = {"kernel_size": 3, "pad": 1, "bias_term": False}
    x = conv_norm(
        net, bottom, f"res{name}_branch2a", f"{name}_branch2a", True, num_output=width, stride=stride, **shape
    )
    x = conv_norm(net, x, f"res{name}_branch2b", f"{name}_branch2b", False, num_output=width, stride=1, **shape)
    if project:
        bottom = conv_norm(
            net,
            bottom,
            f"res{name}_branch1",
            f"{name}_branch1",
            False,
            num_output=width,
            kernel_size=1,
            stride=stride,
            bias_term=False,
        )
    return net.relu(f"res{name}_relu", net.add(f"res{name}", [bottom, x]))


def cifar_layers(net: NetText, depth: int) -> str:
    """Add the CIFAR family from "data" to the means of its last channels, for images of any size."""
    each = cifar_blocks(depth)
    x = conv_norm(net, "data", "conv1", "_conv1", True, num_output=16, kernel_size=3, pad=1, stride=1, bias_term=False)
    for stage, width in enumerate((16, 32, 64), start=2):
        for index in range(each):
            first = stage > 2 and index == 0
            x = basic(net, x, block_name(stage, index, each, depth), width, 2 if first else 1, first)
    return net.layer("pool4", "Pooling", x, "pool4", pooling_param={"pool": Word("AVE"), "global_pooling": True})


def cifar_blocks(depth: int) -> int:
    """Number of blocks in each of the three stages."""
    each, odd = divmod(depth - 2, 6)
    if odd or each < 1:
        raise InputError(f"ResNet-{depth} is not defined for CIFAR-10; use a depth of 6n + 2: 20, 32, 44, 56, 110, ...")
    return each


def cifar_data(net: NetText, batch: int, test_batch: int) -> None:
    """Add CIFAR-10 from LMDBs, or dummy data in stage "dummy"."""
    for phase, count, source in (("TRAIN", batch, "train_pad4"), ("TEST", test_batch, "test")):
        mean = [113.9, 123.0, 125.3]
        transform: dict[str, Value] = {"mirror": phase == "TRAIN", "crop_size": 32, "mean_value": mean, "scale": 0.0157}
        net.data(phase, f"examples/cifar10/cifar10_{source}_lmdb", count, transform)
    for phase, count in (("TRAIN", batch), ("TEST", test_batch)):
        net.dummy(phase, [count, 3, 32, 32], [count], 10)


def cifar(depth: int, batch: int, test_batch: int) -> NetText:
    cifar_blocks(depth)
    net = NetText(
        f"ResNet-{depth} (CIFAR-10)",
        notes=[
            f"ResNet-{depth} for CIFAR-10: He et al., Deep Residual Learning for Image Recognition, 2015, 4.2.",
            "Training images carry a border of 4 (tools/make_cifar10.py --pad 4); 32x32 is cropped at random.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    cifar_data(net, batch, test_batch)
    x = cifar_layers(net, depth)
    x = net.fc("fc10", x, param=WEIGHT_AND_BIAS, num_output=10, weight_filler=filler("msra"))
    net.accuracy("accuracy", x)
    net.loss("loss", x)
    return net


def _check_depth(depth: int, blocks: tuple[int, ...]) -> None:
    if len(blocks) != 4 or min(blocks) < 1 or 3 * sum(blocks) + 2 != depth:
        raise InputError(
            f"four stages of {blocks} blocks make a depth of {3 * sum(blocks) + 2}, not {depth}; give one of them"
        )


def net_files(
    depth: int,
    *,
    cifar10: bool = False,
    blocks: tuple[int, ...] | None = None,
    batch: int | None = None,
    folder: str | None = None,
) -> NetFiles:
    """ResNet-`depth` of the ImageNet family, or of the CIFAR-10 family, with snapshots in out/`folder`."""
    folder = folder or f"resnet{depth}"
    common: dict[str, Value] = {"gamma": 0.1, "lr_policy": "multistep", "momentum": 0.9, "weight_decay": 0.0001}
    schedule: dict[str, Value]
    if cifar10:
        net = cifar(depth, batch or 128, 100)
        notes = ["64,000 steps of batch 128, a tenth of the rate at 32,000 and 48,000: as in the paper."]
        schedule = {"stepvalue": [32000, 48000], "max_iter": 64000, "test_iter": 100, "test_interval": 500}
    else:
        blocks = split(depth) if blocks is None else blocks
        _check_depth(depth, blocks)
        net = imagenet(depth, blocks, batch or 32, 50 if depth < 1000 else 1)
        notes = ["600,000 steps, a tenth of the rate at 320,000 and 480,000; the paper's batch of 256 is 8 times 32."]
        test_iter = 1000 if depth < 1000 else 50000
        schedule = {"stepvalue": [320000, 480000], "max_iter": 600000, "test_iter": test_iter, "test_interval": 5000}
        if not batch:
            schedule["iter_size"] = 8
    text = solver(
        notes,
        net="train_val.prototxt",
        **schedule,
        test_initialization=False,
        base_lr=0.1,
        **common,
        display=20,
        snapshot=10000,
        snapshot_prefix=f"out/{folder}",
    )
    noise = dummy_solver(f"out/{folder}_dummy", base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.0001)
    return NetFiles(net, text, noise)
