import numpy as np
import pytest
from google.protobuf import text_format

from layermem.data.transform import Transform
from layermem.errors import InputError
from layermem.proto.schema import TEST, TRAIN, BlobProto, message_class
from tests.data.makers import images, in_bytes, write_mean

KEY = (1, TRAIN, "data")
TransformationParameter = message_class("TransformationParameter")


def transform(text: str, phase: int = TRAIN, tmp_path=None) -> Transform:
    param = text_format.Parse(text, TransformationParameter())
    return Transform(param, phase, KEY, lambda name: tmp_path / name)


def mean_file(tmp_path, mean: np.ndarray) -> str:
    write_mean(tmp_path / "mean.binaryproto", mean)
    return 'mean_file: "mean.binaryproto"'


def test_nothing_asked_is_nothing_done():
    x = images(4)
    y = transform("")(list(x), 0)
    assert y.dtype == np.float32 and np.array_equal(y, x.astype(np.float32))


def test_the_mean_goes_before_the_scale():
    x = images(2)
    y = transform("scale: 0.5 mean_value: 10 mean_value: 20 mean_value: 30")(list(x), 0)
    expected = (x - np.array([10, 20, 30], np.float32)[:, None, None]) * np.float32(0.5)
    assert np.array_equal(y, expected)


@pytest.mark.parametrize("phase", [TRAIN, TEST])
@pytest.mark.parametrize("means", ["", "mean_value: 7.3", "mean_value: 10.1 mean_value: 20 mean_value: 30"])
@pytest.mark.parametrize("others", ["", "scale: 0.017", "crop_size: 4 mirror: true scale: -0.3"])
def test_images_in_bytes_stand_for_the_bits_of_the_transform(means, others, phase):
    x, each = list(images(20, height=9, width=6)), transform(f"{means} {others}", phase)
    stored = in_bytes(each, x, 5)
    assert stored.pixels.dtype == np.uint8 and stored.shape == each(x, 5).shape
    assert np.asarray(stored).tobytes() == each(x, 5).tobytes()


def test_numbers_are_not_in_bytes():
    x = images(2)
    assert in_bytes(transform(""), [x[0], x[1].astype(np.float32)], 0) is None


@pytest.mark.parametrize("others", ["", "crop_size: 4 mirror: true scale: 0.3"])
def test_images_in_bytes_have_their_window_of_a_mean_image(others, tmp_path, rng):
    x = list(images(20, height=9, width=6))
    each = transform(f"{mean_file(tmp_path, rng.random((3, 9, 6)))} {others}", tmp_path=tmp_path)
    assert np.asarray(in_bytes(each, x, 5)).tobytes() == each(x, 5).tobytes()


def test_one_mean_value_serves_all_channels():
    x = images(2)
    assert np.array_equal(transform("mean_value: 7")(list(x), 0), x.astype(np.float32) - 7)


def test_test_images_are_cropped_in_the_centre():
    x = images(3, height=9, width=6)
    y = transform("crop_size: 4", TEST)(list(x), 0)
    assert np.array_equal(y, x[:, :, 2:6, 1:5].astype(np.float32))


def corners(x: np.ndarray, y: np.ndarray, crop: int) -> list[tuple[int, int]]:
    """The position of each crop, found by comparing images with distinct values."""
    found = []
    for image, cut in zip(x, y):
        (row, column), *more = [
            (i, j)
            for i in range(image.shape[1] - crop + 1)
            for j in range(image.shape[2] - crop + 1)
            if np.array_equal(image[:, i : i + crop, j : j + crop], cut)
        ]
        assert not more
        found.append((row, column))
    return found


def test_training_images_are_cropped_everywhere_evenly():
    x = np.broadcast_to(np.arange(30, dtype=np.float32).reshape(1, 1, 5, 6), (1200, 1, 5, 6))
    found = corners(x, transform("crop_size: 3")(list(x), 0), 3)
    counts = {corner: found.count(corner) for corner in set(found)}
    assert set(counts) == {(i, j) for i in range(3) for j in range(4)}
    assert min(counts.values()) > 60 and max(counts.values()) < 145


def test_half_of_the_images_are_mirrored():
    x = np.broadcast_to(np.arange(3, dtype=np.float32).reshape(1, 1, 1, 3), (400, 1, 1, 3))
    y = transform("mirror: true")(list(x), 0)
    turned = (y[:, 0, 0, 0] == 2).sum()
    assert 160 < turned < 240
    assert np.array_equal(np.sort(y, axis=3), x)


def test_decisions_belong_to_the_sample_and_not_to_the_batch():
    x = images(10, height=8, width=8)
    t = transform("crop_size: 5 mirror: true")
    whole = t(list(x), 20)
    parts = np.concatenate([t(list(x[:3]), 20), t(list(x[3:4]), 23), t(list(x[4:]), 24)])
    assert np.array_equal(whole, parts)
    assert not np.array_equal(whole, t(list(x), 21))


def test_the_mean_image_is_cropped_where_the_image_is(tmp_path):
    mean = np.random.default_rng(1).random((3, 7, 7), np.float32) * 100
    x = images(6, height=7, width=7)
    plain = transform("crop_size: 4 mirror: true")
    less = transform("crop_size: 4 mirror: true " + mean_file(tmp_path, mean), tmp_path=tmp_path)
    means = np.broadcast_to(mean, x.shape)
    np.testing.assert_allclose(less(list(x), 5), plain(list(x), 5) - plain(list(means), 5), atol=1e-4)


def test_a_mean_may_have_a_shape_of_three_axes_and_doubles(tmp_path):
    blob = BlobProto()
    blob.shape.dim.extend([1, 2, 2])
    blob.double_data.extend([1, 2, 3, 4])
    (tmp_path / "mean.binaryproto").write_bytes(blob.SerializeToString())
    y = transform('mean_file: "mean.binaryproto"', tmp_path=tmp_path)([np.zeros((1, 2, 2), np.uint8)], 0)
    assert y.ravel().tolist() == [-1, -2, -3, -4]


def test_images_of_several_sizes_meet_in_a_crop():
    x = [images(1, height=h, width=w)[0] for h, w in ((6, 9), (8, 6))]
    y = transform("crop_size: 6", TEST)(x, 0)
    assert np.array_equal(y[0], x[0][:, :, 1:7]) and np.array_equal(y[1], x[1][:, 1:7])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("crop_size: 7", "has crop_size 7 and an image of 6x5; reduce crop_size"),
        ("mean_value: 1 mean_value: 2", "2 mean_value for 3 channels"),
    ],
)
def test_a_transform_that_does_not_fit_the_image_is_refused(text, words):
    with pytest.raises(InputError, match=words):
        transform(text)(list(images(2)), 0)


def test_images_of_several_sizes_without_a_crop_are_refused():
    x = [images(1)[0], images(1, height=7)[0]]
    with pytest.raises(InputError, match="3x6x5 and 3x7x5 in one batch"):
        transform("")(x, 0)


def test_images_of_several_channel_counts_are_refused_even_with_a_crop():
    x = [images(1)[0], images(1, channels=1)[0]]
    with pytest.raises(InputError, match="in one batch"):
        transform("crop_size: 2")(x, 0)


def test_a_mean_of_another_shape_is_refused(tmp_path):
    t = transform(mean_file(tmp_path, np.zeros((3, 6, 6), np.float32)), tmp_path=tmp_path)
    with pytest.raises(InputError, match="mean_file of 3x6x6 and an image of 3x6x5; make them equal"):
        t(list(images(1)), 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('mean_value: 1 mean_file: "m"', "both mean_file and mean_value"),
        ("force_color: true force_gray: true", "both force_color and force_gray"),
    ],
)
def test_contradictions_are_refused(text, words):
    with pytest.raises(InputError, match=words):
        transform(text)


def blob(*shape: int, count: int = 4) -> bytes:
    num, channels, height, width = shape
    made = BlobProto(num=num, channels=channels, height=height, width=width, data=[1.0] * count)
    return made.SerializeToString()


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xff\xff",
        blob(1, 2, 2, 2, count=0),
        blob(1, 1, -2, -2),
        blob(1, -2, -2, 1),
        blob(-1, -1, 2, 2),
        blob(1, 0, 0, 0, count=0),
        BlobProto(data=[1.0] * 4, shape={"dim": [-2, -2, 1]}).SerializeToString(),
        BlobProto(shape={"dim": [2**32, 2**32, 1]}).SerializeToString(),
    ],
    ids=["junk", "empty", "two negative", "two others", "negative count", "zeros", "three axes", "overflow"],
)
def test_a_file_that_is_no_mean_is_refused(tmp_path, raw):
    (tmp_path / "m").write_bytes(raw)
    with pytest.raises(InputError, match="mean image") as caught:
        transform('mean_file: "m"', tmp_path=tmp_path)
    assert caught.value.path == str(tmp_path / "m")


def test_of_an_image_only_its_window_is_kept():
    image = images(1, height=40, width=30)[0]
    windows = transform("crop_size: 4").windows(0, 2)
    assert all(windows.cut(index, image).base is None for index in range(2))  # no view of the whole image
    assert transform("").windows(0, 1).cut(0, image) is image
