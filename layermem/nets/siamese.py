"""Siamese LeNets with shared parameters, which place pairs of MNIST digits in the plane, as prototxt.

source  Hadsell, Chopra, LeCun: Dimensionality Reduction by Learning an Invariant Mapping, 2006; in the form of
        Caffe's examples
"""

from __future__ import annotations

from layermem.nets.prototext import CONSTANT, NetFiles, NetText, Value, Word, dummy_solver, filler, solver

XAVIER = filler("xavier")


def pairs(net: NetText) -> None:
    """Add two digits as two channels, and whether they are the same: noise, or LMDBs in stage "lmdb"."""
    for phase, batch, name in (("TRAIN", 64, "train"), ("TEST", 100, "test")):
        noise: dict[str, Value] = {
            "shape": [{"dim": [batch, 2, 28, 28]}, {"dim": batch}],
            "data_filler": [filler("uniform", min=0, max=1), filler("uniform", min=0, max=2)],
        }
        net.layer(
            "pair_data",
            "DummyData",
            [],
            ["pair_data", "sim"],
            include={"phase": Word(phase), "not_stage": "lmdb"},
            dummy_data_param=noise,
        )
        source: dict[str, Value] = {
            "source": f"examples/siamese/mnist_siamese_{name}_lmdb",
            "batch_size": batch,
            "backend": Word("LMDB"),
        }
        net.layer(
            "pair_data",
            "Data",
            [],
            ["pair_data", "sim"],
            include={"phase": Word(phase), "stage": "lmdb"},
            transform_param={"scale": 0.00390625},
            data_param=source,
        )


def branch(net: NetText, bottom: str, suffix: str) -> str:
    """Add a LeNet with an output of two numbers; layers of both branches name the same parameters."""

    def shared(name: str) -> list[dict[str, Value]]:
        return [{"name": f"{name}_w", "lr_mult": 1}, {"name": f"{name}_b", "lr_mult": 2}]

    x = bottom
    for number, outputs in ((1, 20), (2, 50)):
        x = net.conv(
            f"conv{number}{suffix}",
            x,
            param=shared(f"conv{number}"),
            num_output=outputs,
            kernel_size=5,
            weight_filler=XAVIER,
            bias_filler=CONSTANT,
        )
        x = net.pool(f"pool{number}{suffix}", x, "MAX", kernel_size=2, stride=2)
    for name, outputs in (("ip1", 500), ("ip2", 10), ("feat", 2)):
        x = net.fc(
            f"{name}{suffix}", x, param=shared(name), num_output=outputs, weight_filler=XAVIER, bias_filler=CONSTANT
        )
        if name == "ip1":
            x = net.relu(f"relu1{suffix}", x)
    return x


def siamese() -> NetText:
    net = NetText(
        "Siamese LeNet",
        notes=[
            "Siamese net: Hadsell, Chopra, LeCun, Dimensionality Reduction by Learning an Invariant Mapping, 2006.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    pairs(net)
    net.layer("slice_pair", "Slice", "pair_data", ["data", "data_p"], slice_param={"axis": 1, "slice_point": 1})
    net.layer(
        "loss",
        "ContrastiveLoss",
        [branch(net, "data", ""), branch(net, "data_p", "_p"), "sim"],
        "loss",
        contrastive_loss_param={"margin": 1},
    )
    return net


def net_files() -> NetFiles:
    text = solver(
        ["50,000 steps of 64 pairs, the rate falling as 0.01 * (1 + 0.0001 * step)^-0.75."],
        net="train_val.prototxt",
        train_state={"stage": "lmdb"},
        test_state={"stage": "lmdb"},
        test_iter=100,
        test_interval=500,
        base_lr=0.01,
        lr_policy="inv",
        gamma=0.0001,
        power=0.75,
        max_iter=50000,
        momentum=0.9,
        weight_decay=0,
        display=100,
        snapshot=5000,
        snapshot_prefix="out/siamese",
    )
    noise = dummy_solver("out/siamese_dummy", stage=None, base_lr=0.01, lr_policy="fixed", momentum=0.9)
    return NetFiles(siamese(), text, noise)
