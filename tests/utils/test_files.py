"""A written file is complete or absent."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from layermem.errors import InputError
from layermem.utils.files import aside_stem, check_output, write_atomically, write_together


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_bytes_and_a_writer_leave_the_same_file_and_nothing_else(tmp_path):
    write_atomically(tmp_path / "a", b"content")
    write_atomically(str(tmp_path / "b"), lambda handle: handle.write(b"content"))
    assert names(tmp_path) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"content"


def test_an_error_while_writing_leaves_the_old_file_as_it_was(tmp_path):
    path = tmp_path / "snapshot"
    write_atomically(path, b"old")

    def fail(handle):
        handle.write(b"half of the ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old" and names(tmp_path) == ["snapshot"]


def test_the_file_is_synced_before_it_gets_its_name_and_the_folder_after(tmp_path, monkeypatch):
    events = []
    real_replace, real_sync = os.replace, os.fsync

    def replace(source, target):
        events.append("rename")
        real_replace(source, target)

    def sync(handle):
        events.append("sync folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "sync file")
        real_sync(handle)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "fsync", sync)
    write_atomically(tmp_path / "x", b"1")
    assert events == ["sync file", "rename", "sync folder"]


def test_a_folder_that_is_missing_or_in_the_way_is_an_input_error(tmp_path):
    with pytest.raises(InputError) as caught:
        write_atomically(tmp_path / "no" / "x", b"")
    assert str(caught.value) == f"{tmp_path}/no/x: cannot be written: there is no folder '{tmp_path}/no'; create it"
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        write_atomically(tmp_path / "folder", b"")
    assert names(tmp_path) == ["folder"]


def test_what_is_in_the_way_of_a_file_is_found_before_any_work(tmp_path, monkeypatch):
    check_output(None)
    check_output(tmp_path / "new")
    for name in ("folder", "others"):
        (tmp_path / name).mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "others" / "file").touch()
    (tmp_path / "others").chmod(0o1777)
    os.mkfifo(tmp_path / "pipe")
    check_output(tmp_path / "pipe")
    for path, what in {"no/x": "there is no folder", "folder": "Is a directory", "loop": "Too many levels"}.items():
        with pytest.raises(InputError, match=rf"{path}: cannot be written: {what}.*; (create|use)"):
            check_output(tmp_path / path)
    (tmp_path / "link").symlink_to("new")
    with pytest.raises(InputError, match="link: is given for two outputs; give each a name of its own"):
        check_output(tmp_path / "new", None, tmp_path / "link")
    check_output(tmp_path / "pipe", "/dev/null", tmp_path / "pipe", "/dev/null")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # another user, in a folder such as /tmp
    check_output(tmp_path / "others" / "new")
    with pytest.raises(InputError, match="file: cannot be written: Operation not permitted"):
        check_output(tmp_path / "others" / "file")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match=r"cannot be written: '.*' is not a writable folder; use another path"):
        check_output(tmp_path / "new")


@pytest.mark.parametrize("name", ["n" * 255, "\udcff" * 240, "é" * 127])
def test_a_name_may_have_all_the_bytes_that_the_system_allows(tmp_path, name):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    orphan = tmp_path / f".{aside_stem(name)}.{process.pid}-999999.aside"
    orphan.touch()
    write_together([(tmp_path / name, b"1"), (tmp_path / f"{name[:-1]}!", b"2")])
    assert (tmp_path / name).read_bytes() == b"1" and len(names(tmp_path)) == 2 and not orphan.exists()


def test_a_full_disk_is_an_input_error_that_leaves_nothing(tmp_path):
    def full(handle):
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_atomically(tmp_path / "x", full)
    assert names(tmp_path) == []


def test_a_link_keeps_pointing_to_the_file_that_is_replaced(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


def test_new_files_have_the_permissions_that_the_user_chose(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "x", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_threads_that_write_one_name_leave_one_of_their_files(tmp_path):
    contents = [bytes([i]) * 10000 for i in range(8)]
    threads = [threading.Thread(target=write_atomically, args=(tmp_path / "x", c)) for c in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "x").read_bytes() in contents and names(tmp_path) == ["x"]


WRITER = """
import sys
from layermem.utils.files import write_atomically, write_together
while True:
    for letter in (b"a", b"b"):
        write_atomically(sys.argv[1], lambda handle: [handle.write(letter * 4096) for _ in range(64)])
"""


def test_a_killed_writer_leaves_a_whole_file_and_its_leftovers_go_with_the_next_write(tmp_path):
    path = tmp_path / "x"
    for delay in (0.0, 0.003, 0.007, 0.02):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
        while not path.exists():
            time.sleep(0.001)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert path.read_bytes() in (b"a" * 4096 * 64, b"b" * 4096 * 64)
        path.unlink()
    orphan = tmp_path / f".x.{process.pid}-0.aside"
    orphan.write_bytes(b"half")
    ours = tmp_path / f".x.{os.getpid()}-999999.aside"  # a write that is still under way
    ours.write_bytes(b"half")
    other = tmp_path / ".xy.1-0.aside"
    other.write_bytes(b"another file's")
    write_atomically(path, b"c")
    assert names(tmp_path) == sorted([ours.name, other.name, "x"])


def test_files_that_belong_together_are_all_written_or_none_is_touched(tmp_path):
    first, last = tmp_path / "model", tmp_path / "state"
    write_together([(first, b"m1"), (last, b"s1")])
    assert (first.read_bytes(), last.read_bytes()) == (b"m1", b"s1")

    def full(handle):
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="state: cannot be written: No space left on device"):
        write_together([(first, b"m2"), (last, full)])
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="folder: cannot be written: Is a directory"):
        write_together([(first, b"m2"), (tmp_path / "folder", b"s2")])
    assert (first.read_bytes(), last.read_bytes()) == (b"m1", b"s1")
    assert names(tmp_path) == ["folder", "model", "state"]


def test_the_contents_are_made_in_order_so_a_later_one_may_tell_of_an_earlier(tmp_path):
    size = []
    write_together(
        [(tmp_path / "a", lambda h: size.append(h.write(b"123"))), (tmp_path / "b", lambda h: h.write(bytes(size)))]
    )
    assert (tmp_path / "b").read_bytes() == b"\x03"


def test_the_last_file_is_absent_while_those_that_belong_to_it_change(tmp_path, monkeypatch):
    first, last = tmp_path / "model", tmp_path / "state"
    write_together([(first, b"m1"), (last, b"s1")])
    seen, real = [], os.replace

    def replace(source, target):
        seen.append((first.read_bytes(), last.exists()))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    write_together([(first, b"m2"), (last, b"s2")])
    assert seen == [(b"m1", False), (b"m2", False)] and last.read_bytes() == b"s2"


def test_a_folder_that_goes_after_a_file_has_its_name_is_no_error(tmp_path, monkeypatch):
    folder, synced = tmp_path / "out", []

    def sync_and_lose(path):
        synced.append(path)
        folder.rename(tmp_path / "elsewhere")

    folder.mkdir()
    monkeypatch.setattr("layermem.utils.files._sync_folder", sync_and_lose)
    write_together([(folder / "model", b"m1")])
    assert synced and (tmp_path / "elsewhere" / "model").read_bytes() == b"m1"


# -- what cannot be replaced ---------------------------------------------------------------------------------------


def test_a_pipe_gets_the_bytes_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        write_together([(tmp_path / "model", b"1"), (pipe, lambda handle: handle.write(b"content"))])
        assert reader.communicate()[0] == b"content"
    assert stat.S_ISFIFO(pipe.stat().st_mode) and names(tmp_path) == ["model", "pipe"]


def test_a_device_gets_the_bytes_and_stays_a_device():
    master, slave = os.openpty()
    name = os.ttyname(slave)
    write_atomically(name, b"content")
    assert os.read(master, 100) == b"content" and stat.S_ISCHR(os.stat(name).st_mode)


def test_an_error_while_a_pipe_is_written_sends_no_part_of_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    def fail(handle):
        handle.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "pipe", fail)
    assert os.read(reader, 100) == b""
    os.close(reader)


PRINTS = """
import sys
from layermem.utils.files import write_atomically
print("before")
write_atomically(sys.argv[1], b"content\\n")
print("after")
"""


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "out", "link"])
def test_a_file_that_standard_output_goes_to_loses_nothing(name, tmp_path):
    (tmp_path / "out").write_text("old\n")
    (tmp_path / "link").symlink_to("out")
    with open(tmp_path / "out", "a") as out:
        subprocess.run([sys.executable, "-c", PRINTS, name], cwd=tmp_path, stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "old\nbefore\ncontent\nafter\n"
    assert names(tmp_path) == ["link", "out"]


def test_a_descriptor_of_the_caller_is_written_where_it_is(tmp_path):
    with open(tmp_path / "out", "w+") as out:
        out.write("old\n")
        out.flush()
        name = f"/dev/fd/{out.fileno()}"
        subprocess.run(
            [sys.executable, "-c", PRINTS, name], pass_fds=[out.fileno()], stdout=subprocess.PIPE, check=True
        )
        out.seek(0)
        assert out.read() == "old\ncontent\n"


def test_a_reader_that_has_gone_takes_no_bytes_and_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", PRINTS, f"/dev/fd/{writer}"], pass_fds=[writer], stdout=subprocess.PIPE, check=True
    )
    assert done.stdout == b"before\nafter\n"


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match=r"cannot be written: .*; use another path"):
        write_atomically(tmp_path / "loop", b"content")
    assert (tmp_path / "loop").is_symlink()


@pytest.mark.parametrize("path", ["a\0b", b"a", 3, None])
def test_what_is_no_path_is_an_input_error(path):
    with pytest.raises(InputError, match="is no path of a file; give a string or "):
        write_atomically(path, b"")
