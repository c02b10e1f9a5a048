"""Loss scale: underflow, skipped updates after overflow, and the same bits under all plans and ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layermem.backends.base import Device, get_device
from layermem.backends.cpu import CpuDevice
from layermem.backends.reference import ReferenceDevice
from layermem.errors import DivergenceError, InputError
from layermem.graph.train import UpdateRule, train_graph
from layermem.interactive.solver import Solver
from layermem.ops import CopyOut, Fill, GradientNorm, Update
from layermem.proto.read import SolverFile
from layermem.report.events import Note
from layermem.solver.loss_scale import (
    DYNAMIC,
    FIRST,
    GROWTH_INTERVAL,
    LARGEST,
    LossScale,
    is_saved_scale,
    loss_scale_of,
)
from layermem.utils.units import aligned
from tests.graph.test_storage import net_of
from tests.nets import CHAIN, RESIDUAL, solver_file
from tests.solver.test_ranks import NORMS, folder, trained, values_of  # noqa: F401

DEVICES = {"reference": ReferenceDevice, "cpu": CpuDevice}
HEAVY = 'top: "loss" loss_weight: 20'  # its gradients overflow with the first scales


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    return DEVICES[request.param](storage="fp16")


def heavy(text: str) -> str:
    return text.replace('bottom: "label" top: "loss" }', f'bottom: "label" {HEAVY} }}')


def solver_of(text: str, folder: Path, **fields: object) -> SolverFile:  # noqa: F811
    return solver_file(text, folder, **{"test_iter": None, "test_interval": None, "base_lr": 1e-5, **fields})


def state_of(solver: Solver) -> list[bytes]:
    """Parameters, including averages of BatchNorm, and optimizer state."""
    values = [blob for blobs in solver.parameters().values() for blob in blobs]
    return [np.asarray(value).tobytes() for value in (*values, *solver._engine.parameters.history())]


def run(file: SolverFile, device: Device, steps: int = 6, **options: object) -> tuple[object, ...]:
    """State, scale and losses after some iterations, whose predicted peak is the measured one."""
    losses = []
    with Solver(file, device=device, poison=True, **{"strategy": "liveness", **options}) as solver:
        for _ in range(steps):
            solver.step(1)
            losses.append(solver.progress.losses[-1])
        assert solver.runner.measured_peak_bytes == aligned(solver.program.arena_bytes)
        return (*state_of(solver), solver.loss_scale.saved(), *losses)


# -- the scale -------------------------------------------------------------------------------------------------------


def test_an_overflow_halves_a_dynamic_scale_and_updates_in_a_row_double_it():
    scale = loss_scale_of("fp16", None)
    assert (scale.setting, scale.scale) == (DYNAMIC, FIRST) == ("dynamic", 65536)
    assert [scale.count(norm) for norm in (np.inf, np.nan, 3.0)] == [False, False, True]
    assert (scale.scale, scale.skipped, scale.good_steps) == (FIRST / 4, 2, 1)
    for _ in range(GROWTH_INTERVAL - 1):
        assert scale.scale == FIRST / 4
        scale.count(1.0)
    assert (scale.scale, scale.skipped, scale.good_steps) == (FIRST / 2, 2, 0)


def test_an_overflow_begins_the_count_of_updates_anew():
    scale = LossScale(DYNAMIC, 8.0, good_steps=GROWTH_INTERVAL - 1)
    scale.count(np.inf)
    scale.count(1.0)
    assert (scale.scale, scale.good_steps) == (4.0, 1)


def test_a_dynamic_scale_has_bounds():
    low, high = LossScale(DYNAMIC, 2.0**-32), LossScale(DYNAMIC, LARGEST, GROWTH_INTERVAL - 1)
    low.count(np.nan)
    high.count(1.0)
    assert low.scale == 2.0**-32 and high.scale == LARGEST


def test_a_number_stays_and_counts_what_is_skipped():
    scale = loss_scale_of("fp16", "1024")
    for norm in (np.inf, 1.0, np.nan):
        scale.count(norm)
    assert (scale.setting, scale.scale, scale.skipped) == ("1024", 1024.0, 2)


@pytest.mark.parametrize("given", ["half", "0", "-2", "3", "1000", "0.5", "nan", "inf", str(2**33)])
def test_a_scale_that_is_no_power_of_two_is_refused(given):
    with pytest.raises(InputError, match="a power of two from 1 to 4294967296"):
        loss_scale_of("fp16", given)


@pytest.mark.parametrize("storage", ["fp32", "bf16"])
def test_storages_with_the_exponents_of_fp32_have_none(storage):
    assert all(loss_scale_of(storage, given) is None for given in (None, "1", 1, 1.0, "1.0"))
    for given in ("dynamic", "1024", 2):
        with pytest.raises(InputError, match=f"for the storage fp16, and {storage} has exponents enough"):
            loss_scale_of(storage, given)


def test_only_what_a_snapshot_writes_is_read_from_one():
    saved = LossScale(DYNAMIC, 4.0, 5, 6).saved()
    assert is_saved_scale(saved) and is_saved_scale(None)
    wrong = [{"scale": 3.0}, {"scale": "4"}, {"scale": float("nan")}, {"skipped": -1}, {"good_steps": 1.5}, {"more": 1}]
    assert not any(is_saved_scale({**saved, **each}) for each in wrong) and not is_saved_scale(4.0)


# -- the graph -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [False, True])
def test_backward_begins_with_it_and_updates_wait_for_the_norm_of_all_gradients(clip):
    graph = train_graph(net_of(CHAIN), CpuDevice(storage="fp16"), UpdateRule("SGD", 1), clip=clip)
    name = "clip" if clip else "overflow"
    assert isinstance(graph.by_name[name].record, GradientNorm) and not graph.fused_updates
    assert isinstance(graph.by_name[f"{name}.norm.output"].record, CopyOut)
    updates = [op for op in graph.ops if isinstance(op.record, Update)]
    assert updates and all(op.record.scaled and op.roles["norm"] == f"{name}.norm" for op in updates)
    assert graph.by_name["loss.seed"].record == Fill(1.0, scaled=True)


def test_other_storages_scale_nothing():
    for storage in ("fp32", "bf16"):
        graph = train_graph(net_of(CHAIN), CpuDevice(storage=storage), UpdateRule("SGD", 1))
        assert not any(getattr(op.record, "scaled", False) for op in graph.ops) and "overflow" not in graph.by_name


# -- training --------------------------------------------------------------------------------------------------------


def test_a_scale_that_is_too_small_loses_gradients_that_another_one_keeps(device, tmp_path):
    """The weight of the loss takes all gradients below 2^-25: they are 0 in fp16, and with a scale equal to those in
    fp32 up to the rounding of fp16."""
    small = CHAIN.replace('bottom: "label" top: "loss" }', 'bottom: "label" top: "loss" loss_weight: 1e-8 }')
    file = solver_of(small, tmp_path, base_lr=1e6, weight_decay=0, max_iter=1)
    moved = {}
    for scale in ("1", str(2**24), None):
        target = type(device)() if scale is None else device
        with Solver(file, device=target, loss_scale=scale, seed=3) as solver:
            before = solver.parameters()["conv1"][0].copy()
            solver.step(1)
            moved[scale] = solver.parameters()["conv1"][0] - before
    assert not moved["1"].any() and moved[None].all()
    error = np.abs(moved[str(2**24)] - moved[None]).max() / np.abs(moved[None]).max()
    assert 0 < error < 0.01


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_an_overflow_changes_no_parameter_and_no_optimizer_state(device, kind, tmp_path):
    """Averages of BatchNorm move, as in PyTorch, because forward moves them before the overflow is known."""
    said: list[object] = []
    file = solver_of(RESIDUAL, tmp_path, type=kind)
    with Solver(file, device=device, loss_scale=2**32, log=said.append) as solver:
        solver.step(1)
        before = solver.parameters()
        history = [np.array(each) for each in solver._engine.parameters.history()]
        solver.step(2)
        after = solver.parameters()
        for name, blobs in before.items():
            same = [np.array_equal(*each) for each in zip(blobs, after[name])]
            assert all(same) != name.endswith("_bn"), name
        assert all(map(np.array_equal, history, solver._engine.parameters.history()))
        assert solver.loss_scale.saved() == {"setting": str(2**32), "scale": 2.0**32, "good_steps": 0, "skipped": 3}
    notes = [each.text for each in said if isinstance(each, Note)]
    assert sum("gradients overflowed at loss scale" in note and "update is skipped" in note for note in notes) == 3


def test_a_dynamic_scale_falls_until_gradients_are_finite(device, tmp_path):
    said: list[object] = []
    with Solver(solver_of(heavy(CHAIN), tmp_path, max_iter=8), device=device, log=said.append) as solver:
        first = state_of(solver)
        solver.solve()
        scale = solver.loss_scale
        assert 0 < scale.skipped < 8 and scale.scale == FIRST / 2**scale.skipped
        assert state_of(solver) != first
    notes = [each.text for each in said if isinstance(each, Note)]
    assert (
        f"Iteration 0: gradients overflowed at loss scale 65536, and the update is skipped; loss scale {FIRST / 2:g}"
        in notes
    )
    assert notes[-1] == f"loss scale {scale.scale:g}; {scale.skipped} of 8 updates were skipped by overflow"


def test_a_scale_grows_after_updates_in_a_row(device, tmp_path):
    said: list[object] = []
    with Solver(solver_of(CHAIN, tmp_path), device=device, log=said.append) as solver:
        solver.loss_scale.good_steps = GROWTH_INTERVAL - 1
        solver.step(1)
        assert solver.loss_scale.scale == 2 * FIRST
    assert any(isinstance(each, Note) and each.text.startswith("Iteration 0: loss scale 131072") for each in said)


@pytest.mark.exhaustive(16)
@pytest.mark.parametrize(
    "fields",
    [{}, {"clip_gradients": 30.0}, {"iter_size": 2}, {"iter_size": 3, "clip_gradients": 30, "type": "Adam"}],
    ids=str,
)
@pytest.mark.parametrize("text", [CHAIN, RESIDUAL], ids=["chain", "residual"])
def test_no_plan_and_no_slices_change_a_bit(device, text, fields, tmp_path):
    """The run includes iterations with overflow and without."""
    file = solver_of(heavy(text), tmp_path, **fields)
    result = run(file, device, strategy="caffe")
    assert 0 < next(each for each in result if isinstance(each, dict))["skipped"] < 6
    cut = "..score/2" if text is CHAIN else "..sum_relu/2"
    for strategy, slices in (("recompute", None), ("hybrid", None), ("nested", cut)):
        assert run(file, device, strategy=strategy, slices=slices) == result, strategy


@pytest.mark.samples(2)
@pytest.mark.parametrize("clip", [-1, 50.0])
def test_no_number_of_ranks_changes_a_bit(clip, folder):  # noqa: F811
    """An overflow of one micro-batch is that of all ranks."""
    device, net = get_device("cpu", storage="fp16"), heavy(NORMS)

    def ranks(size: int) -> tuple[object, list[str], list[str]]:
        files, events, results = trained(folder, size, net, iterations=8, device=device)
        assert all(measured == predicted for predicted, measured, _, _ in results)
        notes = [each.text for each in events if isinstance(each, Note) and "overflow" in each.text]
        return files, values_of(events), notes

    alone = ranks(1)
    assert alone[2]
    assert ranks(2) == alone and ranks(4) == alone


# -- snapshots -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, "16384"])
def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(device, given, tmp_path):
    file = solver_of(heavy(CHAIN), tmp_path, type="Adam")
    whole = run(file, device, steps=6, loss_scale=given)
    with Solver(file, device=device, loss_scale=given) as solver:
        solver.step(2)
        saved = solver.snapshot()
        assert solver.loss_scale.skipped > 0
    resumed = run(file, device, steps=4, snapshot=saved, loss_scale=given)
    assert resumed[:-4] == whole[:-6] and resumed[-4:] == whole[-4:]


def notes_of(file: SolverFile, device: Device, **options: object) -> tuple[list[str], Solver]:
    said: list[object] = []
    with Solver(file, device=device, log=said.append, **options) as solver:
        return [each.text for each in said if isinstance(each, Note)], solver


def test_a_snapshot_of_another_scale_or_storage_is_resumed_with_a_sentence(tmp_path):
    file, device = solver_of(CHAIN, tmp_path), CpuDevice(storage="fp16")
    with Solver(file, device=device, loss_scale=1024) as solver:
        solver.step(1)
        saved = solver.snapshot()
    notes, solver = notes_of(file, device, snapshot=saved)
    (note,) = (each for each in notes if "loss" in each)
    assert "written with --loss-scale 1024 and goes on with dynamic, from 65536: give --loss-scale 1024" in note
    assert solver.loss_scale.scale == FIRST
    notes, solver = notes_of(file, CpuDevice(), snapshot=saved)
    assert sum("storing fp16" in each for each in notes) == 1 and solver.loss_scale is None


def test_a_snapshot_without_a_scale_begins_with_the_first_one(tmp_path):
    """Snapshots of fp32 have no scale, nor do Caffe's, which have no JSON file."""
    file = solver_of(CHAIN, tmp_path)
    with Solver(file) as solver:
        solver.step(1)
        saved = solver.snapshot()
    notes, solver = notes_of(file, CpuDevice(storage="fp16"), snapshot=saved)
    assert any("the snapshot has no loss scale: it begins with 65536" in each for each in notes)
    Path(f"{saved}.json").unlink()
    notes, solver = notes_of(file, CpuDevice(storage="fp16"), snapshot=saved)
    assert solver.loss_scale.scale == FIRST and any("no data positions" in each for each in notes)


def test_a_loss_that_overflows_names_the_storage_that_does_not(tmp_path):
    """Forward values past 65504 are infinite, whatever the scale."""
    large = CHAIN.replace('type: "xavier"', 'type: "constant" value: 1e4', 1)
    wider = pytest.raises(DivergenceError, match="--storage bf16, as numbers above 65504 are infinite in fp16")
    with Solver(solver_of(large, tmp_path), device=CpuDevice(storage="fp16")) as solver, wider:
        solver.step(1)


@pytest.mark.parametrize("iter_size", [1, 2])
def test_a_net_without_anything_to_learn_has_no_overflow(iter_size, tmp_path):
    """This also holds if its gradients, of which there are none, are to be clipped."""
    frozen = CHAIN.replace("param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }", "")
    frozen = frozen.replace("convolution_param", "param { lr_mult: 0 } param { lr_mult: 0 } convolution_param")
    frozen = frozen.replace("inner_product_param", "param { lr_mult: 0 } param { lr_mult: 0 } inner_product_param")
    file = solver_of(frozen, tmp_path, iter_size=iter_size, clip_gradients=1)
    with Solver(file, device=CpuDevice(storage="fp16")) as solver:
        solver.step(2)
        assert solver.loss_scale.skipped == 0
