"""SqueezeNet 1.0 and 1.1 as prototxt.

source  Iandola et al.: SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size, 2016,
        table 1 and figure 2; 1.1 is the authors' later form, with 2.4 times less computation
"""

from __future__ import annotations

from dataclasses import dataclass

from layermem.errors import InputError
from layermem.nets.prototext import NetFiles, NetText, dummy_solver, filler, solver

XAVIER = filler("xavier")
LAST = filler("gaussian", mean=0, std=0.01)  # filler of the last convolution
FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))  # squeeze, each expand


@dataclass(frozen=True)
class Form:
    """first   outputs and kernel of the first convolution
    pools   numbers of the fire modules that a pooling follows
    """

    first: tuple[int, int]
    pools: tuple[int, int]


FORMS = {10: Form((96, 7), (4, 8)), 11: Form((64, 3), (3, 5))}


def fire(net: NetText, name: str, bottom: str, squeeze: int, expand: int) -> str:
    """Add 1x1 to `squeeze` channels, then parallel 1x1 and 3x3 to `expand` channels each."""

    def conv_relu(part: str, source: str, outputs: int, kernel: int) -> str:
        x = net.conv(
            f"{name}/{part}", source, num_output=outputs, kernel_size=kernel, pad=kernel // 2, weight_filler=XAVIER
        )
        return net.relu(f"{name}/relu_{part}", x)

    x = conv_relu("squeeze1x1", bottom, squeeze, 1)
    return net.concat(f"{name}/concat", [conv_relu("expand1x1", x, expand, 1), conv_relu("expand3x3", x, expand, 3)])


def squeezenet(version: int) -> NetText:
    label = f"{version / 10:.1f}"
    net = NetText(
        f"SqueezeNet {label}",
        notes=[
            f"SqueezeNet {label}: Iandola et al., AlexNet-level accuracy with 50x fewer parameters, 2016.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    net.imagenet(227, 32, 25)
    x = squeezenet_layers(net, version)
    x = net.conv("conv10", x, num_output=1000, kernel_size=1, weight_filler=LAST)
    x = net.pool("pool10", net.relu("relu_conv10", x), "AVE", global_pooling=True)
    net.imagenet_head(x)
    return net


def squeezenet_layers(net: NetText, version: int) -> str:
    """Add the layers from "data" to the bottom of the last convolution, for images of any size."""
    form = FORMS[version]
    outputs, kernel = form.first
    x = net.conv("conv1", "data", num_output=outputs, kernel_size=kernel, stride=2, weight_filler=XAVIER)
    x = net.pool("pool1", net.relu("relu_conv1", x), "MAX", kernel_size=3, stride=2)
    for number, (squeeze, expand) in enumerate(FIRES, start=2):
        x = fire(net, f"fire{number}", x, squeeze, expand)
        if number in form.pools:
            x = net.pool(f"pool{number}", x, "MAX", kernel_size=3, stride=2)
    return net.dropout("drop9", x, 0.5)


def net_files(version: int) -> NetFiles:
    """The files of SqueezeNet; `version` is 10 for 1.0 and 11 for 1.1."""
    if version not in FORMS:
        raise InputError(f"SqueezeNet {version} is not defined (choose from {', '.join(map(str, FORMS))}: 1.0, 1.1)")
    text = solver(
        ["The authors' schedule: the rate falls linearly over 170,000 steps; their batch of 512 is 16 times 32."],
        net="train_val.prototxt",
        test_iter=2000,
        test_interval=1000,
        test_initialization=False,
        base_lr=0.04,
        lr_policy="poly",
        power=1,
        max_iter=170000,
        momentum=0.9,
        weight_decay=0.0002,
        iter_size=16,
        display=40,
        snapshot=1000,
        snapshot_prefix=f"out/squeezenet{version}",
    )
    noise = dummy_solver(
        f"out/squeezenet{version}_dummy", base_lr=0.001, lr_policy="fixed", momentum=0.9, weight_decay=0.0002
    )
    return NetFiles(squeezenet(version), text, noise)
