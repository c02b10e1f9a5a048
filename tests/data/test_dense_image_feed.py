"""Images and the classes of their pixels: what a pair becomes, positions, and what is wrong with lists and images."""

import numpy as np
import pytest
from PIL import Image

from layermem.data.opening import held_bytes, open_feed
from layermem.data.probing import probe
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.layers.data import make_feed_layer, shape_options
from layermem.ops import ByteImages
from layermem.proto.read import read_net_text
from layermem.proto.schema import TEST, TRAIN
from tests.data.makers import images, layer

GRAY = np.array([[10, 20, 30, 40], [50, 60, 70, 80]], np.uint8)
CLASSES = np.array([[0, 1, 2, 3], [4, 5, 6, 255]], np.uint8)
IN_GRAY = "is_color: false"


@pytest.fixture
def pair(tmp_path):
    """A list of one pair."""
    Image.fromarray(GRAY).save(tmp_path / "a.png")
    Image.fromarray(CLASSES).save(tmp_path / "a_labels.png")
    (tmp_path / "list.txt").write_text("a.png a_labels.png\n")
    return tmp_path


def fields(folder, block="", transform=""):
    batch = "" if "batch_size" in block else "batch_size: 1"
    return f"""name: "d" type: "DenseImageData" top: "data" top: "label" transform_param {{ {transform} }}
        dense_image_data_param {{ source: "{folder}/list.txt" {batch} {block} }}"""


def feed_of(folder, block="", transform="", phase=TRAIN, **options):
    made = layer(fields(folder, block, transform))
    return open_feed(made, phase, 1, path=str(folder / "net"), **{"prefetch": False, **options})


def test_a_mean_and_a_scale_are_for_the_image_alone(pair):
    data, labels = feed_of(pair, IN_GRAY, "mean_value: 10 scale: 0.5").next()
    assert data.tolist() == [[[[0, 5, 10, 15], [20, 25, 30, 35]]]]
    assert labels.tolist() == [[CLASSES.tolist()]] and labels.dtype == np.float32


def test_the_centre_is_cut_from_both(pair):
    data, labels = feed_of(pair, IN_GRAY, "crop_size: 2", TEST).next()
    assert data.tolist() == [[[[20, 30], [60, 70]]]] and labels.tolist() == [[[[1, 2], [5, 6]]]]


def test_both_are_mirrored_together(pair):
    feed = feed_of(pair, IN_GRAY, "mirror: true")
    seen = set()
    for _ in range(16):
        data, labels = feed.next()
        step = -1 if data[0, 0, 0, 0] == 40 else 1
        assert data[0, 0].tolist() == GRAY[:, ::step].tolist()
        assert labels[0, 0].tolist() == CLASSES[:, ::step].tolist()
        seen.add(step)
    assert seen == {1, -1}


@pytest.mark.parametrize("in_bytes", [False, True])
def test_each_pixel_of_a_random_window_keeps_its_class(tmp_path, in_bytes):
    pixels = np.arange(2 * 9 * 8, dtype=np.uint8).reshape(2, 9, 8)
    for index, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{index}.png")
        Image.fromarray(255 - image).save(tmp_path / f"labels{index}.png")
    (tmp_path / "list.txt").write_text("0.png labels0.png\n1.png labels1.png\n")
    block = f'{IN_GRAY} batch_size: 2 root_folder: "{tmp_path}/"'
    feed = feed_of(tmp_path, block, "crop_size: 5 mirror: true", in_bytes=in_bytes)
    batches = [feed.next() for _ in range(6)]
    for data, labels in batches:
        assert isinstance(data, ByteImages) == in_bytes
        if in_bytes:
            data = np.stack([each[:, :, ::-1] if turn else each for each, turn in zip(data.pixels, data.mirrored)])
        assert data.shape == labels.shape == (2, 1, 5, 5)
        np.testing.assert_array_equal(data + labels.astype(int), np.full((2, 1, 5, 5), 255))
    assert len({labels.tobytes() for _, labels in batches}) == len(batches)


def test_labels_take_the_nearest_pixel_where_images_are_interpolated(pair):
    data, labels = feed_of(pair, f"{IN_GRAY} new_height: 4 new_width: 2").next()
    assert data[0, 0, 0].tolist() == [15, 35]
    assert labels.tolist() == [[[[0, 2], [0, 2], [4, 6], [4, 6]]]]


def test_a_resize_makes_pairs_of_two_sizes_equal(pair):
    Image.fromarray(CLASSES[:1, :2]).save(pair / "a_labels.png")
    labels = feed_of(pair, "new_height: 2 new_width: 4").next()[1]
    assert labels.tolist() == [[[[0, 0, 1, 1]] * 2]]


def test_a_palette_gives_its_indices_and_images_have_three_channels(pair):
    indexed = Image.fromarray(CLASSES % 8).convert("L")
    indexed.putpalette([7, 99, 200] * 8)
    indexed.save(pair / "a_labels.png")
    data, labels = feed_of(pair).next()
    assert data.shape == (1, 3, 2, 4) and labels[0, 0].tolist() == (CLASSES % 8).tolist()


def test_both_are_turned_as_their_exif_orientation_says(pair):
    exif = Image.Exif()
    exif[0x112] = 3
    for name, pixels in (("a.png", GRAY), ("a_labels.png", CLASSES)):
        Image.fromarray(pixels).save(pair / name, exif=exif)
    data, labels = feed_of(pair, IN_GRAY).next()
    assert data[0, 0].tolist() == GRAY[::-1, ::-1].tolist() and labels[0, 0].tolist() == CLASSES[::-1, ::-1].tolist()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "CMYK", "LAB"])
def test_labels_in_colours_are_refused(pair, mode):
    name = "a_labels.png" if mode.startswith("RGB") else "a_labels.tif"
    Image.new(mode, (4, 2)).save(pair / name)
    (pair / "list.txt").write_text(f"a.png {name}\n")
    with pytest.raises(InputError, match=f"holds an image of mode {mode}, where each pixel must be") as caught:
        feed_of(pair)
    assert name in str(caught.value)


def test_labels_of_another_size_are_refused_with_their_line(pair):
    Image.fromarray(CLASSES[:1]).save(pair / "b.png")
    (pair / "list.txt").write_text("a.png a_labels.png\n\na.png b.png\n")
    feed = feed_of(pair)
    feed.next()
    with pytest.raises(InputError, match=r"lists the image 'a.png' of 2x4 with labels of 1x4; make them") as caught:
        feed.next()
    assert caught.value.line == 3


@pytest.mark.parametrize(
    "text, words",
    [
        ("", r"lists no images; add lines such as `path/to/image.jpg path/to/labels.png`"),
        ("a.png\n", "is not an image path followed by that of its label image; write it as `path/to/image.jpg path/"),
        ("a.png no.png\n", "no.png', which cannot be read"),
        ("no.png a_labels.png\n", "no.png', which cannot be read"),
        ("a.png list.txt\n", "in a format that is not read"),
    ],
)
def test_wrong_lists_are_refused(pair, text, words):
    (pair / "list.txt").write_text(text)
    with pytest.raises(InputError, match=words):
        feed_of(pair)


@pytest.mark.parametrize(
    "block, transform, words",
    [
        ("new_height: 4", "", "only one of new_height and new_width"),
        ("batch_size: 0", "", "set dense_image_data_param { batch_size } to at least 1"),
        ("", "augment_param { rotation: 5 }", "has an augment_param, which would change images and not their labels"),
        ("", "crop_size: 3", "has crop_size 3 and an image of 2x4"),
    ],
)
def test_wrong_settings_are_refused(pair, block, transform, words):
    with pytest.raises(InputError, match=words):
        feed_of(pair, block, transform)


@pytest.mark.parametrize("prefetch", [False, True])
def test_a_feed_goes_on_where_its_state_was_taken(tmp_path, prefetch):
    for index, image in enumerate(images(5, 1, 8, 8)):
        for name in (f"{index}.png", f"labels{index}.png"):
            Image.fromarray(image[0]).save(tmp_path / name)
    (tmp_path / "list.txt").write_text("".join(f"{i}.png labels{i}.png\n" for i in range(5)))
    settings = f"{IN_GRAY} batch_size: 3 shuffle: true rand_skip: 4", "crop_size: 5 mirror: true"
    feed, other = feed_of(tmp_path, *settings, prefetch=prefetch), feed_of(tmp_path, *settings)
    feed.next()
    feed.skip(1)
    state = feed.state()
    other.check(state)
    other.restore(state)
    for _ in range(4):
        for one, two in zip(feed.next(), other.next(), strict=True):
            np.testing.assert_array_equal(one, two)
    feed.close()


def test_images_of_two_sizes_come_one_at_a_time(pair):
    for name, pixels in (("b.png", GRAY), ("b_labels.png", CLASSES)):
        Image.fromarray(pixels[:, :3]).save(pair / name)
    (pair / "list.txt").write_text("a.png a_labels.png\nb.png b_labels.png\n")
    feed = feed_of(pair, IN_GRAY)
    shapes = [[top.shape for top in feed.next()] for _ in range(2)]
    assert feed.varies and shapes == [[(1, 1, 2, 4)] * 2, [(1, 1, 2, 3)] * 2]
    with pytest.raises(InputError, match="in one batch"):
        feed_of(pair, f"{IN_GRAY} batch_size: 2").next()


def test_shapes_are_known_before_there_are_files(tmp_path):
    made = layer(fields(tmp_path / "none", "batch_size: 4 new_height: 6 new_width: 8"))
    assert probe(made, TRAIN, "net") == ((4, 3, 6, 8), (4, 1, 6, 8))
    assert shape_options(made) == "--input data=4,3,6,8 --input label=4,1,6,8"
    known = make_feed_layer(made, TRAIN, path="", batch=None, inputs={"data": (2, 3, 5, 7)}, probe=None)
    assert [top.shape for top in known.tops] == [(2, 3, 5, 7), (2, 1, 5, 7)]
    with pytest.raises(InputError, match=r"--input data=4,3,H,W --input label=4,1,H,W"):
        probe(layer(fields(tmp_path / "none", "batch_size: 4")), TRAIN, "net")


def test_what_it_holds_has_the_list_and_the_larger_of_the_two_images(pair):
    made, shapes = layer(fields(pair)), ((1, 3, 2, 4), (1, 1, 2, 4))
    small = held_bytes(made, shapes)
    Image.fromarray(np.zeros((100, 100), np.uint8)).save(pair / "a_labels.png")
    assert held_bytes(made, shapes) > small + 100_000


def test_a_mean_file_in_its_block_has_no_effect_as_in_the_fork():
    text = 'layer { name: "d" type: "DenseImageData" top: "x" dense_image_data_param { mean_file: "m" source: "s" } }'
    net = read_net_text(text, "n")
    assert net.message.layer[0].dense_image_data_param.source == "s"
    assert any("mean_file" in note for note in net.ignored)


def test_a_net_takes_both_tops(pair):
    net = Net(read_net_text(f"layer {{ {fields(pair)} }}", str(pair / "net")), TRAIN, probe=probe)
    assert [top.shape for top in net.nodes[0].layer.tops] == [(1, 3, 2, 4), (1, 1, 2, 4)]
