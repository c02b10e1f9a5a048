"""Weights through files and back: Caffe's formats old and new, and files that are none of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from layermem.errors import InputError
from layermem.proto import read_weights, reshaped, write_weights
from layermem.proto import weights as weights_module
from layermem.proto.blobs import LazyBlob
from layermem.proto.schema import BlobProto, BlobShape, LayerParameter, NetParameter, SolverState
from layermem.proto.weights import open_weights

RNG = np.random.default_rng(7)
WEIGHTS = {
    "conv1": ("Convolution", [RNG.normal(size=(4, 3, 5, 5)), RNG.normal(size=4)]),
    "relu1": ("ReLU", []),
    "inception_3a/1x1": ("Convolution", [RNG.normal(size=(2, 4, 1, 1))]),
    "scalar": ("Parameter", [np.array(1.5)]),
    "bn": ("BatchNorm", [np.zeros(4), np.ones(4), np.array([3.0])]),
}
WEIGHTS = {name: (kind, [np.float32(blob) for blob in blobs]) for name, (kind, blobs) in WEIGHTS.items()}
FORMATS = [".caffemodel", ".caffemodel.h5"]


def same(read, written):
    written = {name: blobs for name, (_, blobs) in written.items() if blobs}
    assert set(read) == set(written)
    for name, blobs in written.items():
        assert [blob.shape for blob in read[name]] == [np.shape(blob) for blob in blobs]
        for got, want in zip(read[name], blobs, strict=True):
            assert got.dtype == np.float32 and got.tobytes() == np.ascontiguousarray(want, np.float32).tobytes()


def refusal(path):
    with pytest.raises(InputError) as caught:
        read_weights(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("suffix", FORMATS)
def test_written_weights_are_read_bit_for_bit_with_names_and_shapes(suffix, tmp_path):
    path = tmp_path / f"net{suffix}"
    write_weights(path, "net", WEIGHTS)
    same(read_weights(path), WEIGHTS)


SHAPES = arrays.array_shapes(min_dims=0, max_dims=5, min_side=1, max_side=4)
BLOBS = st.lists(arrays.arrays(np.float32, SHAPES, elements=st.floats(width=32)), max_size=3)
NAMES = st.text(st.characters(exclude_characters="/.\0", exclude_categories=["Cs"]), min_size=1, max_size=8)


@pytest.mark.parametrize("suffix", FORMATS)
@settings(max_examples=25, deadline=None)
@given(st.dictionaries(NAMES, st.tuples(st.just("Some"), BLOBS), min_size=1, max_size=4))
def test_any_names_shapes_and_floats_survive(suffix, tmp_path_factory, layers):
    path = tmp_path_factory.mktemp("any") / f"net{suffix}"
    write_weights(path, "n", layers)
    same(read_weights(path), layers)


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_same_weights_make_the_same_bytes_at_any_time(suffix, tmp_path, monkeypatch):
    import time

    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    write_weights(first, "net", WEIGHTS)
    if suffix.endswith("h5"):
        time.sleep(1.1)  # HDF5 can store times of seconds
    write_weights(second, "net", WEIGHTS)
    assert first.read_bytes() == second.read_bytes()


def test_a_binary_file_is_the_net_parameter_that_caffe_reads(tmp_path):
    path = tmp_path / "net.caffemodel"
    write_weights(path, "lenet", WEIGHTS)
    net = NetParameter.FromString(path.read_bytes())
    assert net.name == "lenet"
    assert [(layer.name, layer.type) for layer in net.layer] == [(n, kind) for n, (kind, _) in WEIGHTS.items()]
    assert list(net.layer[0].blobs[0].shape.dim) == [4, 3, 5, 5]
    assert net.layer[0].blobs[1].data[:] == WEIGHTS["conv1"][1][1].tolist()
    assert path.read_bytes() == net.SerializeToString()  # so the pieces are packed and in order


def old_blob(*extents, start=0.0):
    num, channels, height, width = extents
    blob = BlobProto(num=num, channels=channels, height=height, width=width)
    blob.data.extend(start + i for i in range(num * channels * height * width))
    return blob


def test_weights_of_2014_and_2013_are_read_in_the_shapes_of_today(tmp_path):
    net = NetParameter(name="old")
    net.layers.add(name="ip", type="INNER_PRODUCT").blobs.extend([old_blob(1, 1, 2, 3), old_blob(1, 1, 1, 2)])
    net.layers.add(name="relu", type="RELU")
    older = net.layers.add().layer
    older.name, older.type = "conv", "conv"
    older.blobs.extend([old_blob(1, 1, 2, 3, start=9), old_blob(1, 1, 1, 1)])
    net.layers.add(name="other", type="POWER").blobs.append(old_blob(1, 1, 1, 2))
    path = tmp_path / "old.caffemodel"
    path.write_bytes(net.SerializeToString())
    read = read_weights(path)
    assert list(read) == ["ip", "conv", "other"]
    assert [blob.tolist() for blob in read["ip"]] == [[[0, 1, 2], [3, 4, 5]], [0, 1]]
    assert read["conv"][0].shape == (1, 1, 2, 3) and read["conv"][1].shape == (1,)
    assert read["conv"][0].ravel().tolist() == [9, 10, 11, 12, 13, 14]
    assert read["other"][0].shape == (1, 1, 1, 2) and reshaped(read["other"][0], (2,)).tolist() == [0, 1]


def test_blobs_of_a_batch_norm_of_nvcaffe_are_read_in_the_order_of_its_newest_version(tmp_path):
    net = NetParameter(name="n")
    mean, variance, scale, bias = (old_blob(1, 2, 1, 1, start=i) for i in (0, 2, 4, 6))
    one = old_blob(1, 1, 1, 1, start=1)
    net.layer.add(name="new", type="BatchNorm").blobs.extend([mean, variance, one, scale, bias])
    net.layer.add(name="old", type="BatchNorm").blobs.extend([scale, bias, mean, variance, one])
    path = tmp_path / "nv.caffemodel"
    path.write_bytes(net.SerializeToString())
    for weights in (read_weights(path), open_weights(path)):
        for name in ("new", "old"):
            assert [np.asarray(b).tolist() for b in weights[name]] == [[0, 1], [2, 3], [1], [4, 5], [6, 7]]


def saved(tmp_path, raw):
    path = tmp_path / "wrong.caffemodel"
    path.write_bytes(raw)
    return path


def test_files_that_hold_no_weights_are_called_what_they_are(tmp_path):
    assert refusal(saved(tmp_path, b"")).what.startswith("is empty; give a weight file")
    assert refusal(saved(tmp_path, b'layer {\n  name: "a"\n}\n')).what.startswith("is text; give a weight file")
    assert refusal(saved(tmp_path, b"\x08\x03\x10\x01")).what.startswith("has no layers; give a weight file")
    state = SolverState(iter=3, learned_net="x_iter_3.caffemodel", history=[BlobProto(data=[1.0])])
    assert refusal(saved(tmp_path, state.SerializeToString())).what == (
        "is a solver state, for --snapshot; for --weights give its 'x_iter_3.caffemodel'"
    )
    assert refusal(tmp_path).what == "is a folder; give the weight file (.caffemodel or .caffemodel.h5) inside it"
    missing = "no such file; give an existing weight file (.caffemodel or .caffemodel.h5)"
    assert refusal(tmp_path / "nothing").what == missing


def test_a_file_cut_anywhere_is_refused_or_lacks_whole_layers_only(tmp_path):
    whole = tmp_path / "net.caffemodel"
    write_weights(whole, "n", WEIGHTS)
    raw, complete = whole.read_bytes(), read_weights(whole)
    for cut in range(1, len(raw), 7):
        try:
            part = read_weights(saved(tmp_path, raw[:cut]))
        except InputError:
            continue
        for name, blobs in part.items():
            assert all(np.array_equal(a, b) for a, b in zip(blobs, complete[name], strict=True))


def test_random_bytes_end_in_one_sentence(tmp_path):
    rng = np.random.default_rng(0)
    for size in (1, 10, 100, 3000):
        for _ in range(25):
            refusal(saved(tmp_path, rng.bytes(size)))


def test_layers_of_one_name_and_of_none_are_numbered_and_keep_their_names_in_the_file(tmp_path):
    blobs = [BlobProto(data=[1.0], shape=BlobShape(dim=[1]))]
    named = [("x", "ReLU"), ("x", "Bias"), ("x(2)", ""), ("", "Bias"), ("", "Bias")]
    net = NetParameter(layer=[LayerParameter(name=name, type=kind, blobs=blobs) for name, kind in named])
    path = saved(tmp_path, net.SerializeToString())
    for weights in (read_weights(path), open_weights(path)):
        assert list(weights) == ["x", "x(3)", "x(2)", "Bias", "Bias(2)"]
        assert weights.names_in_file == {"x(3)": "x", "Bias": "", "Bias(2)": ""}
    again = tmp_path / "again.caffemodel"
    write_weights(again, "n", {name: ("", blobs) for name, blobs in weights.items()}, weights.names_in_file)
    assert [layer.name for layer in NetParameter.FromString(again.read_bytes()).layer] == [name for name, _ in named]


def test_a_binary_file_beyond_two_gibibytes_is_refused_before_a_byte_is_written(tmp_path, monkeypatch):
    path = tmp_path / "big.caffemodel"
    path.write_bytes(b"old")
    huge = np.broadcast_to(np.float32(0), (2**29,))  # 2 GiB that take 4 bytes
    with pytest.raises(InputError) as caught:
        write_weights(path, "n", {"a": ("InnerProduct", [huge])})
    assert str(caught.value) == (
        f"{path}: cannot be written: the weights take 2.00 GiB, above the limit of a binary .caffemodel, 2.00 GiB;"
        " use HDF5 (.caffemodel.h5)"
    )
    monkeypatch.setattr(weights_module, "MESSAGE_LIMIT_BYTES", 100)  # floats that fit, with names that do not
    with pytest.raises(InputError, match="use HDF5"):
        write_weights(path, "n" * 90, {"a": ("InnerProduct", [np.zeros(20)])})
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_a_binary_file_beyond_two_gibibytes_is_not_read(tmp_path):
    path = tmp_path / "big.caffemodel"
    with open(path, "wb") as handle:
        handle.truncate(2**31)  # sparse
    with pytest.raises(InputError, match="the limit of a weight file"):
        read_weights(path)


def test_another_program_reads_our_weights(tmp_path):
    cv2 = pytest.importorskip("cv2")
    (tmp_path / "net.prototxt").write_text(
        'input: "data" input_shape { dim: 1 dim: 3 }\n'
        'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }'
    )
    weight, bias = RNG.normal(size=(2, 3)), RNG.normal(size=2)
    write_weights(tmp_path / "net.caffemodel", "n", {"ip": ("InnerProduct", [weight, bias])})
    net = cv2.dnn.readNetFromCaffe(str(tmp_path / "net.prototxt"), str(tmp_path / "net.caffemodel"))
    x = np.float32([[1, 2, 3]])
    net.setInput(x)
    np.testing.assert_allclose(net.forward(), x @ np.float32(weight).T + np.float32(bias), rtol=1e-5)


# ---- blobs that are read when they are needed ----------------------------------------------------------------------


def message_of(layers) -> NetParameter:
    net = NetParameter(name="net")
    for name, (kind, blobs) in layers.items():
        layer = net.layer.add(name=name, type=kind)
        for array in blobs:
            blob = layer.blobs.add(data=np.ravel(array).tolist())
            blob.shape.dim.extend(np.shape(array))
    return net


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(NAMES, st.tuples(st.just("Some"), BLOBS), max_size=4))
def test_a_binary_file_has_the_bytes_that_protobuf_writes(tmp_path_factory, layers):
    path = tmp_path_factory.mktemp("any") / "net.caffemodel"
    write_weights(path, "net", layers)
    assert path.read_bytes() == message_of(layers).SerializeToString()


def old_extents():
    net = message_of({"ip": ("InnerProduct", [])})
    net.layer[0].blobs.add(num=1, channels=1, height=2, width=3, data=range(6))
    return net


def old_layers():
    net = NetParameter()
    net.layers.add(name="ip", type="INNER_PRODUCT").blobs.add(num=1, channels=1, height=2, width=3, data=range(6))
    return net


def oldest_layers():
    net = NetParameter()
    net.layers.add().layer.blobs.add(num=1, channels=1, height=2, width=3, data=range(6))
    net.layers[0].layer.name = "ip"
    return net


def doubles():
    net = message_of({"ip": ("InnerProduct", [])})
    net.layer[0].blobs.add(double_data=[1.5, 1e-9, 3]).shape.dim.extend([3])
    return net


def with_gradients():
    net = message_of({"ip": ("InnerProduct", [np.arange(6).reshape(2, 3)])})
    net.layer[0].blobs[0].diff.extend(range(6))
    return net


def two_of_a_name():
    net = message_of({"ip": ("InnerProduct", [])})
    net.layer[0].blobs.add(data=[1]).shape.dim.extend([1])
    net.layer.add().CopyFrom(net.layer[0])
    return net


FILES = {
    "ours": message_of(WEIGHTS).SerializeToString(),
    "old extents": old_extents().SerializeToString(),
    "V1": old_layers().SerializeToString(),
    "V0": oldest_layers().SerializeToString(),
    "doubles": doubles().SerializeToString(),
    "gradients": with_gradients().SerializeToString(),
    "two of a name": two_of_a_name().SerializeToString(),
    "a solver state": SolverState(iter=3, learned_net="x").SerializeToString(),
    "nothing": b"",
}


def result(read, path):
    """The result of reading: bytes and shapes by layer, or the error."""
    try:
        weights = read(path)
    except InputError as error:
        return str(error)
    return {name: [(blob.shape, np.asarray(blob).tobytes()) for blob in blobs] for name, blobs in weights.items()}


@pytest.mark.parametrize("name", FILES)
def test_blobs_that_are_found_in_a_file_are_those_that_are_read(name, tmp_path):
    path = tmp_path / "net.caffemodel"
    path.write_bytes(FILES[name])
    assert result(open_weights, path) == result(read_weights, path)
    lazy = [isinstance(blob, LazyBlob) for blobs in result_of(path) for blob in blobs]
    assert all(lazy) == (name != "V0")


def result_of(path):
    try:
        return open_weights(path).values()
    except InputError:
        return ()


@pytest.mark.parametrize("name", ["ours", "doubles", "V1"])
def test_a_file_that_is_cut_or_changed_is_read_alike_both_ways(name, tmp_path, rng):
    path, raw = tmp_path / "net.caffemodel", FILES[name]
    for size in {*range(0, len(raw), 7), len(raw) - 1}:
        path.write_bytes(raw[:size])
        assert result(open_weights, path) == result(read_weights, path)
    for _ in range(200):
        changed = bytearray(raw)
        changed[int(rng.integers(len(raw)))] = int(rng.integers(256))
        path.write_bytes(changed)
        ours, theirs = result(open_weights, path), result(read_weights, path)
        assert ours == theirs or isinstance(theirs, str)  # unneeded parts are not checked


ENDINGS = ("w.caffemodel", "w.caffemodel.h5", "w.npz", "w.safetensors")


def write_filled(path, value: float) -> None:
    write_weights(path, "net", {name: ("", [np.full((3, 2), value, np.float32)]) for name in ("a", "b")})


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("what", ["replaced", "removed", "a folder"])
def test_an_open_file_keeps_its_content_whatever_becomes_of_its_path(ending, what, tmp_path):
    path = tmp_path / ending
    write_filled(path, 1)
    weights = open_weights(path)
    first = np.asarray(weights["a"][0])
    if what == "replaced":
        write_filled(path, 2)
    else:
        path.unlink()
    if what == "a folder":
        path.mkdir()
    assert (first == 1).all() and (np.asarray(weights["b"][0]) == 1).all()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("what", ["other numbers", "empty", "cut", "garbage"])
def test_a_file_that_is_changed_in_place_is_one_sentence(ending, what, tmp_path):
    path, other = tmp_path / ending, tmp_path / f"other.{ending}"
    write_filled(path, 1)
    write_filled(other, 2)
    weights, raw = open_weights(path), path.read_bytes()
    path.write_bytes({"other numbers": other.read_bytes(), "empty": b"", "cut": raw[:60], "garbage": raw[::-1]}[what])
    with pytest.raises(InputError, match="has changed since it was opened; restore it") as caught:
        np.asarray(weights["b"][0])
    assert caught.value.path == str(path)
