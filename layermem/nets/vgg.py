"""VGG-16 and VGG-19 as prototxt.

Layers have the names in the weights that the authors published (conv1_1 ... fc8).
source  Simonyan, Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition, 2014, nets D and E
"""

from __future__ import annotations

from layermem.errors import InputError
from layermem.nets.prototext import CONSTANT, WEIGHT_AND_BIAS, NetFiles, NetText, dummy_solver, filler, solver

CONVOLUTIONS = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
WIDTHS = (64, 128, 256, 512, 512)


def vgg(depth: int) -> NetText:
    net = NetText(
        f"VGG-{depth}",
        notes=[
            f"VGG-{depth}: Simonyan, Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    net.imagenet(224, 64, 50, unit=True)  # msra preserves the scale of the input up to the last layer
    x = "data"
    for stage, (count, width) in enumerate(zip(CONVOLUTIONS[depth], WIDTHS), start=1):
        for index in range(1, count + 1):
            # msra, because with the paper's gaussian of 0.01 these nets train only from a pretrained shallower one
            x = net.conv(
                f"conv{stage}_{index}",
                x,
                param=WEIGHT_AND_BIAS,
                num_output=width,
                kernel_size=3,
                pad=1,
                weight_filler=filler("msra"),
                bias_filler=CONSTANT,
            )
            x = net.relu(f"relu{stage}_{index}", x)
        x = net.pool(f"pool{stage}", x, "MAX", kernel_size=2, stride=2)
    for name, outputs in (("6", 4096), ("7", 4096), ("8", 1000)):
        x = net.fc(
            f"fc{name}",
            x,
            param=WEIGHT_AND_BIAS,
            num_output=outputs,
            weight_filler=filler("gaussian", std=0.01),
            bias_filler=CONSTANT,
        )
        if name != "8":
            x = net.dropout(f"drop{name}", net.relu(f"relu{name}", x), 0.5)
    net.imagenet_head(x)
    return net


def net_files(depth: int) -> NetFiles:
    if depth not in CONVOLUTIONS:
        raise InputError(f"VGG-{depth} is not defined (choose from {', '.join(map(str, CONVOLUTIONS))})")
    text = solver(
        ["The paper's rate, decay and batch (256 is 4 times 64); a tenth of the rate thrice on the way."],
        net="train_val.prototxt",
        test_iter=1000,
        test_interval=5000,
        test_initialization=False,
        base_lr=0.01,
        lr_policy="step",
        gamma=0.1,
        stepsize=100000,
        max_iter=370000,
        momentum=0.9,
        weight_decay=0.0005,
        iter_size=4,
        display=20,
        snapshot=10000,
        snapshot_prefix=f"out/vgg{depth}",
    )
    noise = dummy_solver(f"out/vgg{depth}_dummy", base_lr=0.001, lr_policy="fixed", momentum=0.9, weight_decay=0.0005)
    return NetFiles(vgg(depth), text, noise)
