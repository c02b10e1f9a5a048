"""Jobs: their baselines, and what a user's words about budgets, hints, costs and plans mean."""

from dataclasses import replace

import pytest

from layermem.api import job_of
from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.planning.costs import model_costs, write_costs
from layermem.planning.hints import Hints
from layermem.planning.job import Job, items_of, resolve_costs, resolve_hints, title_of
from layermem.planning.plan import Plan, program_order
from layermem.proto.read import read_net, read_net_text
from layermem.solver.jobs import StepOptions, net_job
from layermem.utils.units import aligned
from tests.compiling import compile
from tests.nets import NETS, solver_file

REFERENCE = get_device("reference")
COSTS = model_costs("reference")


@pytest.fixture(scope="module")
def job() -> Job:
    return net_job(Net(read_net_text(NETS["residual"]), 0), StepOptions(device=REFERENCE, costs=COSTS))


def test_the_baseline_is_what_strategy_caffe_takes(job):
    program = compile(job.graphs, strategy="caffe", costs=COSTS)
    assert job.baseline_bytes == program.arena_bytes
    assert job.baseline_seconds == pytest.approx(program.seconds)


def test_the_baseline_of_a_solver_has_its_test_nets_in_the_same_arena(tmp_path):
    job = job_of(solver=solver_file("residual", tmp_path), device=REFERENCE, costs=COSTS)
    assert len(job.graphs) == len(job.nets) == 2
    assert job.baseline_bytes == compile(job.graphs, strategy="caffe", costs=COSTS).arena_bytes
    alone = net_job(job.nets[0], StepOptions(device=REFERENCE, costs=COSTS))
    assert job.bvlc_bytes > alone.bvlc_bytes


def test_a_percentage_is_of_the_baseline_and_other_words_are_bytes(job):
    assert job.resolve_budget("50%") == job.baseline_bytes // 2
    assert job.resolve_budget("1MiB") == 2**20 and job.resolve_budget(77) == 77 and job.resolve_budget(None) is None


def test_free_is_what_the_device_has_now(job):
    amounts = iter([5000, 3000])
    device = replace(job, free_bytes=lambda host_bytes: next(amounts))
    assert [device.resolve_budget("free"), device.resolve_budget("free")] == [5000, 3000]
    with pytest.raises(InputError, match="is not an amount of memory"):
        replace(job, free_bytes=None).resolve_budget("free")


def test_free_leaves_what_a_host_arena_may_take(job):
    """That is all buffers at most, or the host budget."""
    every = sum(aligned(buffer.nbytes) for buffer in job.graphs[0].buffers.values())
    device = replace(job, hints=Hints(), free_bytes=lambda host_bytes: 10 * every - host_bytes)
    assert device.resolve_budget("free") == 9 * every and device.resolve_budget("50%free") == 9 * every // 2
    assert device.with_host_budget(512).resolve_budget("free") == 10 * every - 512
    assert device.with_host_budget(2 * every).resolve_budget("free") == 9 * every


def test_a_host_budget_is_added_to_the_hints_and_none_changes_nothing(job):
    hinted = replace(job, hints=Hints(keep=("a",)))
    assert hinted.with_host_budget("25%").hints == Hints(keep=("a",), host_budget_bytes=job.baseline_bytes // 4)
    assert hinted.with_host_budget(512).hints.host_budget_bytes == 512
    assert hinted.with_host_budget(None) is hinted


def test_a_plan_is_taken_as_it_is_or_read_from_its_file(job, tmp_path):
    plan = Plan("liveness", program_order(job.graphs[0]))
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json(job.graphs[0]))
    assert job.with_plan(plan)[1] is plan and job.with_plan(path)[1] == plan and job.with_plan(None)[1] is None
    path.write_text(path.read_text().replace(job.graphs[0].fingerprint, "0" * 16))
    with pytest.raises(InputError, match=r"plan\.json: was made for another net"):
        job.with_plan(path)[1]


def test_hints_are_those_given_and_those_beside_the_net_and_each_names_a_layer(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text(f"name: 'tiny' {NETS['chain']}")
    (tmp_path / "net.prototxt.hints").write_text("keep pool1\n")
    net = Net(read_net(str(path)), 0)
    assert resolve_hints(Hints(keep=("conv*",)), net).keep == ("conv*", "pool1")
    with pytest.raises(InputError, match="recompute 'fc\\*' matches no layer"):
        resolve_hints(Hints(recompute=("fc*",)), net)


def test_costs_are_given_measured_or_modelled(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text(write_costs({"a": 2.0}, d2h=1.0, h2d=1.0))
    assert resolve_costs(COSTS, "cpu") is COSTS
    assert resolve_costs(None, "cpu") == model_costs("cpu")
    assert dict(resolve_costs(path, "cpu").measured) == {"a": 2.0}


def test_a_title_names_the_net_and_its_batch():
    assert title_of(Net(read_net_text(f"name: 'tiny' {NETS['chain']}"), 0)) == "tiny x4"


@pytest.mark.parametrize(("net", "items"), [("residual", 4), ("recurrent", 0)])
def test_items_are_those_of_the_first_blob_unless_the_batch_is_a_sequence(net, items):
    assert items_of(Net(read_net_text(NETS[net]), 0)) == items
