"""Files that vanish, are cut or become something else between two openings of one command: one sentence and a
documented exit code, or the right result."""

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from tests.cli.changing import CHANGES, Openings, fresh_copy
from tests.data.makers import digits_like, write_mean

SIZE = {"channels": 3, "height": 8, "width": 8}
LAYERS = """
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
            inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
DATA = """
    layer { name: "data" type: "%s" top: "data" top: "label" %s }
"""
MEAN = 'transform_param { mean_file: "mean.binaryproto" } '
SOURCES = {
    "db": DATA % ("Data", MEAN + 'data_param { source: "db" batch_size: 2 backend: LMDB }'),
    "list": DATA % ("ImageData", MEAN + 'image_data_param { source: "list.txt" batch_size: 2 }'),
    "hdf5": DATA % ("HDF5Data", 'hdf5_data_param { source: "files.txt" batch_size: 2 }'),
}
DEPLOY = """
    layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 10 } }
    layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
SOLVER = """
    net: "%s.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: %d snapshot_prefix: "out/%s"
    random_seed: 1 snapshot_format: %s test_iter: 1 test_interval: 1
"""
TRAIN = ("train", "--solver")
COMMANDS = {
    "train": (*TRAIN, "db.solver"),
    "train a list": (*TRAIN, "list.solver"),
    "train HDF5": (*TRAIN, "hdf5.solver"),
    "resume": (*TRAIN, "db.solver", "--iterations", "2", "--snapshot", "out/db_iter_1.solverstate"),
    "resume HDF5": (*TRAIN, "hdf5.solver", "--iterations", "2", "--snapshot", "out/hdf5_iter_1.solverstate.h5"),
    "restart": (*TRAIN, "db.solver", "--iterations", "2", "--restart"),
    "plan that is loaded": (*TRAIN, "db.solver", "--load", "plan.json"),
    "costs": (*TRAIN, "db.solver", "--costs", "costs.csv"),
    **{f"weights {end}": (*TRAIN, "db.solver", "--weights", f"w.{end}") for end in ("caffemodel", "h5", "npz")},
    "test": ("test", "--net", "db.prototxt", "--weights", "w.safetensors", "--iterations", "2"),
    "predict": ("predict", "--net", "deploy.prototxt", "--weights", "w.caffemodel", "0.png", "1.png"),
    "predict train_val": ("predict", "--net", "db.prototxt", "--weights", "w.h5", "--labels", "names.txt", "db"),
    "predict arrays": ("predict", "--net", "deploy.prototxt", "--weights", "w.npz", "-o", "f.npz", "x.npy"),
    "predict with a mean": (
        "predict", "--net", "deploy.prototxt", "--weights", "w.safetensors", "--mean", "mean.npy", "list.txt",
    ),
    **{
        f"convert {source} {target}": ("convert", f"w.{source}", f"new.{target}")
        for source, target in (
            ("caffemodel", "h5"), ("h5", "npz"), ("npz", "safetensors"), ("safetensors", "caffemodel"),
        )
    },
    "convert a state": ("convert", "out/db_iter_1.solverstate", "new.solverstate.h5"),
    "convert a state in HDF5": ("convert", "out/hdf5_iter_1.solverstate.h5", "new.solverstate"),
    "convert with a map": ("convert", "--names", "map.txt", "w.caffemodel", "new.npz"),
    "convert onnx": ("convert", "onnx", "--weights", "w.h5", "deploy.prototxt", "new.onnx"),
    "convert from-onnx": ("convert", "from-onnx", "net.onnx", "new.prototxt"),
    "convert deploy": ("convert", "deploy", "db.prototxt", "new.prototxt"),
    "convert a net": ("convert", "db.prototxt", "new.prototxt"),
    "data mean": ("data", "mean", "db", "new.binaryproto"),
    "data check": ("data", "check", "db"),
    "data lmdb": ("data", "images", "list.txt", "new_db"),
    "show": ("show", "--net", "db.prototxt"),
    "plan": ("plan", "--solver", "db.solver", "--hints", "hints.txt"),
    "report": ("report", "--solver", "db.solver", "-o", "new.html"),
}  # fmt: skip
DONE, WRONG_INPUT, NO_PLAN = 0, 2, 3


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A folder with all that the commands read."""
    from layermem.cli import main

    folder = tmp_path_factory.mktemp("files")
    digits_like(folder / "db", 4, **SIZE)
    (folder / "db/lock.mdb").unlink()
    write_mean(folder / "mean.binaryproto", np.full((3, 8, 8), 7, np.float32))
    np.save(folder / "mean.npy", np.full((3, 8, 8), 7, np.float32))
    np.save(folder / "x.npy", np.ones((3, 3, 8, 8), np.float32))
    for number in range(2):
        Image.fromarray(np.full((8, 8, 3), 90 * number, np.uint8)).save(folder / f"{number}.png")
        with h5py.File(folder / f"{number}.h5", "w") as h5:
            h5["data"], h5["label"] = np.ones((2, 3, 8, 8), np.float32), np.zeros(2, np.float32)
    texts = {
        "list.txt": "0.png 0\n1.png 1\n",
        "files.txt": "0.h5\n1.h5\n",
        "names.txt": "name\n" * 10,
        "map.txt": "ip/0 w\nip/1 b\n",
        "hints.txt": "keep ip\n",
        "deploy.prototxt": DEPLOY,
        **{f"{name}.prototxt": source + LAYERS for name, source in SOURCES.items()},
        **{f"{name}.solver": SOLVER % (name, 1, name, "HDF5" if name == "hdf5" else "BINARYPROTO") for name in SOURCES},
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    made = [
        (*TRAIN, "db.solver"),
        (*TRAIN, "hdf5.solver"),
        ("plan", "--solver", "db.solver", "--save", "plan.json"),
        ("time", "--solver", "db.solver", "--out", "costs.csv", "--iterations", "1"),
        *(("convert", "out/db_iter_1.caffemodel", f"w.{end}") for end in ("caffemodel", "h5", "npz", "safetensors")),
        ("convert", "onnx", "--weights", "w.npz", "deploy.prototxt", "net.onnx"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in made:
            assert main([*words, "-q"]) == DONE, words
    return folder


@pytest.mark.samples(36)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_changes_while_a_command_runs_is_one_sentence_or_does_not_matter(
    layermem, files, tmp_path, monkeypatch, command, change
):
    folder = tmp_path / "run"
    monkeypatch.chdir(fresh_copy(files, folder))
    with Openings(folder) as openings:
        assert layermem(*COMMANDS[command]).code == DONE
    assert openings.opened
    for name, when in openings.opened:
        monkeypatch.chdir(fresh_copy(files, folder))
        with Openings(folder, name, when, change):
            ended = layermem(*COMMANDS[command])
        assert ended.code in (DONE, WRONG_INPUT, NO_PLAN), (name, when, ended)
        assert not re.search(r"[a-z]Error\b|Errno|Traceback", ended.err), (name, when, ended)
        if ended.code == WRONG_INPUT and command.partition(" ")[0] != "predict":  # it names each item
            assert ended.sentence, (name, when)


DATA_FILES = ("db/data.mdb", "0.h5", "1.h5", "0.png", "1.png")  # too many, or too large, to be held


@pytest.mark.samples(6)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_opens_a_file_once_so_that_what_is_checked_is_what_is_read(
    layermem, files, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(fresh_copy(files, tmp_path / "run"))
    with Openings(tmp_path / "run") as openings:
        layermem(*COMMANDS[command])
    assert [name for name, count in openings.opened if count > 1 and name not in DATA_FILES] == []
