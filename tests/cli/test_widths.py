"""Tables of every verb at several widths: no line is wider, no word is folded, no number is cut."""

import re

import pytest

from tests.cli.test_curves import log  # noqa: F401

NET = "prototxt/mnist/train_val.prototxt"
LONG = """
name: "long"
layer {
  name: "data_of_the_training_set" type: "Input" top: "data"
  input_param { shape { dim: 32 dim: 3 dim: 96 dim: 96 } }
}
layer {
  name: "stage_4_block_17_branch_1_convolution_3x3_reduce" type: "Convolution" bottom: "data" top: "c"
  convolution_param { num_output: 64 kernel_size: 7 }
}
layer {
  name: "stage_4_block_17_inner_product" type: "InnerProduct" bottom: "c" top: "f"
  inner_product_param { num_output: 9 }
}
"""
SIZES = r"\b32(?:x\d+)+|[\d.,]+ [KM]iB"
COMMANDS = (
    ("show", "--net", NET),
    ("show", "--net", "LONG"),
    ("show", "--net", "LONG", "--fused"),
    ("compare", "--net", NET, "-b", "50%", "--strategies", "recompute,caffe"),
    ("fit", "--net", NET, "-b", "9MiB", "--strategies", "liveness,hybrid", "--max", "9"),
    ("time", "--net", NET, "--iterations", "1", "--batch", "1"),
    ("curves", "LOG"),
    ("plan", "--net", NET),
    ("devices",),
    ("devices", "--gpus"),
)


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[::2]))
def test_a_table_stays_within_the_columns(layermem, prototxt, monkeypatch, command, width, log):  # noqa: F811
    files = {"LONG": prototxt(LONG), "LOG": log}
    words = [files.get(word, word) for word in command]
    monkeypatch.setenv("COLUMNS", str(width))
    ended = layermem(*words)
    assert ended.code == 0, ended.err
    assert all(len(line) <= width for line in ended.out.splitlines()), ended.out


def test_a_narrow_table_truncates_no_cell(layermem, prototxt, monkeypatch):
    net = prototxt(LONG)
    monkeypatch.setenv("COLUMNS", "60")
    narrow, count = re.subn(r"left out: [^)]+\)\n", "", layermem("show", "--net", net).out)
    monkeypatch.setenv("COLUMNS", "100")
    wide = layermem("show", "--net", net).out
    assert count == 1 and "left out" not in wide
    assert len(narrow.splitlines()) == len(wide.splitlines())  # nothing is folded
    numbers = re.findall(SIZES, wide)
    assert len(numbers) == 7 and re.findall(SIZES, narrow) == numbers
    assert ".." in narrow
