"""Random changes of training images: what each field does, within its limits, from the seed and the sample alone."""

import colorsys

import numpy as np
import pytest
from google.protobuf import text_format

from layermem.data.transform import Transform
from layermem.errors import InputError
from layermem.interactive.solver import Solver
from layermem.proto.schema import TEST, TRAIN, message_class
from tests.data.makers import datum, images, in_bytes, make_lmdb
from tests.nets import solver_file

TransformationParameter = message_class("TransformationParameter")
SMOOTH = np.indices((40, 60)).astype(np.uint8)  # row and column of each place


def transform(text, phase=TRAIN, seed=1, **options):
    param = text_format.Parse(text, TransformationParameter())
    return Transform(param, phase, (seed, phase, "data"), lambda name: name, **options)


def changed(text, image, count=40, **options):
    return transform(f"augment_param {{ {text} }}", **options)([image] * count, 0)


def places():
    return np.stack([SMOOTH[0], SMOOTH[1], np.full((40, 60), 9, np.uint8)])


@pytest.mark.parametrize("text", ["", "area: 1 aspect: 1 rotation: 0 brightness: 0"])
def test_without_limits_images_are_as_they_were(text):
    assert np.array_equal(changed(text, places(), 3), np.float32([places()] * 3))


def test_a_window_has_its_share_of_the_image_and_fills_it():
    out = changed("area: 0.25", places())
    shares = []
    for y in out:
        rows, columns = y[0], y[1]
        assert rows.min() >= 0 and rows.max() <= 39 and columns.max() <= 59 and (y[2] == 9).all()
        high, wide = (rows[-1, 30] - rows[0, 30] + 1) / 40, (columns[20, -1] - columns[20, 0] + 1) / 60
        assert high == pytest.approx(wide, abs=0.06)
        shares.append(high * wide)
    assert min(shares) >= 0.2 and max(shares) <= 1.02 and np.ptp(shares) > 0.4


def test_a_window_is_stretched_by_its_aspect_at_most():
    ratios = []
    for y in changed("area: 0.25 aspect: 2", places()):
        high, wide = (y[0][-1, 30] - y[0][0, 30] + 1) / 40, (y[1][20, -1] - y[1][20, 0] + 1) / 60
        ratios.append(wide / high)
    assert 0.45 < min(ratios) < 0.8 and 1.25 < max(ratios) < 2.2


def test_a_rotation_keeps_the_centre_and_fills_the_corners_with_the_mean():
    image = np.full((3, 41, 41), 200, np.uint8)
    image[:, 20, 20] = 0
    text = "mean_value: 50 mean_value: 60 mean_value: 70 augment_param { rotation: 45 }"
    out = transform(text)([image] * 20, 0) + np.float32([50, 60, 70])[:, None, None]
    assert all((y[:, 20, 20] < 80).all() for y in out)
    corners = {tuple(y[:, 0, 0]) for y in out}
    assert (50, 60, 70) in corners and len({y.tobytes() for y in out}) > 10
    angles = []
    for y in changed("rotation: 30", places()):
        angles.append(np.degrees(np.arctan2(y[0, 20, 40] - y[0, 20, 20], y[1, 20, 40] - y[1, 20, 20])))
    assert min(angles) < -15 and max(angles) > 15 and max(map(abs, angles)) < 33


@pytest.mark.parametrize(("field", "image"), [("brightness", 100), ("contrast", 100)])
def test_factors_stay_within_their_limits(field, image):
    values = np.full((3, 8, 8), image, np.uint8)
    values[:, :, :4] = 60
    means = changed(f"{field}: 0.5", values).mean(axis=(1, 2, 3))
    spread = np.ptp(changed(f"{field}: 0.5", values), axis=(1, 2, 3))
    if field == "brightness":
        assert 39 <= means.min() < 60 and 100 < means.max() <= 121
    else:
        assert 19 <= spread.min() < 30 and 50 < spread.max() <= 61 and np.ptp(means) < 2


def test_saturation_and_hue_change_colours_alone():
    red = np.zeros((3, 4, 4), np.uint8)
    red[0], red[1], red[2] = 50, 50, 200  # blue, green, red
    for y in changed("saturation: 0.8", red):
        assert y[2, 0, 0] >= y[1, 0, 0] == y[0, 0, 0]
    hues = [colorsys.rgb_to_hsv(*(y[::-1, 0, 0] / 255)) for y in changed("hue: 0.25", red)]
    turns = [(h + 0.5) % 1 - 0.5 for h, _, _ in hues]
    assert -0.27 < min(turns) < -0.12 and 0.12 < max(turns) < 0.27
    assert all(v == pytest.approx(200 / 255, abs=0.02) for _, _, v in hues)


def test_gray_images_are_turned_and_take_no_colours():
    gray = places()[:1]
    assert changed("rotation: 20 brightness: 0.3", gray).shape == (40, 1, 40, 60)
    with pytest.raises(InputError, match="has a gray image, and augment_param with saturation or hue"):
        changed("hue: 0.1", gray)


def test_a_sample_is_changed_by_the_seed_and_its_number_alone():
    text = "augment_param { area: 0.3 aspect: 1.5 rotation: 20 brightness: 0.3 hue: 0.1 } crop_size: 4 mirror: true"
    x = list(images(7))
    whole = transform(text)(x, 0)
    assert np.array_equal(whole, np.concatenate([transform(text)(x[:3], 0), transform(text)(x[3:], 3)]))
    assert not np.array_equal(whole, transform(text, seed=2)(x, 0))
    stored = in_bytes(transform(text), x, 0)
    assert stored is not None and np.array_equal(stored.pixels[0], in_bytes(transform(text), x[:1], 0).pixels[0])


def test_the_test_phase_is_not_changed():
    x = list(images(3))
    assert np.array_equal(transform("augment_param { rotation: 90 }", TEST)(x, 0), np.float32(x))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("area: 0", "area: 0 }; use a number from 0.01 to 1"),
        ("aspect: 0.5", "aspect: 0.5 }; use a number from 1 to 10"),
        ("rotation: -1", "rotation: -1 }; use a number from 0 to 180"),
        ("brightness: 2", "brightness: 2 }; use a number from 0 to 1"),
        ("hue: nan", "hue: nan }; use a number from 0 to 0.5"),
    ],
)
@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_a_limit_outside_its_domain_is_refused(text, what, phase):
    with pytest.raises(InputError, match=what):
        changed(text, places(), phase=phase)


def test_images_that_it_cannot_change_are_refused():
    with pytest.raises(InputError, match="for images without boxes"):
        changed("rotation: 1", places(), boxes=True)
    with pytest.raises(InputError, match="has an image of 3 channels in float32, and augment_param changes"):
        changed("rotation: 1", places().astype(np.float32))


NET = """
    layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "%s" batch_size: 2 }
            transform_param { augment_param { area: 0.4 rotation: 15 contrast: 0.2 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
            inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def test_a_resumed_run_trains_on_the_same_images(tmp_path):
    make_lmdb(tmp_path / "lmdb", [datum(image, i % 5) for i, image in enumerate(images(5))])
    fields = {"test_iter": None, "test_interval": None, "snapshot": 2, "base_lr": 1e-4}

    def trained(**options):
        with Solver(
            solver_file(NET % (tmp_path / "lmdb"), tmp_path, **fields), device="reference", **options
        ) as solver:
            solver.solve()
            return [blob.tobytes() for blob in solver.parameters()["ip"]]

    whole = trained()
    assert trained(snapshot=tmp_path / "run_iter_2.solverstate") == whole != trained(seed=6)
