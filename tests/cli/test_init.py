"""`layermem init`: a net and a solver for a data set, and the guide that leads from images to a classifier."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from layermem.nets.classifier import ImageSet, classifier_files, family_of, largest_divisor
from tests.images import write_shapes

PAGE = Path("docs/your_images.md").resolve()


@pytest.fixture
def data(layermem, tmp_path, monkeypatch):
    """A data set of 12 training and 4 test images of 48 x 50 pixels, in data/."""
    monkeypatch.chdir(tmp_path)
    write_shapes(tmp_path / "photos", 4, height=48, width=50)
    assert layermem("data", "folder", "photos", "data", "--test", "25%").code == 0


@pytest.mark.parametrize("net", ["lenet", "resnet8", "squeezenet"])
def test_every_net_trains_on_the_data_set_and_its_deploy_net_has_the_same_layers(layermem, data, net):
    made = layermem("init", f"nets/{net}", "--data", "data", "--net", net, "--epochs", "1", "--batch", "2", "--json")
    assert made.code == 0 and json.loads(made.out)["net"] == net
    train = layermem("train", "--solver", f"nets/{net}/solver.prototxt")
    assert train.code == 0 and "accuracy = " in train.out, train.err
    layers = []
    for file, phase in (("train_val", "TEST"), ("deploy", "TEST")):
        ended = layermem("show", "--net", f"nets/{net}/{file}.prototxt", "--phase", phase, "--json")
        assert ended.code == 0, ended.err
        layers.append({each["name"]: each["parameter_shapes"] for each in json.loads(ended.out)["layers"]})
    assert set(layers[1]) - set(layers[0]) == {"prob"}
    assert all(layers[0][name] == shapes for name, shapes in layers[1].items() if name != "prob")


def test_the_files_have_the_numbers_of_the_data_set(layermem, data, tmp_path):
    made = layermem("init", "net", "--data", "data", "--epochs", "20", "--batch", "5", "--mirror")
    assert made.code == 0 and made.out.splitlines()[-1] == "train with      layermem train --solver net/solver.prototxt"
    train, deploy, solver = (Path("net", f"{name}.prototxt").read_text() for name in ("train_val", "deploy", "solver"))
    assert train.count("mean_value") == 6 and train.count("mirror: true") == 1 and "num_output: 4" in train
    assert (
        'source: "../data/train_lmdb" batch_size: 5' in train and 'source: "../data/test_lmdb" batch_size: 4' in train
    )
    assert "dim: 1 dim: 3 dim: 48 dim: 50" in deploy and "ResNet-20" in deploy
    assert "max_iter: 60\n" in solver and "test_interval: 6\n" in solver and "test_iter: 1\n" in solver
    assert Path("net/labels.txt").read_text() == Path("data/labels.txt").read_text()


def test_a_run_from_the_start_has_the_result_of_the_run_before(layermem, data):
    assert layermem("init", "net", "--data", "data", "--net", "resnet8", "--epochs", "1", "--batch", "6").code == 0
    weights = []
    for _ in range(2):
        ended = layermem("train", "--solver", "net/solver.prototxt")
        assert ended.code == 0 and "nan" not in ended.out, ended.out
        weights.append(Path("net/snapshot_iter_2.caffemodel").read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.parametrize("net", ["lenet", "resnet8", "squeezenet"])
def test_a_solver_shows_each_epoch_or_each_hundred_batches(net):
    for count, shown in ((120, 4), (64000, 100)):
        images = ImageSet("train", "test", count, 20, (3, 48, 48), 4, (100.0,) * 3)
        files = classifier_files(net, images, epochs=2, batch=32, folder="net")
        assert f"display: {shown}\n" in files["solver.prototxt"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--data", "photos"), "photos: is not what `layermem data folder` wrote"),
        (("--data", "data", "--net", "resnet21"), "use a depth of 6n + 2"),
        (("--data", "data", "--net", "lenett"), "unknown net 'lenett' (did you mean lenet?"),
        (("--data", "data", "--epochs", "0"), "--epochs 0 is too few"),
    ],
)
def test_impossible_nets_are_refused(layermem, data, words, says):
    ended = layermem("init", "net", *words)
    assert ended.code == 2 and says in ended.sentence and not Path("net").exists()


def test_sizes_that_a_net_does_not_suit_and_files_that_exist_are_refused(layermem, data):
    assert layermem("data", "folder", "photos", "small", "--resize", "20x20").code == 0
    assert "needs images of 48x48 or more" in layermem("init", "n", "--data", "small", "--net", "squeezenet").sentence
    assert layermem("data", "folder", "photos", "large", "--resize", "100x20").code == 0
    assert "is for images up to 96x96" in layermem("init", "n", "--data", "large", "--net", "lenet").sentence
    assert layermem("init", "n", "--data", "small").code == 0
    assert "exists already; give another folder" in layermem("init", "n", "--data", "small").sentence


def test_a_data_set_has_names_of_any_bytes_and_a_prototxt_has_not(layermem, data, tmp_path):
    name = os.fsdecode(b"x\xff")
    (tmp_path / "photos" / "cross").rename(tmp_path / "photos" / name)
    assert layermem("data", "folder", "photos", "d").code == 0
    assert layermem("init", "net", "--data", "d").code == 0
    assert os.fsencode(name) in (tmp_path / "net" / "labels.txt").read_bytes().splitlines()
    for folder in (name, "a\nb"):
        (tmp_path / "d").rename(tmp_path / folder)
        for words in (("init", "other", "--data", folder), ("init", f"{folder}/other", "--data", "data")):
            ended = layermem(*words)
            assert ended.code == 2 and "has a control character in its name, or bytes that are not" in ended.err
        assert not (tmp_path / "other").exists() and not (tmp_path / folder / "other").exists()
        (tmp_path / folder).rename(tmp_path / "d")


def test_names_with_quotes_and_backslashes_are_those_of_the_prototxt(layermem, data, tmp_path):
    folder = 'a"b\\n c\\'
    (tmp_path / "data").rename(tmp_path / folder)
    assert layermem("init", f"{folder}/net", "--data", folder).code == 0
    assert layermem("train", "--solver", f"{folder}/net/solver.prototxt", "--iterations", 1).code == 0
    assert (tmp_path / folder / "net" / "snapshot_iter_1.caffemodel").exists()


def test_test_batches_have_every_image_once():
    assert [largest_divisor(number, 10) for number in (1, 10, 36, 37)] == [1, 10, 9, 1]
    assert family_of("resnet20").name == "ResNet-20"


def test_the_guide_leads_from_200_images_to_a_classifier(layermem, tmp_path, monkeypatch):
    """The commands of docs/your_images.md, as they stand."""
    monkeypatch.chdir(tmp_path)
    write_shapes(tmp_path / "photos", 50)
    text = PAGE.read_text().partition("\n## ")[0].replace("\\\n", " ")
    commands = re.findall(r"^layermem .*", text, re.MULTILINE)
    assert len(commands) == 1 + 5
    outputs = {}
    for words in map(shlex.split, commands):
        ended = layermem(*words[1:])
        assert ended.code == 0, (words, ended.err)
        outputs[" ".join(word for word in words[1:3] if word.isalpha())] = ended.out
    assert "no problems" in outputs["data check"] and "160 images to train, 40 to test" in outputs["data folder"]
    accuracy = float(re.search(r"^accuracy = (\S+)", outputs["test"], re.MULTILINE)[1])
    assert accuracy > 0.6  # by chance: 0.25
    assert re.search(r"photos/circle/00.png\n +[\d.]+ +\d  (circle|cross|square|triangle)\n", outputs["predict"])
    assert Path("curves.html").exists() and Path("shapes/deploy.prototxt").exists()
