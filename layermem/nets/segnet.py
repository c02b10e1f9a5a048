"""SegNet as prototxt: labels of 11 kinds for each pixel of the road scenes of CamVid.

An encoder as VGG-16, whose poolings keep the places of their maxima, and its mirror image, which puts values back to
them.
Without a data set the net reads noise; the stage 'images' (which solver.prototxt turns on) reads lists of images and of
label images instead, as those of alexgkendall/SegNet-Tutorial.
source  Badrinarayanan, Kendall, Cipolla: SegNet, 2015; layers have the names of alexgkendall/SegNet-Tutorial
"""

from __future__ import annotations

from layermem.nets.prototext import (
    CONSTANT,
    MSRA,
    WEIGHT_AND_BIAS,
    NetFiles,
    NetText,
    Value,
    Word,
    dummy_solver,
    filler,
    solver,
)
from layermem.nets.vgg import CONVOLUTIONS, WIDTHS

HEIGHT, WIDTH, CLASSES, BATCH = 360, 480, 11, 4
NORM: Value = {"scale_filler": filler("constant", value=1), "shift_filler": filler("constant", value=0.001)}


def conv_norm_relu(net: NetText, name: str, bottom: str, outputs: int) -> str:
    fields: dict[str, Value] = {"num_output": outputs, "kernel_size": 3, "pad": 1, "weight_filler": MSRA}
    x = net.convolution(name, bottom, {**fields, "bias_filler": CONSTANT}, param=WEIGHT_AND_BIAS)
    net.layer(f"{name}_bn", "BN", x, x, bn_param=NORM)
    return net.relu(f"relu_{name}", x)


def data_layers(net: NetText) -> None:
    """Random data, or images with --stage images."""
    for phase in ("TRAIN", "TEST"):
        net.dummy(phase, [BATCH, 3, HEIGHT, WIDTH], [BATCH, 1, HEIGHT, WIDTH], CLASSES, {"not_stage": "images"})
    for phase in ("TRAIN", "TEST"):
        net.layer(
            "data",
            "DenseImageData",
            [],
            ["data", "label"],
            include={"phase": Word(phase), "stage": "images"},
            dense_image_data_param={
                "source": f"data/segnet/{phase.lower()}.txt",
                "batch_size": BATCH,
                "shuffle": phase == "TRAIN",
            },
        )


def segnet() -> NetText:
    net = NetText(
        "SegNet",
        notes=[
            "SegNet: Badrinarayanan, Kendall, Cipolla, 2015, for images of 360x480.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    data_layers(net)
    x, sizes = "data", [(HEIGHT, WIDTH)]
    stages = list(zip(CONVOLUTIONS[16], WIDTHS))
    for stage, (count, width) in enumerate(stages, start=1):
        for index in range(1, count + 1):
            x = conv_norm_relu(net, f"conv{stage}_{index}", x, width)
        tops = [f"pool{stage}", f"pool{stage}_mask"]
        maximum: Value = {"kernel_size": 2, "stride": 2}
        x = net.layer(f"pool{stage}", "Pooling", x, tops, pooling_param=maximum)
        rows, columns = sizes[-1]
        sizes.append(((rows + 1) // 2, (columns + 1) // 2))
    for stage, (count, width) in reversed(list(enumerate(stages, start=1))):
        height, wide = sizes[stage - 1]
        above: Value = {"scale": 2, "upsample_h": height, "upsample_w": wide}
        x = net.layer(f"upsample{stage}", "Upsample", [x, f"pool{stage}_mask"], f"pool{stage}_D", upsample_param=above)
        for index in range(count, 0, -1):
            last = stages[stage - 2][1] if index == 1 and stage > 1 else width
            if stage == 1 and index == 1:
                break
            x = conv_norm_relu(net, f"conv{stage}_{index}_D", x, last)
    x = net.conv(
        "conv1_1_D", x, param=WEIGHT_AND_BIAS, num_output=CLASSES, kernel_size=3, pad=1, weight_filler=MSRA,
        bias_filler=CONSTANT,
    )  # fmt: skip
    net.accuracy("accuracy", x, ignore_label=CLASSES)
    net.loss("loss", x, ignore_label=CLASSES)
    return net


def net_files() -> NetFiles:
    text = solver(
        ["The rate and the length of the authors' solver for CamVid."],
        net="train_val.prototxt",
        train_state={"stage": "images"},
        test_state={"stage": "images"},
        test_iter=58,
        test_interval=1000,
        test_initialization=False,
        base_lr=0.001,
        lr_policy="step",
        gamma=1.0,
        stepsize=10000000,
        max_iter=40000,
        momentum=0.9,
        weight_decay=0.0005,
        display=20,
        snapshot=1000,
        snapshot_prefix="out/segnet",
    )
    noise = dummy_solver(
        "out/segnet_dummy", stage=None, base_lr=0.001, lr_policy="fixed", momentum=0.9, weight_decay=0.0005
    )
    return NetFiles(segnet(), text, noise)
