"""The arena of a device, and the spill file."""

import errno
import mmap
import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from layermem.backends import arena
from layermem.backends.arena import PAGE, Arena, check_spill_space
from layermem.errors import InputError
from layermem.layers import Tensor


def test_an_arena_holds_what_is_written_to_it_at_its_offset_in_storage_order(tmp_path):
    values = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    for spill in (None, tmp_path):
        arena = Arena(1024, spill=spill)
        arena.write(256, Tensor(values.shape), values)
        assert arena.address % PAGE == 0
        assert (arena.read(256, Tensor(values.shape)) == values).all()
        assert (arena.view(256, Tensor((24,))) == values.transpose(0, 2, 3, 1).ravel()).all()
    assert not list(tmp_path.iterdir())  # the file has no name, so a killed run leaves none


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system reserves no bytes of a file")
def test_a_disk_too_small_for_the_spill_is_refused_before_the_first_step(tmp_path, monkeypatch):
    asked = []

    def full(file, offset, nbytes):
        asked.append(nbytes)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"cannot spill 1\.00 MiB to .*No space left on device.*name another --spill"):
        Arena(1 << 20, spill=tmp_path)
    assert asked == [1 << 20]


def test_an_evicted_spill_file_holds_the_same_values_and_pages_of_memory_no_more(tmp_path):
    spilled = Arena(64 * PAGE, spill=tmp_path)
    spilled.bytes[:] = 7
    spilled.flush()
    spilled.evict()
    assert (spilled.bytes == 7).all()
    in_memory = Arena(64)
    in_memory.evict()  # nothing to do
    assert len(in_memory.bytes) == 64


def test_more_bytes_than_a_disk_has_left_are_refused_in_the_words_of_the_run(tmp_path):
    check_spill_space(0, tmp_path)
    with pytest.raises(InputError, match=r"cannot spill 1,048,576 TiB to .*: No space left on device; name another"):
        check_spill_space(2**60, tmp_path)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="this system has no modes of files")
def test_a_spill_file_is_private(tmp_path, monkeypatch):
    modes = []
    reserve = arena._reserve

    def watch(file, nbytes):
        modes.append(stat.S_IMODE(os.fstat(file).st_mode))
        reserve(file, nbytes)

    monkeypatch.setattr(arena, "_reserve", watch)
    before = os.umask(0)
    try:
        Arena(1024, spill=tmp_path)
    finally:
        os.umask(before)
    assert modes == [0o600]


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="this system gives no pages back")
def test_released_spans_of_a_spill_file_keep_their_content_and_take_no_memory(tmp_path):
    arena = Arena(2**22, spill=tmp_path)
    arena.bytes[:] = np.arange(2**22, dtype=np.uint32).astype(np.uint8)
    arena.release(1000, 2**22 - 3000)
    arena.release(0, 2**22)
    if sys.platform == "linux":
        lines = Path("/proc/self/smaps").read_text(errors="replace").splitlines()
        at = next(i for i, line in enumerate(lines) if "layermem-spill-" in line or str(tmp_path) in line)
        assert next(line for line in lines[at:] if line.startswith("Rss:")).split()[1] == "0"
    assert np.array_equal(arena.bytes, np.arange(2**22, dtype=np.uint32).astype(np.uint8))
    assert arena.is_file and not Arena(16).is_file
    Arena(16).release(0, 16)
