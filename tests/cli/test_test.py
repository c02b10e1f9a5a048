"""`layermem test`, on the digits that are in the repository."""

import json
import re
from pathlib import Path

import pytest

NET = "prototxt/digits/train_val.prototxt"


def test_weights_are_scored_batch_by_batch(layermem, solver, tmp_path):
    layermem("train", "--solver", solver(), "--iterations", "30")
    weights = tmp_path / "digits_iter_30.caffemodel"
    once = layermem("test", "--net", NET, "--weights", weights)
    assert once.out == layermem("test", "--net", NET, "--weights", weights, "--iterations", "6").out  # 360 / 60
    values = json.loads(layermem("test", "--net", NET, "--weights", weights, "--json").out)
    assert (values["batches"], list(values["outputs"])) == (6, ["accuracy", "loss"])
    assert f"Loss: {values['loss']:.6g}" in once.out and values["loss"] == values["outputs"]["loss"]
    assert values["predicted_peak_bytes"] == values["measured_peak_bytes"]
    noise = [
        layermem("test", "--net", NET, "--weights", weights, "--data", f"noise:{seed}", "-q").out for seed in (1, 1, 2)
    ]
    assert noise[0] == noise[1] != noise[2] and noise[0] not in once.out
    assert "unknown data 'x'" in layermem("test", "--net", NET, "--weights", weights, "--data", "x").sentence
    arrays = layermem("test", "--net", NET, "--weights", weights, "--data", "x.npz")
    assert arrays.code == 2 and "x.npz" in arrays.sentence and not arrays.out
    ended = layermem("test", "--net", NET, "--weights", weights, "--iterations", "3")
    lines = ended.out.splitlines()
    accuracies = [float(line.split("= ")[1]) for line in lines if re.match(r"Batch \d, accuracy", line)]
    mean = float(next(line for line in lines if line.startswith("accuracy = ")).split("= ")[1])
    assert ended.code == 0 and len(accuracies) == 3 and mean == pytest.approx(sum(accuracies) / 3, abs=1e-5)
    assert mean > 0.3  # 30 steps are better than chance
    loss = next(line for line in lines if line.startswith("loss = "))
    assert re.fullmatch(r"loss = [\d.]+ \(\* 1 = [\d.]+ loss\)", loss)
    assert re.search(r"predicted ([\d,]+) bytes, measured \1 bytes", lines[-1])


def test_layers_without_weights_are_named(layermem, solver, prototxt, tmp_path):
    layermem("train", "--solver", solver(), "--iterations", "0")
    other = prototxt(Path(NET).read_text().replace('"ip2"', '"other"').replace('"digits_', '"prototxt/digits/digits_'))
    ended = layermem("test", "--net", other, "--weights", tmp_path / "digits_iter_0.caffemodel", "--iterations", "1")
    assert ended.code == 0 and "layer 'other' is not in the weight files" in ended.err


def test_the_accuracy_of_each_class_is_that_of_the_whole_and_its_matrix_is_a_table(layermem, solver, tmp_path):
    layermem("train", "--solver", solver(), "--iterations", "30")
    words = ("test", "--net", NET, "--weights", tmp_path / "digits_iter_30.caffemodel", "--iterations", "3")
    plain, ended = layermem(*words), layermem(*words, "--confusion", tmp_path / "out.csv")
    assert ended.code == 0 and set(plain.out.splitlines()[:-1]) <= set(ended.out.splitlines())
    lines = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    counts = [[int(cell) for cell in line[1:]] for line in lines[1:]]
    items, right = sum(map(sum, counts)), sum(counts[i][i] for i in range(10))
    assert f"accuracy = {right / items:g}" in ended.out and len(counts) == 10
    (tmp_path / "names.txt").write_text("".join(f"digit {i}\n" for i in range(10)))
    named = layermem(*words, "--confusion", "--labels", tmp_path / "names.txt")
    values = json.loads(layermem(*words, "--json", "--confusion", tmp_path / "other.csv").out)
    assert values["confusion"] == counts and values["class_accuracy"][3] == counts[3][3] / sum(counts[3])
    assert (tmp_path / "other.csv").read_text() == (tmp_path / "out.csv").read_text()
    assert len([line for line in named.out.splitlines() if line.startswith("digit ")]) == 10
    for wrong, what in (
        (("--labels", tmp_path / "names.txt"), "--labels has no effect without --confusion"),
        (("--confusion", "out.npz"), ".csv"),
        (("--confusion", tmp_path / "no" / "out.csv"), "there is no folder"),
    ):
        refused = layermem(*words, *wrong)
        assert refused.code == 2 and what in refused.sentence and "Batch" not in refused.out
