"""Batch slices of a job: those that a user names, those that are chosen, and those of a saved plan."""

import json
from dataclasses import replace
from itertools import pairwise, product
from math import inf

import pytest

import layermem
from layermem import api
from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.planning import slice_search
from layermem.planning.bounds import least_seconds
from layermem.planning.fusion_search import Attempt
from layermem.planning.hints import Hints
from layermem.planning.pipeline import Compiler, plan_step
from layermem.planning.plan import Plan
from layermem.report.plan_report import evaluate
from layermem.report.records import start_record
from layermem.report.summary import slices_values
from tests.planning.settings import change

NET = "prototxt/digits/train_val.prototxt"
NO_LINK = Hints(host_budget_bytes=0)


@pytest.fixture(scope="module")
def job():
    return api.job_of(NET, device="reference", hints=NO_LINK)


def test_named_slices_change_the_first_graph_and_not_what_percentages_are_of(job):
    sliced = job.with_slices("whole/4")
    assert sliced.graphs[0].slices == "whole/4" and job.graphs[0].slices == ""
    assert sliced.baseline_bytes == job.baseline_bytes and sliced.baseline_seconds == job.baseline_seconds
    assert sliced.with_slices("off").graphs == job.graphs
    assert evaluate(sliced).peak_bytes < evaluate(job).peak_bytes


@pytest.mark.parametrize(
    ("slices", "message"),
    [
        ("conv1..poool2/4", "did you mean 'pool2'"),
        ("whole/7", "has a batch of 64, which 7 slices cannot share equally; cut it into 2, 4, 8, 16, 32 or 64"),
        ("pool2..conv1/4", "give the earlier one first"),
        ("sometimes", "name no layers and a count"),
        ("whole/2,whole/4", "cut the batch twice; give one range of layers, such as whole/2"),
        ("ip1/rows/3", "^slices 'ip1/rows/3' split weights; give these as --split-weights ip1/3$"),
        ("whole/2,ip1/rows/3,ip2/rows/2", "give these as --split-weights ip1/3,ip2/2$"),
    ],
)
def test_slices_that_cannot_be_are_refused(job, slices, message):
    with pytest.raises(InputError, match=message):
        job.with_slices(slices)


def test_a_net_with_batch_norms_is_sliced_too():
    net = "prototxt/resnet20/train_val.prototxt"
    job = api.job_of(net, device="reference", batch=4)
    assert str(evaluate(job.with_slices("whole/2"), "liveness").slices) == "whole/2"


@pytest.mark.whole
def test_auto_slices_the_largest_layers_of_a_net_with_batch_norms():
    """The largest ops of this net are those of one BatchNorm."""
    job = api.job_of("prototxt/mobilenet1/train_val.prototxt", device="cpu", batch=16, hints=NO_LINK)
    budget_bytes = evaluate(job, "nested", 1).minimum_bytes * 8 // 10
    chosen = evaluate(job.with_slices("auto"), "nested", budget_bytes)
    assert chosen.feasible and chosen.slices is not None and chosen.peak_bytes <= budget_bytes


def test_a_net_that_does_not_train_has_no_slices():
    net = layermem.Net(NET, phase="TEST")
    with pytest.raises(InputError, match="are of a training step"):
        api.job_of(net, device="reference").with_slices("whole/2")


def test_the_test_nets_of_a_solver_run_in_the_same_slices():
    """60 images a test batch: 8 slices cannot share them, 10 can."""
    results = []
    for slices in (None, "whole/8", "conv1..pool1/4"):
        with layermem.Solver(
            "prototxt/digits/solver.prototxt", device="cpu", strategy="liveness", slices=slices
        ) as solver:
            solver.step(1)
            result = {name: value.tobytes() for name, value in solver.test(0).items()}
            results.append(([each.graph.slices for each in solver.program.schedules], result))
            assert solver.runner.measured_peak_bytes == solver.program.arena_bytes
    assert [slices for slices, _ in results] == [["", ""], ["whole/8", "whole/10"], ["conv1..pool1/4"] * 2]
    assert results[0][1] == results[1][1] == results[2][1]


def test_without_slices_the_graphs_are_those_of_before():
    with layermem.Solver("prototxt/digits/solver.prototxt", device="reference") as solver:
        job = solver.job
    assert job.with_slices("whole/2").with_slices("off").graphs == job.graphs


# -- the choice --------------------------------------------------------------------------------------------------------


def test_nothing_is_cut_where_the_step_fits_at_no_cost(job):
    free = evaluate(job, "auto", "100%")
    chosen = plan_step(job.with_slices("auto"), "auto", free.peak_bytes)
    assert chosen.job.graphs == job.graphs
    assert evaluate(job.with_slices("auto")).slices is None  # nor without a budget


def test_slices_fit_below_the_minimum_without_them(job):
    budget_bytes = evaluate(job, "auto", 1).minimum_bytes - 4096
    assert not evaluate(job, "auto", budget_bytes).feasible
    chosen = evaluate(job.with_slices("auto"), "auto", budget_bytes)
    assert chosen.feasible and chosen.slices is not None and chosen.peak_bytes <= budget_bytes
    again = evaluate(job.with_slices("auto"), "auto", budget_bytes)
    assert str(again.slices) == str(chosen.slices) and again.seconds == chosen.seconds


def test_slices_are_never_slower_than_none(job):
    minimum = evaluate(job, "recompute", 1).minimum_bytes
    for budget_bytes in (minimum, minimum * 5 // 4):
        without = evaluate(job, "recompute", budget_bytes)
        assert evaluate(job.with_slices("auto"), "recompute", budget_bytes).seconds <= without.seconds


@pytest.mark.samples(4)
@pytest.mark.parametrize("count", [2, 4, 8])
def test_the_choice_is_never_slower_than_the_whole_step_in_slices_that_keep_everything(job, count):
    kept = evaluate(job.with_slices(f"whole/{count}"), "intra")
    chosen = evaluate(job.with_slices("auto"), "auto", kept.peak_bytes)
    assert chosen.feasible and chosen.seconds <= kept.seconds


@pytest.mark.whole
def test_more_slices_are_tried_once_those_that_looked_best_turn_out_slow():
    """U-Net in 4 slices looks quicker than 8 slices are, and recomputes three times as long as it looks."""
    device = get_device("cuda", precision="tf32")
    job = api.job_of("prototxt/unet/train_val.prototxt", device=device, batch=8, hints=NO_LINK)
    budget_bytes = 1000 * 2**20
    chosen = evaluate(job.with_slices("auto"), "auto", budget_bytes)
    named = [evaluate(job.with_slices(f"whole/{count}"), "auto", budget_bytes) for count in (4, 8)]
    assert chosen.seconds <= min(report.seconds for report in named) and chosen.peak_bytes <= budget_bytes


def test_what_fits_nowhere_is_refused_with_the_minimum_in_slices(job):
    refused = evaluate(job.with_slices("auto"), "intra", 1)
    assert not refused.feasible and refused.peak_bytes < evaluate(job, "intra").peak_bytes


def test_the_minimum_with_auto_slices_is_at_most_that_of_any_number_of_slices(job):
    refused = evaluate(job.with_slices("auto"), "auto", 1)
    every = [evaluate(job.with_slices(f"whole/{count}"), "auto", 1).minimum_bytes for count in (2, 4, 8, 16)]
    assert refused.minimum_bytes <= min(every)


@pytest.mark.whole
def test_bands_of_rows_fit_below_the_minimum_of_slices_where_there_is_memory_to_offload_to(alexnet):
    job = alexnet
    least = evaluate(job, "auto", 1).minimum_bytes
    chosen = evaluate(job.with_slices("auto"), "auto", least // 2)
    assert chosen.feasible and chosen.slices is not None and "fc6" in [bands.layer for bands in chosen.slices.bands]
    without = evaluate(job.with_host_budget(0).with_slices("auto"), "auto", least // 2)
    assert not without.feasible and (without.slices is None or not without.slices.bands)


def test_bands_are_chosen_beside_slices_unless_the_user_says_otherwise(job):
    for options, chosen in {
        ("auto",): (True, True),
        ("auto", "auto"): (True, True),
        ("auto", "off"): (True, False),
        ("auto", "ip1/3"): (True, False),
        ("off", "auto"): (False, True),
        ("whole/2", "auto"): (False, True),
        ("whole/2",): (False, False),
        (None, "ip1/3"): (False, False),
    }.items():
        wanted = job.with_slices(*options)
        assert (wanted.auto_slices, wanted.auto_bands) == chosen
    every = product(("auto", "off", "whole/2"), ("auto", "off", "ip1/3"))
    assert len({job.with_slices(*options).wanted_slices for options in every}) == 9


@pytest.mark.parametrize(
    ("slices", "split_weights", "batch"),
    [("auto", "off", 64), ("auto", "ip1/4", 64), ("off", "auto", 8), ("..pool1/2", "auto", 8)],
)
def test_the_planner_chooses_only_what_is_auto(slices, split_weights, batch):
    job = api.job_of(NET, device="cpu", batch=batch).with_host_budget("1GiB")
    named = ("off" if word == "auto" else word for word in (slices, split_weights))
    budget_bytes = evaluate(job.with_slices(*named), "hybrid", 1).minimum_bytes * 9 // 10
    chosen = evaluate(job.with_slices(slices, split_weights), "hybrid", budget_bytes)
    assert chosen.feasible and chosen.peak_bytes <= budget_bytes
    for word, value in zip((slices, split_weights), slices_values(chosen).values()):
        assert value is not None if word == "auto" else (value or "off") == word


def test_no_bands_are_chosen_where_the_named_slices_are_as_fast_as_their_ops():
    job = api.job_of(NET, device="cpu", batch=8).with_host_budget("1GiB")
    peak_bytes = evaluate(job.with_slices("..pool1/2"), "liveness").peak_bytes
    assert str(evaluate(job.with_slices("..pool1/2", "auto"), "hybrid", peak_bytes).slices) == "..pool1/2"


@pytest.fixture(scope="module")
def alexnet():
    return api.job_of("prototxt/alexnet/train_val.prototxt", device="cpu", batch=2).with_host_budget("4GiB")


@pytest.fixture(scope="module")
def choice(alexnet):
    """What is chosen for a quarter of what Caffe takes."""
    return evaluate(alexnet.with_slices("auto"), "hybrid", alexnet.baseline_bytes // 4)


@pytest.mark.whole
def test_finer_bands_and_shorter_ranges_are_taken_only_where_they_are_faster(alexnet, choice, monkeypatch):
    job, chosen, budget_bytes = alexnet, choice, alexnet.baseline_bytes // 4
    change(monkeypatch, refinements=0)
    assert chosen.feasible and chosen.seconds <= evaluate(job.with_slices("auto"), "hybrid", budget_bytes).seconds


@pytest.mark.whole
def test_the_choice_is_the_same_with_and_without_a_copy_of_the_process(alexnet, choice, monkeypatch):
    monkeypatch.delattr("os.fork", raising=False)
    choices = [choice, evaluate(alexnet.with_slices("auto"), "hybrid", alexnet.baseline_bytes // 4)]
    assert str(choices[0].slices) == str(choices[1].slices)
    first, second = (each.program for each in choices)
    assert (first.plan, first.seconds, first.arena_bytes) == (second.plan, second.seconds, second.arena_bytes)
    assert all(each.job.graphs[0] is each.program.train.graph for each in choices)


def test_near_slices_have_finer_bands_a_shorter_range_both_or_half_as_many_slices():
    job = api.job_of("prototxt/alexnet/train_val.prototxt", device="cpu", batch=16).with_host_budget("4GiB")
    budget_bytes = 300 << 20
    rows, finer = (slice_search._rows(job, budget_bytes // share) for share in (1, 2))
    assert rows == "fc6/rows/8,fc7/rows/4" and finer == "fc6/rows/16,fc7/rows/8,fc8/rows/2"
    known = slice_search.ranges(job.in_slices(rows).graphs[0], budget_bytes)
    longer, shorter = slice_search.Cut(*known[1], 4), slice_search.Cut(*known[0], 2)
    near = slice_search._near(job, slice_search.Slices.parse(f"{longer},{rows}"), 1, budget_bytes)
    assert near == {
        f"{longer},{finer}": 2,
        f"{shorter},{finer}": 2,
        f"{shorter},{rows}": 1,
        f"{replace(longer, count=2)},{rows}": 1,
    }
    fewest = slice_search.Slices.parse(f"{replace(longer, count=2)},{rows}")
    assert [*slice_search._near(job, fewest, 1, budget_bytes)] == [f"{fewest.cut},{finer}"]
    assert slice_search._near(job, slice_search.Slices.parse(rows), 1, budget_bytes) == {}


def test_no_plan_is_made_of_slices_whose_bound_is_slower_than_what_is_known(job, monkeypatch):
    sliced = job.with_slices("conv1..pool1/2")
    budget_bytes = evaluate(sliced, "liveness").peak_bytes - 1
    bound = least_seconds(sliced.graphs[0], job.costs, budget_bytes, 0)
    assert slice_search.ops_seconds(sliced.graphs[0], job.costs) < bound < inf
    attempt = Attempt.of(sliced, "auto", budget_bytes, Compiler)
    assert slice_search._plan_below(budget_bytes, bound * 1.01, attempt) is not None
    monkeypatch.setattr(attempt.compiler.search, "plan_of", lambda *_: pytest.fail("planned"))
    assert slice_search._plan_below(budget_bytes, bound, attempt) is None
    assert slice_search._placed_below(attempt, budget_bytes, bound) is None


def test_the_next_shorter_range_has_half_as_many_slices(job):
    known = slice_search.ranges(job.graphs[0], 1 << 30)
    for shorter, longer in pairwise(known):
        cut = slice_search.Slices(slice_search.Cut(*longer, 8))
        assert slice_search._shorter(job, cut, 1 << 30) == slice_search.Cut(*shorter, 4)
    first = slice_search.Cut(*known[0], 8)
    assert slice_search._shorter(job, slice_search.Slices(first), 1 << 30) is None
    assert slice_search._shorter(job, slice_search.Slices(replace(first, count=2)), 1 << 30) is None


def test_a_saved_plan_brings_its_bands_along(job, tmp_path):
    report = evaluate(job.with_slices("conv1..pool1/2", "ip1/3"), "liveness")
    path = tmp_path / "plan.json"
    path.write_text(report.program.plan.to_json(report.job.graphs[0]))
    loaded = evaluate(job, plan=path)
    assert str(loaded.slices) == "conv1..pool1/2,ip1/rows/3" and loaded.peak_bytes == report.peak_bytes
    assert start_record(loaded)["slices"] == "conv1..pool1/2,ip1/rows/3"
    assert loaded.job.with_slices("off").graphs == job.graphs


# -- saved plans, logs, costs ------------------------------------------------------------------------------------------


def test_a_saved_plan_brings_its_slices_along(job, tmp_path):
    report = evaluate(job.with_slices("conv1..pool1/2"), "recompute")
    path = tmp_path / "plan.json"
    path.write_text(report.program.plan.to_json(report.job.graphs[0]))
    for plan in (path, report.program.plan):
        loaded = evaluate(job, plan=plan)
        assert str(loaded.slices) == "conv1..pool1/2" and loaded.peak_bytes == report.peak_bytes
    refusal = "made with slices conv1..pool1/2, but this step is planned with slices whole/2 and split weights ip1/3"
    with pytest.raises(InputError, match=refusal):
        evaluate(job.with_slices("whole/2", "ip1/3"), plan=path)
    for wanted in (job.with_slices("auto", "off"), job.with_slices("auto", "ip1/3")):
        assert str(evaluate(wanted, plan=path).slices) == "conv1..pool1/2"
    other = api.job_of("prototxt/mnist/train_val.prototxt", device="reference", batch=2)
    with pytest.raises(InputError, match="was made"):
        evaluate(other, plan=path)
    values = json.loads(path.read_text())
    assert values["slices"] == "conv1..pool1/2"
    assert isinstance(report.program.plan, Plan) and report.program.plan.slices == values["slices"]


def test_the_first_record_of_a_log_has_the_slices(job):
    assert start_record(evaluate(job.with_slices("whole/2")))["slices"] == "whole/2"
    assert start_record(evaluate(job))["slices"] is None


def test_a_slice_takes_its_share_of_the_measured_whole(job):
    measured = replace(job.costs, measured={"conv1.forward": 1.0, "ip1.forward@1/2": 0.25})
    sliced = job.with_slices("whole/2").graphs[0]
    seconds = {op.name: measured.op(op) for op in sliced.ops}
    launch = measured.rates.launch
    assert seconds["conv1.forward@2/2"] == pytest.approx(launch + (1.0 - launch) / 2)
    assert seconds["ip1.forward@1/2"] == 0.25
