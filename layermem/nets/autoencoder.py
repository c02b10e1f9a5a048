"""The deep autoencoder of MNIST digits, 784-1000-500-250-30 and back, as prototxt.

source  Hinton, Salakhutdinov: Reducing the Dimensionality of Data with Neural Networks, Science 313, 2006; in
        the form of Caffe's examples: sparse Gaussian weights, trained at once instead of layer by layer
"""

from __future__ import annotations

from layermem.nets.prototext import CONSTANT, NetFiles, NetText, Value, Word, dummy_solver, filler, solver

CODE = (1000, 500, 250, 30)
PIXELS = 28 * 28


def images(net: NetText) -> None:
    """Add MNIST without labels, or noise in stage "dummy"."""
    for phase, batch, name in (("TRAIN", 100, "train"), ("TEST", 100, "test")):
        transform: dict[str, Value] = {"scale": 0.00390625, "crop_size": 28, "force_gray": True}
        source: dict[str, Value] = {
            "source": f"examples/mnist/mnist_{name}_lmdb",
            "batch_size": batch,
            "backend": Word("LMDB"),
        }
        net.layer(
            "data",
            "Data",
            [],
            "data",
            include={"phase": Word(phase), "not_stage": "dummy"},
            transform_param=transform,
            data_param=source,
        )
    noise: dict[str, Value] = {"shape": {"dim": [100, 1, 28, 28]}, "data_filler": filler("uniform", min=0, max=1)}
    net.layer("data", "DummyData", [], "data", include={"stage": "dummy"}, dummy_data_param=noise)


def autoencoder() -> NetText:
    net = NetText(
        "MNIST autoencoder",
        notes=[
            "Autoencoder: Hinton, Salakhutdinov, Reducing the Dimensionality of Data with Neural Networks, 2006.",
            "crop_size and force_gray change nothing here; they tell the shape before the data set is at hand.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    images(net)
    flat = net.layer("flatdata", "Flatten", "data", "flatdata")
    widths = [*CODE, *reversed(CODE[:-1]), PIXELS]
    names = [f"encode{i}" for i in range(1, 5)] + [f"decode{i}" for i in range(4, 0, -1)]
    x = flat
    for name, width in zip(names, widths):
        x = net.fc(
            name,
            x,
            param=[{"lr_mult": 1, "decay_mult": 1}, {"lr_mult": 1, "decay_mult": 0}],
            num_output=width,
            weight_filler=filler("gaussian", std=1, sparse=15),
            bias_filler=CONSTANT,
        )
        if name not in ("encode4", "decode1"):
            x = net.layer(f"{name}neuron", "Sigmoid", x, f"{name}neuron")
    net.layer("loss", "SigmoidCrossEntropyLoss", [x, flat], "cross_entropy_loss", loss_weight=1)
    y = net.layer("decode1neuron", "Sigmoid", x, "decode1neuron")
    net.layer("l2_error", "EuclideanLoss", [y, flat], "l2_error", loss_weight=0)
    return net


def net_files() -> NetFiles:
    text = solver(
        ["65,000 steps of 100 digits, a tenth of the rate every 10,000."],
        net="train_val.prototxt",
        test_iter=100,
        test_interval=500,
        test_initialization=False,
        base_lr=0.01,
        lr_policy="step",
        gamma=0.1,
        stepsize=10000,
        max_iter=65000,
        momentum=0.9,
        weight_decay=0.0005,
        display=100,
        snapshot=10000,
        snapshot_prefix="out/autoencoder",
    )
    noise = dummy_solver("out/autoencoder_dummy", base_lr=0.001, lr_policy="fixed", momentum=0.9, weight_decay=0.0005)
    return NetFiles(autoencoder(), text, noise)
