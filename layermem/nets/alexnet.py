"""AlexNet and CaffeNet as prototxt.

    alexnet     normalization before pooling, as in the paper
    caffenet    pooling before normalization: Caffe's reference model

Layers have the names in the weights that BVLC published (conv1 ... fc8).
source  Krizhevsky, Sutskever, Hinton: ImageNet Classification with Deep Convolutional Neural Networks, 2012
"""

from __future__ import annotations

from layermem.nets.prototext import WEIGHT_AND_BIAS, NetFiles, NetText, dummy_solver, filler, solver

BIAS = {"alexnet": 0.1, "caffenet": 1}  # initial bias of the layers that do not start at 0


def convolution(net: NetText, index: int, bottom: str, bias: float, **shape: int) -> str:
    fillers = {"weight_filler": filler("gaussian", std=0.01), "bias_filler": filler("constant", value=bias)}
    top = net.convolution(f"conv{index}", bottom, {**shape, **fillers}, param=WEIGHT_AND_BIAS)
    return net.relu(f"relu{index}", top)


def pool_and_normalize(net: NetText, index: int, x: str, model: str) -> str:
    """Pooling and local response normalization, in the order of the model."""
    if model == "alexnet":
        return net.pool(f"pool{index}", net.lrn(f"norm{index}", x), "MAX", kernel_size=3, stride=2)
    return net.lrn(f"norm{index}", net.pool(f"pool{index}", x, "MAX", kernel_size=3, stride=2))


def alexnet(model: str) -> NetText:
    """The net of `model`, "alexnet" or "caffenet"."""
    title = {"alexnet": "AlexNet", "caffenet": "CaffeNet"}[model]
    net = NetText(
        title,
        notes=[
            f"{title}: Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, 2012.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    net.imagenet(227, 256, 50)
    some = BIAS[model]
    x = pool_and_normalize(net, 1, convolution(net, 1, "data", 0, num_output=96, kernel_size=11, stride=4), model)
    x = pool_and_normalize(net, 2, convolution(net, 2, x, some, num_output=256, pad=2, kernel_size=5, group=2), model)
    x = convolution(net, 3, x, 0, num_output=384, pad=1, kernel_size=3)
    x = convolution(net, 4, x, some, num_output=384, pad=1, kernel_size=3, group=2)
    x = convolution(net, 5, x, some, num_output=256, pad=1, kernel_size=3, group=2)
    x = net.pool("pool5", x, "MAX", kernel_size=3, stride=2)
    for index, outputs, std, bias in ((6, 4096, 0.005, some), (7, 4096, 0.005, some), (8, 1000, 0.01, 0)):
        x = net.fc(
            f"fc{index}",
            x,
            param=WEIGHT_AND_BIAS,
            num_output=outputs,
            weight_filler=filler("gaussian", std=std),
            bias_filler=filler("constant", value=bias),
        )
        if index < 8:
            x = net.dropout(f"drop{index}", net.relu(f"relu{index}", x), 0.5)
    net.accuracy("accuracy", x)
    net.loss("loss", x)
    return net


def net_files(model: str) -> NetFiles:
    text = solver(
        ["450,000 steps of batch 256, a tenth of the rate every 100,000."],
        net="train_val.prototxt",
        test_iter=1000,
        test_interval=1000,
        test_initialization=False,
        base_lr=0.01,
        lr_policy="step",
        gamma=0.1,
        stepsize=100000,
        max_iter=450000,
        momentum=0.9,
        weight_decay=0.0005,
        display=20,
        snapshot=10000,
        snapshot_prefix=f"out/{model}",
    )
    noise = dummy_solver(f"out/{model}_dummy", base_lr=0.001, lr_policy="fixed", momentum=0.9, weight_decay=0.0005)
    return NetFiles(alexnet(model), text, noise)
