"""A language model of two LSTM layers over words, as prototxt.

source  Zaremba, Sutskever, Vinyals: Recurrent Neural Network Regularization, 2014: the medium regularized LSTM for the
        Penn Treebank
"""

from __future__ import annotations

from layermem.nets.prototext import CONSTANT, NetFiles, NetText, Value, Word, dummy_solver, filler, solver

WORDS = 10000
UNITS = 650
STEPS, STREAMS = 35, 20
EPOCH = 929_589 // STREAMS // STEPS  # batches of the training text, 1,327
UNIFORM = filler("uniform", min=-0.05, max=0.05)
BLOBS = ["word", "cont", "next"]


def words(net: NetText) -> None:
    """Add steps x streams of words, flags that are 0 where a text begins, and the next words: noise, or HDF5 files in
    stage "hdf5"."""
    for phase, name in (("TRAIN", "train"), ("TEST", "test")):
        noise: dict[str, Value] = {
            "shape": [{"dim": [STEPS, STREAMS]}] * 3,
            "data_filler": [
                filler("uniform", min=0, max=WORDS),
                filler("constant", value=1),
                filler("uniform", min=0, max=WORDS),
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
            hdf5_data_param={"source": f"examples/lstm_lm/{name}.txt", "batch_size": STEPS},
        )


def lstm_lm() -> NetText:
    net = NetText(
        "LSTM language model",
        notes=[
            "Medium LSTM of Zaremba, Sutskever, Vinyals: Recurrent Neural Network Regularization, 2014.",
            "Written by tools/make_net.py; change layermem/nets, not this file.",
        ],
    )
    words(net)
    x = net.layer(
        "embed",
        "Embed",
        "word",
        "embed",
        embed_param={"input_dim": WORDS, "num_output": UNITS, "bias_term": False, "weight_filler": UNIFORM},
    )
    for number in (1, 2):
        x = net.dropout(f"drop{number}", x, 0.5)
        x = net.layer(
            f"lstm{number}",
            "LSTM",
            [x, "cont"],
            f"lstm{number}",
            recurrent_param={"num_output": UNITS, "weight_filler": UNIFORM, "bias_filler": CONSTANT},
        )
    x = net.fc(
        "score", net.dropout("drop3", x, 0.5), num_output=WORDS, axis=2, weight_filler=UNIFORM, bias_filler=CONSTANT
    )
    net.layer(
        "accuracy", "Accuracy", [x, "next"], "accuracy", include={"phase": Word("TEST")}, accuracy_param={"axis": 2}
    )
    # the sum over the steps of a stream, as published
    net.layer("loss", "SoftmaxWithLoss", [x, "next"], "loss", loss_weight=STEPS, softmax_param={"axis": 2})
    return net


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
    return NetFiles(lstm_lm(), text, noise)
