import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from layermem.data.annotated_feed import annotated
from layermem.data.datum_source import HELD_BYTES
from layermem.data.lmdb_database import LmdbSource
from layermem.proto.schema import AnnotatedDatum
from layermem.utils.mapped_pages import discard, release_pages
from tests.data.makers import datum, images, make_lmdb

AnnotatedLmdb = annotated(LmdbSource)
pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="pages are counted on Linux")
BYTES = 2**22


def resident(path: Path) -> int:
    """Bytes of the mapping of a file that are resident in this process."""
    lines = Path("/proc/self/smaps").read_text(errors="replace").splitlines()
    at = next(i for i, line in enumerate(lines) if str(path) in line)
    return int(next(line for line in lines[at:] if line.startswith("Rss:")).split()[1]) * 1024


def mapped(path: Path, *, write: bool = False) -> mmap.mmap:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x" * BYTES)
    with path.open("r+b") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if write else mmap.ACCESS_READ)
    assert pages[::4096] == b"x" * (BYTES // 4096)
    return pages


@pytest.mark.samples(3)
@pytest.mark.parametrize("name", ["a", "folder with spaces/a", "日本/a"])
def test_pages_of_a_file_or_of_files_in_a_folder_are_given_back_and_read_again(tmp_path, name):
    file = tmp_path / name
    with mapped(file) as pages, mapped(tmp_path / "other") as other:
        assert resident(file) == BYTES
        release_pages(file.parent if file.parent != tmp_path else file)
        assert resident(file) == 0 and resident(tmp_path / "other") == BYTES
        assert pages[::4096] == other[::4096]


def test_pages_of_a_removed_file_are_given_back(tmp_path):
    with mapped(tmp_path / "a") as pages:
        (tmp_path / "a").unlink()
        release_pages(tmp_path / "a")
        assert resident(tmp_path / "a") == 0 and pages[BYTES - 1 :] == b"x"


def test_what_is_mapped_to_be_written_and_longer_names_stay(tmp_path):
    with mapped(tmp_path / "a", write=True), mapped(tmp_path / "ab"):
        release_pages(tmp_path / "a")
        assert resident(tmp_path / "a") == resident(tmp_path / "ab") == BYTES


def test_a_system_without_proc_keeps_its_pages(tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.open", lambda *_: (_ for _ in ()).throw(FileNotFoundError()))
    release_pages(tmp_path)


@pytest.mark.samples(2)
@pytest.mark.parametrize(
    ("source", "read"),
    [
        (LmdbSource, LmdbSource.read),
        (LmdbSource, lambda source, count: [source.read_one() for _ in range(count)]),
        (LmdbSource, lambda source, count: list(source.datums())),
        (AnnotatedLmdb, lambda source, count: source.read_annotated(count, lambda _, *each: each, typed=False)),
        (AnnotatedLmdb, AnnotatedLmdb.most_boxes),
    ],
    ids=["read", "read_one", "datums", "read_annotated", "most_boxes"],
)
def test_a_database_takes_little_memory_however_much_is_read(tmp_path, source, read):
    record = datum(images(1, height=256, width=256)[0], label=1)
    record = AnnotatedDatum(datum=record) if source is AnnotatedLmdb else record
    path = make_lmdb(tmp_path / "db", [record] * 60)
    opened = source(path, labels=False)
    most = 0
    for _ in range(6):
        read(opened, 20)
        most = max(most, resident(path))
    assert 0 < most <= HELD_BYTES < 60 * record.ByteSize()
    opened.close()


def of_process() -> int:
    """Bytes of this process that are resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_whole_pages_of_a_span_are_given_back_and_no_others():
    array = np.full(64 * 2**20, 7, np.uint8)
    begin = -array.ctypes.data % mmap.PAGESIZE + mmap.PAGESIZE
    before = of_process()
    discard(array.ctypes.data + begin - 1, 32 * 2**20 + 2)
    assert before - of_process() > 31 * 2**20
    assert not array[begin : begin + 32 * 2**20].any()
    assert (array[:begin] == 7).all() and (array[begin + 32 * 2**20 :] == 7).all()
    discard(array.ctypes.data + begin + 40 * 2**20 + 1, mmap.PAGESIZE)  # no whole page
    assert (array[begin + 32 * 2**20 :] == 7).all()


GIVEN_BACK = """
import mmap
from layermem.utils.mapped_pages import trim_heap

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * mmap.PAGESIZE

kept = [b"x" * size for size in [100_000] * 400]
last = b"x" * len(kept[0])  # above them, so that they are no end of the heap
del kept
before = resident()
trim_heap()
print(before - resident())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the allocator keeps no pages, or for good")
def test_freed_memory_that_the_allocator_keeps_is_given_back():
    done = subprocess.run([sys.executable, "-c", GIVEN_BACK], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 30 * 2**20  # of 40 MB, in a process without other free blocks
