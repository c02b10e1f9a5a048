"""Solver states, binary and HDF5."""

import contextlib
import time
from dataclasses import replace

import h5py
import numpy as np
import pytest

from layermem.errors import InputError
from layermem.proto.blobs import MESSAGE_LIMIT_BYTES
from layermem.proto.weights import write_weights
from layermem.solver.state_file import SolverStateData, read_state, state_content
from layermem.utils.files import write_atomically

STATE = SolverStateData(
    12, "out/net_iter_12.caffemodel", 3, [np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([7])]
)
SUFFIXES = [".solverstate", ".solverstate.h5"]


def saved(folder, suffix, state=STATE):
    path = folder / f"state{suffix}"
    write_atomically(path, state_content(path, state))
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_written_state_is_read_back_bit_for_bit(tmp_path, suffix):
    state = read_state(saved(tmp_path, suffix))
    assert (state.iteration, state.learned_net, state.current_step) == (12, "out/net_iter_12.caffemodel", 3)
    assert [np.asarray(blob).tolist() for blob in state.history] == [[[0, 1, 2], [3, 4, 5]], [7]]


def test_the_digest_is_of_the_values_in_either_format(tmp_path):
    digests = {read_state(saved(tmp_path, suffix)).digest() for suffix in SUFFIXES}
    assert digests == {STATE.digest()}
    moved = replace(STATE, learned_net="elsewhere.caffemodel")
    assert moved.digest() == STATE.digest() != replace(STATE, iteration=13).digest()
    assert replace(STATE, history=[*STATE.history[:1], np.float32([8])]).digest() != STATE.digest()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_truncated_file_is_refused(tmp_path, suffix):
    path = saved(tmp_path, suffix)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="is truncated, or is not a solver state"):
        read_state(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("state", "what"),
    [
        (replace(STATE, iteration=-1), "is at iteration -1, so it is damaged"),
        (replace(STATE, learned_net=""), "has no path of the weights, so it is damaged"),
    ],
)
def test_impossible_values_are_refused(tmp_path, suffix, state, what):
    with pytest.raises(InputError, match=what):
        read_state(saved(tmp_path, suffix, state))


@pytest.mark.parametrize("suffix", [".caffemodel", ".caffemodel.h5"])
def test_weights_are_recognized(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    write_weights(path, "net", {"ip": ("InnerProduct", [np.ones((2, 2), np.float32)])})
    with pytest.raises(InputError, match=r"is a weight file, for --weights; for --snapshot give a .solverstate"):
        read_state(path)


def test_a_binary_state_beyond_its_limit_is_refused_before_it_is_written(tmp_path):
    blob = np.broadcast_to(np.float32(0), (MESSAGE_LIMIT_BYTES // 4 + 1,))
    with pytest.raises(InputError, match=r"above the limit of a binary .solverstate, 2.00 GiB; set snapshot_format"):
        state_content(tmp_path / "big.solverstate", replace(STATE, history=[blob]))


@pytest.mark.parametrize("value", [np.inf, np.nan, [1, 2], h5py.Empty("f4"), "text"])
@pytest.mark.parametrize("name", ["iter", "current_step"])
def test_a_number_that_is_none_is_refused_in_hdf5(tmp_path, name, value):
    path = saved(tmp_path, ".solverstate.h5")
    with h5py.File(path, "a") as file:
        del file[name]
        file[name] = value
    with pytest.raises(InputError, match=r"is truncated, or is not|numbers in '/|without a shape"):
        read_state(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_states_are_read_or_refused(tmp_path, suffix, rng):
    path = saved(tmp_path, suffix)
    raw = path.read_bytes()
    for _ in range(150):
        changed = bytearray(raw)
        for position in rng.integers(0, len(raw), 2):
            changed[position] = rng.integers(256)
        path.write_bytes(changed)
        with contextlib.suppress(InputError):
            read_state(path).digest()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_state_gives_the_same_bytes_in_another_second(tmp_path, suffix):
    before = saved(tmp_path, suffix).read_bytes()
    time.sleep(1.01 - time.time() % 1)  # noqa: TID251  times of files are those of the system's clock
    assert saved(tmp_path, suffix).read_bytes() == before
