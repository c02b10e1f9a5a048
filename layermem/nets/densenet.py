"""DenseNet-121, -161, -169 and -201 as prototxt.

source  Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks, 2016, table 1
"""

from __future__ import annotations

from layermem.errors import InputError
from layermem.nets.prototext import MSRA, NetFiles, NetText, Word, dummy_solver, solver

FORMS = {  # depth: (layers of each block, growth rate, outputs of the first convolution)
    121: ((6, 12, 24, 16), 32, 64),
    161: ((6, 12, 36, 24), 48, 96),
    169: ((6, 12, 32, 32), 32, 64),
    201: ((6, 12, 48, 32), 32, 64),
}


def norm_relu(net: NetText, name: str, bottom: str) -> str:
    """Add BatchNorm, Scale and ReLU of `bottom`, not in place because other layers also read `bottom`."""
    top = net.layer(f"{name}/bn", "BatchNorm", bottom, f"{name}/bn")
    net.layer(f"{name}/scale", "Scale", top, top, scale_param={"bias_term": True})
    return net.relu(f"{name}/relu", top)


def dense_layer(net: NetText, name: str, bottom: str, growth: int) -> str:
    """Add 1x1 to four times the growth rate and 3x3 to the growth rate, concatenated with all earlier outputs."""
    x = norm_relu(net, f"{name}/x1", bottom)
    x = net.conv(f"{name}/x1", x, num_output=4 * growth, kernel_size=1, bias_term=False, weight_filler=MSRA)
    x = norm_relu(net, f"{name}/x2", x)
    x = net.conv(f"{name}/x2", x, num_output=growth, kernel_size=3, pad=1, bias_term=False, weight_filler=MSRA)
    return net.concat(f"concat_{name.removeprefix('conv')}", [bottom, x])


def densenet(depth: int) -> NetText:
    blocks, growth, width = FORMS[depth]
    net = NetText(
        f"DenseNet-{depth}",
        notes=[
            f"DenseNet-{depth}: Huang et al., Densely Connected Convolutional Networks, 2016.",
            f"Growth {growth}, blocks {', '.join(map(str, blocks))}.  "
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    net.imagenet(224, 32, 50)
    x = net.conv("conv1", "data", num_output=width, kernel_size=7, pad=3, stride=2, bias_term=False, weight_filler=MSRA)
    net.batch_norm("conv1/bn", "conv1/scale", x)
    x = net.relu("relu1", x)
    x = net.pool("pool1", x, "MAX", kernel_size=3, stride=2, pad=1, round_mode=Word("FLOOR"))
    for stage, count in enumerate(blocks, start=2):
        for index in range(1, count + 1):
            x = dense_layer(net, f"conv{stage}_{index}", x, growth)
            width += growth
        x = norm_relu(net, f"conv{stage}_blk", x)
        if stage < 5:
            width //= 2
            x = net.conv(f"conv{stage}_blk", x, num_output=width, kernel_size=1, bias_term=False, weight_filler=MSRA)
            x = net.pool(f"pool{stage}", x, "AVE", kernel_size=2, stride=2)
    x = net.layer("pool5", "Pooling", x, "pool5", pooling_param={"pool": Word("AVE"), "global_pooling": True})
    x = net.fc("fc6", x, num_output=1000, weight_filler=MSRA)
    net.imagenet_head(x)
    return net


def net_files(depth: int) -> NetFiles:
    if depth not in FORMS:
        raise InputError(f"DenseNet-{depth} is not defined (choose from {', '.join(map(str, FORMS))})")
    text = solver(
        ["90 passes over ILSVRC 2012 at the paper's batch of 256 (8 times 32), a tenth of the rate at 30 and 60."],
        net="train_val.prototxt",
        test_iter=1000,
        test_interval=5000,
        test_initialization=False,
        base_lr=0.1,
        lr_policy="multistep",
        gamma=0.1,
        stepvalue=[150000, 300000],
        max_iter=450000,
        momentum=0.9,
        weight_decay=0.0001,
        iter_size=8,
        display=20,
        snapshot=10000,
        snapshot_prefix=f"out/densenet{depth}",
    )
    noise = dummy_solver(
        f"out/densenet{depth}_dummy", base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.0001
    )
    return NetFiles(densenet(depth), text, noise)
