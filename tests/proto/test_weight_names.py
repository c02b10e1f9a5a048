"""Maps between names of tensors and blobs of layers."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.proto.blobs import LazyBlob
from layermem.proto.weight_names import layers_of, left_out, read_names, tensors_of

MAP = """# ours    theirs
conv1/0     features.0.weight
conv 2/0\tb

bn/0        bn.running_mean
bn/1        bn.running_var
bn/2        =1
"""


def lazy(*values):
    array = np.array(values, np.float32)
    return LazyBlob(array.shape, lambda: array)


@pytest.fixture
def names(tmp_path):
    (tmp_path / "map").write_text(MAP)
    return read_names(tmp_path / "map")


def plain(layers):
    return {name: [np.asarray(blob).tolist() for blob in blobs] for name, blobs in layers.items()}


THEIRS = {
    "features.0.weight": lazy(1, 2),
    "b": lazy(3),
    "bn.running_mean": lazy(4, 5),
    "bn.running_var": lazy(6, 7),
    "bn.num_batches_tracked": lazy(9),
}


def test_a_map_names_what_stands_for_each_blob(names):
    expected = {"conv1": [[1, 2]], "conv 2": [[3]], "bn": [[4, 5], [6, 7], [1]]}
    assert plain(layers_of(THEIRS, names)) == expected


def test_averages_are_written_divided_by_a_divisor_that_is_a_constant_for_them(names):
    ours = {"conv1": [lazy(1, 2)], "conv 2": [lazy(3), lazy(8)], "bn": [lazy(8, 10), lazy(12, 14), lazy(2)]}
    written = tensors_of(ours, names)
    assert {name: np.asarray(blob).tolist() for name, blob in written.items()} == {
        "features.0.weight": [1, 2],
        "b": [3],
        "bn.running_mean": [4, 5],
        "bn.running_var": [6, 7],
    }
    assert left_out(ours, names) == ["conv 2/1"]


def test_without_a_map_names_are_layer_and_index_or_weight_and_bias():
    ours = {"a/1x1": [lazy(1), lazy(2)]}
    tensors = tensors_of(ours, None)
    assert [*tensors] == ["a/1x1/0", "a/1x1/1"] and plain(layers_of(tensors, None)) == plain(ours)
    theirs = {"fc.bias": lazy(2), "fc.weight": lazy(1)}
    assert plain(layers_of(theirs, None)) == {"fc": [[1], [2]]}


@pytest.mark.parametrize("name", ["bn.running_mean", "x", "fc.bias"])
def test_tensors_that_are_no_blobs_by_their_names_need_a_map(name):
    with pytest.raises(InputError, match="write a name map"):
        layers_of({name: lazy(1)}, None)


@pytest.mark.parametrize(
    "text, line, what",
    [
        ("", None, "has no lines; give a name map"),
        ("conv1\n", 1, "is not `LAYER/INDEX TENSOR`: 'conv1'; write it so"),
        ("conv1/0 a\nconv1/x b\n", 2, "is not `LAYER/INDEX TENSOR`"),
        ("a/0 x\na/0 y\n", 2, r"names 'a/0' a second time \(line 1\)"),
        ("a/0 x\na/2 y\n", 2, "names blob 2 of 'a', and no blob 1"),
        ("a/0 =nan\n", 1, "has the constant '=nan'; write a number other than 0"),
        ("a/0 =0\n", 1, "has the constant '=0'"),
    ],
)
def test_a_wrong_map_is_refused_with_its_line(tmp_path, text, line, what):
    (tmp_path / "map").write_text(text)
    with pytest.raises(InputError, match=what) as caught:
        read_names(tmp_path / "map")
    assert (caught.value.path, caught.value.line) == (str(tmp_path / "map"), line)


def test_names_that_a_file_does_not_have_are_refused_with_the_line_of_the_map(names):
    with pytest.raises(InputError, match=r"names the tensor 'b', which the weight file does not have") as caught:
        layers_of({name: blob for name, blob in THEIRS.items() if name != "b"}, names)
    assert caught.value.line == 3
    with pytest.raises(InputError, match="names 'conv 2/0', which the weight file does not have") as caught:
        tensors_of({"conv1": [lazy(1)]}, names)
    assert caught.value.line == 3
