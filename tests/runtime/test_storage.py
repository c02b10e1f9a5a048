"""Whole nets with activations in 16 bits: the bits depend neither on the plan, nor on slices, nor on parts of ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from layermem.backends.base import Device
from layermem.backends.cpu import CpuDevice
from layermem.backends.reference import ReferenceDevice
from layermem.errors import BudgetError, InputError
from layermem.interactive.net import Net as NetByHand
from layermem.interactive.solver import Solver
from layermem.ops import NARROW
from layermem.planning.job import OFF
from layermem.proto.read import SolverFile
from layermem.report.events import Stepped
from layermem.report.plan_report import evaluate
from layermem.solver.build import build_nets
from layermem.solver.jobs import StepOptions, solver_job
from layermem.utils.units import aligned
from tests.graph.test_storage import limit_parts
from tests.nets import CHAIN, DATA, INCEPTION, LOSS, NETS, RESIDUAL, conv, norm, solver_file

DEVICES = {"reference": ReferenceDevice, "cpu": CpuDevice}
PLANS = [("caffe", 1), ("liveness", 4096), ("intra", 1), ("hybrid", 4096), ("recompute", 1), ("nested", 4096)]
STEPS = 2
WIDE = {"dim: 6 dim: 5": "dim: 24 dim: 20"}  # to divide ops whose operands begin at multiples of 16 bytes
SLICED = {"chain": ["whole/2", "..pool1/4"], "inception": ["whole/2", "..both/4"], "residual": ["..sum_relu/2"]}
Bits = tuple[object, ...]


@pytest.fixture(params=[(name, word) for name in DEVICES for word in NARROW], ids="-".join)
def device(request: pytest.FixtureRequest) -> Device:
    name, word = request.param
    return DEVICES[name](storage=word)


def trained(file: SolverFile, device: Device, *, steps: int = STEPS, **options: object) -> Bits:
    """Losses and parameters, in a poisoned arena whose predicted peak is the measured one."""
    losses: list[float] = []

    def log(event: object) -> None:
        if isinstance(event, Stepped):
            losses.append(event.loss)

    options = {"strategy": "liveness", **options}
    with Solver(file, device=device, poison=True, log=log, **options) as solver:  # type: ignore[arg-type]
        solver.step(steps)
        assert solver.runner.measured_peak_bytes == aligned(solver.program.arena_bytes)
        assert all(map(math.isfinite, losses)) and len(losses) == steps
        parameters = [(name, blob.tobytes()) for name, blobs in solver.parameters().items() for blob in blobs]
    return (*losses, *parameters)


def solver_of(net: str, folder: Path, **fields: object) -> SolverFile:
    """A solver without tests, because training alone would not fill their arena."""
    return solver_file(net, folder, test_iter=None, test_interval=None, **fields)


@pytest.fixture(scope="module")
def bits_of_caffe(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Bits]:
    """The bits of strategy `caffe` without parts."""

    @cache
    def bits(name: str, device: str, storage: str) -> Bits:
        file = solver_of(name, tmp_path_factory.mktemp("caffe"))
        return trained(file, DEVICES[device](storage=storage), strategy="caffe")

    return bits


@pytest.mark.exhaustive(40)
@pytest.mark.parametrize(("strategy", "nbytes"), PLANS)
@pytest.mark.parametrize("name", NETS)
def test_every_plan_and_every_size_of_parts_gives_the_same_bits(
    device, name, strategy, nbytes, bits_of_caffe, tmp_path, monkeypatch
):
    bits = bits_of_caffe(name, device.name, device.storage)
    limit_parts(monkeypatch, nbytes)
    assert trained(solver_of(name, tmp_path), device, strategy=strategy) == bits


ROWS_OF_ITEMS = f"""
    {DATA} {conv("conv", "data", 4, 3)}
    layer {{ name: "rows" type: "Flatten" bottom: "conv" top: "rows" flatten_param {{ axis: 0 end_axis: 2 }} }}
    {norm("rows")}
    layer {{ name: "back" type: "Reshape" bottom: "rows" top: "back" reshape_param {{
            shape {{ dim: -1 dim: 4 dim: 24 dim: 20 }} }} }}
    {LOSS % "back"}
"""


def test_a_batch_norm_of_several_rows_of_each_item_has_the_same_bits_in_parts(device, tmp_path, monkeypatch):
    file = solver_of(ROWS_OF_ITEMS.replace(*next(iter(WIDE.items()))), tmp_path)
    bits = trained(file, device)
    limit_parts(monkeypatch, 1)
    assert trained(file, device) == bits


@pytest.mark.parametrize("name", ["chain", "residual", "inception", "dropout"])
def test_losses_are_close_to_those_of_fp32(device, name, tmp_path):
    file = solver_of(name, tmp_path)
    narrow, wide = (trained(file, each)[:STEPS] for each in (device, type(device)()))
    assert narrow != wide
    np.testing.assert_allclose(narrow, wide, rtol=0.02)


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize(("name", "cut"), [(name, cut) for name, cuts in SLICED.items() for cut in cuts])
def test_slices_give_the_bits_of_the_whole_step(device, name, cut, tmp_path, monkeypatch):
    text = NETS[name].replace(*next(iter(WIDE.items())))
    file = solver_of(text, tmp_path)
    bits = trained(file, device)
    for nbytes in (1 << 23, 1):
        limit_parts(monkeypatch, nbytes)
        for strategy in ("liveness", "nested"):
            assert trained(file, device, strategy=strategy, slices=cut) == bits


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize(
    "fields", [{"iter_size": 2}, {"iter_size": 3, "type": "Adam"}, {"clip_gradients": 0.1}], ids=str
)
@pytest.mark.parametrize("text", [CHAIN, RESIDUAL], ids=["chain", "residual"])
def test_held_and_clipped_gradients_have_the_same_bits(device, text, fields, tmp_path, monkeypatch):
    file = solver_of(text, tmp_path, **fields)
    bits = trained(file, device, strategy="caffe")
    limit_parts(monkeypatch, 1)
    for strategy, slices in (("hybrid", OFF), ("recompute", OFF), ("nested", "..score/2")):
        assert trained(file, device, strategy=strategy, slices=slices) == bits


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("text", [CHAIN, INCEPTION, RESIDUAL], ids=["chain", "inception", "residual"])
def test_the_least_budget_of_a_strategy_is_kept(device, text, tmp_path, monkeypatch):
    limit_parts(monkeypatch, 1 << 14)
    file = solver_of(text.replace(*next(iter(WIDE.items()))), tmp_path)
    bits = trained(file, device)
    least = evaluate(solver_job(file, build_nets(file), StepOptions(device=device)), "nested").minimum_bytes
    assert trained(file, device, strategy="nested", budget=least) == bits
    with pytest.raises(BudgetError):
        Solver(file, device=device, strategy="nested", budget=least - 256)


def test_tests_of_a_solver_are_computed_in_the_same_storage(device, tmp_path):
    """Nets share the arena; scores also come from activations in 16 bits."""
    with Solver(solver_file("chain", tmp_path), device=device) as solver:
        assert [graph.storage for graph in solver.job.graphs] == [device.storage] * 2
        solver.solve()
        assert solver.runner.measured_peak_bytes == aligned(solver.program.arena_bytes)


def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(device, tmp_path):
    file = solver_of("residual", tmp_path, type="Adam")
    whole = trained(file, device, steps=4)
    with Solver(file, device=device) as solver:
        solver.step(2)
        saved = solver.snapshot()
    resumed = trained(file, device, steps=2, snapshot=saved, strategy="recompute")
    assert resumed == whole[2:]


def test_a_snapshot_of_another_storage_is_resumed_with_a_warning(device, tmp_path):
    """This is like a snapshot of another device: numbers continue, but not bit by bit."""
    file = solver_of("chain", tmp_path)
    with Solver(file, device=device) as solver:
        solver.step(1)
        saved = solver.snapshot()
    said: list[object] = []
    with Solver(file, device=type(device)(), snapshot=saved, log=said.append) as solver:
        solver.step(1)
    assert any("storing" in str(each) for each in said)


def test_activations_take_fewer_bytes(device, tmp_path, monkeypatch):
    limit_parts(monkeypatch, 1 << 16)
    file = solver_of(INCEPTION.replace("dim: 6 dim: 5", "dim: 96 dim: 96"), tmp_path)
    peaks = []
    for each in (type(device)(), device):
        with Solver(file, device=each, strategy="caffe") as solver:
            peaks.append(solver.program.arena_bytes)
    assert peaks[1] < 0.8 * peaks[0]


def test_nets_that_are_run_by_hand_are_refused(device):
    net = NetByHand.from_text(CHAIN, "TRAIN", device=device)
    with pytest.raises(InputError, match=f"in fp32; leave the storage {device.storage} out"):
        net.forward()
