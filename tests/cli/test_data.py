"""`layermem data`: images to databases, and checks of them."""

import json
import shlex
import shutil

import h5py
import lmdb
import numpy as np
import pytest
from PIL import Image

from layermem.cli.data import PARTS
from layermem.proto.schema import Datum
from tests.images import write_shapes


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Five images of each class in photos/, and the lists of the examples."""
    monkeypatch.chdir(tmp_path)
    write_shapes(tmp_path / "photos", 5, height=8, width=9)
    for name, numbers in (("train", (0, 1)), ("test", (2,))):
        lines = (f"photos/{c}/0{i}.png {n}\n" for n, c in enumerate(("circle", "cross")) for i in numbers)
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    (tmp_path / "labels.txt").write_text("circle\ncross\n")


def test_the_examples_of_every_part_work(layermem, photos):
    for name, (_, example) in PARTS.items():
        assert layermem("data", name, "--help").out.split("example:\n")[1] == example
        for line in example.splitlines():
            ended = layermem(*shlex.split(line)[1:])
            assert ended.code == 0, (line, ended.err, ended.out)


def test_a_folder_becomes_a_data_set_which_a_check_reads(layermem, photos):
    ended = layermem("data", "folder", "photos", "data", "--gray")
    assert ended.code == 0 and ended.out.startswith("data: 16 images to train, 4 to test, 4 classes, 1x8x9\n")
    assert ["0", "circle", "4", "1"] in [line.split() for line in ended.out.splitlines()]
    checked = json.loads(layermem("data", "check", "data", "--json").out)
    assert checked["problems"] == [] and checked["sets"]["test"]["labels"] == {str(i): 1 for i in range(4)}
    assert checked["sets"]["train"]["shapes"] == [{"shape": [1, 8, 9], "images": 16}]
    made = json.loads(layermem("data", "folder", "photos", "more", "--json", "--test", "0.4", "--resize", "4x6").out)
    assert made["train"] == [3] * 4 and made["shape"] == [3, 4, 6] and len(made["mean_values"]) == 3


def test_a_check_that_finds_a_problem_ends_with_2(layermem, photos, tmp_path):
    (tmp_path / "photos" / "cross" / "02.png").write_bytes(b"text")
    ended = layermem("data", "check", "photos")
    assert ended.code == 2 and ended.err == "" and "problem  photos: 'cross/02.png' holds an image" in ended.out
    ended = layermem("data", "check", "train.txt", "train.txt", "--classes", "3")
    assert ended.code == 2 and "no image has label 2 of 0 to 2" in ended.out
    assert "test: 4 of its images are in train too" in ended.out
    assert json.loads(layermem("data", "check", "photos", "--json").out)["problems"]


def test_images_become_an_lmdb_and_its_mean(layermem, tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", (6, 4), (10, 20, 30)).save(tmp_path / f"{name}.png")
    (tmp_path / "list.txt").write_text("a.png 0\nb.png 1\n")
    ended = layermem("data", "images", tmp_path / "list.txt", tmp_path / "db", "--resize", "2x3")
    assert (ended.code, ended.out) == (0, f"{tmp_path / 'db'}: 2 images\n")
    ended = layermem("data", "mean", tmp_path / "db", tmp_path / "mean.binaryproto")
    lines = ["mean_value: 30", "mean_value: 20", "mean_value: 10", f"{tmp_path / 'mean.binaryproto'}: 3x2x3"]
    assert (ended.code, ended.out.splitlines()) == (0, lines)
    assert layermem("data", "mean", tmp_path / "db").out.splitlines() == lines[:3]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["images", "list.txt"], "the following arguments are required: DB"),
        (["images", "list.txt", "db", "--resize", "256"], "'256' is no size; write height x width, such as 256x256"),
        (["mean", "db", "--gray"], "unknown argument '--gray'"),
        (["mean", "db", "mean.png"], "mean.png: is not a mean image by its name"),
        (["folder", "a", "b", "--test", "120%"], "'120%' is no share of the images"),
        (["fodler", "a", "b"], "unknown verb 'fodler' (did you mean folder?"),
        (["check", "none"], "none: "),
        (["check", "none", "--classes", "0"], "--classes 0 is too few"),
        (["images", "none.txt", "db"], "none.txt: no such file"),
        (["mean", "none"], "none: "),
    ],
)
def test_impossible_requests_are_refused_in_a_sentence(layermem, tmp_path, monkeypatch, words, what):
    monkeypatch.chdir(tmp_path)
    ended = layermem("data", *words)
    assert ended.code == 2 and what in ended.err and "Traceback" not in ended.err and not [*tmp_path.iterdir()]


def test_labels_become_a_database_beside_the_images_or_an_hdf5_file(layermem, tmp_path):
    for name in ("a 1", "b 2"):
        Image.new("RGB", (6, 4), (10, 20, 30)).save(tmp_path / f"{name}.png")
    (tmp_path / "list.txt").write_text("a 1.png 0 2.5\nb 2.png 1 -3\n")
    words = (tmp_path / "list.txt", tmp_path / "labels", "--shuffle", "1")
    assert layermem("data", "labels", *words).out == f"{tmp_path / 'labels'}: labels of 2 images\n"
    images = (tmp_path / "list.txt", tmp_path / "images", "--shuffle", "1", "--labels", "2")
    assert layermem("data", "images", *images).code == 0
    rows = {}
    for folder in ("images", "labels"):
        with lmdb.open(str(tmp_path / folder), readonly=True, lock=False) as environment, environment.begin() as read:
            rows[folder] = [(bytes(key), Datum.FromString(value)) for key, value in read.cursor()]
    assert [key for key, _ in rows["images"]] == [key for key, _ in rows["labels"]]
    assert [(d.channels, d.height, d.width) for _, d in rows["labels"]] == [(2, 1, 1)] * 2
    assert {key[9:]: list(d.float_data) for key, d in rows["labels"]} == {b"a 1.png": [0, 2.5], b"b 2.png": [1, -3]}
    assert not any(d.HasField("label") for _, d in rows["images"])
    assert layermem("data", "labels", tmp_path / "list.txt", tmp_path / "labels.h5").code == 0
    with h5py.File(tmp_path / "labels.h5") as file:
        assert file["label"][()].tolist() == [[0, 2.5], [1, -3]] and file["label"].dtype == np.float32


def test_caffes_names_of_conversions_are_answered_with_ours(layermem):
    assert "`layermem data images` here" in layermem("convert_imageset", "a", "b").sentence
    assert "'--resize_height' is written --resize HxW" in layermem("data", "images", "--resize_height=2").sentence


@pytest.mark.parametrize("name", ["a.png", "/a.png", "//sub/a.png"])
def test_a_path_with_a_leading_slash_is_below_the_root(layermem, tmp_path, name):
    path = tmp_path / "images" / name.lstrip("/")
    path.parent.mkdir(parents=True)
    Image.new("RGB", (6, 4), (10, 20, 30)).save(path)
    (tmp_path / "list.txt").write_text(f"{name} 0\n")
    root = "--root", tmp_path / "images"
    assert layermem("data", "images", tmp_path / "list.txt", tmp_path / "db", *root).code == 0
    with lmdb.open(str(tmp_path / "db"), readonly=True, lock=False) as env, env.begin() as records:
        assert [key for key, _ in records.cursor()] == [f"00000000_{name}".encode()]
    ended = layermem("data", "check", tmp_path / "list.txt", *root)
    assert (ended.code, "no problems" in ended.out) == (0, True)


def test_one_class_is_remarked(layermem, tmp_path):
    write_shapes(tmp_path / "photos", 3)
    made = layermem("data", "folder", tmp_path / "photos", tmp_path / "out")
    assert made.code == 0 and "remark   " not in made.out
    for kind in ("cross", "square", "triangle"):
        shutil.rmtree(tmp_path / "photos" / kind)
    made = layermem("data", "folder", tmp_path / "photos", tmp_path / "one")
    assert made.code == 0 and "remark   there is one class" in made.out
