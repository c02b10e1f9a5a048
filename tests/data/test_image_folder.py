"""A folder with one subfolder for each class: lists, databases, and the split."""

import os
from contextlib import closing

import numpy as np
import pytest

from layermem.data.database import open_database
from layermem.data.databases import ImageOptions
from layermem.data.dataset_check import find_sets, read_class_names
from layermem.data.image_folder import class_images, set_folders, split_images, write_dataset
from layermem.data.list_source import read_rows
from layermem.data.transform import read_mean
from layermem.errors import InputError
from layermem.report.predictions import read_labels
from tests.images import CLASSES, write_shapes


@pytest.fixture
def photos(tmp_path):
    return write_shapes(tmp_path / "photos", 5, height=9, width=8)


def test_classes_are_the_subfolders_by_name_and_hidden_files_are_left_out(photos):
    (photos / "cross" / "inside").mkdir()
    (photos / "cross" / "00.png").rename(photos / "cross" / "inside" / "a.PNG")
    for name in ("cross/.hidden.png", "cross/notes.txt", "file.png"):
        (photos / name).touch()
    (photos / ".git").mkdir()
    images = class_images(photos)
    assert list(images) == list(CLASSES)
    names = [str(path.relative_to(photos / "cross")) for path in images["cross"]]
    assert names == ["01.png", "02.png", "03.png", "04.png", "inside/a.PNG"]


def test_the_split_has_the_share_of_each_class_and_depends_on_the_seed_alone(photos):
    classes = class_images(photos)
    train, test = split_images(classes, photos, 0.4, 1)
    assert sorted(label for _, label in test) == [0, 0, 1, 1, 2, 2, 3, 3] and len(train) == 12
    assert {path for path, _ in train}.isdisjoint(path for path, _ in test)
    assert split_images(classes, photos, 0.4, 1) == (train, test)
    assert split_images(classes, photos, 0.4, 2) != (train, test)
    assert [label for _, label in train] != sorted(label for _, label in train)


def test_copies_of_an_image_are_on_one_side(photos):
    for number in (1, 2, 3):
        (photos / "cross" / f"0{number}.png").write_bytes((photos / "cross" / "00.png").read_bytes())
    for seed in range(4):
        train, test = split_images(class_images(photos), photos, 0.4, seed)
        copies = [
            {path.name for path, label in entries if label == 1} & {"00.png", "01.png"} for entries in (train, test)
        ]
        assert sorted(map(len, copies)) == [0, 2]


def test_a_data_set_has_lists_names_databases_and_the_mean(photos, tmp_path):
    made = write_dataset(photos, tmp_path / "out", ImageOptions(), share=0.2, seed=0)
    assert made.classes == CLASSES and made.train == (4,) * 4 and made.test == (1,) * 4 and made.shape == (3, 9, 8)
    assert (tmp_path / "out" / "labels.txt").read_text().split() == list(CLASSES)
    with closing(open_database(tmp_path / "out" / "train_lmdb", labels=True)) as source:
        images, labels = source.read(source.length)
    listed = [*read_rows(tmp_path / "out" / "train.txt", 1)]
    assert [int(row.labels[0]) for row in listed] == labels.tolist() and len(images) == 16
    assert all((tmp_path / "out" / name).is_file() for name, _, _ in listed)
    np.testing.assert_allclose(read_mean(tmp_path / "out" / "mean.binaryproto"), np.mean(images, 0), rtol=1e-5)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_without_a_test_set_all_images_are_for_training(photos, tmp_path):
    made = write_dataset(photos, tmp_path / "out", ImageOptions(), share=0, seed=0)
    assert made.train == (5,) * 4 and made.test == (0,) * 4 and not (tmp_path / "out" / "test.txt").exists()


def test_an_impossible_data_set_is_refused_and_leaves_nothing(photos, tmp_path):
    def refuse(says, share=0.2):
        with pytest.raises(InputError) as refused:
            write_dataset(photos, tmp_path / "out", ImageOptions(), share=share, seed=0)
        assert says in str(refused.value) and ".aside" not in str(refused.value)
        assert [path.name for path in tmp_path.iterdir()] == ["photos"]

    (photos / "cross" / "01.png").write_bytes(b"text")
    refuse("'../photos/cross/01.png'")
    (photos / "cross" / "01.png").unlink()
    write_shapes(tmp_path / "photos" / "other", 1, height=4, width=4)
    refuse("resize them to one size with --resize")
    for path in (photos / "other").rglob("*.png"):
        path.unlink()
    refuse("has no images (.jpg, ")
    for path in [*(photos / "cross").glob("*.png")][1:]:
        path.unlink()
    for name in CLASSES:
        (photos / "other" / name).rmdir()
    (photos / "other").rmdir()
    refuse("has one image only")
    with pytest.raises(InputError, match="has no subfolders"):
        class_images(photos / "cross")
    with pytest.raises(InputError, match="is no folder"):
        class_images(photos / "none")


@pytest.mark.parametrize("name", ["val", "valid", "validation", "test"])
def test_a_folder_of_sets_is_not_split_again(photos, tmp_path, name):
    both = tmp_path / "both"
    both.mkdir()
    photos.rename(both / "train")
    write_shapes(both / name, 2, height=9, width=8)
    made = write_dataset(both, tmp_path / "out", ImageOptions(), share=None, seed=0)
    assert made.classes == CLASSES and made.train == (5,) * 4 and made.test == (2,) * 4
    with pytest.raises(InputError, match=f"has the test set {name}/; leave out --test"):
        write_dataset(both, tmp_path / "other", ImageOptions(), share=0.5, seed=0)
    sets, names, _ = find_sets(both)
    assert sets == {"train": both / "train", "test": both / name} and names == list(CLASSES)
    (both / name / "cross").rename(both / name / "ring")
    with pytest.raises(InputError, match="has no class folder 'cross', and the other set has one"):
        write_dataset(both, tmp_path / "other", ImageOptions(), share=None, seed=0)


def test_a_class_called_train_is_a_class(photos, tmp_path):
    (photos / "cross").rename(photos / "train")
    (photos / "square").rename(photos / "test")
    assert not set_folders(photos) and not set_folders(tmp_path / "none")


def test_names_may_be_of_any_bytes_without_line_ends(photos, tmp_path):
    name = os.fsdecode(b"x\xff\r \xc3\xa9")
    (photos / "cross").rename(photos / name)
    for path in (photos / name).iterdir():
        path.rename(path.with_name(f"{name}{path.name}"))
    made = write_dataset(photos, tmp_path / "out", ImageOptions(), share=0.2, seed=0)
    names = read_class_names(tmp_path / "out" / "labels.txt")
    assert names == [*made.classes] == [*(each for each in CLASSES if each != "cross"), name]
    assert [each.name for each in read_labels(tmp_path / "out" / "labels.txt")] == names
    listed = [row.name for row in read_rows(tmp_path / "out" / "train.txt", 1)]
    assert all((tmp_path / "out" / each).is_file() for each in listed) and any(name in each for each in listed)
    (photos / name).rename(photos / "a\nb")
    with pytest.raises(InputError, match="has a name that a list cannot hold; rename it without line ends"):
        write_dataset(photos, tmp_path / "set", ImageOptions(), share=0, seed=0)
