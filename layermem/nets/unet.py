"""U-Net, and the padded U-Net and U-Net++ that MAGIS plans, as prototxt.

Unpadded convolutions: a 572x572 image gives a 388x388 map of two classes.  Without a data set the nets read noise; the
stage 'hdf5' (which solver.prototxt turns on) reads images and label maps from HDF5 files instead.
source  Ronneberger, Fischer, Brox: U-Net: Convolutional Networks for Biomedical Image Segmentation, 2015, figure 1;
        outputs of each layer as in the graph that Kusumoto et al. 2019 planned (the last up-convolution keeps 128)

`unet256` and `unetpp256` have padded convolutions, average pooling, and nearest neighbours in place of up-convolutions;
a 256x256 image of one channel gives a map of one.
source  Chen et al.: MAGIS, ASPLOS 2024, table 2, and github.com/pku-liang/MAGIS, python/magis/testing/nn/unet.py (MIT)
"""

from __future__ import annotations

from collections.abc import Sequence

from layermem.nets.prototext import CONSTANT, MSRA, WEIGHT_AND_BIAS, NetFiles, NetText, dummy_solver, solver

IMAGE, MAP, CLASSES = 572, 388, 2
WIDTHS = (64, 128, 256, 512)
UP_OUTPUTS = (128, 128, 256, 512)  # outputs of the up-convolution to each level
HDF5 = {"not_stage": "hdf5"}
PADDED_WIDTHS = (*WIDTHS, 1024)


def conv_relu(net: NetText, name: str, bottom: str, outputs: int, relu: str) -> str:
    top = net.conv(
        name, bottom, param=WEIGHT_AND_BIAS, num_output=outputs, kernel_size=3, weight_filler=MSRA, bias_filler=CONSTANT
    )
    return net.relu(relu, top)


def crop_borders() -> list[int]:
    """Rows that each skip connection loses on either side, from the top level down, computed from the sizes."""
    down = [IMAGE - 4]  # after the two convolutions of each level
    while len(down) < len(WIDTHS) + 1:
        down.append(down[-1] // 2 - 4)
    borders, up = [], down[-1]
    for level in reversed(range(len(WIDTHS))):
        borders.append((down[level] - 2 * up) // 2)
        up = 2 * up - 4
    return borders[::-1]


def unet() -> NetText:
    net = NetText(
        "U-Net",
        notes=[
            "U-Net: Ronneberger, Fischer, Brox, Convolutional Networks for Biomedical Image Segmentation, 2015.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    for phase in ("TRAIN", "TEST"):
        net.dummy(phase, [1, 1, IMAGE, IMAGE], [1, 1, MAP, MAP], CLASSES, HDF5)
    for phase in ("TRAIN", "TEST"):
        net.hdf5(phase, f"data/unet/{phase.lower()}.txt", 1)
    x, skips = "data", []
    for level, width in enumerate((*WIDTHS, 1024)):
        x = conv_relu(net, f"conv_d{level}a-b", x, width, f"relu_d{level}b")
        x = conv_relu(net, f"conv_d{level}b-c", x, width, f"relu_d{level}c")
        if level >= 3:
            x = net.dropout(f"dropout_d{level}c", x, 0.5)
        skips.append(x)
        if level < len(WIDTHS):
            x = net.pool(f"pool_d{level}c-{level + 1}a", x, "MAX", kernel_size=2, stride=2)
    x = expanding(net, x, skips)
    x = net.conv("conv_u0d-score", x, param=WEIGHT_AND_BIAS, num_output=CLASSES, kernel_size=1, weight_filler=MSRA)
    net.accuracy("accuracy", x)
    net.loss("loss", x)
    return net


def expanding(net: NetText, x: str, skips: Sequence[str]) -> str:
    """The path back to the size of the map, which takes in the blobs `skips`."""
    below = "d4c"
    for level in reversed(range(len(WIDTHS))):
        up = net.conv(
            f"upconv_{below}_u{level}a",
            x,
            kind="Deconvolution",
            param=WEIGHT_AND_BIAS,
            num_output=UP_OUTPUTS[level],
            kernel_size=2,
            stride=2,
            weight_filler=MSRA,
            bias_filler=CONSTANT,
        )
        up = net.relu(f"relu_u{level}a", up)
        border = crop_borders()[level]
        skip = net.layer(
            f"crop_d{level}c-d{level}cc",
            "Crop",
            [skips[level], up],
            f"crop_d{level}c-d{level}cc",
            crop_param={"axis": 2, "offset": border},
        )
        x = net.concat(f"concat_d{level}cc_u{level}a-b", [skip, up])
        x = conv_relu(net, f"conv_u{level}b-c", x, WIDTHS[level], f"relu_u{level}c")
        x = conv_relu(net, f"conv_u{level}c-d", x, WIDTHS[level], f"relu_u{level}d")
        below = f"u{level}d"
    return x


def padded_conv(net: NetText, name: str, bottom: str, outputs: int, kernel: int = 3, activation: str = "ReLU") -> str:
    top = net.conv(name, bottom, num_output=outputs, kernel_size=kernel, pad=kernel // 2, weight_filler=MSRA)
    return net.layer(f"{name}_{activation.lower()}", activation, top, top)


def joined(net: NetText, name: str, below: str, beside: Sequence[str]) -> str:
    """Concat of `beside` and of the level below, on the pixels of this level."""
    up = net.layer(f"up_{name}", "Upsample", below, f"up_{name}", upsample_param={"scale": 2})
    return net.concat(f"concat_{name}", [*beside, up])


def unet256(net: NetText) -> str:
    x, skips = "data", []
    for level, width in enumerate(PADDED_WIDTHS):
        if level:
            skips.append(x)
            x = net.pool(f"pool_d{level}", x, "AVE", kernel_size=2, stride=2)
        x = padded_conv(net, f"conv_d{level}a", x, width)
        x = padded_conv(net, f"conv_d{level}b", x, width)
    for level, skip in reversed([*enumerate(skips)]):
        x = joined(net, f"u{level}", x, [skip])
        x = padded_conv(net, f"conv_u{level}a", x, PADDED_WIDTHS[level])
        x = padded_conv(net, f"conv_u{level}b", x, PADDED_WIDTHS[level])
    return padded_conv(net, "conv_two", x, 2)


def unetpp256(net: NetText) -> str:
    """Blob (level, column) reads those before it on its level, and the one of the column before on the level below."""
    blobs: dict[tuple[int, int], str] = {}
    for depth, width in enumerate(PADDED_WIDTHS):
        above = net.pool(f"pool_{depth}", blobs[depth - 1, 0], "AVE", kernel_size=2, stride=2) if depth else "data"
        blobs[depth, 0] = padded_conv(net, f"conv_{depth}_0", above, width)
        for column in range(1, depth + 1):
            level = depth - column
            beside = [blobs[level, before] for before in range(column)]
            x = joined(net, f"{level}_{column}", blobs[level + 1, column - 1], beside)
            blobs[level, column] = padded_conv(net, f"conv_{level}_{column}", x, PADDED_WIDTHS[level])
    return blobs[0, len(PADDED_WIDTHS) - 1]


def padded_net_files(name: str) -> NetFiles:
    body, batch = {"unet256": (unet256, 32), "unetpp256": (unetpp256, 16)}[name]
    net = NetText(name, notes=["As in MAGIS (Chen et al., ASPLOS 2024); written by layermem/nets/unet.py."])
    image = [batch, 1, 256, 256]
    for phase in ("TRAIN", "TEST"):
        net.dummy(phase, image, image, 1, HDF5, largest=1)
        net.hdf5(phase, f"data/{name}/{phase.lower()}.txt", batch)
    score = padded_conv(net, "score", body(net), 1, kernel=1, activation="Sigmoid")
    net.layer("loss", "EuclideanLoss", [score, "label"], "loss")
    return NetFiles(net, *solvers(name, ["The rate is ours and untried."], momentum=0.9))


def net_files() -> NetFiles:
    note = "One image a step and a momentum of 0.99, as in the paper; the rate is ours and untried."
    return NetFiles(unet(), *solvers("unet", [note], momentum=0.99))


def solvers(name: str, notes: list[str], momentum: float) -> tuple[str, str]:
    """Solvers that read HDF5 files and noise."""
    text = solver(
        notes,
        net="train_val.prototxt",
        train_state={"stage": "hdf5"},
        test_state={"stage": "hdf5"},
        test_iter=10,
        test_interval=1000,
        test_initialization=False,
        base_lr=0.0001,
        lr_policy="fixed",
        max_iter=60000,
        momentum=momentum,
        weight_decay=0.0005,
        display=20,
        snapshot=10000,
        snapshot_prefix=f"out/{name}",
    )
    return text, dummy_solver(f"out/{name}_dummy", stage=None, base_lr=0.0001, lr_policy="fixed", momentum=0.9)
