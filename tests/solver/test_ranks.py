"""Ranks that train one net: no number of them, strategy, budget or resume changes a bit, and errors end all of them."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from layermem.backends.base import get_device
from layermem.distributed.loopback import run_ranks
from layermem.errors import BudgetError, DivergenceError, InputError
from layermem.interactive.solver import Solver
from layermem.ops import NARROW
from tests.nets import DATA, LOSS, conv, norm, relu, solver_file
from tests.solver.test_digits import FILE, read_solver

MICRO_BATCHES = 4
NORMS = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {norm("conv1")} {relu("conv1")}
    layer {{ name: "fc" type: "InnerProduct" bottom: "conv1" top: "fc"
            inner_product_param {{ num_output: 7 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "drop" type: "Dropout" bottom: "fc" top: "fc" dropout_param {{ dropout_ratio: 0.4 }} }}
    {LOSS % "fc"}
"""
NORM_OF_DATA = f"""
    {DATA} layer {{ name: "norm" type: "BatchNorm" bottom: "data" top: "norm" }}
    {conv("conv1", "norm", 4, 3)} {LOSS % "conv1"}
"""
ADAM = {
    "type": "Adam",
    "momentum": 0.9,
    "momentum2": 0.99,
    "clip_gradients": 2.0,
    "iter_size": MICRO_BATCHES,
    "base_lr": 0.01,
    "display": 2,
    "test_interval": 2,
    "random_seed": 5,
    "snapshot_after_train": True,
}


def solver_of(net: str, folder: Path):
    if net.startswith("digits"):
        file = read_solver(FILE)
        file.message.iter_size, file.message.test_interval, file.message.display = MICRO_BATCHES, 3, 2
        if net == "digits":
            file.message.clip_gradients = 2.0
        return file
    return solver_file(net, folder, **ADAM)


def trained(folder: Path, size: int, net: str = NORMS, *, iterations: int = 4, device: str = "cpu", **options):
    """SHA-256 of the files of the last snapshot, the events of the first rank, and the result of each rank.

    An option that is a list has a value for each rank."""
    folder.mkdir(exist_ok=True)
    events: list[object] = []

    def run(transport):
        file = solver_of(net, folder)
        file.message.snapshot_prefix = "run"  # the state names the weights by it
        own = {name: each[transport.rank] if isinstance(each, list) else each for name, each in options.items()}
        with Solver(
            file,
            device=device,
            iterations=iterations,
            transport=transport if size > 1 else None,
            log=events.append,
            poison=device == "reference",
            **own,
        ) as solver:
            solver.solve()
            return solver.program.arena_bytes, solver.runner.measured_peak_bytes, solver.loss, solver.outputs

    results = run_ranks(size, run, seed=size)
    files = [folder / f"run_iter_{iterations}.{end}" for end in ("caffemodel", "solverstate")]
    return [sha256(file.read_bytes()).hexdigest() for file in files], events, results


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def values_of(events) -> list[str]:
    """Displayed and tested values, to the last bit, without times."""
    shown = ("Tested", "Displayed", "Stepped", "FinalLoss")
    return [
        f"{type(event).__name__} {[(name, value) for name, value in vars(event).items() if name != 'seconds']}"
        for event in events
        if type(event).__name__ in shown
    ]


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_no_number_of_ranks_changes_a_bit(device, folder):
    alone, events, _ = trained(folder, 1, device=device)
    for size in (2, 4):
        files, others, results = trained(folder, size, device=device)
        assert files == alone
        assert values_of(others) == values_of(events)
        assert all(measured == predicted for predicted, measured, _, _ in results)
        assert len({(loss, str(outputs)) for _, _, loss, outputs in results}) == 1


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("storage", NARROW)
@pytest.mark.parametrize("net", [NORMS, NORM_OF_DATA], ids=["norms", "norm_of_data"])
@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_no_number_of_ranks_changes_a_bit_of_activations_in_16_bits(name, net, storage, folder):
    device = get_device(name, storage=storage)
    alone, events, _ = trained(folder, 1, net, device=device)
    assert alone != trained(folder, 1, net, device=name)[0]
    for size in (2, 4):
        files, others, results = trained(folder, size, net, device=device, slices="whole/2" if size == 2 else None)
        assert files == alone and values_of(others) == values_of(events)
        assert all(measured == predicted for predicted, measured, _, _ in results)


@pytest.mark.exhaustive(18)
@pytest.mark.parametrize("strategy", ["liveness", "recompute", "auto"])
@pytest.mark.parametrize("budget", ["100%", "50%", "30%"])
def test_no_strategy_and_no_budget_changes_a_bit_of_what_ranks_learn(strategy, budget, folder):
    digits = trained(folder, 1, "digits", strategy="caffe", batch=256)[0]
    slices = "conv1..pool2/4" if budget == "30%" else None  # one layer of the whole batch needs more than that
    for size in (2, 4):
        options = {"strategy": strategy, "budget": budget, "slices": slices}
        files, _, results = trained(folder, size, "digits", batch=256, **options)
        assert files == digits
        assert all(measured == predicted for predicted, measured, _, _ in results)


def test_ranks_may_have_other_budgets_and_strategies(folder):
    alone = trained(folder, 1, "digits", batch=256)[0]
    options = {"budget": ["100%", "36%"], "strategy": ["caffe", "recompute"]}
    files, _, results = trained(folder, 2, "digits", batch=256, **options)
    assert files == alone and results[0][0] > results[1][0]


@pytest.mark.parametrize("bands", [2, 5])
def test_ranks_that_share_weights_in_bands_of_rows_write_the_snapshot_of_one_process(bands, folder):
    net, rows = "digits, unclipped", f"ip1/{bands}"
    whole = trained(folder, 1, net, iterations=3)[0]
    assert trained(folder, 2, net, iterations=3, split_weights=rows)[0] == whole
    trained(folder, 4, net, iterations=2, split_weights=rows)
    resumed = trained(folder, 2, net, iterations=3, split_weights=rows, snapshot="run_iter_2.solverstate")
    assert resumed[0] == whole


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("net", [NORMS, "digits"], ids=["norms", "digits"])
@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2), (2, 1)])
def test_any_number_of_ranks_resumes_any_snapshot(before, after, net, folder):
    whole = trained(folder, 1, net, iterations=5)[0]
    trained(folder, before, net, iterations=2)
    assert trained(folder, after, net, iterations=5, snapshot="run_iter_2.solverstate")[0] == whole
    assert json.loads(Path("run_iter_5.solverstate.json").read_text())["ranks"] == after


def test_a_restart_goes_on_from_the_newest_complete_snapshot(folder):
    whole, begun, _ = trained(folder, 1, iterations=5, restart=True)
    assert any("training begins" in str(event) for event in begun)
    for file in folder.glob("run_iter_*"):
        file.unlink()
    trained(folder, 2, iterations=2)
    trained(folder, 2, iterations=3)
    Path("run_iter_3.caffemodel").unlink()
    files, events, _ = trained(folder, 4, iterations=5, restart=True)
    assert files == whole
    assert any("run_iter_3.solverstate' is not complete" in str(event) for event in events)
    assert any("run_iter_2.solverstate" in str(event) for event in events)


def test_a_request_of_any_rank_is_obeyed_by_all_in_the_same_iteration(folder):
    def run(transport):
        file = solver_of(NORMS, folder)
        with Solver(file, iterations=50, transport=transport) as solver:
            if transport.rank == 1:
                solver.callbacks.add(on_iteration=lambda: solver.request("stop") if solver.iteration == 3 else None)
            solver.solve()
            return solver.interrupted, solver.iteration

    assert run_ranks(2, run) == [(True, 4)] * 2  # it is carried by the message of the iteration after it
    assert (folder / "run_iter_4.solverstate").exists()


def test_a_request_that_comes_while_ranks_test_ends_the_test_and_its_data_are_as_before(folder):
    def run(transport):
        file = solver_file(NORMS, folder, **ADAM, test_iter=9)
        with Solver(file, iterations=50, transport=transport) as solver:
            before, feeds = solver._engine.open_feeds.position(1), solver._engine.open_feeds
            if transport.rank == 1:
                solver._engine.after_run.append(lambda: solver.request("stop"))
            assert solver.test(0) is None
            return feeds.position(1) == before

    assert run_ranks(2, run) == [True, True]


def test_data_move_on_by_the_batches_of_a_test_whatever_the_ranks(folder):
    def run(transport):
        file = solver_file(NORMS, folder, **ADAM, test_iter=5)
        with Solver(file, iterations=5, transport=transport) as solver:
            return [str(solver.test(0)) for _ in range(2)], solver._engine.open_feeds.state()

    alone = run_ranks(1, lambda transport: run(None))[0]
    assert run_ranks(4, run) == [alone] * 4


# -- errors ------------------------------------------------------------------------------------------------------------


def errors_of(size: int, folder: Path, **options):
    """(class, text, whether another rank reports it) of the error of each rank."""

    def run(transport):
        own = {name: each[transport.rank] if isinstance(each, list) else each for name, each in options.items()}
        try:
            with Solver(own.pop("file", None) or solver_of(NORMS, folder), transport=transport, **own) as solver:
                solver.step(3)
        except (InputError, BudgetError, DivergenceError) as error:
            assert error.is_agreed
            return type(error), str(error), error.is_reported
        return None

    return run_ranks(size, run)


@pytest.mark.parametrize(
    "kind, options, text",
    [
        (InputError, {"iter_size": 6}, "cannot be shared by 4 ranks; --iter-size 8 trains as iter_size: 8"),
        (InputError, {"batch": [4, 4, 0, 4]}, "batch"),
        (BudgetError, {"budget": ["1GiB", "1GiB", "1KiB", "1GiB"]}, "below the minimum"),
        (InputError, {"weights": ["", "", "none.caffemodel", ""]}, "none.caffemodel"),
        (InputError, {"seed": [1, 1, 1, 2]}, "rank 3 has other seed"),
        (InputError, {"batch": [4, 4, 4, 8]}, "rank 3 has other nets"),
        (InputError, {"measure": True}, "give --costs instead"),
        (InputError, {"keep": "*.diff"}, "share by rows"),
    ],
)
def test_an_error_of_one_rank_before_the_first_step_is_that_of_all(kind, options, text, folder):
    options = {name: [part or () for part in each] if name == "weights" else each for name, each in options.items()}
    options["batch"] = [each or -1 for each in options["batch"]] if "batch" in options else None
    found = errors_of(4, folder, **options)
    assert all(error is not None and error[0] is kind and text in error[1] for error in found), found
    assert sum(not reported for _, _, reported in found) == 1


def test_weights_that_differ_are_an_error_of_all(folder):
    trained(folder, 1, iterations=2)
    found = errors_of(2, folder, weights=["run_iter_2.caffemodel", ()])
    assert {text for _, text, _ in found} == {
        "rank 1 has other weights than rank 0; give all ranks the same files and options"
    }


def test_all_ranks_diverge_together(folder):
    def run(transport):
        file = solver_file(NORMS, folder, **{**ADAM, "base_lr": 1e30, "clip_gradients": -1})
        with Solver(file, iterations=50, transport=transport) as solver:
            try:
                solver.solve()
            except DivergenceError as error:
                return str(error), error.is_reported
        return None

    (first, reported), (second, also) = run_ranks(2, run)
    assert first == second and (reported, also) == (False, True)


def test_a_snapshot_that_cannot_be_written_is_an_error_of_all(folder):
    def run(transport):
        with Solver(solver_of(NORMS, folder), iterations=2, transport=transport) as solver:
            solver.step(1)
            solver.param.snapshot_prefix = str(folder / "file" / "run")
            try:
                solver.snapshot()
            except InputError as error:
                return error.is_reported
        return None

    (folder / "file").write_text("")
    assert run_ranks(2, run) == [False, True]


STATEFUL = f"""
    {DATA} layer {{ name: "rows" type: "Reshape" bottom: "data" top: "rows"
                    reshape_param {{ shape {{ dim: 2 dim: 2 dim: -1 }} }} }}
    layer {{ name: "cont" type: "DummyData" top: "cont" dummy_data_param {{ shape {{ dim: 2 dim: 2 }} }} }}
    layer {{ name: "lstm" type: "LSTM" bottom: "rows" bottom: "cont" top: "lstm" recurrent_param {{
            num_output: 3 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "flat" type: "Reshape" bottom: "lstm" top: "flat"
            reshape_param {{ shape {{ dim: 4 dim: -1 }} }} }}
    {LOSS % "flat"}
"""
WRITING = f"""
    {NORMS} layer {{ name: "out" type: "HDF5Output" bottom: "score" bottom: "label" include {{ phase: TRAIN }}
                     hdf5_output_param {{ file_name: "out.h5" }} }}
"""


@pytest.mark.parametrize(
    "net, layer, text",
    [(STATEFUL, "lstm", "carries its state from batch to batch"), (WRITING, "out", "move it to the TEST phase")],
)
def test_layers_that_ranks_cannot_share_are_refused_with_their_line(net, layer, text, folder):
    file = solver_file(net, folder, **ADAM)
    for _, error, _ in errors_of(2, folder, file=file):
        assert f"layer '{layer}'" in error and text in error
        assert error.partition(" ")[0].rstrip(":").rpartition(":")[2].isdecimal(), "it has the line"


def test_a_test_whose_batches_depend_on_each_other_runs_on_every_rank(folder):
    """Tests that write files also run on every rank, but only one rank writes."""
    phases = STATEFUL.replace('name: "lstm"', 'name: "lstm" include { phase: TEST }')
    net = f"""
        {phases.replace(LOSS % "flat", "")}
        {conv("conv1", "data", 3, 3)} {LOSS % "conv1"}
        layer {{ name: "out" type: "HDF5Output" bottom: "score" bottom: "label" include {{ phase: TEST }}
                 hdf5_output_param {{ file_name: "out.h5" }} }}
    """.replace('name: "flat"', 'name: "flat" include { phase: TEST }')

    def run(transport):
        file = solver_file(net, folder, **ADAM, test_iter=3)
        with Solver(file, iterations=5, transport=transport) as solver:
            found = [str(solver.test(0)) for _ in range(2)]
            states = solver._engine.parameters.states()
            return found, {name: value.tobytes() for name, value in states.items()}

    alone = run(None)
    written = Path("out.h5").read_bytes()
    Path("out.h5").unlink()
    assert run_ranks(2, run) == [alone] * 2
    assert Path("out.h5").read_bytes() == written and any(any(value) for value in alone[1].values())


def test_the_optimizer_state_of_a_rank_is_its_share(folder):
    def run(transport):
        with Solver(solver_of(NORMS, folder), iterations=5, transport=transport) as solver:
            runner = solver.runner
            return {name: runner.rows(name) for name in runner.persistent if name.endswith(".h0")}

    first, second = run_ranks(2, run)
    assert first["fc.w0.h0"] == ((0, 3),) and second["fc.w0.h0"] == ((3, 4),)
    counts = [sum(count for runs in rank.values() for _, count in runs) for rank in (first, second)]
    assert counts[0] <= counts[1]
