"""A function for many items in parallel processes: results, errors, processes that end, interrupts."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from layermem.errors import DeviceError
from layermem.utils import processes
from layermem.utils.processes import on_all_cores

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cores(monkeypatch):
    monkeypatch.setattr(processes, "core_count", lambda: 2)


def squared(number: int) -> tuple[int, int]:
    print("to standard error")
    if number < 0:
        raise DeviceError(f"{number} is negative")
    return number * number, os.getpid()


def ended(parent: int, number: int) -> int:
    if os.getpid() != parent:
        os._exit(9)
    return number


def met(folder: str, name: str) -> bool:
    """Whether another call is under way."""
    Path(folder, name).write_text(str(os.getpid()))
    began = time.monotonic()
    while len(os.listdir(folder)) < 2:
        if time.monotonic() - began > 60:
            return False
        time.sleep(0.01)
    return True


def test_every_item_has_its_result_from_another_process():
    found = dict(on_all_cores(squared, [1, 2, 3, 4, 5]))
    assert {item: result for item, (result, _) in found.items()} == {1: 1, 2: 4, 3: 9, 4: 16, 5: 25}
    pids = {pid for _, pid in found.values()}
    assert os.getpid() not in pids and len(pids) <= 2
    assert not list(on_all_cores(squared, []))


def test_items_are_computed_at_the_same_time(tmp_path):
    assert dict(on_all_cores(partial(met, str(tmp_path)), ["a", "b"])) == {"a": True, "b": True}


def test_an_error_is_raised_here():
    with pytest.raises(DeviceError, match="-1 is negative"):
        list(on_all_cores(squared, [-1, 2, 3]))


def test_requests_that_a_process_does_not_answer_are_computed_here():
    assert dict(on_all_cores(partial(ended, os.getpid()), [1, 2, 3, 4, 5])) == {n: n for n in range(1, 6)}


SCRIPT = """
import sys
from functools import partial
from tests.utils.test_processes import met
from layermem.utils.processes import on_all_cores
print("once", flush=True)
list(on_all_cores(partial(met, sys.argv[1]), ["alone"]))
"""


def test_an_interrupt_ends_the_processes_and_a_script_does_not_run_twice(tmp_path):
    path, folder = tmp_path / "script.py", tmp_path / "met"
    folder.mkdir()
    path.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, path, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    while not (folder / "alone").exists() or not (worker := (folder / "alone").read_text()):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert out == "once\n" and error.rstrip().endswith("KeyboardInterrupt") and error.count("Traceback") == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(worker), 0)
