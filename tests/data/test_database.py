"""Every kind of database: written, recognized, read, continued, and refused."""

from contextlib import closing

import numpy as np
import pytest

from layermem.data.annotated_feed import open_annotated
from layermem.data.database import database_kind, database_names, is_database, kind_at, open_database
from layermem.data.databases import mean_image, write_database
from layermem.errors import InputError
from layermem.proto.schema import AnnotatedDatum, Datum

NAMES = database_names()
ITEMS = 5


def datum(number):
    return Datum(channels=1, height=2, width=2, data=bytes([number] * 4), label=number)


@pytest.fixture(params=NAMES)
def kind(request):
    kind = database_kind(request.param)
    if not kind.is_installed():
        pytest.skip(f"needs {kind.package}")
    return kind


@pytest.fixture
def folder(kind, tmp_path):
    records = [(f"{number:08d}".encode(), datum(number)) for number in range(ITEMS)]
    assert write_database(tmp_path / "db", records, backend=kind.kind.lower()) == ITEMS
    return tmp_path / "db"


def test_the_kinds_are_those_of_the_modules_and_the_default_is_the_first():
    assert NAMES[0] == "lmdb" and {"lmdb", "leveldb"} <= set(NAMES)
    assert [database_kind(name).kind.lower() for name in NAMES] == NAMES
    with pytest.raises(InputError, match="unknown database backend 'papyrus'; use lmdb or leveldb"):
        database_kind("papyrus")


def test_a_link_to_itself_is_no_database(kind, tmp_path):
    (tmp_path / "db").symlink_to("db")
    with pytest.raises(InputError, match=rf"db: is not an? {kind.kind}"):
        kind(tmp_path / "db", labels=False)


def test_its_files_show_its_kind_whatever_is_stated(kind, folder):
    assert is_database(folder) and all(kind_at(folder, name) is kind for name in NAMES)
    assert not is_database(folder.parent) and kind_at(folder.parent, kind.kind.upper()) is kind


def test_its_records_are_read_in_order_cyclically_and_from_where_a_snapshot_was(folder):
    with closing(open_database(folder, labels=True)) as source:
        assert source.length == ITEMS and source.first_shape() == (1, 2, 2)
        assert source.read(3)[1].tolist() == [0, 1, 2]
        state = source.state()
        images, labels = source.read(3)
        assert labels.tolist() == [3, 4, 0] and images[1].ravel().tolist() == [4] * 4
    with closing(open_database(folder, labels=True, skip=1)) as source:
        assert source.read(1)[1].tolist() == [1]
        source.check(state)
        source.restore(state)
        assert source.read(1)[1].tolist() == [3] and source.held_bytes > 0
        with pytest.raises(InputError, match="has no record 'none'"):
            source.restore({"key": b"none".hex()})


def test_its_mean_is_that_of_all_records(folder):
    assert np.array_equal(mean_image(folder), np.full((1, 2, 2), 2.0))


def test_it_may_hold_images_with_boxes(kind, tmp_path):
    write_database(tmp_path / "db", [(b"0", AnnotatedDatum(datum=datum(7)))], backend=kind.kind.lower())
    with closing(open_annotated(tmp_path / "db", kind.kind.upper())) as source:
        assert source.first_shape() == (1, 2, 2) and source.most_boxes(3) == 0


def test_one_without_its_package_is_not_written(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(kind, "is_installed", lambda: False)
    with pytest.raises(InputError, match=f"needs the package {kind.package}; install it with `pip install"):
        write_database(tmp_path / "db", [], backend=kind.kind.lower())
