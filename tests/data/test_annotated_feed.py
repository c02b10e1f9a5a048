"""AnnotatedData: boxes with their images, the planned rows, and a stream that resumes."""

import numpy as np
import pytest

from layermem.data import open_feed, probe
from layermem.errors import InputError
from layermem.proto.schema import AnnotatedDatum
from tests.data.makers import datum, images, layer, make_lmdb

SIZE = "resize_param { height: 4 width: 4 }"
BOX = (0.25, 0.0, 0.75, 0.5)


def record(image, *boxes, typed=True):
    """An AnnotatedDatum; boxes are (label, corners)."""
    made = AnnotatedDatum(datum=datum(image, None))
    if typed:
        made.type = AnnotatedDatum.BBOX
    for label, corners in boxes:
        each = made.annotation_group.add(group_label=label).annotation.add(instance_id=3)
        each.bbox.xmin, each.bbox.ymin, each.bbox.xmax, each.bbox.ymax = corners
        each.bbox.difficult = label == 2
    return made


def database(folder, counts=(1, 0, 2, 1), make=make_lmdb, **more):
    """Images with these numbers of boxes; box j of image i has label 1 + j."""
    pixels = images(len(counts), 3, 4, 4)
    return make(
        folder, [record(image, *((1 + j, BOX) for j in range(count)), **more) for image, count in zip(pixels, counts)]
    ), pixels


def annotated(source, batch=2, transform=SIZE, own="", tops='top: "data" top: "label"'):
    return layer(f"""
        name: "data" type: "AnnotatedData" {tops} data_param {{ source: "{source}" batch_size: {batch} backend: LMDB }}
        transform_param {{ {transform} }} annotated_data_param {{ {own} }}
    """)


def feed_of(source, *, phase=0, seed=5, **more):
    return open_feed(annotated(source, **more), phase, seed, path="net", prefetch=False)


def test_images_come_with_their_boxes_and_rows_without_a_box_are_minus_one(tmp_path):
    source, pixels = database(tmp_path / "db")
    feed = feed_of(source)
    assert feed.shapes == ((2, 3, 4, 4), (1, 1, 3, 8))  # the most of two successive images: 2 + 1
    data, label = feed.next()
    np.testing.assert_array_equal(data, pixels[:2])
    assert label[0, 0].tolist() == [[0, 1, 3, *BOX, 0], [-1] * 8, [-1] * 8]
    _, label = feed.next()
    assert label[0, 0].tolist() == [[0, 1, 3, *BOX, 0], [0, 2, 3, *BOX, 1], [1, 1, 3, *BOX, 0]]


@pytest.mark.parametrize(
    "counts, batch, rows", [((1, 0, 2, 1), 3, 4), ((3, 0, 0, 2), 2, 5), ((1, 2), 5, 8), ((0,), 2, 1)]
)
def test_the_rows_are_the_most_of_any_batch_of_the_cycle(tmp_path, counts, batch, rows):
    source, _ = database(tmp_path / "db", counts)
    assert feed_of(source, batch=batch).shapes[1] == (1, 1, rows, 8)
    assert probe(annotated(source, batch), 0, "net")[1] == (1, 1, rows, 8)


def test_without_the_database_eight_rows_are_planned_for_each_image():
    text = SIZE + " mean_value: 104 mean_value: 117 mean_value: 123"
    assert probe(annotated("absent", transform=text), 0, "net") == ((2, 3, 4, 4), (1, 1, 16, 8))


def test_a_mirrored_image_has_mirrored_boxes(tmp_path):
    box = (0.0, 0.0, 0.25, 0.5)
    image = images(1, 3, 4, 4)[0]
    source = make_lmdb(tmp_path / "db", [record(image, (1, box))])
    feed = feed_of(source, batch=16, transform=SIZE + " mirror: true")
    data, label = feed.next()
    left = [row[3] == 0 for row in label[0, 0]]
    assert {*left} == {True, False}
    for item, row, plain in zip(data, label[0, 0], left):
        np.testing.assert_array_equal(item, image if plain else image[:, :, ::-1])
        np.testing.assert_allclose(row[3:7], box if plain else (0.75, 0, 1, 0.5))


AUGMENTED = (
    SIZE
    + """ mirror: true mean_value: 100 emit_constraint { emit_type: CENTER }
    distort_param { brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 contrast_lower: 0.5 contrast_upper: 1.5
        hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 saturation_lower: 0.5 saturation_upper: 1.5
        random_order_prob: 0.5 }
    expand_param { prob: 0.5 max_expand_ratio: 4 }"""
)
SAMPLERS = """ batch_sampler { max_sample: 1 max_trials: 1 } batch_sampler { sampler { min_scale: 0.3 max_scale: 1
    min_aspect_ratio: 0.5 max_aspect_ratio: 2 } sample_constraint { min_jaccard_overlap: 0.3 } max_sample: 1
    max_trials: 50 }"""


def test_draws_depend_on_the_sample_alone_so_that_a_resumed_feed_has_the_same_bits(tmp_path):
    source, _ = database(tmp_path / "db")
    modes = " ".join(f"interp_mode: {mode}" for mode in ("LINEAR", "AREA", "NEAREST", "CUBIC", "LANCZOS4"))
    transform = AUGMENTED.replace("width: 4", f"width: 6 {modes}")
    feed = feed_of(source, transform=transform, own=SAMPLERS)
    whole = [feed.next() for _ in range(12)]
    other = feed_of(source, transform=transform, own=SAMPLERS)
    for _ in range(5):
        other.next()
    resumed = feed_of(source, transform=transform, own=SAMPLERS)
    resumed.check(other.state())
    resumed.restore(other.state())
    for batch in whole[5:]:
        for one, two in zip(batch, resumed.next(), strict=True):
            assert one.tobytes() == two.tobytes()
    rows = np.concatenate([label[0, 0] for _, label in whole])
    rows = rows[rows[:, 0] >= 0]
    assert len(rows) and (rows[:, 3:7] >= 0).all() and (rows[:, 3:7] <= 1).all() and (rows[:, 5:7] > rows[:, 3:5]).all()
    assert len({tuple(row[3:7]) for row in rows}) > 5


@pytest.mark.parametrize(
    "change, words",
    [
        ({"transform": ""}, "needs a resize_param with height and width"),
        (
            {"transform": SIZE.replace("}", "resize_mode: FIT_SMALL_SIZE }") + "expand_param { }"},
            "has resize_mode FIT_SMALL_SIZE beside batch_sampler or expand_param",
        ),
        ({"transform": SIZE + "crop_size: 3"}, "has crop_size and resize_param"),
        ({"transform": SIZE + "expand_param { max_expand_ratio: 0.5 }"}, "max_expand_ratio from 1 to 0.5"),
        ({"own": "batch_sampler { sampler { min_scale: 0.5 max_scale: 0.4 } }"}, "scale from 0.5 to 0.4"),
    ],
)
def test_settings_that_are_not_obeyed_are_refused(tmp_path, change, words):
    source, _ = database(tmp_path / "db")
    with pytest.raises(InputError, match=words):
        feed_of(source, **change)


def test_records_that_are_none_are_refused(tmp_path):
    source, _ = database(tmp_path / "untyped", typed=False)
    with pytest.raises(InputError, match=r"\(record '00000000'\) has no type of annotation; set anno_type: BBOX"):
        feed_of(source).next()
    assert feed_of(source, own="anno_type: BBOX").next()
    raw = make_lmdb(tmp_path / "raw", [b"\x0a\xff"])
    with pytest.raises(InputError, match="AnnotatedDatum"):
        feed_of(raw)


def test_a_leveldb_gives_what_an_lmdb_gives(tmp_path):
    pytest.importorskip("plyvel")
    from tests.data.test_leveldb_database import make_leveldb

    feeds = [feed_of(database(tmp_path / make.__name__, make=make)[0]) for make in (make_lmdb, make_leveldb)]
    assert feeds[0].shapes == feeds[1].shapes
    for _ in range(3):
        for one, two in zip(*(feed.next() for feed in feeds), strict=True):
            assert one.tobytes() == two.tobytes()
    assert feeds[1].state() == feeds[0].state()


def test_images_of_other_aspect_ratios_are_padded_and_their_boxes_moved(tmp_path):
    source = make_lmdb(
        tmp_path / "db",
        [record(np.full((3, 2, 8), 7, np.uint8), (1, BOX)), record(np.full((3, 4, 1), 8, np.uint8), (1, BOX))],
    )
    fit = SIZE.replace("}", "resize_mode: FIT_LARGE_SIZE_AND_PAD %s }")
    data, label = feed_of(source, transform=fit % "pad_value: 1 pad_value: 2 pad_value: 3").next()
    assert data[0, :, :, 0].tolist() == [[fill, 7, fill, fill] for fill in (1, 2, 3)]  # 1 x 4, three rows of padding
    assert data[1, :, 0].tolist() == [[fill, 8, fill, fill] for fill in (1, 2, 3)]
    assert label[0, 0, :, 3:7].tolist() == [[0.25, 0.375, 0.75, 0.5], [0.4375, 0, 0.5625, 0.5]]
    for mode in ("MIRRORED", "REPEAT_NEAREST"):
        assert {*feed_of(source, transform=fit % f"pad_mode: {mode}").next()[0][0].ravel()} == {7}
    with pytest.raises(InputError, match="has 2 pad_values and images of 3 channels"):
        feed_of(source, transform=fit % "pad_value: 1 pad_value: 2").next()


def test_images_of_one_aspect_ratio_cover_the_size(tmp_path):
    fit = SIZE.replace("}", "resize_mode: FIT_SMALL_SIZE }")
    pixels = [np.full((3, 8, 12), 7, np.uint8), np.full((3, 2, 3), 8, np.uint8), np.full((3, 3, 2), 8, np.uint8)]
    source = make_lmdb(tmp_path / "db", [record(each, (1, BOX)) for each in pixels])
    feed = feed_of(source, transform=fit)
    data, label = feed.next()
    assert data.shape == (2, 3, 4, 6) == feed.shapes[0] and label[0, 0, 1, 3:7].tolist() == [*BOX]
    with pytest.raises(InputError, match="has an image of 6x4 after images of 4x6, by resize_mode FIT_SMALL_SIZE"):
        feed.next()
    with pytest.raises(InputError, match="does not state its shape"):
        probe(annotated("absent", transform=fit + "force_color: true"), 0, "net")


@pytest.mark.parametrize("field", ["resize_param { height: 4 width: 4 }", "distort_param { }", "expand_param { }"])
def test_other_data_layers_refuse_what_concerns_boxes(tmp_path, field):
    source = make_lmdb(tmp_path / "db", [datum(images(1)[0])])
    text = f'name: "d" type: "Data" top: "d" data_param {{ source: "{source}" batch_size: 1 backend: LMDB }}'
    with pytest.raises(InputError, match=f"has a {field.split()[0]}, from the SSD fork of Caffe, which is obeyed in"):
        open_feed(layer(f"{text} transform_param {{ {field} }}"), 0, 1, path="net")


def test_a_feed_goes_past_batches_as_if_it_had_read_them(tmp_path):
    source, _ = database(tmp_path / "db", (1, 2, 0, 1, 1))
    feed, other = (feed_of(source, transform=f"{SIZE} mirror: true") for _ in range(2))
    feed.skip(3)
    for _ in range(3):
        other.next()
    assert feed.state() == other.state()
    assert all(map(np.array_equal, feed.next(), other.next()))
