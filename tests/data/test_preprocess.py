"""The transform of images to predict on."""

import numpy as np
import pytest

from layermem.data.images import resize
from layermem.data.preprocess import Preprocess, Stated
from layermem.errors import InputError
from layermem.proto.schema import BlobProto
from tests.data.makers import images, layer

IMAGE = images(1, 3, 6, 5)[0]


def data_layer(transform: str = "", kind: str = "Data", more: str = ""):
    return layer(f'name: "data" type: "{kind}" top: "data" transform_param {{ {transform} }} {more}')


def write_mean(path, mean):
    path.write_bytes(BlobProto(num=1, channels=3, height=6, width=5, data=mean.ravel().tolist()).SerializeToString())


def test_without_anything_an_image_is_resized_to_the_input():
    assert np.array_equal(Preprocess((3, 6, 5), None)(IMAGE), IMAGE.astype(np.float32))
    made = Preprocess((3, 4, 9), None)(IMAGE)
    assert made.dtype == np.float32 and np.array_equal(made, resize(IMAGE, 4, 9))


def test_the_transform_of_the_data_layer_applies_but_for_its_mirror():
    made = Preprocess(
        (3, 4, 4), data_layer("crop_size: 4 mean_value: [1, 2, 3] scale: 0.5 mirror: true"), stored=(3, 6, 5)
    )(IMAGE)
    wanted = (IMAGE[:, 1:5, 0:4] - np.array([1, 2, 3], np.float32)[:, None, None]) * np.float32(0.5)
    assert np.array_equal(made, wanted)


def test_a_layer_that_transforms_nothing_has_no_transform():
    made = Preprocess((3, 6, 5), data_layer("scale: 2", "MemoryData"))(IMAGE)
    assert np.array_equal(made, IMAGE.astype(np.float32))


def test_options_replace_the_transform_of_the_layer():
    stated = Stated(mean="10", scale=2.0, size=(8, 8), crop=6)
    made = Preprocess((3, 6, 6), data_layer("crop_size: 4 mean_value: [1, 2, 3] scale: 0.5"), stated)(IMAGE)
    wanted = (resize(IMAGE, 8, 8)[:, 1:7, 1:7] - np.float32(10)) * np.float32(2)
    assert np.array_equal(made, wanted)


@pytest.mark.parametrize(
    ("layer", "stored", "size"),
    [
        (data_layer("crop_size: 4"), None, (4, 4)),  # nothing is known of the images before the crop
        (data_layer("crop_size: 4"), (3, 9, 8), (9, 8)),
        (data_layer("crop_size: 4", "ImageData", "image_data_param { new_height: 7 new_width: 5 }"), None, (7, 5)),
        (data_layer("", "DenseImageData", "dense_image_data_param { new_height: 4 new_width: 4 }"), None, (4, 4)),
        (data_layer("resize_param { height: 4 width: 4 }", "AnnotatedData"), None, (4, 4)),
    ],
)
def test_the_size_before_the_crop(layer, stored, size):
    assert Preprocess((3, 4, 4), layer, stored=stored).size == size


def test_a_mean_image_has_the_size_of_the_images_before_the_crop(tmp_path, rng):
    mean = rng.integers(0, 200, (3, 6, 5)).astype(np.float32)
    write_mean(tmp_path / "m.binaryproto", mean)
    np.save(tmp_path / "m.npy", mean)
    np.save(tmp_path / "v.npy", np.array([1.0, 2.0, 3.0]))
    wanted = (IMAGE - mean)[:, 1:5, 0:4]
    by_layer = Preprocess((3, 4, 4), data_layer('crop_size: 4 mean_file: "m.binaryproto"'), folder=tmp_path)
    assert by_layer.size == (6, 5) and np.array_equal(by_layer(IMAGE), wanted)
    for name in ("m.binaryproto", "m.npy"):
        made = Preprocess((3, 4, 4), None, Stated(mean=str(tmp_path / name), crop=4))
        assert np.array_equal(made(IMAGE), wanted)
    values = Preprocess((3, 6, 5), None, Stated(mean=str(tmp_path / "v.npy")))
    assert np.array_equal(values(IMAGE), IMAGE - np.array([1, 2, 3], np.float32)[:, None, None])


def test_rgb_turns_the_channels_before_the_mean():
    made = Preprocess((3, 6, 5), None, Stated(mean="1,2,3", rgb=True))(IMAGE)
    assert np.array_equal(made, IMAGE[::-1] - np.array([1, 2, 3], np.float32)[:, None, None])


@pytest.mark.parametrize(
    ("shape", "stated", "match"),
    [
        ((10,), {}, r"images have 1 or 3 channels, and the input of the net is 10; give arrays in \.npy or \.npz"),
        ((4, 6, 5), {}, "images have 1 or 3 channels"),
        ((3, 6, 5), {"size": (7, 7)}, "images resized to 7x7 do not fit the input of 6x5; change --resize or --crop"),
        ((3, 6, 6), {"size": (8, 8), "crop": 7}, "images resized to 8x8 and cropped to 7x7 do not fit the input of"),
        ((3, 6, 6), {"crop": 9}, "has crop_size 9 and an image of 6x6; reduce crop_size"),
        ((3, 6, 6), {"mean": "1,2"}, "has 2 mean_value for 3 channels; give one, or one for each"),
        ((3, 6, 6), {"mean": "none.npy"}, "no such file; give an existing mean image"),
    ],
)
def test_mismatched_input_is_refused(shape, stated, match):
    with pytest.raises(InputError, match=match):
        Preprocess(shape, None, Stated(**stated))


def test_a_mean_that_is_none_is_refused(tmp_path):
    np.save(tmp_path / "m.npy", np.zeros((2, 2)))
    with pytest.raises(InputError, match=r"is an array of shape \(2, 2\) and no mean; give channels"):
        Preprocess((3, 6, 6), None, Stated(mean=str(tmp_path / "m.npy")))
    (tmp_path / "x.npy").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="cannot be read as a mean image"):
        Preprocess((3, 6, 6), None, Stated(mean=str(tmp_path / "x.npy")))


def test_an_image_of_other_channels_or_of_numbers_in_another_size_is_refused():
    made = Preprocess((1, 6, 5), None)
    with pytest.raises(InputError, match="has 3 channels, and the net reads 1"):
        made(IMAGE)
    with pytest.raises(
        InputError, match="holds numbers in 3x5, where 6x5 are needed; only images of bytes are resized"
    ):
        made(np.zeros((1, 3, 5), np.float32))
