"""Locks: one holder, no longer than its process."""

import errno
import os
import signal
import subprocess
import sys
import threading

from layermem.utils.locks import lock, locked

HOLDER = """
import sys, time
from pathlib import Path
from layermem.utils.locks import locked
with locked(Path(sys.argv[1])) as is_mine:
    print(is_mine, flush=True)
    time.sleep(600)
"""


def test_a_file_has_one_holder_until_it_is_closed(tmp_path):
    first, second = (os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert lock(first) and not lock(second)
    os.close(first)
    assert lock(second)
    os.close(second)


def test_a_lock_file_is_there_as_long_as_the_lock(tmp_path):
    path = tmp_path / "lock"
    with locked(path) as first:
        with locked(path) as second:
            assert first and not second
        assert path.exists()
    assert not path.exists()


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    path = tmp_path / "lock"
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"True\n"
    with locked(path) as is_mine:
        assert not is_mine
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert path.exists()
    with locked(path) as is_mine:
        assert is_mine
    assert not path.exists()


def test_threads_hold_a_lock_one_at_a_time(tmp_path):
    holders, most, turns = [], [], []

    def take():
        while len(turns) < 200:
            with locked(tmp_path / "lock") as is_mine:
                if is_mine:
                    holders.append(1)
                    most.append(len(holders))
                    turns.append(1)
                    holders.pop()

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {*most} == {1}


def test_where_no_lock_can_be_had_work_goes_on(tmp_path, monkeypatch):
    with locked(tmp_path / "none" / "lock") as is_mine:
        assert is_mine

    def flock(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", flock)
    with locked(tmp_path / "lock") as one, locked(tmp_path / "lock") as two:
        assert one and two
