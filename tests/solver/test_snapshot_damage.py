"""Snapshots that are damaged, of other runs, or of other solvers."""

import errno
import itertools
import json
import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.interactive.solver import Solver
from tests.data.makers import datum, images, make_lmdb
from tests.nets import NETS, solver_file
from tests.solver.snapshots import equal, refused, trained


def test_files_that_are_no_snapshot_are_refused_in_a_sentence(tmp_path):
    trained("chain", tmp_path)
    state = tmp_path / "run_iter_4.solverstate"
    assert "no such file" in refused(tmp_path, "none.solverstate")
    assert "is a weight file, for --weights" in refused(tmp_path, "run_iter_4.caffemodel")
    (tmp_path / "junk").write_bytes(os.urandom(999))
    assert "is truncated, or is not a solver state" in refused(tmp_path, "junk")
    (tmp_path / "junk").write_bytes(b"")
    assert "is truncated, or is not a solver state" in refused(tmp_path, "junk")
    (tmp_path / "cut").write_bytes(state.read_bytes()[:-7])
    assert "is truncated, or is not a solver state" in refused(tmp_path, "cut")
    (tmp_path / "cut.h5").write_bytes(b"\x89HDF\r\n\x1a\nrest")
    assert "is truncated, or is not a solver state" in refused(tmp_path, "cut.h5")


def test_weights_that_the_system_does_not_read_are_refused(tmp_path, monkeypatch):
    """The folder may have gone since they were found."""

    def read(descriptor, *arguments):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".caffemodel"):
            raise OSError(errno.EIO, "Input/output error")
        return preadv(descriptor, *arguments)

    trained("chain", tmp_path)
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", read)
    assert "cannot be read as a snapshot's weights: Input/output error; give another file" in refused(tmp_path)


def test_parts_of_two_snapshots_are_never_taken_for_one(tmp_path):
    trained("chain", tmp_path)
    path = tmp_path / "run_iter_4"
    shutil.copy(tmp_path / "run_iter_6.caffemodel", f"{path}.caffemodel")
    assert "has changed since the snapshot; resume from another one" in refused(tmp_path)
    trained("chain", tmp_path)
    shutil.copy(tmp_path / "run_iter_6.solverstate.json", f"{path}.solverstate.json")
    assert "does not belong to" in refused(tmp_path)
    (tmp_path / "run_iter_4.solverstate.json").write_text('{"layermem": 1')
    assert "is damaged" in refused(tmp_path) and "remove it to resume" in refused(tmp_path)
    trained("chain", tmp_path)
    os.unlink(f"{path}.caffemodel")
    assert "needs the weights" in refused(tmp_path)


LMDB = """
    layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "%s" batch_size: 2 } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
            inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


DAMAGE = {
    "no object": lambda saved: [],
    "no seed": lambda saved: {k: v for k, v in saved.items() if k != "seed"},
    "no feeds": lambda saved: {k: v for k, v in saved.items() if k != "feeds"},
    "no iteration": lambda saved: {k: v for k, v in saved.items() if k != "iteration"},
    "another iteration": lambda saved: {**saved, "iteration": 3},
    "a seed in words": lambda saved: {**saved, "seed": "one"},
    "half a seed": lambda saved: {**saved, "seed": 1.5},
    "an infinite seed": lambda saved: {**saved, "seed": float("inf")},
    "a long seed": lambda saved: {**saved, "seed": 10**100},
    "losses in words": lambda saved: {**saved, "losses": ["low", "high"]},
    "losses that are a number": lambda saved: {**saved, "losses": 1},
    "a long loss": lambda saved: {**saved, "losses": [10**400]},
    "nested losses": lambda saved: {**saved, "losses": [[1.0]]},
    "a device that is a number": lambda saved: {**saved, "device": 1},
    "a hash that is a number": lambda saved: {**saved, "model_sha256": 7},
    "feeds that are a number": lambda saved: {**saved, "feeds": 3},
    "feeds that are no maps": lambda saved: {**saved, "feeds": [["data"]]},
    "a position that is no map": lambda saved: {**saved, "feeds": [{"data": "here"}]},
    "a position of nothing": lambda saved: {**saved, "feeds": [{"data": {}}]},
    "a position before the first": lambda saved: in_feed(saved, sample=-1),
    "a position of 100 digits": lambda saved: in_feed(saved, sample=10**100),
    "a position in words": lambda saved: in_feed(saved, sample="first"),
    "a true position": lambda saved: in_feed(saved, sample=True),
    "an infinite position": lambda saved: in_feed(saved, sample=float("inf")),
    "states that are a list": lambda saved: {**saved, "states": []},
    "a state that is a number": lambda saved: {**saved, "states": {"s": 1}},
    "a state of a negative shape": lambda saved: {**saved, "states": {"s": {"shape": [-1], "values": ""}}},
    "a state of too few values": lambda saved: {**saved, "states": {"s": {"shape": [2], "values": "AAAAAA=="}}},
    "a state in words": lambda saved: {**saved, "states": {"s": {"shape": [1], "values": "zero"}}},
    "a state of no layer": lambda saved: {**saved, "states": {"s": {"shape": [1], "values": "AAAAAA=="}}},
    "an empty key": lambda saved: in_feed(saved, key=""),
    "a key that is a number": lambda saved: in_feed(saved, key=5),
    "half a byte of a key": lambda saved: in_feed(saved, key="303"),
    "a key of another alphabet": lambda saved: in_feed(saved, key="zz"),
    "a key that is too long": lambda saved: in_feed(saved, key="30" * 600),
    "a key of no record": lambda saved: in_feed(saved, key="3939"),
}


def in_feed(saved, **fields):
    return {**saved, "feeds": [{"data": {**saved["feeds"][0]["data"], **fields}}]}


@pytest.fixture
def on_lmdb(tmp_path):
    """A solver at iteration 4 that reads an LMDB, and its snapshot of iteration 2."""
    pixels = images(7)
    make_lmdb(tmp_path / "db", (datum(image, index % 5) for index, image in enumerate(pixels)))
    fields = {"test_iter": None, "test_interval": None, "snapshot": 2, "average_loss": 3, "base_lr": 0.0001}
    with Solver(solver_file(LMDB % (tmp_path / "db"), tmp_path, **fields), device="reference") as solver:
        solver.step(4)
        yield solver, tmp_path / "run_iter_2.solverstate"


def state_of(solver):
    losses, feeds = list(solver.progress.losses), solver._engine.open_feeds.state()
    history = [np.asarray(blob).tobytes() for blob in solver._engine.parameters.history()]
    return solver.iteration, solver.seed, losses, feeds, history, [v.tobytes() for v in solver.parameters()["ip"]]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_json_file_is_one_sentence_and_changes_nothing(on_lmdb, damage):
    solver, snapshot = on_lmdb
    file = Path(f"{snapshot}.json")
    saved = json.loads(file.read_text())
    saved["seed"] += 1  # so that feeds would be reopened
    file.write_text(json.dumps(DAMAGE[damage](saved)))
    before = state_of(solver)
    with pytest.raises(InputError) as caught:
        solver.restore(snapshot)
    assert len(str(caught.value)) < 500 and state_of(solver) == before
    solver.step(1)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"layermem": 1', "1" * 5000, "\xff", ""])
def test_text_that_is_no_json_is_one_sentence(on_lmdb, text):
    solver, snapshot = on_lmdb
    Path(f"{snapshot}.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"is damaged \(.*; remove it to resume"):
        solver.restore(snapshot)


@pytest.mark.parametrize("kind", ["BINARYPROTO", "HDF5"])
def test_snapshot_and_restore_hold_one_blob_at_a_time_beside_the_arena(kind, tmp_path):
    text = (
        """
        layer { name: "in" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 512 }
                data_filler { type: "gaussian" } } }
    """
        + "".join(
            f"""layer {{ name: "ip{i}" type: "InnerProduct" bottom: "{"x" if i == 0 else f"y{i - 1}"}" top: "y{i}"
            inner_product_param {{ num_output: 512 weight_filler {{ type: "xavier" }} }} }}"""
            for i in range(6)
        )
        + 'layer { name: "loss" type: "Reduction" bottom: "y5" top: "loss" loss_weight: 1 }'
    )
    fields = {"test_iter": None, "test_interval": None, "snapshot_format": kind}
    with Solver(solver_file(text, tmp_path, **fields), device="reference") as solver:
        solver.step(1)
        before = solver.parameters()
        tracemalloc.start()
        path = solver.snapshot()
        peaks = [tracemalloc.get_traced_memory()[1]]
        tracemalloc.reset_peak()
        solver.restore(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert max(peaks) < 2.5 * 4 * 512 * 512  # of twelve such blobs
        assert equal(solver.parameters(), before)


def test_a_snapshot_of_another_device_or_isa_resumes_with_a_note(on_lmdb):
    solver, snapshot = on_lmdb
    said = []
    solver.log = lambda event: said.append(getattr(event, "text", ""))
    solver.restore(snapshot)
    assert not [text for text in said if "was written on" in text]
    file = Path(f"{snapshot}.json")
    saved = json.loads(file.read_text())
    assert saved["device"] == "reference"
    file.write_text(json.dumps({**saved, "device": "cpu avx2"}))
    solver.restore(snapshot)
    assert [text for text in said if "the snapshot was written on 'cpu avx2' and goes on on 'reference'" in text]
    del saved["device"], said[:]  # as earlier versions wrote it
    file.write_text(json.dumps(saved))
    solver.restore(snapshot)
    assert not [text for text in said if "was written on" in text]


def test_losses_that_are_not_finite_are_restored(on_lmdb):
    solver, snapshot = on_lmdb
    file = Path(f"{snapshot}.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "losses": [1, float("nan"), float("inf")]}))
    solver.restore(snapshot)
    assert str(list(solver.progress.losses)) == "[1.0, nan, inf]"


def test_a_seed_beyond_64_bits_is_refused(tmp_path):
    with pytest.raises(InputError, match="is beyond 64 bits"):
        Solver(solver_file("chain", tmp_path), device="reference", seed=2**63)


TYPES = {
    "SGD": {"momentum": 0.9},
    "Nesterov": {"momentum": 0.9},
    "AdaGrad": {},
    "RMSProp": {"rms_decay": 0.9},
    "AdaDelta": {"momentum": 0.9},
    "Adam": {"momentum": 0.9},
    "AdamW": {"momentum": 0.9},
}


@pytest.mark.samples(8)
@pytest.mark.parametrize("theirs, mine", [*itertools.permutations(TYPES, 2)])
def test_the_state_of_another_solver_type_is_refused_by_name(mine, theirs, tmp_path):
    trained("chain", tmp_path, type=theirs, **TYPES[theirs])
    said = refused(tmp_path, type=mine, **TYPES[mine])
    assert f"of a solver of type '{theirs}', and this solver has type '{mine}':" in said and "--weights" in said


@pytest.mark.parametrize("mine", ["AdaGrad", "RMSProp"])
def test_without_its_type_a_state_is_known_by_sums_of_squares_below_zero(mine, tmp_path):
    trained("chain", tmp_path, momentum=0.9)
    (tmp_path / "run_iter_4.solverstate.json").unlink()
    said = refused(tmp_path, type=mine, **TYPES[mine])
    assert "another type, with values below 0 where this one has sums of squares" in said


def test_another_net_or_rule_is_refused_and_names_what_does_not_fit(tmp_path):
    trained("chain", tmp_path)
    (tmp_path / "run_iter_4.solverstate.json").unlink()
    said = refused(tmp_path, type="Adam", momentum=0.9)
    assert "has 6 history blobs, and this solver 12;" in said
    wider = NETS["chain"].replace("num_output: 6", "num_output: 7")
    said = refused(tmp_path, net=wider)
    assert "layer 'conv2' has a blob of shape 6 x 4 x 3 x 3 in the file, and of shape 7 x 4 x 3 x 3 in the net" in said
    renamed = NETS["chain"].replace('name: "conv2"', 'name: "other"')
    assert "layer 'other' has no blobs in the snapshot" in refused(tmp_path, net=renamed)


def test_a_snapshot_and_weights_together_are_refused(tmp_path):
    trained("chain", tmp_path)
    with pytest.raises(InputError, match="give only one of them"):
        Solver(
            solver_file("chain", tmp_path),
            device="reference",
            snapshot=tmp_path / "run_iter_4.solverstate",
            weights=str(tmp_path / "run_iter_4.caffemodel"),
        )
