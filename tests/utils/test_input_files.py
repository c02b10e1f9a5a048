"""Files that a user names: regular files are read up to a limit, everything else is one sentence."""

import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from layermem.data.hdf5_source import read_file_list
from layermem.data.list_source import CaffeRows, ImageListSource, read_rows
from layermem.data.transform import read_mean
from layermem.errors import InputError
from layermem.integrations.graph_files.text_format import read_graph
from layermem.planning.hints import hints_beside, read_hints
from layermem.planning.job import resolve_costs
from layermem.proto.blobs import read_blob
from layermem.proto.read import read_net, read_solver, resolve_path
from layermem.proto.weights import read_weights
from layermem.solver.snapshot import check_prefix, read_snapshot
from layermem.solver.state_file import read_state
from layermem.utils import input_files
from layermem.utils.input_files import LINE_LIMIT_BYTES, files_below, read_bytes, read_lines
from layermem.utils.open_file import OpenFile
from tests.data.makers import layer

READERS = {
    "net": read_net,
    "solver": read_solver,
    "hints": read_hints,
    "weights": read_weights,
    "solver state": read_state,
    "snapshot": lambda path: read_snapshot(str(path)),
    "binaryproto": read_blob,
    "mean image": read_mean,
    "image list": lambda path: read_rows(path, 1),
    "HDF5 list": read_file_list,
    "HDF5 data": lambda path: OpenFile(path, what="HDF5 file with data"),
    "graph file": read_graph,
    "costs": lambda path: resolve_costs(path, "cpu"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_device_an_unused_pipe_a_folder_and_a_name_that_is_too_long_are_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.setattr(input_files, "PIPE_SECONDS", 0.001)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    says = {"/dev/zero": "is a device", "pipe": "no program writes to", "folder": "is a folder", "x" * 300: "too long"}
    for path, words in says.items():
        with pytest.raises(InputError, match=words) as caught:
            READERS[name](tmp_path / path)
        assert caught.value.path == str(tmp_path / path)


@contextmanager
def pipe_of(content, folder):
    """The name of a pipe without a name in a folder, as <(command) is, to which `content` is written."""
    source = folder / "content"
    source.write_bytes(content)
    with subprocess.Popen(["cat", source], stdout=subprocess.PIPE) as writer:
        yield f"/dev/fd/{writer.stdout.fileno()}"


def test_a_pipe_is_read_like_a_file_as_often_as_it_is_named(tmp_path):
    content = bytes(range(256)) * 1000  # more than a pipe holds
    with pipe_of(content, tmp_path) as name:
        assert read_bytes(name, what="file", limit=len(content)) == content
        file = OpenFile(name, what="file")
        assert (file.size, file.read(1000, 1010), file.content(len(content))) == (
            len(content),
            content[1000:1010],
            content,
        )
        with pytest.raises(InputError, match=r"is larger than .*, the limit of a file"):
            read_bytes(name, what="file", limit=len(content) - 1)


def test_a_net_and_weights_come_through_pipes(tmp_path):
    net = b'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }'
    with pipe_of(net, tmp_path) as name:
        assert [read_net(name).message.layer[0].name for _ in range(2)] == ["in", "in"]
    os.mkfifo(tmp_path / "net.prototxt")
    with subprocess.Popen(f"cat {tmp_path}/content > {tmp_path}/net.prototxt", shell=True):
        assert read_net(tmp_path / "net.prototxt").message.layer[0].name == "in"


def test_a_pipe_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(input_files, "PIPE_LIMIT_BYTES", 2 * input_files.CHUNK_BYTES)
    with (
        pipe_of(bytes(3 * input_files.CHUNK_BYTES), tmp_path) as name,
        pytest.raises(InputError, match="limit of a pipe"),
    ):
        read_bytes(name, what="file", limit=100)


def image_list(folder, line: str) -> ImageListSource:
    (folder / "list.txt").write_text(line)
    return ImageListSource(folder / "list.txt", layer("image_data_param { }").image_data_param, (1,))


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "x" * 300, "a\0b", ".", "no.png"])
def test_an_image_that_is_no_file_is_named_with_its_line(name, tmp_path, monkeypatch):
    monkeypatch.setattr(input_files, "PIPE_SECONDS", 0.001)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="which cannot be read: ") as caught:
        image_list(tmp_path, f"\n{name} 3\n").read(1)
    assert (caught.value.path, caught.value.line) == (str(tmp_path / "list.txt"), 2)


@pytest.mark.parametrize("label", ["9" * 400, "2147483648", "-2147483649"])
def test_a_label_beyond_32_bits_is_named_with_its_line(label, tmp_path):
    with pytest.raises(InputError, match=r"has the label .*beyond 32 bits") as caught:
        image_list(tmp_path, f"a.png 2147483647\nb.png {label}")
    assert caught.value.line == 2


def test_a_line_of_a_list_is_no_longer_than_a_mebibyte(tmp_path):
    rows = "a" * (LINE_LIMIT_BYTES - 2) + " 1\n"
    assert image_list(tmp_path, rows).length == 1
    with pytest.raises(
        InputError, match=r"has a line of 1\.00 MiB, above the limit of 1\.00 MiB; give a list of"
    ) as caught:
        image_list(tmp_path, "b.png 1\na" + rows)
    assert caught.value.line == 2


def test_lists_hold_names_of_any_bytes_and_may_be_utf_8_with_a_mark(tmp_path):
    path = tmp_path / "list.txt"
    path.write_bytes("\ufeff日本.png 1\r\nb\u2028c.png 2\r\n".encode())
    assert [*read_rows(path, 1)] == [("日本.png", ["1"], 1), ("b\u2028c.png", ["2"], 2)]
    path.write_bytes(b"a.png 1\n\xe9.png 2\n")
    assert [*read_rows(path, 1)] == [("a.png", ["1"], 1), ("\udce9.png", ["2"], 2)]
    path.write_bytes("a.png 1\né.png 2\n".encode("utf-16"))
    with pytest.raises(InputError, match="is not UTF-8 text; save the list of images as UTF-8") as caught:
        read_rows(path, 1)
    assert caught.value.line == 1
    (tmp_path / "日本.h5").touch()
    path.write_text("日本.h5\n", encoding="utf-8")
    assert read_file_list(path) == [tmp_path / "日本.h5"]


def test_lines_may_end_as_on_old_macs(tmp_path):
    path = tmp_path / "list"
    for ends, raw in (("LF", b"a b 1\nc 0\n"), ("CRLF", b"a b 1\r\nc 0\r\n"), ("CR", b"a b 1\rc 0\r")):
        path.write_bytes(raw)
        assert read_lines(path, what="list") == ["a b 1", "c 0", ""], ends
        assert [*read_rows(path, 1)] == [("a b", ["1"], 1), ("c", ["0"], 2)], ends
        assert [*read_rows(path, 1, form=CaffeRows)] == [("a b", ["1"], 1), ("c", ["0"], 2)], ends
    path.write_bytes(b"a\rb\nc")  # a name with a CR
    assert read_lines(path, what="list") == ["a\rb", "c"]


def test_names_that_the_system_does_not_allow_do_not_exist(tmp_path):
    for name in ("x" * 300, "a\0b", "d/" * 3000):
        with pytest.raises(InputError, match="there is no '"):
            resolve_path(name, tmp_path / "net.prototxt")
    assert hints_beside(tmp_path / ("x" * 252)).keep == ()


@pytest.mark.parametrize("prefix", ["x" * 230, "out/" + "é" * 120, "a" * 256 + "/run", "d/" * 2040 + "run", "a\0b"])
def test_a_snapshot_prefix_that_no_file_can_have_is_refused_before_training(prefix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"snapshot_prefix .*(shorten|remove) it"):
        check_prefix(prefix)
    check_prefix("x" * 219)


def test_a_file_beyond_the_limit_is_not_read(tmp_path):
    path = tmp_path / "big"
    with open(path, "wb") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match=r"is larger than 64\.0 MiB, the limit of a list"):
        read_lines(path, what="list")


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space")
def test_a_small_file_takes_little_memory_whatever_the_limit(tmp_path):
    (tmp_path / "small").write_bytes(b"abc")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**28, limits[1]))
    try:
        assert read_bytes(tmp_path / "small", what="file", limit=2**40) == b"abc"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_file_without_a_size_is_read_to_its_end():
    assert read_bytes("/proc/self/status", what="file", limit=2**20).startswith(b"Name:")
    with pytest.raises(InputError, match="is larger than 10 B"):
        read_bytes("/proc/self/status", what="file", limit=10)


def test_a_folder_below_that_cannot_be_read_is_named_instead_of_left_out(tmp_path, monkeypatch):
    (tmp_path / "b/closed").mkdir(parents=True)
    for name in ("b/2.png", "b/1.png", "a.png"):
        (tmp_path / name).write_bytes(b"")
    assert [str(path.relative_to(tmp_path)) for path in files_below(tmp_path)] == ["a.png", "b/1.png", "b/2.png"]
    scandir = os.scandir

    def refused(path):
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(InputError, match="closed: cannot be read as a folder: Permission denied; change"):
        files_below(tmp_path)


def test_a_file_in_the_place_of_a_folder_is_a_fault_of_the_path(tmp_path):
    (tmp_path / "w").write_bytes(b"")
    with pytest.raises(InputError, match="Not a directory; correct the path, of which a part is a file"):
        read_bytes(tmp_path / "w/net.caffemodel", what="weight file", limit=100)
