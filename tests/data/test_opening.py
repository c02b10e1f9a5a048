"""Feeds and shapes of input layers, from prototxt."""

import io

import numpy as np
import pytest
from PIL import Image

from layermem.data import open_feed, probe
from layermem.errors import InputError
from layermem.proto.schema import TEST, TRAIN, BlobProto, Datum
from tests.data.makers import datum, digits_like, images, layer, make_lmdb

DATA = (
    'name: "data" type: "Data" top: "data" top: "label" data_param {{ source: "{}" batch_size: {} backend: LMDB {} }}'
)
NOISE = """
    name: "noise" type: "DummyData" top: "a" top: "b"
    dummy_data_param {
        shape { dim: 2 dim: 3 } shape { dim: 2 }
        data_filler { type: "gaussian" } data_filler { type: "constant" value: 4 }
    }
"""


def opened(text: str, phase: int = TRAIN, seed: int = 1, prefetch: bool = False, path: str = "net.prototxt"):
    return open_feed(layer(text), phase, seed, path=path, prefetch=prefetch)


def data(folder, batch: int = 3, more: str = "", rest: str = "") -> str:
    return DATA.format(folder, batch, more) + rest


def test_a_source_beside_the_net_is_found(tmp_path):
    digits_like(tmp_path / "db")
    feed = opened(data("db"), path=str(tmp_path / "net.prototxt"))
    assert feed.shapes[0] == (3, 3, 6, 5)
    feed.close()


def test_an_lmdb_needs_no_backend_named(tmp_path):
    folder, _ = digits_like(tmp_path / "db")
    opened(data(folder).replace("backend: LMDB", "")).close()


def image_list(tmp_path) -> str:
    from PIL import Image

    for index, image in enumerate(images(5, height=8, width=8)):
        Image.fromarray(image.transpose(1, 2, 0).copy()).save(tmp_path / f"{index}.png")
    (tmp_path / "list.txt").write_text("".join(f"{tmp_path}/{i}.png {i}\n" for i in range(5)))
    return f"""name: "data" type: "ImageData" top: "data" top: "label" transform_param {{ crop_size: 6 mirror: true }}
               image_data_param {{ source: "{tmp_path}/list.txt" batch_size: 3 shuffle: true }}"""


def hdf5(tmp_path) -> str:
    import h5py

    with h5py.File(tmp_path / "a.h5", "w") as h5:
        h5["x"], h5["y"] = images(7), np.arange(7)
    (tmp_path / "list.txt").write_text("a.h5\n")
    return f"""name: "h" type: "HDF5Data" top: "x" top: "y"
               hdf5_data_param {{ source: "{tmp_path}/list.txt" batch_size: 3 shuffle: true }}"""


def lmdb(tmp_path) -> str:
    return data(digits_like(tmp_path / "db")[0], rest="transform_param { crop_size: 4 mirror: true }")


KINDS = {"lmdb": lmdb, "images": image_list, "hdf5": hdf5, "noise": lambda tmp_path: NOISE}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DATA.format("gone", 2, ""), "layer 'data' cannot read its data: there is no 'gone'"),
        (DATA.format("", 2, ""), "has no source; set it"),
        (DATA.format(".", 0, ""), "has batch_size 0; set"),
        (DATA.format(".", 2, "") + 'top: "third"', "has 3 tops"),
        (
            'name: "h" type: "HDF5Data" top: "x" hdf5_data_param { batch_size: 1 } transform_param { }',
            "transform_param",
        ),
        (
            NOISE.replace('data_filler { type: "gaussian" }', "data_filler { } data_filler { }"),
            "3 data_filler for 2 tops",
        ),
        (NOISE.replace("gaussian", "rainbow"), "unknown filler type 'rainbow'"),
    ],
)
def test_layers_that_cannot_be_fed_are_refused(text, words):
    with pytest.raises(InputError, match=words) as caught:
        opened(text)
    assert caught.value.path == "net.prototxt"


def test_a_refused_layer_leaves_its_lmdb_closed(tmp_path):
    folder, _ = digits_like(tmp_path / "db")
    for _ in range(2):
        with pytest.raises(InputError, match="has crop_size 99"):
            opened(data(folder, rest="transform_param { crop_size: 99 }"))
    import lmdb as library

    library.open(str(folder), readonly=True, lock=False).close()  # refused if it were still open


@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_returns_the_shapes_that_the_feed_will_have(tmp_path, kind):
    text = KINDS[kind](tmp_path)
    feed = opened(text)
    assert tuple(map(tuple, probe(layer(text), TRAIN, "net.prototxt"))) == feed.shapes
    feed.close()


def test_a_mean_that_is_missing_is_no_reason_to_guess_when_the_data_are_there(tmp_path):
    folder, _ = digits_like(tmp_path / "db")
    with pytest.raises(InputError, match=r"there is no 'gone.binaryproto'"):
        probe(layer(data(folder, rest='transform_param { mean_file: "gone.binaryproto" }')), TRAIN, "net.prototxt")


def test_a_mean_file_beside_the_net_is_found(tmp_path):
    folder, pixels = digits_like(tmp_path / "db")
    blob = BlobProto(num=1, channels=3, height=6, width=5, data=[1.0] * 90)
    (tmp_path / "mean").write_bytes(blob.SerializeToString())
    text = data(folder, rest='transform_param { mean_file: "mean" }')
    feed = opened(text, path=str(tmp_path / "net.prototxt"))
    assert np.array_equal(feed.next()[0], pixels[:3].astype(np.float32) - 1)
    feed.close()


@pytest.mark.parametrize(
    ("batch", "more", "depth"),
    [(3, "", 4), (2**18, "", 3), (2**20, "", 1), (2**20, "prefetch: 3", 3), (3, "prefetch: 7", 7)],
)
def test_batches_wait_up_to_64_mib_or_as_many_as_the_layer_says(tmp_path, batch, more, depth):
    folder, _ = digits_like(tmp_path / "db", channels=1, height=5, width=4)
    feed = opened(data(folder, batch, more), prefetch=True)  # 84 bytes an image
    assert feed.depth == depth
    feed.close()


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("field", ["force_color", "force_gray"])
def test_a_note_says_that_raw_images_keep_their_channels(tmp_path, field, prefetch):
    folder, _ = digits_like(tmp_path / "db")
    for more, notes in (
        (
            f" transform_param {{ {field}: true }}",
            (f"{field} has no effect on images that are not encoded, as in BVLC Caffe",),
        ),
        ("", ()),
    ):
        feed = opened(data(folder, rest=more), prefetch=prefetch)
        assert feed.notes == notes
        feed.close()


def test_encoded_images_have_no_note(tmp_path):
    picture = io.BytesIO()
    Image.fromarray(images(1)[0].transpose(1, 2, 0)).save(picture, "PNG")
    make_lmdb(tmp_path / "db", [Datum(data=picture.getvalue(), encoded=True, label=0)])
    feed = opened(data(tmp_path / "db", 1, rest=" transform_param { force_gray: true }"))
    assert feed.notes == () and feed.shapes[0][1] == 1
    feed.close()


@pytest.mark.parametrize("kind", ["raw", "floats", "encoded", "images"])
@pytest.mark.parametrize("mean", ["mean_value: 5", "mean_value: 1 mean_value: 2 mean_value: 3", 'mean_file: "mean"'])
def test_every_source_is_cropped_then_centred_then_scaled(tmp_path, kind, mean):
    pixels = images(4)
    values = np.random.default_rng(1).random((3, 6, 5), np.float32)
    blob = BlobProto(num=1, channels=3, height=6, width=5, data=values.ravel().tolist())
    (tmp_path / "mean").write_bytes(blob.SerializeToString())
    listed = [save_image(tmp_path / f"{i}.png", image) for i, image in enumerate(pixels)]
    if kind == "images":
        (tmp_path / "list").write_text("".join(f"{i}.png {i}\n" for i in range(4)))
        text = f'name: "d" type: "ImageData" top: "x" image_data_param {{ source: "{tmp_path}/list" batch_size: 4 }}'
    else:
        records = {"raw": pixels, "floats": pixels.astype(np.float32), "encoded": pixels}[kind]
        datums = [datum(image, i) for i, image in enumerate(records)]
        if kind == "encoded":
            datums = [Datum(data=path.read_bytes(), label=i, encoded=True) for i, path in enumerate(listed)]
        text = data(make_lmdb(tmp_path / "db", datums), 4)
    feed = opened(f"{text} transform_param {{ scale: 0.5 crop_size: 4 {mean} }}", TEST, path=str(tmp_path / "net"))
    centre = (slice(None), slice(1, 5), slice(0, 4))
    means = {"5": np.float32(5), "1": np.arange(1, 4, dtype=np.float32)[:, None, None]}.get(mean[12:13], values)
    expected = [(image[centre] - (means[centre] if mean[5] == "f" else means)) * np.float32(0.5) for image in pixels]
    np.testing.assert_array_equal(feed.next()[0], np.stack(expected))
    feed.close()


def save_image(path, image):
    Image.fromarray(np.ascontiguousarray(image[::-1].transpose(1, 2, 0))).save(path)
    return path


@pytest.mark.parametrize("field, channels", [("force_gray", 1), ("force_color", 3), ("", 3)])
def test_an_encoded_datum_has_the_channels_that_are_forced(tmp_path, field, channels):
    path = save_image(tmp_path / "a.png", images(1)[0])
    folder = make_lmdb(tmp_path / "db", [Datum(data=path.read_bytes(), label=3, encoded=True)])
    force = f"{field}: true" if field else ""
    feed = opened(f"{data(folder, 2)} transform_param {{ {force} }}")
    assert feed.shapes[0] == (2, channels, 6, 5) and feed.next()[1].tolist() == [3, 3] and not feed.notes
    feed.close()


def test_a_note_says_where_a_transform_has_no_effect(tmp_path):
    save_image(tmp_path / "a.png", images(1)[0])
    (tmp_path / "list").write_text("a.png 1\n")
    text = f'name: "d" type: "ImageData" top: "x" image_data_param {{ source: "{tmp_path}/list" batch_size: 1 }}'
    feed = opened(f"{text} transform_param {{ force_gray: true }}")
    assert feed.shapes == ((1, 3, 6, 5),) and "force_gray has no effect on ImageData" in feed.notes[0]
    feed.close()
    size = "memory_data_param { batch_size: 2 channels: 3 height: 6 width: 5 }"
    feed = opened(f'name: "m" type: "MemoryData" top: "x" {size} transform_param {{ scale: 2 }}')
    assert feed.notes == ("transform_param has no effect on arrays that are given, as in BVLC Caffe",)
