"""Writes to the spill file past the cache of the system."""

import os

import numpy as np
import pytest

from layermem.backends.arena import DIRECT_BYTES, Arena
from layermem.backends.direct_file import BLOCK_BYTES, PIECE_BYTES, DirectFile, whole_blocks

NBYTES = 4 * PIECE_BYTES


def random_bytes(count):
    return np.random.default_rng(3).integers(0, 256, count, np.uint8)


@pytest.fixture
def writes(monkeypatch):
    """(offset, bytes) of each direct write."""
    made, plain = [], os.pwrite

    def pwrite(descriptor, data, offset):
        made.append((offset, len(data)))
        return plain(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return made


def direct_arena(folder):
    arena = Arena(NBYTES, spill=folder, direct=True)
    if arena._direct is None:
        pytest.skip("this file system has no direct writes")
    return arena


@pytest.mark.parametrize(
    "begin, end",
    [(0, BLOCK_BYTES), (1, BLOCK_BYTES), (256, 3 * BLOCK_BYTES + 512), (BLOCK_BYTES, BLOCK_BYTES), (100, 200)],
)
def test_whole_blocks_lie_within_a_range(begin, end):
    first, last = whole_blocks(begin, end)
    inside = [at for at in range(0, end, BLOCK_BYTES) if begin <= at and at + BLOCK_BYTES <= end]
    assert [*range(first, last, BLOCK_BYTES)] == inside and first % BLOCK_BYTES == last % BLOCK_BYTES == 0


@pytest.mark.parametrize("offset", [0, 256, BLOCK_BYTES, 3 * BLOCK_BYTES - 256])
@pytest.mark.parametrize("count", [100, DIRECT_BYTES, DIRECT_BYTES + 2 * BLOCK_BYTES, 2 * PIECE_BYTES + 1000])
def test_what_is_stored_is_what_the_mapping_reads_and_nothing_beside_it(tmp_path, writes, offset, count):
    arena, values = direct_arena(tmp_path), random_bytes(count)
    arena.bytes[:] = 7
    arena.store(offset, values)
    np.testing.assert_array_equal(arena.span(offset, count), values)
    assert (arena.bytes[:offset] == 7).all() and (arena.bytes[offset + count :] == 7).all()
    first, last = whole_blocks(offset, offset + count)
    assert sum(size for _, size in writes) == (last - first if last - first >= DIRECT_BYTES else 0)
    assert all(at % BLOCK_BYTES == size % BLOCK_BYTES == 0 for at, size in writes)


def test_a_later_store_replaces_what_the_mapping_has_read_and_written(tmp_path):
    arena = direct_arena(tmp_path)
    for seed in range(3):
        values = np.random.default_rng(seed).integers(0, 256, NBYTES - 512, np.uint8)
        arena.store(256, values)
        np.testing.assert_array_equal(arena.span(256, len(values)), values)
        arena.span(256, len(values))[:] = seed


def test_a_write_that_is_cut_short_goes_on(tmp_path, monkeypatch):
    arena, values, plain = direct_arena(tmp_path), random_bytes(DIRECT_BYTES), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: plain(descriptor, data[:BLOCK_BYTES], at))
    arena.store(0, values)
    np.testing.assert_array_equal(arena.span(0, len(values)), values)


def test_without_direct_writes_the_mapping_takes_all(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(22, "Invalid argument")

    values = random_bytes(DIRECT_BYTES)
    arena = direct_arena(tmp_path)
    monkeypatch.setattr(os, "pwrite", refuse)
    arena.store(0, values)
    np.testing.assert_array_equal(arena.span(0, len(values)), values)
    monkeypatch.delattr(os, "O_DIRECT")
    with pytest.raises(OSError, match="no direct writes"):
        DirectFile(0)
    arena = Arena(NBYTES, spill=tmp_path, direct=True)
    arena.store(0, values)
    np.testing.assert_array_equal(arena.span(0, len(values)), values)
