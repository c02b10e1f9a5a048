"""Folders that are complete or absent."""

import errno
import os
import signal
import threading

import pytest

from layermem.errors import InputError
from layermem.utils.folder_aside import folder_aside


def test_a_folder_appears_with_all_that_is_in_it(tmp_path):
    for replace in (False, True):
        with folder_aside(tmp_path / "new" / "db", replace=replace) as aside:
            (aside / "file").write_text(str(replace))
            assert [path for path in aside.parent.iterdir() if path != tmp_path / "new" / "db"] == [aside]
        assert (tmp_path / "new" / "db" / "file").read_text() == str(replace)
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["db"]
    with pytest.raises(InputError, match="db: exists already"), folder_aside(tmp_path / "new" / "db"):
        pass


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_an_error_leaves_nothing(tmp_path, error):
    (tmp_path / ".db.4194305-0.aside" / "inner").mkdir(parents=True)  # of a killed process
    with pytest.raises(InputError if isinstance(error, OSError) else type(error)), folder_aside(tmp_path / "db"):
        raise error
    assert not [*tmp_path.iterdir()]


def test_two_that_make_one_folder_do_not_disturb_each_other(tmp_path):
    name = "d" * 255  # the longest that a folder can have
    with (
        pytest.raises(InputError, match="cannot be written: Directory not empty"),
        folder_aside(tmp_path / name) as one,
    ):
        (one / "file").write_text("one")
        with folder_aside(tmp_path / name) as two:
            (two / "file").write_text("two")
        assert (one / "file").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == [name] and (tmp_path / name / "file").read_text() == "two"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_process_leaves_nothing(tmp_path, number):
    previous = signal.signal(number, signal.SIG_DFL)  # other tests leave handlers of programs that they run
    try:
        with pytest.raises(SystemExit) as end, folder_aside(tmp_path / "db"), folder_aside(tmp_path / "inside"):
            os.kill(os.getpid(), number)
            raise AssertionError("the signal had no effect")
        assert end.value.code == 128 + number and not [*tmp_path.iterdir()]
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, previous)


def test_a_signal_that_is_ignored_or_handled_stays_so(tmp_path):
    received = []
    for handler in (signal.SIG_IGN, lambda number, frame: received.append(number)):
        previous = signal.signal(signal.SIGHUP, handler)
        try:
            with folder_aside(tmp_path / "db", replace=True):
                os.kill(os.getpid(), signal.SIGHUP)
        finally:
            signal.signal(signal.SIGHUP, previous)
    assert received == [signal.SIGHUP] and (tmp_path / "db").is_dir()


def test_another_thread_makes_a_folder_without_handlers(tmp_path):
    def make():
        with folder_aside(tmp_path / "db"):
            pass

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert (tmp_path / "db").is_dir()
