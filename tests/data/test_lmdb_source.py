import numpy as np
import pytest

from layermem.data.lmdb_source import LmdbSource
from layermem.errors import InputError
from tests.data.makers import datum, digits_like, images, make_lmdb


def test_records_come_in_the_order_of_their_keys_round_and_round(tmp_path):
    folder, pixels = digits_like(tmp_path / "db")
    source = LmdbSource(folder, labels=True)
    found, labels = source.read(10)
    assert labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2] and labels.dtype == np.float32
    assert all(np.array_equal(image, pixels[int(label)]) for image, label in zip(found, labels))
    assert source.read(1)[1].tolist() == [3]
    source.close()


def test_looking_at_the_first_shape_reads_nothing(tmp_path):
    source = LmdbSource(digits_like(tmp_path / "db")[0], labels=True)
    assert source.first_shape() == (3, 6, 5)
    assert source.read(1)[1].tolist() == [0]
    source.close()


def test_a_skip_starts_later(tmp_path):
    source = LmdbSource(digits_like(tmp_path / "db")[0], labels=True, skip=9)
    assert source.read(2)[1].tolist() == [2, 3]
    source.close()


@pytest.mark.parametrize("taken", [0, 3, 7, 12])
def test_a_restored_source_goes_on_where_the_state_was_taken(tmp_path, taken):
    folder, _ = digits_like(tmp_path / "db")
    source = LmdbSource(folder, labels=True)
    source.read(taken)
    state = source.state()
    expected = source.read(9)[1]
    source.close()
    resumed = LmdbSource(folder, labels=True)
    resumed.restore(state)
    assert np.array_equal(resumed.read(9)[1], expected)
    resumed.close()


def test_one_lmdb_serves_several_readers_of_a_process(tmp_path):
    folder, _ = digits_like(tmp_path / "db")
    a, b = LmdbSource(folder, labels=True), LmdbSource(folder, labels=True)
    a.read(3)
    a.close()
    a.close()  # twice is no harm
    assert b.read(2)[1].tolist() == [0, 1]
    b.close()
    c = LmdbSource(folder, labels=True)
    assert c.read(1)[1].tolist() == [0]
    c.close()


def test_an_lmdb_in_a_single_file_is_read_too(tmp_path):
    folder, _ = digits_like(tmp_path / "db")
    (folder / "data.mdb").rename(tmp_path / "alone.mdb")
    source = LmdbSource(tmp_path / "alone.mdb", labels=True)
    assert source.length == 7
    source.close()


def test_reading_writes_nothing(tmp_path):
    folder, _ = digits_like(tmp_path / "db")
    (folder / "lock.mdb").unlink()
    source = LmdbSource(folder, labels=True)
    source.read(3)
    source.close()
    assert [file.name for file in folder.iterdir()] == ["data.mdb"]


def test_a_label_that_is_missing_matters_only_where_one_is_wanted(tmp_path):
    folder = make_lmdb(tmp_path / "db", [datum(images(1)[0], None)])
    source = LmdbSource(folder, labels=False)
    assert len(source.read(2)[0]) == 2
    source.close()
    source = LmdbSource(folder, labels=True)
    with pytest.raises(InputError, match=r"record '00000000'.*has no label"):
        source.read(1)
    source.close()


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([], "is an empty LMDB"),
        ([b"\xff\xff\xff\xff"], "record '00000000'.*is not a Datum; create the LMDB"),
    ],
)
def test_records_that_cannot_be_used_are_refused(tmp_path, records, words):
    folder = make_lmdb(tmp_path / "db", records)
    with pytest.raises(InputError, match=words) as caught:
        source = LmdbSource(folder, labels=False)
        try:
            source.read(1)
        finally:
            source.close()
    assert caught.value.path == str(folder)


def test_a_folder_without_an_lmdb_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not an LMDB, or is damaged"):
        LmdbSource(tmp_path, labels=False)
    (tmp_path / "data.mdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(InputError, match="is not an LMDB, or is damaged"):
        LmdbSource(tmp_path, labels=False)


def test_an_lmdb_that_was_cut_short_is_refused_before_it_kills_the_process(tmp_path):
    folder, _ = digits_like(tmp_path / "db", count=200)
    file = folder / "data.mdb"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(InputError, match=r"is truncated: .* copy it again"):
        LmdbSource(folder, labels=False)


def test_a_state_of_another_data_set_is_refused(tmp_path):
    source = LmdbSource(digits_like(tmp_path / "db")[0], labels=True)
    with pytest.raises(InputError, match="no record '00000099'"):
        source.restore({"key": b"00000099".hex()})
    source.close()


def test_without_its_package_only_those_who_open_an_lmdb_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("layermem.data.lmdb_source.lmdb", None)
    with pytest.raises(InputError, match="pip install lmdb"):
        LmdbSource(tmp_path, labels=True)
