"""Inception v3 as prototxt, with its auxiliary loss.

source  Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture for Computer Vision, 2015,
        table 1 and figures 5 to 7; channels as in the authors' released model
"""

from __future__ import annotations

from layermem.nets.prototext import MSRA, NetFiles, NetText, Value, dummy_solver, solver

Step = tuple[int, int, int, int]  # outputs, kernel height, kernel width, stride; padded to keep the size at stride 1


def unit(net: NetText, name: str, bottom: str, step: Step, *, padded: bool = True) -> str:
    """Add Convolution, BatchNorm, Scale and ReLU."""
    outputs, height, width, stride = step
    shape: dict[str, Value] = {"kernel_size": height}
    if height != width:
        shape = {"kernel_h": height, "kernel_w": width}
    if padded and stride == 1 and (height, width) != (1, 1):
        shape |= {"pad": height // 2} if height == width else {"pad_h": height // 2, "pad_w": width // 2}
    if stride > 1:
        shape |= {"stride": stride}
    x = net.convolution(name, bottom, {"num_output": outputs, **shape, "bias_term": False, "weight_filler": MSRA})
    net.batch_norm(f"{name}/bn", f"{name}/scale", x)
    return net.relu(f"{name}/relu", x)


def chain(net: NetText, name: str, bottom: str, *steps: Step) -> str:
    for number, step in enumerate(steps, start=1):
        bottom = unit(net, f"{name}_{number}" if len(steps) > 1 else name, bottom, step)
    return bottom


def pooled(net: NetText, name: str, bottom: str, outputs: int) -> str:
    """Add the average of the 3x3 neighbours, then 1x1."""
    x = net.pool(f"{name}/pool", bottom, "AVE", kernel_size=3, stride=1, pad=1)
    return unit(net, f"{name}/pool_proj", x, (outputs, 1, 1, 1))


def reduced(net: NetText, name: str, bottom: str) -> str:
    return net.pool(f"{name}/pool", bottom, "MAX", kernel_size=3, stride=2)


def block35(net: NetText, name: str, x: str, pool: int) -> str:
    return net.concat(
        name,
        [
            chain(net, f"{name}/1x1", x, (64, 1, 1, 1)),
            chain(net, f"{name}/5x5", x, (48, 1, 1, 1), (64, 5, 5, 1)),
            chain(net, f"{name}/3x3", x, (64, 1, 1, 1), (96, 3, 3, 1), (96, 3, 3, 1)),
            pooled(net, name, x, pool),
        ],
    )


def reduction35(net: NetText, name: str, x: str) -> str:
    return net.concat(
        name,
        [
            chain(net, f"{name}/3x3", x, (384, 3, 3, 2)),
            chain(net, f"{name}/double3x3", x, (64, 1, 1, 1), (96, 3, 3, 1), (96, 3, 3, 2)),
            reduced(net, name, x),
        ],
    )


def block17(net: NetText, name: str, x: str, c: int) -> str:
    """Add 7x7 convolutions as 1x7 and 7x1, through `c` channels."""
    return net.concat(
        name,
        [
            chain(net, f"{name}/1x1", x, (192, 1, 1, 1)),
            chain(net, f"{name}/7x7", x, (c, 1, 1, 1), (c, 1, 7, 1), (192, 7, 1, 1)),
            chain(net, f"{name}/double7x7", x, (c, 1, 1, 1), (c, 7, 1, 1), (c, 1, 7, 1), (c, 7, 1, 1), (192, 1, 7, 1)),
            pooled(net, name, x, 192),
        ],
    )


def reduction17(net: NetText, name: str, x: str) -> str:
    return net.concat(
        name,
        [
            chain(net, f"{name}/3x3", x, (192, 1, 1, 1), (320, 3, 3, 2)),
            chain(net, f"{name}/7x7", x, (192, 1, 1, 1), (192, 1, 7, 1), (192, 7, 1, 1), (192, 3, 3, 2)),
            reduced(net, name, x),
        ],
    )


def block8(net: NetText, name: str, x: str) -> str:
    """Add 3x3 convolutions as 1x3 parallel to 3x1."""
    single = chain(net, f"{name}/3x3", x, (384, 1, 1, 1))
    double = chain(net, f"{name}/double3x3", x, (448, 1, 1, 1), (384, 3, 3, 1))
    split = [
        unit(net, f"{name}/{branch}_{height}x{width}", source, (384, height, width, 1))
        for branch, source in (("3x3", single), ("double3x3", double))
        for height, width in ((1, 3), (3, 1))
    ]
    return net.concat(name, [chain(net, f"{name}/1x1", x, (320, 1, 1, 1)), *split, pooled(net, name, x, 192)])


def auxiliary_loss(net: NetText, x: str) -> None:
    x = net.pool("aux/pool", x, "AVE", kernel_size=5, stride=3)
    x = unit(net, "aux/1x1", x, (128, 1, 1, 1))
    x = unit(net, "aux/5x5", x, (768, 5, 5, 1), padded=False)
    x = net.fc("aux/fc", x, num_output=1000, weight_filler=MSRA)
    net.loss("aux/loss", x, weight=0.4)


def inception_v3() -> NetText:
    net = NetText(
        "Inception v3",
        notes=[
            "Inception v3: Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2015.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    net.imagenet(299, 32, 50, unit=True)
    x = unit(net, "conv1", "data", (32, 3, 3, 2))
    x = unit(net, "conv2", x, (32, 3, 3, 1), padded=False)
    x = unit(net, "conv3", x, (64, 3, 3, 1))
    x = net.pool("pool3", x, "MAX", kernel_size=3, stride=2)
    x = unit(net, "conv4", x, (80, 1, 1, 1))
    x = unit(net, "conv5", x, (192, 3, 3, 1), padded=False)
    x = net.pool("pool5", x, "MAX", kernel_size=3, stride=2)
    for number, pool in enumerate((32, 64, 64), start=1):
        x = block35(net, f"mixed35_{number}", x, pool)
    x = reduction35(net, "reduction35", x)
    for number, c in enumerate((128, 160, 160, 192), start=1):
        x = block17(net, f"mixed17_{number}", x, c)
    auxiliary_loss(net, x)
    x = reduction17(net, "reduction17", x)
    for number in (1, 2):
        x = block8(net, f"mixed8_{number}", x)
    x = net.pool("pool8", x, "AVE", global_pooling=True)
    x = net.fc("fc", net.dropout("drop", x, 0.5), num_output=1000, weight_filler=MSRA)
    net.imagenet_head(x)
    return net


def net_files() -> NetFiles:
    text = solver(
        ["100 passes over ILSVRC 2012 at the paper's batch of 32; the rate falls by 0.94 every second pass."],
        net="train_val.prototxt",
        test_iter=1000,
        test_interval=20000,
        test_initialization=False,
        base_lr=0.045,
        lr_policy="step",
        gamma=0.94,
        stepsize=80000,
        max_iter=4000000,
        type="RMSProp",
        rms_decay=0.9,
        delta=1,
        weight_decay=0.00004,
        clip_gradients=2,
        display=100,
        snapshot=40000,
        snapshot_prefix="out/inception_v3",
    )
    noise = dummy_solver("out/inception_v3_dummy", base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.00004)
    return NetFiles(inception_v3(), text, noise)
