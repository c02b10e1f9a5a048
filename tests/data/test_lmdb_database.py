import errno
import io
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

from layermem.data.feed import ImageFeed
from layermem.data.lmdb_database import LmdbSource
from layermem.data.prefetch import Prefetch
from layermem.data.transform import Transform
from layermem.errors import InputError
from layermem.proto.schema import TRAIN, Datum
from tests.data.makers import datum, digits_like, images, layer, make_lmdb

ROOT = Path(__file__).parents[2]


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


READ_ONLY = """
import os, sys
from contextlib import closing
from pathlib import Path
from layermem.data.lmdb_database import LmdbSource

if os.getuid() == 0:
    os.setuid(65534)  # root may write anywhere
source = LmdbSource(Path(sys.argv[1]), labels=True)
assert source.read(3)[1].tolist() == [0, 1, 2]
source.close()
"""


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="permissions of POSIX")
def test_a_folder_that_cannot_be_written_is_read_without_a_lock_file():
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        folder, _ = digits_like(Path(parent) / "db")
        (folder / "lock.mdb").unlink()
        (folder / "data.mdb").chmod(0o444)
        folder.chmod(0o555)
        subprocess.run([sys.executable, "-c", READ_ONLY, str(folder)], check=True, timeout=60, cwd=ROOT)
        assert [file.name for file in folder.iterdir()] == ["data.mdb"]
        folder.chmod(0o755)


WRITE = """
import itertools, sys
import lmdb
import numpy as np
from tests.data.makers import datum

env = lmdb.open(sys.argv[1], map_size=1 << 26, sync=False)
for number in itertools.count():
    with env.begin(write=True) as txn:
        for index in range(400) if number < 3 else np.random.randint(0, 400, 20):
            image = np.full((3, 6, 5 + 20 * (number % 3)), index % 256, np.uint8)
            txn.put(f"{index:08d}".encode(), datum(image, int(index)).SerializeToString())
    if number == 10:
        print("writing", flush=True)
"""
READ = """
import sys
from contextlib import closing
from pathlib import Path
from layermem.data.lmdb_database import LmdbSource

source = LmdbSource(Path(sys.argv[1]), labels=True)
for _ in range(150):
    images, labels = source.read(400)
    assert labels.tolist() == list(range(400))
    assert all(image.min() == image.max() == index % 256 for index, image in enumerate(images))
source.close()
"""


def test_another_process_may_write_while_the_records_are_read(tmp_path):
    writer = subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert writer.stdout.readline() == b"writing\n"
        subprocess.run([sys.executable, "-c", READ, str(tmp_path)], check=True, timeout=60, cwd=ROOT)
    finally:
        writer.kill()
        writer.communicate()


def test_a_forked_child_reads_on_and_leaves_its_parent_protected_from_writers(tmp_path):
    folder, _ = digits_like(tmp_path / "db")
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED, str(folder)], check=True, timeout=60, cwd=ROOT)


FORKED = """
import os, signal, sys
from contextlib import closing
from pathlib import Path
from layermem.data.lmdb_database import LmdbSource

source = LmdbSource(Path(sys.argv[1]), labels=True)
source.read(3)
child = os.fork()
if child == 0:
    signal.alarm(20)
    assert source.read(2)[1].tolist() == [3, 4]
    other = LmdbSource(Path(sys.argv[1]), labels=True)
    assert other.read(1)[1].tolist() == [0]
    other.close()
    source.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert str(os.getpid()) in source._env.readers()
assert source.read(2)[1].tolist() == [3, 4]
source.close()
"""


def damaged(folder: Path, number: int) -> Path:
    """The LMDB with the header of its page `number` overwritten."""
    file = folder / "data.mdb"
    raw = bytearray(file.read_bytes())
    raw[4096 * number + 8 : 4096 * number + 16] = b"\xff" * 8
    file.write_bytes(raw)
    return folder


@pytest.mark.parametrize("number", range(2, 5))
def test_a_damaged_page_is_one_sentence_also_while_reading_ahead(tmp_path, number):
    folder = damaged(digits_like(tmp_path / "db", count=60)[0], number)
    with pytest.raises(InputError, match=r"is damaged \(|is not a Datum|is an empty LMDB") as caught:
        source = LmdbSource(folder, labels=True)
        transform = Transform(layer("").transform_param, TRAIN, (1,), Path)
        feed = Prefetch(ImageFeed(source, transform, 10, 2), 2)
        try:
            for _ in range(6):
                feed.next()
        finally:
            feed.close()
    assert caught.value.path == str(folder)


def test_a_cursor_that_fails_is_reported_by_restore_too(tmp_path):
    source = LmdbSource(digits_like(tmp_path / "db")[0], labels=True)
    state = source.state()
    source._transaction.abort()  # as after an error of LMDB
    with pytest.raises(InputError, match=r"\(record '00000000'\) is damaged \("):
        source.restore(state)
    assert source.state() == state
    source.close()


def test_a_key_that_is_not_ascii_is_printed(tmp_path):
    folder = tmp_path / "db"
    with lmdb.open(str(folder)) as env, env.begin(write=True) as txn:
        txn.put(b"\xff\x00key", b"\xff\xff\xff\xff")
    source = LmdbSource(folder, labels=False)
    with pytest.raises(InputError, match=r"record '\\xff\x00key'.*is not a Datum"):
        source.read(1)
    source.close()


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
    [([], "is an empty LMDB"), ([b"\xff\xff\xff\xff"], "record '00000000'.*is not a Datum; create the LMDB")],
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


def png(channels: int) -> Datum:
    pixels = np.zeros((4, 4, 3) if channels == 3 else (4, 4), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return Datum(encoded=True, data=out.getvalue(), label=0)


@pytest.mark.parametrize("batch", [1, 2, 4])
@pytest.mark.parametrize("encoded", [True, False])
def test_a_record_of_other_channels_is_named_with_what_helps(tmp_path, encoded, batch):
    records = [
        png(3 if i != 2 else 1) if encoded else datum(images(1, channels=3 if i != 2 else 1)[0]) for i in range(4)
    ]
    source = LmdbSource(make_lmdb(tmp_path / "db", records), labels=True)
    assert source.first_shape()[0] == 3
    remedy = "set force_color: true or force_gray: true in transform_param" if encoded else "write it again"
    with pytest.raises(InputError, match=f"record '00000002'. has an image of 1 channels after images of 3; {remedy}"):
        for _ in range(0, 4, batch):
            source.read(batch)
    source.close()
    if encoded:
        with closing(LmdbSource(tmp_path / "db", labels=True, color=True)) as source:
            assert [image.shape for image in source.read(4)[0]] == [(3, 4, 4)] * 4


def test_a_folder_without_an_lmdb_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not an LMDB, or is damaged"):
        LmdbSource(tmp_path, labels=False)
    (tmp_path / "data.mdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(InputError, match="is not an LMDB, or is damaged"):
        LmdbSource(tmp_path, labels=False)


def test_an_open_lmdb_that_was_damaged_in_its_place_is_not_opened_again(tmp_path):
    folder, _ = digits_like(tmp_path / "db")
    with closing(LmdbSource(folder, labels=False)):
        content = (folder / "data.mdb").read_bytes()
        with open(folder / "data.mdb", "r+b") as file:
            file.seek(4096)
            file.write(bytes(8) + content[4096:-8])  # the root page of the last transaction has moved
        with pytest.raises(InputError, match=r"is damaged \(.*\); make it again"):
            LmdbSource(folder, labels=False)


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
    monkeypatch.setattr("layermem.data.lmdb_database.lmdb", None)
    with pytest.raises(InputError, match="pip install lmdb"):
        LmdbSource(tmp_path, labels=True)


def test_records_are_passed_without_being_read(tmp_path):
    folder = make_lmdb(tmp_path / "db", [b"no Datum"] * 3)
    source = LmdbSource(folder, labels=True)
    source.skip(3 * 10**9 + 2)
    assert bytes.fromhex(source.state()["key"]) == b"00000002"
    source.close()


def labels_of(path, count: int = 2) -> list[int]:
    """The first labels of a database, from a source that stays open."""
    return LmdbSource(path, labels=True).read(count)[1].tolist()


def labelled(folder, first: int, count: int = 2):
    return make_lmdb(folder, [datum(each, first + number) for number, each in enumerate(images(count))])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_no_utf_8_is_read(tmp_path):
    labelled(tmp_path / "db", 0)
    (tmp_path / "db").rename(tmp_path / os.fsdecode(b"d\xe9"))
    with closing(LmdbSource(tmp_path / os.fsdecode(b"d\xe9"), labels=True)) as source:
        assert source.read(2)[1].tolist() == [0, 1]


def test_a_database_that_is_made_again_is_another_one_and_the_first_is_still_read(tmp_path):
    labelled(tmp_path / "db", 0)
    first = LmdbSource(tmp_path / "db", labels=True)
    shutil.rmtree(tmp_path / "db")
    labelled(tmp_path / "db", 50)
    second, again = (LmdbSource(tmp_path / "db", labels=True) for _ in range(2))
    assert [each.read(2)[1].tolist() for each in (first, second, again)] == [[0, 1], [50, 51], [50, 51]]
    (tmp_path / "db").rename(tmp_path / "moved")
    labelled(tmp_path / "db", 70)
    assert labels_of(tmp_path / "moved") == [50, 51] and labels_of(tmp_path / "db") == [70, 71]
    for each in (first, second, again):
        each.close()


def test_one_database_by_several_names_is_opened_once(tmp_path):
    labelled(tmp_path / "db", 0)
    (tmp_path / "link").symlink_to("db")
    os.link(tmp_path / "db/data.mdb", tmp_path / "file")
    assert labels_of(tmp_path / "db") == labels_of(tmp_path / "link") == labels_of(tmp_path / "file") == [0, 1]


def append(folder, count: int, nbytes: int) -> None:
    """Add records in another process, like a growing data set."""
    code = (
        "import lmdb, sys; env = lmdb.open(sys.argv[1], map_size=1 << 26)\n"
        "with env.begin(write=True) as t:\n"
        "    for i in range(int(sys.argv[2])): t.put(b'9%07d' % i, bytes(int(sys.argv[3])))"
    )
    subprocess.run([sys.executable, "-c", code, str(folder), str(count), str(nbytes)], check=True)


def test_records_that_are_added_are_those_of_the_next_net(tmp_path):
    labelled(tmp_path / "db", 0)
    first = LmdbSource(tmp_path / "db", labels=True)
    append(tmp_path / "db", 3, 10)
    second = LmdbSource(tmp_path / "db", labels=True)
    assert (first.length, second.length) == (2, 5)
    append(tmp_path / "db", 1000, 20_000)
    with pytest.raises(InputError, match="has grown since a net of this process opened it; close that net first"):
        LmdbSource(tmp_path / "db", labels=True)
    for each in (first, second):
        each.close()
    third = LmdbSource(tmp_path / "db", labels=True)
    assert third.length == 1002
    third.close()


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_file_that_is_written_over_gives_its_new_records_or_one_sentence(tmp_path, commits):
    """The reader has the old file mapped, and a lock table of its own; it must never return records of neither file."""
    labelled(tmp_path / "db", 0)
    append(tmp_path / "db", 1, 10)
    first = LmdbSource(tmp_path / "db", labels=True)
    labelled(tmp_path / "other", 50)
    for number in range(1, commits):
        append(tmp_path / "other", number, 10)
    (tmp_path / "db/data.mdb").write_bytes((tmp_path / "other/data.mdb").read_bytes())
    if commits == 2:  # as many as before
        assert labels_of(tmp_path / "db") == [50, 51]
    else:
        with pytest.raises(InputError, match="has been written over since a net of this process opened it"):
            labels_of(tmp_path / "db")
    first.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda file: None, r"is not an LMDB, or is damaged \(there is no file data.mdb\)"),
        (lambda file: file.touch(), r"is not an LMDB, or is damaged \(data.mdb is empty\); make it again"),
        (os.mkfifo, "data.mdb: is a pipe; save the LMDB in a regular file"),
        (lambda file: file.mkdir(), "data.mdb: is a folder"),
    ],
)
def test_a_data_file_that_cannot_be_one_is_called_what_it_is(tmp_path, make, says):
    make(tmp_path / "data.mdb")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=says):
        LmdbSource(tmp_path, labels=True)
    assert sorted(tmp_path.iterdir()) == before


def test_an_environment_that_a_user_has_open_is_not_called_damaged(tmp_path):
    labelled(tmp_path / "db", 0)
    says = "is open in this process, by another user of the package lmdb; close that environment first"
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 24), pytest.raises(InputError, match=says):
        LmdbSource(tmp_path / "db", labels=True)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_read_without_a_lock_table(tmp_path, monkeypatch, number):
    labelled(tmp_path / "db", 0)
    opened = lmdb.open

    def no_locks(path, *, lock, **options):
        if lock:
            error = lmdb.Error(f"{path}: {os.strerror(number)}")
            error.code = number
            raise error
        return opened(path, lock=lock, **options)

    monkeypatch.setattr(lmdb, "open", no_locks)
    source = LmdbSource(tmp_path / "db", labels=True)
    assert source.read(2)[1].tolist() == [0, 1]
    source.close()


@pytest.mark.parametrize(
    "error, words",
    [
        ("DiskError", "Permission denied; change its permissions"),
        ("ReadersFullError", "has as many readers as it may have; end some of them"),
        ("MapResizedError", "has grown while it was opened; start again"),
        ("VersionMismatchError", "was written by another version of LMDB"),
        ("InvalidError", "is not an LMDB, or is damaged .*; make it again"),
    ],
)
def test_what_is_no_damage_of_the_data_is_not_called_one(tmp_path, monkeypatch, error, words):
    path, _ = digits_like(tmp_path / "db")

    def fail(*arguments, **options):
        raised = getattr(lmdb, error if error != "DiskError" else "Error")(str(path))
        raised.code = errno.EACCES if error == "DiskError" else -30790
        raise raised

    monkeypatch.setattr(lmdb, "open", fail)
    with pytest.raises(InputError, match=words) as caught:
        LmdbSource(path, labels=True)
    assert ("damaged" in str(caught.value)) == (error == "InvalidError")
