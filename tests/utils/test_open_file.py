"""Files that stay open: several readers, changes of the path, and descriptors."""

import gc
import os

import pytest

from layermem.errors import InputError
from layermem.utils import input_files
from layermem.utils.open_file import Files, OpenFile


def written(path, raw: bytes):
    path.write_bytes(raw)
    return path


def test_streams_of_one_file_have_positions_of_their_own(tmp_path):
    file = OpenFile(written(tmp_path / "f", bytes(range(100))), what="file")
    one, other = file.reader(), file.reader()
    assert one.read(3) == b"\0\1\2" and other.read(2) == b"\0\1" and one.read(1) == b"\3"
    assert other.seek(-2, os.SEEK_END) == 98 and other.read() == b"bc" and other.read() == b""
    assert one.seek(10, os.SEEK_CUR) == one.tell() == 14 and file.read(99, 200) == b"c"


def test_the_content_is_that_of_the_first_look_or_an_error(tmp_path):
    path = written(tmp_path / "f", b"first")
    file = OpenFile(path, what="file")
    path.unlink()
    written(path, b"other")
    assert file.content(100) == b"first"
    with pytest.raises(InputError, match="limit of a file"):
        file.content(4)
    again = OpenFile(path, what="file")
    written(path, b"longer than before")
    with pytest.raises(InputError, match="has changed since it was opened"):
        again.content(100)


def test_a_pipe_that_takes_the_place_of_a_file_is_refused_without_a_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(input_files, "PIPE_SECONDS", 0.001)
    path = written(tmp_path / "f", b"x")
    opened = os.open

    def replaced(name, *arguments):
        os.unlink(name)
        os.mkfifo(name)
        return opened(name, *arguments)

    monkeypatch.setattr(os, "open", replaced)
    with pytest.raises(InputError, match="is a pipe that no program writes to"):
        OpenFile(path, what="file")


def test_a_descriptor_is_closed_when_nothing_refers_to_its_file(tmp_path):
    files = [OpenFile(written(tmp_path / str(number), b"x"), what="file") for number in range(5)]
    descriptors = [file.descriptor for file in files]
    for descriptor in descriptors:
        os.fstat(descriptor)
    del files
    gc.collect()
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_the_files_of_a_net_are_opened_once_by_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, files = written(tmp_path / "f", b"first"), Files()
    assert files.read_bytes("f", what="file", limit=100) == b"first"
    path.unlink()
    written(path, b"other")
    monkeypatch.chdir("/")
    assert files.read_bytes(path, what="file", limit=100) == files.read_bytes("f", what="file", limit=100) == b"first"
    assert Files().read_bytes(path, what="file", limit=100) == b"other"


def test_a_file_that_is_not_held_open_must_not_change(tmp_path):
    files = Files()
    files.check_same(tmp_path / "db", (1, 2))
    files.check_same(tmp_path / "other", (3, 4))
    files.check_same(tmp_path / "db", (1, 2))
    with pytest.raises(InputError, match="has changed since the net was made; restore it, or make the net again"):
        files.check_same(tmp_path / "db", (3, 4))
