"""Images to predict on."""

import numpy as np
import pytest
from PIL import Image

from layermem.data.items import Item, Unreadable, count_items, read_items
from layermem.errors import InputError
from tests.data.makers import digits_like


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for index, name in enumerate(["b.png", "a.png", "more/c.PNG", ".hidden.png"]):
        Image.new("RGB", (4, 3), (index, 20, 30)).save(tmp_path / "photos" / name, "PNG")
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    return tmp_path


def read(*paths, color=True):
    return [*read_items([str(path) for path in paths], color=color)]


def test_a_list_names_files_of_any_bytes(folder):
    name = "photos/l\udce9.png"
    (folder / "photos" / "b.png").rename(name)
    (folder / "list.txt").write_bytes(b"photos/l\xe9.png 3\nphotos/\xfc.png\n")
    found, lost = read("list.txt")
    assert found.name == name and found.label == 3 and isinstance(lost, Unreadable)


def test_files_and_folders_in_order_as_blue_green_red(folder):
    items = read("photos/b.png", "photos")
    assert [item.name for item in items] == ["photos/b.png", "photos/a.png", "photos/b.png", "photos/more/c.PNG"]
    assert items[0].image.shape == (3, 3, 4) and [*items[1].image[:, 0, 0]] == [30, 20, 1]
    assert read("photos/a.png", color=False)[0].image.shape == (1, 3, 4)


def test_a_list_names_files_with_labels_or_without(folder):
    (folder / "photos" / "x 7").write_bytes((folder / "photos/a.png").read_bytes())
    (folder / "list.txt").write_text("photos/b.png 3\n\nphotos/a.png\nphotos/x 7\n")
    items = read("list.txt")
    assert [(item.name, item.label) for item in items] == [
        ("photos/b.png", 3),
        ("photos/a.png", None),
        ("photos/x 7", None),
    ]
    (folder / "photos" / "near.txt").write_text("b.png 1\n")  # relative to the list
    assert isinstance(read("photos/near.txt")[0], Item)


def test_images_are_counted_before_they_are_read(folder):
    (folder / "list.txt").write_text("a.png 3\n\nb.png\n")
    assert count_items(["none.jpg", "photos", "list.txt"]) == 1 + 3 + 2
    assert count_items(["none.txt", "a.png"]) is None
    (folder / "db").mkdir()
    (folder / "db" / "data.mdb").touch()
    assert count_items(["a.png", "db"]) is None


def test_a_database_has_names_by_number_and_labels(tmp_path):
    path, images = digits_like(tmp_path)
    items = read(path, color=False)
    assert [item.name for item in items[:2]] == [f"{path}:0", f"{path}:1"] and len(items) == len(images)
    assert all(item.label is not None for item in items)
    assert np.array_equal(items[3].image, images[3])


def test_an_image_that_cannot_be_read_does_not_stop_the_others(folder):
    (folder / "photos" / "bad.png").write_text("no image")
    items = read("none.jpg", "photos")
    assert [isinstance(item, Unreadable) for item in items] == [True, False, False, True, False]
    assert str(items[0].error) == "none.jpg: no such file; give an existing image"
    assert str(items[3].error).startswith("photos/bad.png: holds an image in a format that is not read; convert it to")


@pytest.mark.parametrize(
    ("name", "match"),
    [("empty", "has no images .*; give another folder"), ("empty.txt", "lists no images"), ("no.txt", "no such file")],
)
def test_a_list_or_folder_without_images_is_refused(folder, name, match):
    (folder / "empty").mkdir()
    (folder / "empty.txt").write_text("\n\n")
    with pytest.raises(InputError, match=match):
        read(name)
