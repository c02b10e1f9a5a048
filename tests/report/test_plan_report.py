"""Plans, minimums and refusals of strategies for a job."""

import copy
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest

import layermem
from layermem.backends.base import get_device
from layermem.errors import BudgetError, InputError
from layermem.graph.net import Net
from layermem.planning.costs import model_costs
from layermem.planning.hints import Hints
from layermem.planning.job import Job
from layermem.planning.pipeline import Compiler
from layermem.planning.plan import Decision, Gap, Plan
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.report.plan_report import evaluate
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.text import text
from layermem.solver.jobs import StepOptions, net_job
from layermem.utils.units import aligned
from tests.nets import NETS
from tests.python_layers.modules import net_of

REFERENCE = get_device("reference")
COSTS = model_costs("reference")


def job_of(name: str) -> Job:
    return net_job(Net(read_net_text(NETS[name]), 0), StepOptions(device=REFERENCE, costs=COSTS)).with_host_budget(
        "1TiB"
    )


@pytest.fixture(params=NETS)
def job(request) -> Job:
    return job_of(request.param)


def test_the_minimum_is_that_of_the_slices_that_need_the_fewest_bytes(job):
    whole, free = evaluate(job, "auto").minimum_bytes, job.with_slices("auto")
    least = evaluate(free, "auto").minimum_bytes
    assert least <= whole and evaluate(free, "auto", least).feasible
    assert evaluate(free, "auto", whole).minimum_bytes == least == evaluate(free, "auto", 1).minimum_bytes


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_minimum_of_a_strategy_fits_and_a_byte_less_does_not(job, strategy):
    minimum = evaluate(job, strategy).minimum_bytes
    found = evaluate(job, strategy, minimum)
    assert found.feasible and found.peak_bytes <= minimum
    refused = evaluate(job, strategy, minimum - 1)
    assert not refused.feasible and refused.refusal.minimum_bytes == refused.minimum_bytes == minimum
    with pytest.raises(BudgetError):
        Compiler(ArenaPlanner(job.graphs, job.costs), strategy).compile(minimum - 1)


@pytest.mark.samples(4)
def test_auto_needs_no_more_than_any_other_strategy(job):
    least = evaluate(job, "auto").minimum_bytes
    assert all(least <= evaluate(job, name).minimum_bytes for name in STRATEGIES)


def test_without_a_name_a_budget_brings_auto_and_no_budget_liveness(job):
    assert evaluate(job).strategy == "liveness" and evaluate(job, budget="90%").strategy == "auto"


def test_the_peak_reports_all_live_bytes(job):
    for strategy in ("caffe", "liveness", "hybrid"):
        found = evaluate(job, strategy)
        assert sum(found.peak_bytes_by_kind.values()) == found.program.max_live_bytes
        assert sum(aligned(r.nbytes) for r in found.peak_residencies) == found.program.max_live_bytes


def test_a_refusal_names_the_strategies_that_would_fit(job):
    budget = evaluate(job, "hybrid").minimum_bytes
    assert "hybrid " in dict(evaluate(job, "caffe", budget).explain_refusal().details)["fits"]
    assert "no other strategy" in str(evaluate(job, "caffe", 1).explain_refusal())


def test_recomputations_and_copies_of_a_plan_are_counted():
    job = job_of("chain")
    assert evaluate(job, "liveness").recomputed_ops == evaluate(job, "liveness").offloaded_bytes == 0
    lean = evaluate(job, "recompute", 1)
    assert lean.recomputed_ops == len(lean.program.train.instructions) - len(job.graphs[0].ops) > 0
    offloaded = evaluate(job, "inter")
    assert offloaded.offloaded_bytes == sum(
        job.graphs[0].buffers[i.what].nbytes for i in offloaded.program.train.instructions if i.kind == "offload"
    )
    assert offloaded.overhead > 0


def test_a_saved_plan_that_cannot_run_is_refused():
    job = job_of("chain")
    order = evaluate(job).program.train.plan.order
    for plan in (
        Plan("liveness", ("absent.forward", *order)),
        Plan("liveness", tuple(reversed(order))),
        Plan("liveness", order[1:]),
        Plan("liveness", order, {Gap("nothing", 0): Decision.OFFLOAD}),
        Plan("liveness", order, {Gap("conv1", 0): Decision.RECOMPUTE}),
        Plan("liveness", (*order, order[0])),
    ):
        with pytest.raises(InputError, match="the saved plan cannot be run"):
            evaluate(job, plan=plan)


def test_a_fault_of_planning_is_not_blamed_on_the_saved_plan(job, monkeypatch):
    def fail(*arguments):
        raise ValueError("a fault")

    saved = evaluate(job, "liveness").program.train.plan
    monkeypatch.setattr("layermem.report.plan_report.report_step", fail)
    with pytest.raises(ValueError, match=r"^a fault$"):
        evaluate(job, plan=saved)


def test_a_saved_plan_that_offloads_more_than_the_host_budget_is_refused_by_itself():
    free = job_of("chain")
    found = evaluate(free, "hybrid", 1)
    job = replace(free, hints=Hints(host_budget_bytes=256))
    with pytest.raises(BudgetError, match=r"^host budget 256 B is below") as caught:
        evaluate(job, plan=found.program.train.plan)
    assert caught.value.host and caught.value.minimum_bytes == found.program.host_bytes > 256


DIGITS, SOLVER = "prototxt/digits/train_val.prototxt", "prototxt/digits/solver.prototxt"
MAKERS = {  # of reports in another process
    "a net": (layermem.plan, (DIGITS,), {"budget": "50%"}),
    "a solver": (layermem.plan, (), {"solver": SOLVER}),
    "slices": (layermem.plan, (DIGITS,), {"budget": "35%", "slices": "auto"}),
    "ranks": (layermem.plan, (DIGITS,), {"ranks": 2}),
    "a refusal": (layermem.plan, (DIGITS,), {"budget": "10%", "strategy": "liveness"}),
    "16 bits": (layermem.plan, (DIGITS,), {"device": get_device("cpu", storage="bf16")}),
    "several": (layermem.compare, (DIGITS,), {"strategies": ["auto", "liveness"], "budget": "50%"}),
    "a fit": (layermem.fit, (DIGITS, "1MiB"), {"strategies": ["liveness"], "most": 8}),
}


@pytest.fixture(scope="module")
def elsewhere():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield lambda call, *arguments, **options: pool.submit(call, *arguments, **options).result()


def reports_in(result):
    several = result if isinstance(result, list) else [result]
    return [getattr(each, "report", each) for each in several]


@pytest.mark.parametrize(("call", "arguments", "options"), MAKERS.values(), ids=MAKERS)
def test_a_report_of_another_process_says_the_same(elsewhere, call, arguments, options):
    pairs = zip(
        reports_in(call(*arguments, **options)), reports_in(elsewhere(call, *arguments, **options)), strict=True
    )
    for here, sent in pairs:
        assert str(sent) == str(here) and sent.program.plan == here.program.plan
        assert [text(each) for each in sent.program.schedules] == [text(each) for each in here.program.schedules]
        assert (sent.minimum_bytes, sent.bound_seconds) == (here.minimum_bytes, here.bound_seconds)
        assert sent.job.baseline_bytes == here.job.baseline_bytes and repr(sent) == repr(here)
        if here.refusal is not None:
            with pytest.raises(BudgetError, match="--slices"):
                here.feasible_program()
            with pytest.raises(BudgetError, match="is below the minimum of 'liveness'"):
                sent.feasible_program()


def test_a_copied_report_makes_no_steps_in_other_slices():
    report = copy.deepcopy(layermem.plan(DIGITS))
    with pytest.raises(InputError, match="has no steps in other slices; plan the net here"):
        report.job.with_slices("whole/4")


def test_a_report_takes_neither_open_files_nor_objects_of_a_user_along(tmp_path, monkeypatch):
    path = tmp_path / "net.prototxt"
    path.write_text(net_of(tmp_path))
    report = layermem.plan(path, allow_python=True)
    pickled = pickle.dumps(report)
    for module in [name for name in sys.modules if name.startswith("user_layers_")]:
        monkeypatch.delitem(sys.modules, module)  # as in a process that never ran the code
    sent = pickle.loads(pickled)
    assert str(sent) == str(report) and sent.job.nets[0].file.files._open == {}
