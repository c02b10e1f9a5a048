"""LevelDB sources: the same records, positions and errors as those of an LMDB."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from layermem.data import leveldb_database
from layermem.data.databases import mean_image, write_database
from layermem.data.leveldb_database import LevelDbSource
from layermem.data.opening import open_feed
from layermem.data.probing import probe
from layermem.errors import InputError
from tests.data.makers import datum, images, layer, make_lmdb

ROOT = Path(__file__).parents[2]
plyvel = pytest.importorskip("plyvel")


def make_leveldb(folder, records):
    with plyvel.DB(str(folder), create_if_missing=True, block_size=256) as database:
        for index, record in enumerate(records):
            raw = record if isinstance(record, bytes) else record.SerializeToString()
            database.put(f"{index:08d}".encode(), raw)
    return folder


@pytest.fixture
def folder(tmp_path):
    return make_leveldb(tmp_path / "db", (datum(image, i) for i, image in enumerate(images(7))))


def test_records_come_in_the_order_of_their_keys_round_and_round_and_positions_are_kept(folder):
    source = LevelDbSource(folder, labels=True)
    assert source.first_shape() == (3, 6, 5) and source.first_is_raw()
    found, labels = source.read(10)
    assert labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2]
    assert all(np.array_equal(image, images(7)[int(label)]) for image, label in zip(found, labels))
    state = source.state()
    source.check(state)
    assert source.read(5)[1].tolist() == [3, 4, 5, 6, 0] and source.length == 7
    source.close()
    resumed = LevelDbSource(folder, labels=True, skip=2)
    assert resumed.read(1)[1].tolist() == [2]
    resumed.restore(state)
    assert resumed.read(2)[1].tolist() == [3, 4]
    with pytest.raises(
        InputError, match="has no record '00000003x', the next one of the snapshot; restore the LevelDB"
    ):
        resumed.check({"key": b"00000003x".hex()})
    resumed.close()


DATA = 'name: "d" type: "Data" top: "x" top: "y" data_param {{ source: "{}" batch_size: 4 {} }}'


@pytest.mark.parametrize("backend", ["", "backend: LEVELDB", "backend: LMDB"])
def test_a_data_layer_reads_the_same_batches_from_either_kind_of_database(tmp_path, folder, backend):
    lmdb = make_lmdb(tmp_path / "lmdb", (datum(image, i) for i, image in enumerate(images(7))))
    feeds = [open_feed(layer(DATA.format(path, backend)), 0, 1, path="net") for path in (folder, lmdb)]
    for _ in range(4):
        for a, b in zip(*(feed.next() for feed in feeds)):
            np.testing.assert_array_equal(a, b)
    assert feeds[0].state() == feeds[1].state()
    for feed in feeds:
        feed.close()
    assert probe(layer(DATA.format(folder, backend)), 0, "net") == ((4, 3, 6, 5), (4,))


def test_readers_of_one_process_share_a_leveldb_and_another_process_is_refused(folder):
    a, b = LevelDbSource(folder, labels=True), LevelDbSource(folder, labels=True)
    a.read(3)
    a.close()
    a.close()  # twice is no harm
    assert b.read(2)[1].tolist() == [0, 1]
    code = (
        "import sys; from pathlib import Path; from layermem.data.leveldb_database import LevelDbSource\n"
        "try: LevelDbSource(Path(sys.argv[1]), labels=True)\n"
        "except Exception as error: print(error)"
    )
    words = [sys.executable, "-c", code, str(folder)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=ROOT, env={**os.environ})
    assert "a LevelDB is open in one process at a time: end the other one" in said.stdout
    b.close()
    c = LevelDbSource(folder, labels=True)
    assert c.read(1)[1].tolist() == [0]
    c.close()


@pytest.mark.parametrize("at", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("kind", [".ldb", ".log", "MANIFEST", "CURRENT"])
def test_a_damaged_leveldb_is_one_sentence(tmp_path, folder, kind, at):
    if kind == ".ldb":  # opening once turns the log into a table
        LevelDbSource(folder, labels=True).close()
    (file,) = [f for f in folder.iterdir() if kind in f.name and f.stat().st_size]
    raw = bytearray(file.read_bytes())
    place = int(at * len(raw))
    raw[place : place + 8] = bytes(b ^ 0x55 for b in raw[place : place + 8])
    file.write_bytes(raw)
    with pytest.raises(InputError, match="damaged") as caught:
        source = LevelDbSource(folder, labels=True)
        try:
            source.read(14)
        finally:
            source.close()
    assert caught.value.path == str(folder)


def test_a_folder_without_leveldb_records_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(InputError, match="there is no file CURRENT"):
        LevelDbSource(tmp_path / "none", labels=True)
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="is a LevelDB without records"):
        LevelDbSource(make_leveldb(tmp_path / "db", []), labels=True)
    source = LevelDbSource(make_leveldb(tmp_path / "junk", [b"\xff\xff\xff\xff"]), labels=True)
    with pytest.raises(InputError, match=r"record '00000000'.*is not a Datum; create the LevelDB"):
        source.read(1)
    source.close()


def test_without_its_package_a_leveldb_is_refused_with_what_to_install(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(leveldb_database, "plyvel", None)
    with pytest.raises(InputError, match=r"pip install 'layermem\[leveldb\]', or convert it to LMDB"):
        LevelDbSource(folder, labels=True)
    with pytest.raises(InputError, match=r"needs the package plyvel; install it with `pip install 'layermem"):
        write_database(tmp_path / "new", [], backend="leveldb")


def test_databases_of_either_backend_hold_the_same_records_and_have_the_same_mean(tmp_path):
    records = [(f"{i:08d}_x".encode(), datum(image, i)) for i, image in enumerate(images(70))]
    for backend in ("lmdb", "leveldb"):
        assert write_database(tmp_path / backend, records, backend=backend) == 70
    with plyvel.DB(str(tmp_path / "leveldb")) as database:
        assert [*database] == [(key, each.SerializeToString()) for key, each in records]
    assert (mean_image(tmp_path / "lmdb") == mean_image(tmp_path / "leveldb")).all()
    with pytest.raises(InputError, match="exists already"):
        write_database(tmp_path / "leveldb", records, backend="leveldb")
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_records_are_passed_without_being_read(folder):
    source, other = (LevelDbSource(folder, labels=True) for _ in range(2))
    source.skip(source.length + 2)
    other.read(2)
    assert source.state() == other.state()
    source.close(), other.close()


def made_again(folder, records) -> None:
    """Replace the database, as another process does: this one holds a lock by its name."""
    shutil.rmtree(folder, ignore_errors=True)
    make_leveldb(folder.with_name("new"), records)
    folder.with_name("new").rename(folder)


def test_a_database_that_is_made_again_is_another_one_and_the_first_is_no_longer_read(folder):
    """LevelDB opens its tables by name, so the first source would otherwise read records of both."""
    first = LevelDbSource(folder, labels=True)
    made_again(folder, [datum(image, 50 + i) for i, image in enumerate(images(7))])
    second, again = (LevelDbSource(folder, labels=True) for _ in range(2))
    assert second.read(2)[1].tolist() == again.read(2)[1].tolist() == [50, 51]
    with pytest.raises(InputError, match="has been removed or made again since it was opened; make the net again"):
        first.read(2)
    first.close()
    assert second.read(1)[1].tolist() == [52]
    shutil.rmtree(folder)
    with pytest.raises(InputError, match="has been removed or made again"):
        again.read(1)
    made_again(folder, [datum(images(1)[0], 70)])
    third = LevelDbSource(folder, labels=True)
    assert third.read(1)[1].tolist() == [70]
    for each in (second, again, third):
        each.close()
    assert LevelDbSource(folder, labels=True).read(1)[1].tolist() == [70]
