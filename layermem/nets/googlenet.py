"""GoogLeNet as prototxt, with its two auxiliary losses.

Layers have the names in the weights that BVLC published (conv1/7x7_s2, inception_3a/1x1, ...).
source  Szegedy et al.: Going Deeper with Convolutions, 2014, table 1; rates as in BVLC's quick solver
"""

from __future__ import annotations

from layermem.nets.prototext import CONSTANT, WEIGHT_AND_BIAS, NetFiles, NetText, Value, dummy_solver, filler, solver

# outputs of: 1x1, 3x3's reduction, 3x3, 5x5's reduction, 5x5, the projection after the pool
INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
AFTER = {"4a": "loss1", "4d": "loss2"}  # module -> auxiliary classifier after it
POOL_AFTER = {"3b": "pool3/3x3_s2", "4e": "pool4/3x3_s2"}


def conv_relu(net: NetText, scope: str, part: str, bottom: str, outputs: int, kernel: int, **shape: int) -> str:
    fillers = {"weight_filler": filler("xavier"), "bias_filler": filler("constant", value=0.2)}
    fields: dict[str, Value] = {"num_output": outputs, "kernel_size": kernel, **shape, **fillers}
    top = net.convolution(f"{scope}/{part}", bottom, fields, param=WEIGHT_AND_BIAS)
    return net.relu(f"{scope}/relu_{part}", top)


def inception(net: NetText, name: str, bottom: str) -> str:
    one, reduce3, three, reduce5, five, project = INCEPTIONS[name]
    scope = f"inception_{name}"
    a = conv_relu(net, scope, "1x1", bottom, one, 1)
    b = conv_relu(net, scope, "3x3_reduce", bottom, reduce3, 1)
    b = conv_relu(net, scope, "3x3", b, three, 3, pad=1)
    c = conv_relu(net, scope, "5x5_reduce", bottom, reduce5, 1)
    c = conv_relu(net, scope, "5x5", c, five, 5, pad=2)
    d = net.pool(f"{scope}/pool", bottom, "MAX", kernel_size=3, stride=1, pad=1)
    d = conv_relu(net, scope, "pool_proj", d, project, 1)
    return net.concat(f"{scope}/output", [a, b, c, d])


def classifier(net: NetText, name: str, bottom: str, loss_top: str, weight: float) -> None:
    """Add the last inner product, its loss and its accuracies."""
    x = net.fc(
        f"{name}/classifier",
        bottom,
        param=WEIGHT_AND_BIAS,
        num_output=1000,
        weight_filler=filler("xavier"),
        bias_filler=CONSTANT,
    )
    net.loss(f"{name}/loss", x, top=loss_top, weight=weight)
    net.accuracy(f"{name}/top-1", x)
    net.accuracy(f"{name}/top-5", x, top_k=5)


def auxiliary(net: NetText, name: str, bottom: str) -> None:
    x = net.pool(f"{name}/ave_pool", bottom, "AVE", kernel_size=5, stride=3)
    x = conv_relu(net, name, "conv", x, 128, 1)
    x = net.fc(
        f"{name}/fc",
        x,
        param=WEIGHT_AND_BIAS,
        num_output=1024,
        weight_filler=filler("xavier"),
        bias_filler=filler("constant", value=0.2),
    )
    x = net.dropout(f"{name}/drop_fc", net.relu(f"{name}/relu_fc", x), 0.7)
    classifier(net, name, x, f"{name}/loss1", 0.3)


def googlenet() -> NetText:
    net = NetText(
        "GoogLeNet",
        notes=[
            "GoogLeNet: Szegedy et al., Going Deeper with Convolutions, 2014.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    net.imagenet(224, 32, 50)
    x = conv_relu(net, "conv1", "7x7_s2", "data", 64, 7, pad=3, stride=2)
    x = net.lrn("pool1/norm1", net.pool("pool1/3x3_s2", x, "MAX", kernel_size=3, stride=2))
    x = conv_relu(net, "conv2", "3x3_reduce", x, 64, 1)
    x = net.lrn("conv2/norm2", conv_relu(net, "conv2", "3x3", x, 192, 3, pad=1))
    x = net.pool("pool2/3x3_s2", x, "MAX", kernel_size=3, stride=2)
    for name in INCEPTIONS:
        x = inception(net, name, x)
        if name in AFTER:
            auxiliary(net, AFTER[name], x)
        if name in POOL_AFTER:
            x = net.pool(POOL_AFTER[name], x, "MAX", kernel_size=3, stride=2)
    x = net.pool("pool5/7x7_s1", x, "AVE", kernel_size=7, stride=1)
    classifier(net, "loss3", net.dropout("pool5/drop_7x7_s1", x, 0.4), "loss3/loss3", 1)
    return net


def net_files() -> NetFiles:
    text = solver(
        ["2,400,000 steps of batch 32, the rate falling as the square root of what is left."],
        net="train_val.prototxt",
        test_iter=1000,
        test_interval=4000,
        test_initialization=False,
        base_lr=0.01,
        lr_policy="poly",
        power=0.5,
        max_iter=2400000,
        momentum=0.9,
        weight_decay=0.0002,
        display=40,
        average_loss=40,
        snapshot=40000,
        snapshot_prefix="out/googlenet",
    )
    noise = dummy_solver("out/googlenet_dummy", base_lr=0.001, lr_policy="fixed", momentum=0.9, weight_decay=0.0002)
    return NetFiles(googlenet(), text, noise)
