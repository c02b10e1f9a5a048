"""Language models of LSTM layers over words, as prototxt: lstm_lm, and lstm1000 of 1,000 steps.

source  Zaremba, Sutskever, Vinyals: Recurrent Neural Network Regularization, 2014: the medium regularized LSTM for the
        Penn Treebank;  Chen et al. 2016: the LSTM of mxnet-memonger's example, 4 layers of 1,024 units
"""

from __future__ import annotations

from typing import NamedTuple

from layermem.nets.prototext import CONSTANT, NetFiles, NetText, Value, Word, dummy_solver, filler, solver

UNIFORM = filler("uniform", min=-0.05, max=0.05)
BLOBS = ["word", "cont", "next"]


class Shape(NamedTuple):
    """A language model: words of its dictionary, LSTM layers and their units, steps and streams of a batch."""

    folder: str
    note: str
    words: int
    layers: int
    units: int
    steps: int
    streams: int
    dropout: float


MEDIUM = Shape(
    "lstm_lm",
    "Medium LSTM of Zaremba, Sutskever, Vinyals: Recurrent Neural Network Regularization, 2014.",
    words=10000,
    layers=2,
    units=650,
    steps=35,
    streams=20,
    dropout=0.5,
)
LONG = Shape(
    "lstm1000",
    "Four LSTMs over 1,000 steps: Chen, Xu, Zhang, Guestrin, Training Deep Nets with Sublinear Memory Cost, 2016.",
    words=5000,
    layers=4,
    units=1024,
    steps=1000,
    streams=64,
    dropout=0.0,
)
EPOCH = 929_589 // MEDIUM.streams // MEDIUM.steps  # batches of the training text, 1,327


def words(net: NetText, shape: Shape) -> None:
    """Add steps x streams of words, flags that are 0 where a text begins, and the next words: noise, or HDF5 files in
    stage "hdf5"."""
    for phase, name in (("TRAIN", "train"), ("TEST", "test")):
        noise: dict[str, Value] = {
            "shape": [{"dim": [shape.steps, shape.streams]}] * 3,
            "data_filler": [
                filler("uniform", min=0, max=shape.words),
                filler("constant", value=1),
                filler("uniform", min=0, max=shape.words),
            ],
        }
        when = {"phase": Word(phase)}
        net.layer("words", "DummyData", [], BLOBS, include={**when, "not_stage": "hdf5"}, dummy_data_param=noise)
        net.layer(
            "words",
            "HDF5Data",
            [],
            BLOBS,
            include={**when, "stage": "hdf5"},
            hdf5_data_param={"source": f"examples/{shape.folder}/{name}.txt", "batch_size": shape.steps},
        )


def language_model(shape: Shape) -> NetText:
    net = NetText(
        "LSTM language model", notes=[shape.note, "Written by tools/make_net.py; change layermem/nets, not this file."]
    )
    words(net, shape)
    x = net.layer(
        "embed",
        "Embed",
        "word",
        "embed",
        embed_param={"input_dim": shape.words, "num_output": shape.units, "bias_term": False, "weight_filler": UNIFORM},
    )

    def dropped(number: int, blob: str) -> str:
        return net.dropout(f"drop{number}", blob, shape.dropout) if shape.dropout else blob

    for number in range(1, shape.layers + 1):
        x = net.layer(
            f"lstm{number}",
            "LSTM",
            [dropped(number, x), "cont"],
            f"lstm{number}",
            recurrent_param={"num_output": shape.units, "weight_filler": UNIFORM, "bias_filler": CONSTANT},
        )
    x = net.fc(
        "score",
        dropped(shape.layers + 1, x),
        num_output=shape.words,
        axis=2,
        weight_filler=UNIFORM,
        bias_filler=CONSTANT,
    )
    net.layer(
        "accuracy", "Accuracy", [x, "next"], "accuracy", include={"phase": Word("TEST")}, accuracy_param={"axis": 2}
    )
    # the sum over the steps of a stream, as published
    net.layer("loss", "SoftmaxWithLoss", [x, "next"], "loss", loss_weight=shape.steps, softmax_param={"axis": 2})
    return net


def long_net_files() -> NetFiles:
    text = solver(
        ["A rate for texts of 1,000 steps; tools/make_words.py writes the HDF5 files from a text."],
        net="train_val.prototxt",
        train_state={"stage": "hdf5"},
        test_state={"stage": "hdf5"},
        test_iter=4,
        test_interval=100,
        base_lr=0.1,
        lr_policy="fixed",
        max_iter=1000,
        clip_gradients=5,
        display=10,
        snapshot=100,
        snapshot_prefix=f"out/{LONG.folder}",
    )
    noise = dummy_solver(f"out/{LONG.folder}_dummy", stage=None, base_lr=0.1, lr_policy="fixed", clip_gradients=5)
    return NetFiles(language_model(LONG), text, noise)


def net_files() -> NetFiles:
    text = solver(
        [
            "39 epochs of 1,327 batches: rate 1, divided by 1.2 after each epoch from the sixth on.",
            "tools/make_words.py writes the HDF5 files from a text.",
        ],
        net="train_val.prototxt",
        train_state={"stage": "hdf5"},
        test_state={"stage": "hdf5"},
        test_iter=117,
        test_interval=EPOCH,
        base_lr=1,
        lr_policy="multistep",
        gamma=0.8333333,
        stepvalue=[EPOCH * epoch for epoch in range(6, 39)],
        max_iter=39 * EPOCH,
        clip_gradients=5,
        display=100,
        snapshot=EPOCH,
        snapshot_prefix="out/lstm_lm",
    )
    noise = dummy_solver("out/lstm_lm_dummy", stage=None, base_lr=0.1, lr_policy="fixed", clip_gradients=5)
    return NetFiles(language_model(MEDIUM), text, noise)
