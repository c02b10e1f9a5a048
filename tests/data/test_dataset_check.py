"""Problems and remarks found by checks of a data set."""

import pytest

from layermem.data.databases import ImageOptions, image_records, write_database
from layermem.data.dataset_check import CheckedItem, check_sets, find_sets, read_class_names, read_items
from layermem.data.image_folder import write_dataset
from layermem.errors import InputError
from tests.images import CLASSES, write_shapes


def items(*labels, shape=(3, 4, 4), first=0):
    return [CheckedItem(f"i{n}", label, shape, bytes([n])) for n, label in enumerate(labels, start=first)]


def problems(sets, count=None, one_size=True):
    return check_sets(sets, count, one_size=one_size).problems


def test_a_good_set_has_no_problem():
    result = check_sets({"train": items(0, 1, 1), "test": items(0, 1, first=9)}, None, one_size=True)
    assert not result.problems and not result.remarks
    assert result.sets["train"].images == 3 and result.sets["train"].labels == {0: 1, 1: 2}


@pytest.mark.parametrize(
    ("sets", "count", "says"),
    [
        ({"a": [*items(0, 1), CheckedItem("x", 0, problem="is damaged")]}, None, "a: 'x' is damaged"),
        ({"a": [*items(0, 1), CheckedItem("x", None, (3, 4, 4), b"x")]}, None, "a: no label: 'x'"),
        ({"a": items(0, 1, 7)}, 3, "a: labels 7, but labels go from 0 to 2: 'i2'"),
        ({"a": items(0, 1, 7)}, 3, "a: no image has label 2 of 0 to 2"),
        ({"a": items(0, 3)}, None, "a: no image has labels 1, 2 of 0 to 3"),
        ({"a": items(-1, 0)}, None, "a: labels -1, but labels go from 0 to 0: 'i0'"),
        ({"a": items(0, 1), "b": items(0, 1, 2, first=9)}, None, "b: labels 2, but labels go from 0 to 1: 'i11'"),
        ({"a": items(0) + items(1, shape=(3, 5, 4), first=1)}, None, "a: 2 sizes (height x width), from 4x4 to 5x4"),
        ({"a": items(0) + items(1, shape=(1, 4, 4), first=1)}, None, "a: images of several numbers of channels: 1"),
        (
            {"a": [*items(0, 1), CheckedItem("x", 1, (3, 4, 4), b"\0")]},
            None,
            "a: one image has labels 0 and 1: 'i0' and 'x'",
        ),
        ({"a": items(0, 1), "b": items(0, 1)}, None, "b: 2 of its images are in a too: 'i0', 'i1'"),
    ],
)
def test_a_problem_is_a_sentence(sets, count, says):
    assert any(problem.startswith(says) for problem in problems(sets, count)), problems(sets, count)


def test_oddities_that_may_be_right_are_remarks():
    sets = {
        "a": [*items(*[0] * 11, 1), CheckedItem("copy", 0, (3, 4, 4), b"\0"), CheckedItem("small", 0, (3, 2, 4), b"s")]
    }
    result = check_sets(sets, None, one_size=False)
    assert not result.problems and len(result.remarks) == 3
    assert any("label 0 has 13 images, and label 1 has 1" in remark for remark in result.remarks)
    assert any("1 image is a copy" in remark for remark in result.remarks)


def test_a_folder_a_list_and_a_database_have_the_same_images(tmp_path):
    photos = write_shapes(tmp_path / "photos", 2, height=6, width=7)
    listing = tmp_path / "list.txt"
    listing.write_text("".join(f"photos/{c}/0{i}.png {n}\n" for n, c in enumerate(CLASSES) for i in range(2)))
    write_database(tmp_path / "db", image_records(listing, ImageOptions(encoded=True)))
    read = [read_items(path) for path in (photos, listing, tmp_path / "db")]
    assert [[(i.label, i.shape, i.digest, i.problem) for i in each] for each in read[1:]] == [
        [(i.label, i.shape, i.digest, i.problem) for i in read[0]]
    ] * 2
    assert find_sets(photos)[1:] == (list(CLASSES), False) and find_sets(tmp_path / "db")[1:] == (None, True)
    (photos / "cross" / "00.png").write_bytes(b"text")
    assert "format that is not read" in read_items(listing)[2].problem


def test_a_data_set_has_both_sets_and_its_classes(tmp_path):
    write_dataset(
        write_shapes(tmp_path / "photos", 3, height=6, width=7), tmp_path / "data", ImageOptions(), share=0.3, seed=0
    )
    sets, names, one_size = find_sets(tmp_path / "data")
    assert list(sets) == ["train", "test"] and names == list(CLASSES) and one_size
    assert not problems({name: read_items(path) for name, path in sets.items()}, len(names))


def test_a_record_that_is_no_image_is_a_problem(tmp_path):
    import lmdb

    from layermem.proto.schema import Datum

    with lmdb.open(str(tmp_path / "db")) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"0", Datum(channels=1, height=2, width=2, data=b"1234", label=0).SerializeToString())
        transaction.put(b"1", b"\xff\xff")
        transaction.put(b"2", Datum(channels=1, height=2, width=2, data=b"1", label=0).SerializeToString())
        transaction.put(b"3", Datum(channels=1, height=2, width=2, data=b"1234").SerializeToString())
    read = read_items(tmp_path / "db")
    assert [bool(item.problem) for item in read] == [False, True, True, False] and read[3].label is None


def test_class_names_are_one_in_each_line(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("a\nb c\n\n")
    assert read_class_names(path) == ["a", "b c"]
    path.write_text("a\n\nb\n")
    with pytest.raises(InputError, match="has an empty line"):
        read_class_names(path)
