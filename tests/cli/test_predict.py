"""`layermem predict`."""

import json

import numpy as np
import pytest
from PIL import Image

from layermem.api import Net, deploy

NET = """
    name: "tiny"
    layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: [2, 1, 3, 4] } } }
    layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
            inner_product_param { num_output: 3 weight_filler { type: "gaussian" std: 0.01 } } }
    layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""


@pytest.fixture
def predict(layermem, tmp_path, monkeypatch, rng):
    """`layermem predict` of a tiny net on files in a folder: a.png, b.png, c.png, x.npy, labels.txt."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    Net(deploy("net.prototxt"), seed=2).save("tiny.caffemodel")
    images = rng.integers(0, 256, (3, 3, 4)).astype(np.uint8)
    for name, image in zip("abc", images):
        Image.fromarray(image).save(f"{name}.png")
    np.save("x.npy", images[:, None].astype(np.float32))
    (tmp_path / "labels.txt").write_text("n00000001 red fox\nn00000002 owl\nn00000003 cat\n")
    return lambda *words: layermem("predict", "--net", "net.prototxt", "--weights", "tiny.caffemodel", *words)


def test_the_most_likely_classes_have_their_names(predict):
    ended = predict("a.png", "b.png", "--labels", "labels.txt", "--top", "2")
    lines = ended.out.splitlines()
    assert ended.code == 0 and not ended.err and len(lines) == 6 and lines[0] == "a.png" and lines[3] == "b.png"
    score, index, *name = lines[1].split()
    assert name == [["red", "fox"], ["owl"], ["cat"]][int(index)] and float(score) >= float(lines[2].split()[0])


def test_images_arrays_and_python_give_the_same_numbers(predict):
    of_images = json.loads(predict("a.png", "b.png", "c.png", "--json").out)
    of_arrays = json.loads(predict("x.npy", "--json", "--labels", "labels.txt").out)
    wanted = Net(deploy("net.prototxt"), weights="tiny.caffemodel").predict(np.load("x.npy"))
    assert of_images["blob"] == "prob" and [item["name"] for item in of_arrays["items"]][2] == "x.npy[2]"
    for first, second, row in zip(of_images["items"], of_arrays["items"], wanted, strict=True):
        assert [each["class"] for each in first["top"]] == [*np.argsort(-row)]
        assert [each["score"] for each in first["top"]] == [each["score"] for each in second["top"]]
        np.testing.assert_allclose([each["score"] for each in first["top"]], -np.sort(-row))
        assert second["top"][0]["synset"] == f"n0000000{second['top'][0]['class'] + 1}"


def test_features_are_written_with_the_names_of_the_items(predict):
    with open("list.txt", "w") as file:
        file.write("a.png 2\nc.png\n")
    ended = predict("list.txt", "b.png", "--blob", "fc", "--blob", "prob", "-o", "f.npz")
    assert (ended.code, ended.out) == (0, "f.npz: 3 items, fc 3x3, prob 3x3\n")
    features = np.load("f.npz")
    assert [*features["names"]] == ["a.png", "c.png", "b.png"] and [*features["labels"]] == [2, -1, -1]
    wanted = Net(deploy("net.prototxt"), weights="tiny.caffemodel").predict(np.load("x.npy")[[0, 2, 1]], "fc")
    np.testing.assert_allclose(features["fc"], wanted, rtol=1e-6)


def test_a_bad_image_is_said_and_the_others_are_predicted(predict):
    with open("bad.png", "w") as file:
        file.write("no image")
    ended = predict("a.png", "bad.png", "none.png", "c.png", "--top", "1")
    assert ended.code == 2 and ended.out.splitlines()[::2] == ["a.png", "c.png"]
    bad, none = ended.err.replace("\n  ", " ").splitlines()
    assert bad.startswith("layermem: bad.png: holds an image in a format that is not read; convert it to JPEG or PNG")
    assert none == "layermem: none.png: no such file; give an existing image"
    values = json.loads(predict("a.png", "none.png", "--json").out)["items"]
    assert [*values[0]] == ["name", "top"] and values[1]["error"] == "none.png: no such file; give an existing image"
    with open("long.txt", "w") as file:
        file.write("x" * 100_000)
    assert len(predict("long.txt").err) < 5000
    ended = predict("none.png", "a.png", "-o", "f.npz")
    assert ended.code == 2 and [*np.load("f.npz")["names"]] == ["a.png"]
    ended = predict("none.png", "-o", "g.npz")
    assert ended.code == 2 and "there is nothing to write; give other files" in " ".join(ended.err.split())


def test_labels_of_items_give_an_accuracy(predict):
    with open("list.txt", "w") as file:
        file.write("a.png 0\na.png 1\na.png 2\nb.png\n")
    assert predict("list.txt", "--top", "1").out.splitlines()[-1] == "accuracy 33.3 % of 3 items with a label"
    assert json.loads(predict("list.txt", "--json").out)["accuracy"] == {"items": 3, "first": 1 / 3, "top3": 1.0}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a.png", "x.npy"], "'a.png' is no array file and others are; predict on arrays and on images one after"),
        (["x.npy", "--scale", "2"], "--scale is of images, and the inputs are arrays, which the net reads as they are"),
        (["x.npy", "--channel-order", "rgb"], "--channel-order rgb is of images, and the inputs are arrays"),
        (["a.png", "--labels", "two.txt"], "two.txt: has 2 names for the 3 classes of the net; write one for each"),
        (["a.png", "--top", "0"], "--top 0 is too few; give 1 or more"),
        (["a.png", "--crop", "0"], "--crop 0 is too small; give 1 or more"),
        (["a.png", "--resize", "9x9"], "images resized to 9x9 do not fit the input of 3x4; change --resize or --crop"),
        (
            ["a.png", "--blob", "data"],
            "blob 'data' is 1x1x3x4, and no row of scores for each item; give another --blob",
        ),
        (["a.png", "--blob", "fc", "--blob", "prob"], "several --blob need -o F.npz"),
        (["a.png", "--blob", "nothing"], "has no blob 'nothing'"),
        (["a.png", "-o", "f.npz", "--top", "1"], "--top is of printed classes, and -o writes values to a file"),
        (["a.png", "-o", "f.csv"], "f.csv: is no name of an .npz file; use a name that ends in .npz"),
        (["a.png", "-o", "none/f.npz"], "none/f.npz: cannot be written: there is no folder"),
        (["a.png", "--weights", "none.caffemodel"], "none.caffemodel: no such file"),
        (["a.png", "--batch", "0"], "cannot take batches of 0"),
    ],
)
def test_impossible_input_is_refused_in_one_sentence(predict, words, says):
    with open("two.txt", "w") as file:
        file.write("a\nb\n")
    ended = predict(*words)
    assert ended.code == 2 and says in ended.sentence and not ended.out


def test_a_budget_is_obeyed(predict):
    assert predict("a.png", "--budget", "100%").out == predict("a.png").out
    ended = predict("a.png", "--budget", "101")
    assert ended.code == 3 and "is below the minimum of" in ended.err


def test_layers_without_weights_are_said(layermem, predict, tmp_path):
    fc2 = 'layer { name: "fc2" type: "InnerProduct" bottom: "fc" top: "fc2" inner_product_param { num_output: 3 } }'
    head, prob, rest = NET.partition('layer { name: "prob"')
    (tmp_path / "more.prototxt").write_text(head + fc2 + prob + rest.replace('bottom: "fc"', 'bottom: "fc2"'))
    ended = layermem("predict", "--net", "more.prototxt", "--weights", "tiny.caffemodel", "a.png")
    assert ended.code == 0 and "layer 'fc2' is not in the weight files and has its initial values" in ended.sentence


def test_a_deploy_net_without_a_transform_is_warned_of(layermem, predict, tmp_path):
    assert layermem("convert", "deploy", "net.prototxt", "deploy.prototxt").code == 0
    words = ["predict", "--net", "deploy.prototxt", "--weights", "tiny.caffemodel"]
    ended = layermem(*words, "a.png")
    assert (
        ended.code == 0 and "states no transform of images, so their pixels are 0 to 255; give --mean" in ended.sentence
    )
    assert ended.out == predict("a.png").out and layermem(*words, "a.png", "--scale", "1").err == ""
    assert layermem(*words, "x.npy").err == ""
