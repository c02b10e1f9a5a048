"""Steps with weights in bands of rows have the bits of the step without, in the bytes that their plan predicts; the
parameter is read and written as one array."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import layermem
from layermem.errors import InputError
from layermem.interactive.solver import Solver
from layermem.planning.plan import Decision, Gap, Plan, program_order
from layermem.proto.weights import open_weights
from layermem.utils.units import aligned
from tests.nets import DATA, LOSS, WIDE, conv, relu, solver_file

DEVICES = ("reference", "cpu")
ROWS = (
    ("wide/4", "off"),
    ("flat/3", "off"),
    ("wide/2,flat/7", "off"),
    ("wide/4", "whole/2"),
    ("wide/3", "stem..stem_relu/4"),
    ("wide/3", "wide../2"),
)
FORMS = {
    "momentum": {},
    "held": {"iter_size": 2},
    "Adam": {"type": "Adam", "base_lr": 0.002},
    "L1": {"regularization_type": "L1", "weight_decay": 0.01},
}
# The bottom of `wide` has another reader, whose gradient its dgrad adds to.
FORKED = f"""
    {DATA} {conv("stem", "data", 4, 3)} {relu("stem")}
    layer {{ name: "wide" type: "InnerProduct" bottom: "stem" top: "wide" inner_product_param {{ num_output: 40
            weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "aside" type: "InnerProduct" bottom: "stem" top: "aside" inner_product_param {{ num_output: 40
            weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "sum" type: "Eltwise" bottom: "wide" bottom: "aside" top: "sum" }}
    {LOSS % "sum"}
"""


def learned(
    device: str,
    folder: Path,
    split_weights: str,
    net: str = WIDE,
    *,
    steps: int = 3,
    strategy: object = "liveness",
    fields: object = None,
    **options: object,
) -> dict[str, bytes]:
    """The results of a run: its losses, parameters and optimizer state, and the outputs of its test nets."""
    fields = {"test_iter": 2, "test_interval": 1000, **(fields or {})}
    file = solver_file(net, folder, **fields)
    if isinstance(strategy, str):
        options["strategy"] = strategy
    with Solver(file, device=device, split_weights=split_weights, poison=True, **options) as solver:
        losses = []
        for _ in range(steps):
            solver.step(1)
            losses.append(solver.loss)
        parameters = solver._engine.parameters
        found = {"losses": np.array(losses).tobytes(), "test": repr(solver._engine.test(0, lambda: False)).encode()}
        for layer, blobs in solver.parameters().items():
            assert all(np.isfinite(blob).all() for blob in blobs)
            found |= {f"{layer}[{i}]": blob.tobytes() for i, blob in enumerate(blobs)}
        found |= {f"history {i}": np.asarray(blob).tobytes() for i, blob in enumerate(parameters.history())}
        assert solver.runner.measured_peak_bytes == aligned(solver.program.arena_bytes)
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("rows", "slices"), ROWS)
def test_bands_have_the_bits_of_the_whole(device, rows, slices, tmp_path):
    assert learned(device, tmp_path, rows, slices=slices) == learned(device, tmp_path, "off")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", [form for form in FORMS if form != "momentum"])
def test_every_update_runs_in_bands(device, form, tmp_path):
    options = {"fields": FORMS[form]}
    assert learned(device, tmp_path, "wide/4", **options) == learned(device, tmp_path, "off", **options)


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strategy", ["caffe", "intra", "inter", "nested", "hybrid", "recompute", "auto"])
def test_no_strategy_changes_a_bit(device, strategy, tmp_path):
    got = learned(device, tmp_path, "wide/4,flat/2", strategy=strategy, host_budget="1GiB")
    assert got == learned(device, tmp_path, "off")


@pytest.mark.parametrize("device", DEVICES)
def test_bands_may_be_where_the_bottom_has_other_readers(device, tmp_path):
    assert learned(device, tmp_path, "wide/4", FORKED) == learned(device, tmp_path, "off", FORKED)


@pytest.mark.parametrize("device", DEVICES)
def test_bands_of_a_net_that_offloads_its_weights_fit_a_budget_below_the_whole_ones(device, tmp_path):
    file = solver_file(WIDE, tmp_path)
    with Solver(file, device=device, split_weights="wide/4", strategy="auto", host_budget="1GiB") as solver:
        needs = solver.report.minimum_bytes
    with Solver(file, device=device, strategy="auto", host_budget="1GiB") as solver:
        assert needs < solver.report.minimum_bytes
    options = {"strategy": "auto", "budget": needs, "host_budget": "1GiB"}
    banded = learned(device, tmp_path, "wide/4", **options)
    assert banded == learned(device, tmp_path, "off")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("before", "after"), [("off", "wide/4"), ("wide/4", "off"), ("wide/2", "wide/5")])
def test_a_snapshot_is_that_of_whole_weights(device, before, after, tmp_path):
    file = solver_file(WIDE, tmp_path)
    with Solver(file, device=device, split_weights=before) as solver:
        solver.step(2)
        snapshot = solver.snapshot()
    with Solver(file, device=device) as solver:
        solver.step(2)
        assert Path(solver.snapshot()).read_bytes() == Path(snapshot).read_bytes()
        solver.step(2)
        wanted = solver.parameters()
    with Solver(file, device=device, split_weights=after, snapshot=snapshot) as solver:
        solver.step(2)
        for layer, blobs in solver.parameters().items():
            assert all(a.tobytes() == b.tobytes() for a, b in zip(blobs, wanted[layer], strict=True)), layer


def test_weights_and_their_arrays_are_whole(tmp_path):
    file = solver_file(WIDE, tmp_path)
    with (
        layermem.Solver(file, device="cpu") as whole,
        layermem.Solver(file, device="cpu", split_weights="wide/4") as solver,
    ):
        data = solver.net.params["wide"][0].data
        assert data.shape == (100, 120) and data.tobytes() == whole.net.params["wide"][0].data.tobytes()
        data[40:60] = 0.25
        solver.net.save(str(tmp_path / "w.npz"))
        saved = np.asarray(open_weights(str(tmp_path / "w.npz"))["wide"][0])
        assert (saved[40:60] == 0.25).all() and saved.tobytes() == data.tobytes()
        whole.net.load(str(tmp_path / "w.npz"))
        whole.step(2), solver.step(2)
        assert solver.net.params["wide"][0].data.tobytes() == whole.net.params["wide"][0].data.tobytes()


def test_a_band_has_gaps_of_its_own(tmp_path):
    with Solver(solver_file(WIDE, tmp_path), device="cpu", split_weights="wide/4") as solver:
        graph = solver.program.train.graph
    band = "wide.w0.rows2/4"
    plan = Plan("by hand", program_order(graph), {Gap(band, -1): Decision.OFFLOAD}, slices=graph.slices)
    file = solver_file(WIDE, tmp_path)
    with (
        Solver(file, device="cpu", plan=plan, host_budget="1GiB", poison=True) as solver,
        Solver(file, device="cpu") as whole,
    ):
        assert solver.program.host_bytes == aligned(graph.buffers[band].nbytes)
        solver.step(2), whole.step(2)
        assert solver.parameters()["wide"][0].tobytes() == whole.parameters()["wide"][0].tobytes()


REFUSED = {
    "nowhere/2": r"has no layer 'nowhere' whose rows could be in bands",
    "stem/2": r"layer 'stem' is of type Convolution\w*, and only an InnerProduct has row bands",
    "wide/101": r"layer 'wide' has 100 outputs, too few for 101 bands; give 2 to 100 bands",
    "wide/1": r"split weights 'wide/1' name no layer and a count of 2 or more; give them as LAYER/COUNT",
    "wide/rows/2": r"has no layer 'wide/rows' whose rows could be in bands",
    "wide/2,wide/4": r"split weights 'wide/2,wide/4' name 'wide' twice; give it once",
}


@pytest.mark.parametrize("rows", REFUSED)
def test_rows_that_cannot_be_in_bands_are_refused_by_name(rows, tmp_path):
    with pytest.raises(InputError, match=REFUSED[rows]):
        Solver(solver_file(WIDE, tmp_path), device="cpu", split_weights=rows)


def test_clipped_gradients_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"'wide' cannot have row bands where clip_gradients reads all rows of them"):
        Solver(solver_file(WIDE, tmp_path, clip_gradients=0.3), device="cpu", split_weights="wide/4")


def test_a_gradient_that_is_held_is_refused(tmp_path):
    with pytest.raises(InputError, match="'wide' cannot have row bands where 'hold' reads all rows"):
        Solver(solver_file(WIDE, tmp_path), device="cpu", split_weights="wide/4", keep=["wide.w0.diff"])
