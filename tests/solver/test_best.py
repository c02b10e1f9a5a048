"""The best weights of a run, and the end of its patience, with tests whose results are given."""

import json

import numpy as np
import pytest

from layermem.distributed.loopback import run_ranks
from layermem.errors import InputError
from layermem.interactive.solver import Solver
from layermem.proto.weights import read_weights
from layermem.report.events import Note, Output
from layermem.solver.best import criterion_of
from tests.nets import DATA, solver_file

FIELDS = {"max_iter": 9, "test_interval": 2, "snapshot_after_train": True, "keep_best": True}
PLAIN = f"""
    {DATA} layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {{ num_output: 5
                    weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
ACCURATE = f"""{PLAIN}
    layer {{ name: "right" type: "Accuracy" bottom: "ip" bottom: "label" top: "right" include {{ phase: TEST }} }}
"""


def run(folder, results, *, net=PLAIN, options=(), **fields):
    """A solved run whose test at iteration 2 i has the result `results[i]`; weights of each test by iteration."""
    folder.mkdir(exist_ok=True)
    seen, notes = {}, []

    def log(event):
        if isinstance(event, Note):
            notes.append(event.text)

    file = solver_file(net, folder, **{**FIELDS, **fields})
    with Solver(file, device="reference", log=log, **dict(options)) as solver:
        name = solver.best.criterion.output

        def test(index, stopping, requests):
            solver._lock.opened(lambda at: seen.update({at: solver.parameters()}))(solver.iteration)
            value = np.array(results[solver.iteration // 2], np.float64)
            return 0.0, (Output(name, value), Output("other", -value))

        solver._engine.test = test
        solver.solve()
        return solver, seen, notes


def saved(path):
    return {name: [np.array(blob) for blob in blobs] for name, blobs in read_weights(path).items()}


def equal(a, b):
    return all(np.array_equal(x, y) for name in a for x, y in zip(a[name], b[name], strict=True))


def test_the_weights_of_the_lowest_loss_are_kept_beside_the_last_ones(tmp_path):
    solver, seen, notes = run(tmp_path, [3.0, 1.5, 1.0, float("nan"), 1.0])
    assert equal(saved(tmp_path / "run_best.caffemodel"), seen[4])
    assert equal(saved(tmp_path / "run_iter_9.caffemodel"), solver.parameters())
    assert solver.progress.best["iteration"] == 4 and solver.progress.best["value"] == 1.0
    best = [note for note in notes if "the best so far" in note]
    assert len(best) == 2 and best[-1].startswith("Iteration 4: ") and "run_best.caffemodel" in best[-1]


def test_the_test_of_the_initial_weights_does_not_count(tmp_path):
    solver, seen, _ = run(tmp_path, [0.0, 2.0, 3.0, 2.5, 3.0])
    assert min(seen) == 0 and solver.progress.best["iteration"] == 2


def test_an_accuracy_counts_before_a_loss_and_its_highest_value_is_best(tmp_path):
    solver, seen, _ = run(tmp_path, [0.1, 0.9, 0.5, 0.2, 0.3], net=ACCURATE)
    assert solver.best.criterion.output == "right" and solver.progress.best["iteration"] == 2
    assert equal(saved(tmp_path / "run_best.caffemodel"), seen[2])


def test_after_so_many_tests_without_a_better_one_the_run_ends_with_a_snapshot(tmp_path):
    solver, seen, notes = run(tmp_path, [3.0, 1.0, 2.0, 2.0, 0.5], keep_best=None, patience=2)
    assert solver.iteration == 6 and not solver.interrupted and max(seen) == 6
    assert (tmp_path / "run_iter_6.solverstate").exists()
    assert equal(saved(tmp_path / "run_best.caffemodel"), seen[2])
    assert notes[-1] == "Iteration 6: 2 tests without a better one, so training ends"


def test_a_resumed_run_keeps_the_best_of_the_whole_run(tmp_path):
    results = [3.0, 1.0, 2.0, 2.5, 0.5]
    whole, _, _ = run(tmp_path / "whole", results, patience=3)
    run(tmp_path / "parts", results, patience=3, max_iter=5)
    snapshot = {"snapshot": tmp_path / "parts" / "run_iter_5.solverstate"}
    parts, seen, _ = run(tmp_path / "parts", results, patience=3, options=snapshot)
    assert min(seen) == 6 and parts.iteration == whole.iteration == 9
    assert {**parts.progress.best, "model": ""} == {**whole.progress.best, "model": ""}
    kept = [(tmp_path / each / "run_best.caffemodel").read_bytes() for each in ("whole", "parts")]
    assert kept[0] == kept[1]


def test_a_test_that_a_snapshot_has_counted_is_not_counted_again(tmp_path):
    results = [0.5, 1.0, 2.0, 2.0, 2.0]
    run(tmp_path, results, patience=2)
    snapshot = {"snapshot": tmp_path / "run_iter_6.solverstate"}
    again, seen, _ = run(tmp_path, results, patience=2, options=snapshot)
    assert again.iteration == 6 and again.progress.best["since"] == 2
    longer, seen, _ = run(tmp_path, results, patience=3, options=snapshot)
    assert longer.iteration == 8 and sorted(seen) == [6, 8]


@pytest.mark.parametrize(
    "best", [1, {"value": 1.0}, {"value": "low", "iteration": 1, "model": "", "tested": 1, "since": 0}]
)
def test_a_damaged_record_of_the_best_is_refused(best, tmp_path):
    run(tmp_path, [3.0, 1.0, 2.0, 2.0, 2.0])
    path = tmp_path / "run_iter_9.solverstate"
    extra = json.loads((tmp_path / f"{path.name}.json").read_text())
    (tmp_path / f"{path.name}.json").write_text(json.dumps({**extra, "best": best}))
    with pytest.raises(InputError, match="its best is not what a snapshot holds"):
        Solver(solver_file(PLAIN, tmp_path, **FIELDS), device="reference", snapshot=path)


@pytest.mark.parametrize("field", [{"keep_best": True}, {"patience": 3}])
def test_without_tests_there_is_nothing_to_compare(field, tmp_path):
    with pytest.raises(InputError, match=f"has {next(iter(field))} and no tests; add test_iter and test_interval"):
        Solver(solver_file(PLAIN, tmp_path, test_iter=None, test_interval=None, **field), device="reference")


def test_a_solver_without_the_fields_compares_nothing(tmp_path):
    assert criterion_of(solver_file(PLAIN, tmp_path), ()) is None


@pytest.mark.parametrize("size", [1, 2])
def test_any_number_of_ranks_keeps_the_same_weights(size, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def train(transport):
        file = solver_file(PLAIN, tmp_path, **{**FIELDS, "iter_size": 2, "snapshot_prefix": "run", "base_lr": 0.5})
        with Solver(file, device="reference", transport=transport if size > 1 else None) as solver:
            before = {}
            solver.callbacks.add(on_start=lambda: before.setdefault(solver.iteration, solver.parameters()))
            solver.solve()
            return solver.progress.best, before

    results = run_ranks(size, train, seed=size)
    best, before = results[0]
    assert all(each == best for each, _ in results)
    assert equal(saved(tmp_path / "run_best.caffemodel"), before[best["iteration"]])
