"""`layermem convert deploy`."""

import pytest

from layermem.api import Net
from layermem.api import deploy as deploy_form

DIGITS = "prototxt/digits/train_val.prototxt"


def test_the_deploy_form_is_written(layermem, tmp_path):
    path = tmp_path / "deploy.prototxt"
    ended = layermem("convert", "deploy", "--batch", "1", DIGITS, path)
    assert (ended.code, ended.out) == (0, f"{path}: 11 layers, data 1x1x8x8 -> prob\n")
    net = Net(path)
    assert net.outputs == ["prob"] and net.blobs["data"].shape == (1, 1, 8, 8)
    assert [layer.name for layer in deploy_form(DIGITS).layer] == [*net.layer_dict]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["deploy", DIGITS], "`convert deploy` needs NET and OUT; give both"),
        (["deploy", DIGITS, "d.caffemodel"], "d.caffemodel: is no name of a prototxt file; use a name that ends in"),
        (["--batch", "1", "a.prototxt", "b.prototxt"], "--batch is an option of `layermem convert onnx` and `layermem"),
        (["deploy", "--weights", "w", DIGITS, "d.prototxt"], "--weights is an option of `layermem convert onnx` only"),
    ],
)
def test_impossible_conversions_are_refused(layermem, words, says):
    ended = layermem("convert", *words)
    assert ended.code == 2 and says in ended.sentence
