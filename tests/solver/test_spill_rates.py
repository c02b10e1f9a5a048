"""Rates of a spill file: copies, flushes and evictions of a measurement, and when it is repeated."""

import errno
import os
from types import SimpleNamespace

import pytest

from layermem.backends.arena import Arena
from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.planning.kept_costs import keep_spill, read_spill, spill_path
from layermem.planning.spill import file_system_of
from layermem.solver import spill_rates
from layermem.solver.spill_rates import BLOCK_BYTES, ROUNDS, SPILL_BYTES, TRIAL_BYTES, measure_spill, resolve_spill
from layermem.utils import stopwatch

DEVICE = get_device("cpu")


class Clock:
    """A clock that only copies and flushes advance: each takes seconds per byte."""

    def __init__(self, monkeypatch, copied, flushed):
        self.now, self.steps, self._dirty, self._is_evicted = 0.0, [], 0, False
        for module in (spill_rates, stopwatch):
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))
        run = type(DEVICE).run

        def copy(device, calls, next_batch=None):
            run(device, calls, next_batch)
            self.steps.append(("copies", len(calls)))
            self._dirty += 0 if self._is_evicted else len(calls) * BLOCK_BYTES
            self._is_evicted = False
            self.now += len(calls) * BLOCK_BYTES * copied

        def flush(arena):
            self.steps.append(("flush", arena.nbytes))
            self.now += self._dirty * flushed
            self._dirty = 0

        def evict(arena):
            self.steps.append(("evict", arena.nbytes))
            self._is_evicted = True

        monkeypatch.setattr(type(DEVICE), "run", copy)
        monkeypatch.setattr(Arena, "flush", flush)
        monkeypatch.setattr(Arena, "evict", evict)


def test_a_write_counts_until_it_is_on_the_device_and_a_read_begins_without_its_pages(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, copied=1e-10, flushed=3e-10)
    write, read = measure_spill(DEVICE, tmp_path)
    assert (write, read) == pytest.approx((1 / 4e-10, 1 / 1e-10))
    one = [("flush", SPILL_BYTES), ("evict", SPILL_BYTES)]
    trial, whole = ("copies", TRIAL_BYTES // BLOCK_BYTES), ("copies", SPILL_BYTES // BLOCK_BYTES)
    assert clock.steps == [trial, *one, trial, *[whole, *one, whole] * ROUNDS]


def test_only_the_trial_is_measured_on_a_slow_device(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, copied=1e-8, flushed=0.0)
    assert measure_spill(DEVICE, tmp_path) == pytest.approx((1e8, 1e8))
    assert sum(count for what, count in clock.steps if what == "copies") == 2 * TRIAL_BYTES // BLOCK_BYTES


@pytest.mark.skipif(not hasattr(os, "statvfs"), reason="this system does not say what a disk has left")
def test_at_most_half_of_what_a_disk_has_left_is_taken(tmp_path, monkeypatch):
    made = []
    arena = type(DEVICE).host_arena
    monkeypatch.setattr(
        type(DEVICE), "host_arena", lambda self, nbytes, **more: made.append(nbytes) or arena(self, nbytes, **more)
    )
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=5 * BLOCK_BYTES, f_frsize=1, f_fsid=7))
    measure_spill(DEVICE, tmp_path)
    assert made == [2 * BLOCK_BYTES]


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Counts the measurements, each of which finds half the rates of the previous one."""
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path / "cache"))
    folders = []

    def measure(device, folder):
        folders.append(folder)
        return 8e9 / 2 ** len(folders), 6e9 / 2 ** len(folders)

    monkeypatch.setattr(spill_rates, "measure_spill", measure)
    return folders


def test_the_rates_of_a_file_system_are_measured_once_and_on_request(tmp_path, measured):
    (tmp_path / "other").mkdir()
    first = resolve_spill(tmp_path, DEVICE)
    other = resolve_spill(tmp_path / "other", DEVICE)
    assert (first.write, first.read) == (other.write, other.read) == (4e9, 3e9) and measured == [tmp_path]
    path = spill_path(file_system_of(tmp_path))
    assert first.path == other.path == str(path) and path.is_file()
    again = resolve_spill(tmp_path, DEVICE, again=True)
    assert (again.write, again.read) == (2e9, 1.5e9) and resolve_spill(tmp_path, DEVICE) == again


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text.replace("link.d2h,4e+09\n", ""),
        lambda text: text.replace("4e+09", "-1"),
        lambda text: text.replace("# spill ", "# spill not "),
    ],
)
def test_kept_rates_that_cannot_be_read_are_measured_again(tmp_path, measured, change):
    resolve_spill(tmp_path, DEVICE)
    path = spill_path(file_system_of(tmp_path))
    path.write_text(change(path.read_text()))
    assert resolve_spill(tmp_path, DEVICE).write == 2e9 and len(measured) == 2


def test_a_cache_that_cannot_be_written_costs_time_alone(tmp_path, measured, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path / "file"))
    assert resolve_spill(tmp_path, DEVICE).path is None
    assert resolve_spill(tmp_path, DEVICE).write == 2e9


def test_rates_are_the_same_after_they_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path))
    here = file_system_of(tmp_path)
    assert read_spill(here) is None
    keep_spill(here, 1234567890.0, 2e9)
    assert read_spill(here) == (1234567890.0, 2e9)


def test_a_folder_that_takes_no_file_is_refused_whether_or_not_rates_are_kept(tmp_path, measured, monkeypatch):
    with pytest.raises(InputError, match=r"cannot spill .* to .*none: No such file or directory; name another --spill"):
        resolve_spill(tmp_path / "none", DEVICE)
    resolve_spill(tmp_path, DEVICE)

    def refuse(**more):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(InputError, match=r"Read-only file system; name another --spill"):
        resolve_spill(tmp_path, DEVICE)


def test_a_gpu_spills_to_no_file(tmp_path):
    with pytest.raises(InputError, match="--spill goes with --device cpu"):
        resolve_spill(tmp_path, get_device("cuda"))
    assert resolve_spill(None, get_device("cuda")) is None
