import os
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from layermem.data.images import decoding_bytes
from layermem.data.list_source import ImageListSource, list_bytes, read_rows
from layermem.errors import InputError
from layermem.utils.input_files import read_bytes
from tests.data.makers import images, layer

KEY = (1, 0, "data")


@pytest.fixture
def listed(tmp_path):
    """Five images and their list; the pixels [N,3,H,W] as Caffe orders them."""
    pixels = images(5)
    for index, image in enumerate(pixels):
        Image.fromarray(image[::-1].transpose(1, 2, 0).copy()).save(tmp_path / f"image {index}.png")
    (tmp_path / "list.txt").write_text("".join(f"image {i}.png {10 * i}\n" for i in range(5)))
    return tmp_path, pixels


def source(folder, text: str = "", skip: int = 0) -> ImageListSource:
    param = layer(f'image_data_param {{ root_folder: "{folder}/" {text} }}').image_data_param
    return ImageListSource(folder / "list.txt", param, KEY, skip=skip)


def test_images_come_in_the_order_of_the_list_round_and_round(listed):
    folder, pixels = listed
    found, labels = source(folder).read(7)
    assert labels.tolist() == [0, 10, 20, 30, 40, 0, 10]
    assert all(np.array_equal(image, pixels[int(label) // 10]) for image, label in zip(found, labels))


def test_a_name_of_other_bytes_than_utf_8_is_the_file_of_these_bytes(listed):
    folder, pixels = listed
    name = b"l\xe9.png"
    (folder / "image 3.png").rename(folder / os.fsdecode(name))
    (folder / "list.txt").write_bytes(name + b" 3\n")
    s = source(folder)
    images, labels = s.read(1)
    assert np.array_equal(images[0], pixels[3]) and labels.tolist() == [3]
    assert list_bytes(folder / "list.txt", f"{folder}/", read_bytes) > 0
    (folder / os.fsdecode(name)).unlink()
    with pytest.raises(InputError, match="no such file, and its name is not UTF-8; give an existing image"):
        s.read(1)


def test_a_skip_starts_later(listed):
    assert source(listed[0], skip=3).read(3)[1].tolist() == [30, 40, 0]


def test_each_pass_has_an_order_of_its_own_and_leaves_no_image_out(listed):
    s = source(listed[0], "shuffle: true")
    passes = [tuple(s.read(5)[1].astype(int)) for _ in range(8)]
    assert all(sorted(order) == [0, 10, 20, 30, 40] for order in passes)
    assert len(set(passes)) > 4


@pytest.mark.parametrize("taken", [0, 3, 5, 13])
def test_a_restored_source_goes_on_where_the_state_was_taken(listed, taken):
    s = source(listed[0], "shuffle: true")
    s.read(taken)
    state = s.state()
    expected = s.read(9)[1]
    resumed = source(listed[0], "shuffle: true")
    resumed.restore(state)
    assert np.array_equal(resumed.read(9)[1], expected)


def test_images_are_resized_and_made_grey_as_asked(listed):
    s = source(listed[0], "new_height: 4 new_width: 8 is_color: false")
    assert s.first_shape() == (1, 4, 8)
    assert s.read(2)[0][1].shape == (1, 4, 8)


def test_images_beside_the_list_are_found(listed, monkeypatch):
    folder, pixels = listed
    monkeypatch.chdir(folder.parent)
    s = ImageListSource(folder / "list.txt", layer("image_data_param { }").image_data_param, KEY)
    assert np.array_equal(s.read(1)[0][0], pixels[0])


def test_half_a_size_is_refused(listed):
    with pytest.raises(InputError, match="only one of new_height and new_width"):
        source(listed[0], "new_height: 4")


@pytest.mark.parametrize("line", ["image.png", "image.png cat", " 3", "image.png 1.5"])
def test_a_line_that_is_no_image_and_label_is_refused(tmp_path, line):
    path = tmp_path / "list.txt"
    path.write_text("a.png 1\n\n" + line + "\n")
    with pytest.raises(InputError, match="has a line that is not an image path followed by a label") as caught:
        read_rows(path, 1)
    assert (caught.value.path, caught.value.line) == (str(path), 3)


def test_an_empty_list_is_refused(tmp_path):
    (tmp_path / "list.txt").write_text("\n\n")
    with pytest.raises(InputError, match="lists no images"):
        read_rows(tmp_path / "list.txt", 1)


def test_an_image_that_is_missing_is_named_with_its_line(listed):
    folder, _ = listed
    (folder / "image 2.png").unlink()
    with pytest.raises(InputError, match=r"image 2.png', which cannot be read") as caught:
        source(folder).read(5)
    assert caught.value.line == 3


def test_an_image_that_is_no_image_is_named(listed):
    folder, _ = listed
    (folder / "image 2.png").write_bytes(b"junk")
    with pytest.raises(InputError, match="in a format that is not read") as caught:
        source(folder).read(5)
    assert caught.value.path == f"{folder}/image 2.png"


def test_rows_are_parted_by_blanks_or_tabs(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("a.png\t0\nb c.png \t 1\r\n\n d.png  2 ")
    rows = read_rows(path, 1)
    assert [*rows] == [("a.png", ["0"], 1), ("b c.png", ["1"], 2), ("d.png", ["2"], 4)]
    assert rows[-1].line == 4 and rows[1:] == [rows[1], rows[2]]


def test_a_long_list_takes_the_bytes_of_its_text_and_28_for_each_row(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("".join(f"folder/of/images/image_{i:06d}.jpg {i % 10}\n" for i in range(20_000)))
    tracemalloc.start()
    rows = read_rows(path, 1)
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1.2 * rows.nbytes and most < 1.5 * rows.nbytes
    assert rows.nbytes == path.stat().st_size + 28 * 20_000


def test_the_bytes_of_a_list_are_known_without_its_rows(listed):
    folder, _ = listed
    raw, path = (folder / "image 0.png").read_bytes(), folder / "list.txt"
    for text in ("image 0.png 1\nimage 2.png 2\n", "image 0.png 1\nimage 2.png 2"):
        path.write_text(text)
        assert list_bytes(path, "", read_bytes) == read_rows(path, 1).nbytes + decoding_bytes(raw)
