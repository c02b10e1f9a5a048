"""Windows of images: the file, the choice of windows, where they land in the crop, positions and refusals."""

import numpy as np
import pytest
from PIL import Image

from layermem.backends.base import get_device
from layermem.data import open_feed, probe
from layermem.data.window_feed import first_image, read_windows, region
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.train import forward_graph
from layermem.interactive.solver import Solver
from layermem.proto.read import read_net_text
from layermem.solver.process_memory import expected_memory
from tests.compiling import compile
from tests.data.makers import images, layer
from tests.nets import INNER, SOFTMAX, solver_file

FILE = """\
# 0
a.png
3
12
10
4
3 0.9 1 2 6 9
0 0.2 0 0 3 3
7 0.5 4 4 9 11
2 0.4 -5 0 3 3

# 1
b.png
3
8
9
1
0 0.1 2 1 8 7
"""
SIZES = ((12, 10), (8, 9))


@pytest.fixture
def folder(tmp_path):
    for name, (height, width), seed in zip("ab", SIZES, (1, 2)):
        (pixels,) = images(1, height=height, width=width, seed=seed)
        Image.fromarray(pixels[::-1].transpose(1, 2, 0).copy()).save(tmp_path / f"{name}.png")
    (tmp_path / "windows.txt").write_text(FILE)
    return tmp_path


def pixels_of(name):
    """The image as it was saved, in Caffe's order."""
    return images(1, height=SIZES["ab".index(name)][0], width=SIZES["ab".index(name)][1], seed="ab".index(name) + 1)[0]


def feed_of(folder, block="", transform="crop_size: 6", *, phase=0, seed=1, prefetch=False):
    block += "" if "bg_" in block else " bg_threshold: 0.3"
    text = f"""
        name: "d" type: "WindowData" top: "data" top: "label" transform_param {{ {transform} }}
        window_data_param {{ source: "{folder}/windows.txt" batch_size: 8 {block} }}"""
    return open_feed(layer(text), phase, seed, path=str(folder / "net.prototxt"), prefetch=prefetch)


def test_windows_are_foreground_from_one_threshold_on_and_background_below_the_other(folder):
    found = read_windows(folder / "windows.txt", 0.5, 0.3)
    assert [(image.path, image.line) for image in found.images] == [("a.png", 2), ("b.png", 13)]
    assert found.foreground.tolist() == [[0, 3, 1, 2, 6, 9], [0, 7, 4, 4, 9, 11]]
    assert found.background.tolist() == [[0, 0, 0, 0, 3, 3], [1, 0, 2, 1, 8, 7]]


@pytest.mark.parametrize("phase", [0, 1])
def test_a_batch_has_its_background_first_and_then_the_fraction_of_foreground(folder, phase):
    feed = feed_of(folder, "fg_fraction: 0.4", phase=phase)
    labels = np.stack([feed.next()[1] for _ in range(20)])
    assert feed.shapes == ((8, 3, 6, 6), (8,))
    assert not labels[:, :5].any() and {*labels[:, 5:].ravel()} == {3, 7}


def test_a_window_is_warped_to_the_crop_less_the_mean_and_times_the_scale(folder):
    feed = feed_of(folder, "fg_fraction: 1", "crop_size: 4 mean_value: [1, 2, 3] scale: 0.5")
    data, labels = feed.next()
    place = int(np.flatnonzero(labels == 3)[0])
    window = pixels_of("a")[:, 2:10, 1:7].astype(float)
    # 8 rows to 4: the mean of the middle two of each two; 6 columns to 4: 3/4 and 1/4 of neighbours
    rows = (window[:, 0::2] + window[:, 1::2]) / 2
    at = np.array([0.25, 1.75, 3.25, 4.75])
    low, part = at.astype(int), at % 1
    expected = rows[:, :, low] * (1 - part) + rows[:, :, low + 1] * part
    expected = (expected - np.array([1, 2, 3])[:, None, None]) / 2
    assert np.abs(data[place] - expected).max() <= 0.5  # bytes are rounded


def test_the_mean_of_a_pixel_is_that_of_the_middle_of_the_mean_file(folder, monkeypatch):
    from layermem.data import window_feed

    monkeypatch.setattr(window_feed, "read_mean", lambda *_: np.arange(192, dtype=np.float32).reshape(3, 8, 8))
    (folder / "mean").touch()
    plain, less = (
        feed_of(folder, "", f"crop_size: 6 {mean}").next()[0] for mean in ("", f'mean_file: "{folder}/mean"')
    )
    assert np.array_equal(plain - less, np.broadcast_to(np.arange(192).reshape(3, 8, 8)[:, 1:7, 1:7], plain.shape))


@pytest.mark.parametrize("mode, pad", [("warp", 1), ("square", 0)])
def test_context_outside_of_the_image_is_0_and_mirrored_with_it(folder, mode, pad):
    feed = feed_of(folder, f'fg_fraction: 1 context_pad: {pad} crop_mode: "{mode}"', "crop_size: 6 mean_value: -300")
    mirrored = feed_of(
        folder, f'fg_fraction: 1 context_pad: {pad} crop_mode: "{mode}"', "crop_size: 6 mean_value: -300 mirror: true"
    )
    (plain, labels), (flipped, again) = feed.next(), mirrored.next()
    assert np.array_equal(labels, again)
    is_flipped = [not np.array_equal(a, b) for a, b in zip(plain, flipped)]
    assert any(is_flipped) and not all(is_flipped)
    assert all(np.array_equal(a[:, :, ::-1] if flip else a, b) for a, b, flip in zip(plain, flipped, is_flipped))
    assert (plain[labels == 7] == 0).any() and plain[plain != 0].min() >= 300


def test_a_region_grows_by_its_context_and_keeps_to_the_image():
    # 10 x 10 pixels at (20, 30); crop 8 with 1 pixel of context: half sides of 5 * 8 / 6 = 6.67 about (25, 35)
    inside = region((20, 30, 29, 39), (100, 100), 8, 1, square=False, mirror=False)
    assert inside == (18, 28, 32, 42, 0, 0, 8, 8)
    # the same at the left edge: columns -7 to 7 less 7, of 15 in 8 pixels
    assert region((-5, 30, 4, 39), (100, 100), 8, 1, square=False, mirror=False) == (0, 28, 7, 42, 0, 4, 8, 4)
    assert region((-5, 30, 4, 39), (100, 100), 8, 1, square=False, mirror=True) == (0, 28, 7, 42, 0, 0, 8, 4)
    # a flat window becomes a square: 10 x 2 at (20, 30) takes rows 26 to 36
    assert region((20, 30, 29, 31), (100, 100), 8, 0, square=True, mirror=False) == (20, 26, 30, 36, 0, 0, 8, 8)
    assert region((150, 30, 170, 31), (100, 100), 8, 0, square=True, mirror=False) is None
    assert region((20, 30, 100, 31), (100, 100), 8, 0, square=False, mirror=False) is None


def rounded(value):
    return int(np.trunc(value + np.copysign(np.float32(0.5), value)))


def warped(image, corners, crop, pad, square, mirror):
    """A window of [H,W,C] as window_data_layer.cpp writes it: its loops, and the resize of OpenCV."""
    cv2 = pytest.importorskip("cv2")
    f, (x1, y1, x2, y2), (rows, columns) = np.float32, corners, image.shape[:2]
    width = height = crop
    pad_w = pad_h = 0
    if pad or square:
        scale = f(crop) / f(crop - 2 * pad)
        half_h, half_w = f(f(y2 - y1 + 1) / 2.0), f(f(x2 - x1 + 1) / 2.0)
        center_x, center_y = f(x1) + half_w, f(y1) + half_h
        if square:
            half_w = half_h = half_h if half_h > half_w else half_w
        x1, x2 = rounded(center_x - half_w * scale), rounded(center_x + half_w * scale)
        y1, y2 = rounded(center_y - half_h * scale), rounded(center_y + half_h * scale)
        whole_h, whole_w = y2 - y1 + 1, x2 - x1 + 1
        pads = [max(0, -x1), max(0, -y1), max(0, x2 - columns + 1), max(0, y2 - rows + 1)]
        x1, y1, x2, y2 = x1 + pads[0], y1 + pads[1], x2 - pads[2], y2 - pads[3]
        scale_x, scale_y = f(crop) / f(whole_w), f(crop) / f(whole_h)
        width, height = rounded(f(x2 - x1 + 1) * scale_x), rounded(f(y2 - y1 + 1) * scale_y)
        pad_h, pad_w = rounded(f(pads[1]) * scale_y), rounded(f(pads[2 if mirror else 0]) * scale_x)
        height -= max(0, pad_h + height - crop)
        width -= max(0, pad_w + width - crop)
    window = cv2.resize(np.ascontiguousarray(image[y1 : y2 + 1, x1 : x2 + 1]), (width, height))
    out = np.zeros((3, crop, crop), np.float32)
    for h in range(height):
        for w in range(width):
            out[:, h + pad_h, w + pad_w] = window[h, width - 1 - w if mirror else w]
    return out


@pytest.mark.parametrize("mode, pad", [("warp", 0), ("warp", 2), ("square", 0), ("square", 1)])
def test_windows_have_the_pixels_of_caffe(tmp_path, mode, pad):
    rng = np.random.default_rng(5)
    image = rng.integers(0, 256, (23, 31, 3), np.uint8)  # blue, green, red
    Image.fromarray(image[:, :, ::-1].copy()).save(tmp_path / "it.png")
    corners = []
    while len(corners) < 12:
        (x1, x2), (y1, y2) = np.sort(rng.integers(0, 31, 2)), np.sort(rng.integers(0, 23, 2))
        corners.append((int(x1), int(y1), int(x2), int(y2)))
    rows = "".join(f"{label} 1 {x1} {y1} {x2} {y2}\n" for label, (x1, y1, x2, y2) in enumerate(corners, start=1))
    (tmp_path / "windows.txt").write_text(f"# 0\nit.png\n3\n23\n31\n{len(corners)}\n{rows}")
    block = f'fg_fraction: 1 bg_threshold: 0 context_pad: {pad} crop_mode: "{mode}"'
    feed = feed_of(tmp_path, block, "crop_size: 7 mirror: true")
    seen = set()
    for data, labels in (feed.next() for _ in range(8)):
        for window, label in zip(data, labels.astype(int)):
            known = [warped(image, corners[label - 1], 7, pad, mode == "square", mirror) for mirror in (False, True)]
            assert any(np.array_equal(window, each) for each in known), corners[label - 1]
            seen.add(label)
    assert len(seen) == 12


@pytest.mark.parametrize("taken", [0, 1, 3])
@pytest.mark.parametrize("prefetch", [False, True])
def test_a_restored_feed_goes_on_with_the_same_bits(folder, taken, prefetch):
    settings = ("cache_images: true", "crop_size: 6 mirror: true")
    feed = feed_of(folder, *settings, prefetch=prefetch)
    for _ in range(taken):
        feed.next()
    state, expected = feed.state(), [feed.next() for _ in range(3)]
    resumed = feed_of(folder, *settings)
    resumed.check(state)
    resumed.restore(state)
    for batch in expected:
        assert all(np.array_equal(*each) for each in zip(batch, resumed.next(), strict=True))
    feed.close()
    assert not np.array_equal(feed_of(folder, *settings, seed=2).next()[0], feed_of(folder, *settings).next()[0])


def test_cached_images_are_read_once(folder):
    feed, other = feed_of(folder, "cache_images: true"), feed_of(folder)
    expected = other.next()
    for name in "ab":
        (folder / f"{name}.png").unlink()
    assert np.array_equal(feed.next()[0], expected[0])
    with pytest.raises(InputError, match=r"windows.txt:(2|13): layer 'd' lists '.*[ab].png', which cannot be read"):
        other.next()


def test_shapes_are_known_without_the_file(folder):
    text = 'name: "d" type: "WindowData" top: "x" top: "t" transform_param { crop_size: 5 } window_data_param { %s }'
    assert probe(layer(text % 'source: "gone" batch_size: 3'), 0, "net.prototxt") == ((3, 3, 5, 5), (3,))


@pytest.mark.parametrize(
    "block, transform, remedy",
    [
        ("", "", "has no crop_size; set it"),
        ('crop_mode: "round"', "crop_size: 6", "crop_mode 'round'; use one of warp, square"),
        ("context_pad: 3", "crop_size: 6", "use less than half"),
        ("fg_fraction: 1.5", "crop_size: 6", "use a number from 0 to 1"),
        ("scale: 2", "crop_size: 6 scale: 2", "keep one"),
        ("", "crop_size: 6 mean_value: [1, 2]", "give one, or one for each"),
        ("fg_threshold: 2", "crop_size: 6", "has no foreground window, and a batch takes 2"),
        ("bg_threshold: 0", "crop_size: 6", "has no background window, and a batch takes 6"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_remedy(folder, block, transform, remedy):
    with pytest.raises(InputError, match=remedy):
        feed_of(folder, block, transform)


@pytest.mark.parametrize(
    "before, after, line, remedy",
    [
        (FILE, "", None, "lists no images"),
        ("# 1", "# 2", 12, "write it as `# 1`"),
        ("0.2 0 0 3 3", "0.2 0 0 3", 8, "write it as `label overlap x1 y1 x2 y2`"),
        ("0.2 0 0 3 3", "x 0 0 3 3", 8, "write it as `label overlap"),
        ("0.2 0 0 3 3", "nan 0 0 3 3", 8, "write it as `label overlap"),
        ("0.2 0 0 3 3", "0.2 0 0 3.5 3", 8, "are whole numbers"),
        ("0.2 0 0 3 3", "0.2 0 0 3 1e30", 8, "are whole numbers"),
        ("0.2 0 0 3 3", "0.2 4 0 3 3", 8, "write x1 <= x2"),
        ("3 0.9", "0 0.9", 7, "labelled from 1 on"),
        ("a.png\n3", "a.png\n1", 3, "write 3"),
        ("12\n10\n4", "12\n10\nfour", 6, "write a number"),
        ("9\n1\n", "9\n2\n", 18, "ends after 1 of the 2 windows"),
        ("9\n1\n0 0.1 2 1 8 7\n", "", 15, "ends before the width of image 1"),
    ],
)
def test_a_bad_file_is_one_sentence_with_its_line(folder, before, after, line, remedy):
    (folder / "windows.txt").write_text(FILE.replace(before, after))
    with pytest.raises(InputError, match=remedy) as caught:
        read_windows(folder / "windows.txt", 0.5, 0.3)
    assert caught.value.line == line and caught.value.path == str(folder / "windows.txt")


def test_a_window_outside_of_its_image_and_a_bad_image_are_one_sentence(folder):
    (folder / "windows.txt").write_text(FILE.replace("0.9 1 2 6 9", "0.9 1 2 60 9").replace("0.5 4 4", "0.4 4 4"))
    with pytest.raises(InputError, match=r"windows.txt:2: layer 'd' has a window of corners \(1, 2\) and \(60, 9\)"):
        feed_of(folder, "fg_fraction: 1").next()
    (folder / "b.png").write_text("no image")
    with pytest.raises(InputError, match=r"windows.txt:13: layer 'd' image 'b.png' "):
        for _ in range(9):
            feed_of(folder, "fg_fraction: 0").next()


def test_cached_images_count_as_memory_of_the_process(folder):
    text = f"""
        layer {{ name: "d" type: "WindowData" top: "x" top: "t" transform_param {{ crop_size: 6 }}
          window_data_param {{ source: "{folder}/windows.txt" batch_size: 8 bg_threshold: 0.3 cache_images: %s }} }}
    """
    nets = [Net(read_net_text(text % cached), 0, probe=probe) for cached in ("false", "true")]
    plain, cached = (
        expected_memory([net], compile([forward_graph(net, get_device("cpu"))]), get_device("cpu")) for net in nets
    )
    assert cached.batch_bytes - plain.batch_bytes == sum((folder / f"{name}.png").stat().st_size for name in "ab")


def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(folder):
    net = f"""
        layer {{ name: "d" type: "WindowData" top: "x" top: "t"
          transform_param {{ crop_size: 6 mirror: true scale: 0.01 }}
          window_data_param {{ source: "{folder}/windows.txt" batch_size: 8 bg_threshold: 0.3 }} }}
        {INNER.replace("num_output: 5", "num_output: 8")} {SOFTMAX}
    """
    whole, first, second = (Solver(solver_file(net, folder)) for _ in range(3))
    whole.step(5)
    first.step(2)
    second.restore(first.snapshot())
    second.step(3)
    for a, b in zip(whole.parameters()["ip"], second.parameters()["ip"], strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_feed_goes_past_batches_as_if_it_had_read_them(folder):
    feed, other = (feed_of(folder, transform="crop_size: 6 mirror: true") for _ in range(2))
    feed.skip(3)
    for _ in range(3):
        other.next()
    assert feed.state() == other.state()
    assert all(map(np.array_equal, feed.next(), other.next()))


def test_the_first_image_is_known_without_the_windows(folder):
    path = folder / "windows.txt"
    assert first_image(path) == read_windows(path, 0.5, 0.3).images[0]
    path.write_text("\n")
    with pytest.raises(InputError, match="lists no images"):
        first_image(path)
