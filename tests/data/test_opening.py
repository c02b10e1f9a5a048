"""Feeds and shapes of input layers, from prototxt."""

import io

import numpy as np
import pytest
from PIL import Image

from layermem.data import declared_shapes, open_feed, probe
from layermem.errors import InputError
from layermem.proto.schema import TRAIN, BlobProto, Datum
from tests.data.makers import digits_like, images, layer, make_lmdb

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
        (DATA.format(".", 2, "").replace("LMDB", "LEVELDB"), "has backend LEVELDB"),
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


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("transform_param { crop_size: 8 mean_value: 1 mean_value: 2 mean_value: 3 }", ((2, 3, 8, 8), (2,))),
        ("transform_param { crop_size: 8 force_color: true mean_value: 1 }", ((2, 3, 8, 8), (2,))),
        ("transform_param { crop_size: 8 force_gray: true }", ((2, 1, 8, 8), (2,))),
        ("transform_param { crop_size: 8 }", None),
        ("transform_param { crop_size: 8 mean_value: 1 }", None),
        ("transform_param { force_color: true }", None),
    ],
)
def test_a_data_set_that_is_not_there_has_the_shape_that_the_prototxt_states(text, shapes):
    param = layer(DATA.format("gone", 2, "") + text)
    assert declared_shapes(param) == shapes
    if shapes:
        assert probe(param, TRAIN, "net.prototxt") == shapes
    else:
        with pytest.raises(InputError, match="there is no 'gone', and the prototxt does not state its shape"):
            probe(param, TRAIN, "net.prototxt")


def test_an_image_list_that_is_not_there_states_its_size_and_colour():
    text = 'name: "d" type: "ImageData" top: "data" image_data_param {{ source: "gone" batch_size: 2 {} }}'
    assert declared_shapes(layer(text.format("new_height: 4 new_width: 6"))) == ((2, 3, 4, 6),)
    assert declared_shapes(layer(text.format("new_height: 4 new_width: 6 is_color: false"))) == ((2, 1, 4, 6),)
    assert declared_shapes(layer(text.format("") + "transform_param { crop_size: 5 }")) == ((2, 3, 5, 5),)
    assert declared_shapes(layer(text.format(""))) is None


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
