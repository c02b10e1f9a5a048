"""PSPNet on a dilated ResNet-101 as prototxt.

A 713x713 image gives a 713x713 map of 17 classes; an auxiliary loss follows stage 4.  Without a data set the net reads
noise; stage 'hdf5' (which solver.prototxt turns on) reads images and label maps from HDF5 files instead.
source  Zhao, Shi, Qi, Wang, Jia: Pyramid Scene Parsing Network, 2016; sizes, classes and the auxiliary head as in the
        graph that Kusumoto et al. 2019 planned; names as in the authors' prototxt (BatchNorm and Scale for their BN)
"""

from __future__ import annotations

from layermem.nets.prototext import MSRA, WEIGHT_AND_BIAS, NetFiles, NetText, Value, dummy_solver, solver

IMAGE, FEATURES, CLASSES = 713, 90, 17
STAGES = ((2, 3, 64, 1, 1), (3, 4, 128, 2, 1), (4, 23, 256, 1, 2), (5, 3, 512, 1, 4))  # blocks, width, stride, dilation
PYRAMID = (6, 3, 2, 1)  # cells along each side
HDF5 = {"not_stage": "hdf5"}
IGNORE = 255


def conv_norm(
    net: NetText, name: str, bottom: str, outputs: int, kernel: int, *, relu: bool = True, **shape: int
) -> str:
    fields: dict[str, Value] = {
        "num_output": outputs,
        "kernel_size": kernel,
        **shape,
        "bias_term": False,
        "weight_filler": MSRA,
    }
    x = net.convolution(name, bottom, fields)
    net.batch_norm(f"{name}/bn", f"{name}/scale", x)
    return net.relu(f"{name}/relu", x) if relu else x


def bottleneck(net: NetText, name: str, bottom: str, width: int, stride: int, dilation: int, project: bool) -> str:
    """Add a bottleneck with the stride in the 3x3, as in the planned graph."""
    shortcut = bottom
    if project:
        shortcut = conv_norm(net, f"{name}_1x1_proj", bottom, 4 * width, 1, relu=False, stride=stride)
    x = conv_norm(net, f"{name}_1x1_reduce", bottom, width, 1)
    if dilation > 1:
        x = conv_norm(net, f"{name}_3x3", x, width, 3, stride=stride, pad=dilation, dilation=dilation)
    else:
        x = conv_norm(net, f"{name}_3x3", x, width, 3, stride=stride, pad=dilation)
    x = conv_norm(net, f"{name}_1x1_increase", x, 4 * width, 1, relu=False)
    return net.relu(f"{name}/relu", net.add(name, [shortcut, x]))


def score(net: NetText, name: str, bottom: str, kernel: int, pad: int) -> str:
    """Add class scores, resized to the image."""
    x = net.conv(
        name, bottom, param=WEIGHT_AND_BIAS, num_output=CLASSES, kernel_size=kernel, pad=pad, weight_filler=MSRA
    )
    return resize(net, x, IMAGE)


def resize(net: NetText, bottom: str, size: int) -> str:
    return net.layer(
        f"{bottom}_interp", "Interp", bottom, f"{bottom}_interp", interp_param={"height": size, "width": size}
    )


def pspnet() -> NetText:
    net = NetText(
        "PSPNet",
        notes=[
            "PSPNet on ResNet-101: Zhao, Shi, Qi, Wang, Jia, Pyramid Scene Parsing Network, 2016.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    for phase, batch in (("TRAIN", 2), ("TEST", 1)):
        net.dummy(phase, [batch, 3, IMAGE, IMAGE], [batch, 1, IMAGE, IMAGE], CLASSES, HDF5)
    for phase, batch in (("TRAIN", 2), ("TEST", 1)):
        net.hdf5(phase, f"data/pspnet/{phase.lower()}.txt", batch)
    x = conv_norm(net, "conv1_1_3x3_s2", "data", 64, 3, stride=2, pad=1)
    x = conv_norm(net, "conv1_2_3x3", x, 64, 3, pad=1)
    x = conv_norm(net, "conv1_3_3x3", x, 128, 3, pad=1)
    x = net.pool("pool1_3x3_s2", x, "MAX", kernel_size=3, stride=2, pad=1)
    middle = x
    for stage, count, width, stride, dilation in STAGES:
        for index in range(1, count + 1):
            step = stride if index == 1 else 1
            x = bottleneck(net, f"conv{stage}_{index}", x, width, step, dilation, index == 1)
        middle = x if stage == 4 else middle
    aux = conv_norm(net, "conv_aux", middle, 512, 3, pad=1)
    aux = score(net, "conv_aux_score", net.dropout("conv_aux/dropout", aux, 0.1), 3, 1)
    pools = []
    for cells in PYRAMID:
        name = f"conv5_3_pool{cells}"
        size = FEATURES // cells
        pool = net.pool(name, x, "AVE", kernel_size=size, stride=size)
        pools.append(resize(net, conv_norm(net, f"{name}_conv", pool, 512, 1), FEATURES))
    x = net.concat("conv5_3_concat", [x, *pools])
    x = net.dropout("conv5_4/dropout", conv_norm(net, "conv5_4", x, 512, 3, pad=1), 0.1)
    x = score(net, "conv6", x, 1, 0)
    net.accuracy("accuracy", x, ignore_label=IGNORE)
    net.loss("loss_aux", aux, weight=0.4, ignore_label=IGNORE)
    net.loss("loss", x, ignore_label=IGNORE)
    return net


def net_files() -> NetFiles:
    text = solver(
        ["The paper's rate and its decline; batch 16 is 8 times 2, but BatchNorm still sees two images at once."],
        net="train_val.prototxt",
        train_state={"stage": "hdf5"},
        test_state={"stage": "hdf5"},
        test_iter=100,
        test_interval=1000,
        test_initialization=False,
        base_lr=0.01,
        lr_policy="poly",
        power=0.9,
        max_iter=90000,
        momentum=0.9,
        weight_decay=0.0001,
        iter_size=8,
        display=20,
        snapshot=5000,
        snapshot_prefix="out/pspnet",
    )
    noise = dummy_solver("out/pspnet_dummy", stage=None, base_lr=0.001, lr_policy="fixed", momentum=0.9)
    return NetFiles(pspnet(), text, noise)
