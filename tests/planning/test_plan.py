"""Plans: which op runs at each position, and plans in files: what is written comes back, and nonsense is refused."""

import json
import random
from dataclasses import replace

import pytest

from layermem.errors import BudgetError, InputError, LayermemError
from layermem.interactive.solver import Solver
from layermem.planning.plan import Decision, Gap, Plan, ops_in_order, program_order
from layermem.report.plan_report import evaluate
from tests.nets import solver_file
from tests.planning.chains import chain
from tests.report.test_plan_report import job_of
from tests.schedule.small_graphs import graph_with_a_fused_update

EDITS = {
    "strategy": (7, "its strategy is 7"),
    "order": (["absent.forward"], "runs 'absent.forward', which is no op of the net"),
    "decisions": ([["conv1", 99, "offload"]], "use 99 of 'conv1', which is not there"),
    "overlays": (["anything"], "allows overlays anything"),
    "copy_lead": (1.5, "1.5 of their time ahead"),
    "copy_limit_bytes": (-1, "limits copies to -1 bytes"),
}


@pytest.fixture(scope="module")
def saved():
    job = job_of("chain")
    plan = evaluate(job, "hybrid", 1).program.train.plan
    return job, plan, json.loads(plan.to_json(job.graphs[0]))


def test_a_plan_comes_back_as_it_was(saved):
    job, plan, values = saved
    assert plan.decisions and Plan.from_json(json.dumps(values), job.graphs[0]) == plan


def test_a_limit_of_copies_comes_back_and_has_to_be_a_number_of_bytes(saved):
    job, plan, _ = saved
    limited = replace(plan, copy_limit_bytes=4096)
    text = limited.to_json(job.graphs[0])
    assert Plan.from_json(text, job.graphs[0]) == limited
    for nonsense in ("true", "4096.5", '"4096"', "1" + 40 * "0"):
        with pytest.raises(InputError, match="limits copies to"):
            Plan.from_json(text.replace("4096", nonsense), job.graphs[0])


def test_a_plan_of_version_0_1_0_is_read():
    """It had another word for decisions, RECOMPUTE and copy_lead."""
    net = chain(2)
    plan = Plan(
        "old", program_order(net), {Gap("x0", 1): Decision.RECOMPUTE, Gap("x1", 1): Decision.OFFLOAD}, copy_lead=0.5
    )
    old = json.loads(plan.to_json(net).replace('"recompute"', '"drop"'))
    old["fates"], old["ahead"] = old.pop("decisions"), old.pop("copy_lead")
    assert Plan.from_json(json.dumps(old), net) == plan


def test_an_op_is_its_recomputation_from_the_second_time_on():
    net = chain(2)
    again = ops_in_order(net, ("feed.forward", "f1.forward", "f2.forward", "f1.forward"))
    assert again[1] is net.by_name["f1.forward"] and again[3] is net.by_name["f1.forward"].recompute
    with pytest.raises(ValueError, match=r"runs 'feed.forward' twice, but it cannot be repeated"):
        ops_in_order(net, ("feed.forward", "feed.forward"))


def test_a_fused_update_stands_for_the_ops_that_it_covers():
    net = graph_with_a_fused_update()
    apart = program_order(net)
    Plan("", (*apart[:-2], "a.backward_update")).validate(net)
    with pytest.raises(ValueError, match=r"never runs 'b.backward'"):
        Plan("", (*apart[:-3], "a.backward_update")).validate(net)


def test_a_plan_prints_its_order_and_its_decisions():
    names = program_order(chain(2))
    plan = Plan("by hand", (*names[:4], "f1.forward", *names[4:]), {Gap("x0", 1): Decision.OFFLOAD})
    assert str(plan).splitlines() == [
        "# plan   strategy by hand   overlays inplace",
        "feed.forward",
        "f1.forward",
        "f2.forward",
        "seed.backward",
        "f1.forward   # recompute",
        "b2.backward",
        "b1.backward",
        "offload  x0 after use 1",
    ]


@pytest.mark.parametrize("field", EDITS)
def test_what_the_net_does_not_have_is_refused_with_the_file(saved, field):
    job, _, values = saved
    value, message = EDITS[field]
    with pytest.raises(InputError, match=f"^plan.json: is not a plan that layermem saved .*{message}"):
        Plan.from_json(json.dumps({**values, field: value}), job.graphs[0], "plan.json")


@pytest.mark.parametrize("text", ["", "[]", "7", '{"order": 3}', "[" * 100_000, '{"strategy": '])
def test_what_is_no_plan_at_all_is_refused(saved, text):
    with pytest.raises(InputError, match="is not a plan that layermem saved"):
        Plan.from_json(text, saved[0].graphs[0])


@pytest.mark.parametrize("lead", ["1" + 400 * "0", "1" + 5000 * "0", "1e400", "NaN"])
@pytest.mark.parametrize("field", ["copy_lead", "ahead"])
def test_a_number_that_no_plan_has_is_refused(saved, field, lead):
    _, _, values = saved
    text = json.dumps({**{k: v for k, v in values.items() if k != "copy_lead"}, field: "LEAD"}).replace('"LEAD"', lead)
    with pytest.raises(InputError, match="is not a plan that layermem saved"):
        Plan.from_json(text, saved[0].graphs[0])


def test_a_plan_that_leaves_an_op_out_is_refused_with_its_name(saved):
    job, _, values = saved
    gone = values["order"][-1]
    with pytest.raises(InputError, match=f"never runs '{gone}'"):
        Plan.from_json(json.dumps({**values, "order": [n for n in values["order"] if n != gone]}), job.graphs[0])


def test_a_plan_of_another_net_is_refused(saved):
    with pytest.raises(InputError, match="made for another net"):
        Plan.from_json(json.dumps(saved[2]), job_of("residual").graphs[0])


@pytest.mark.parametrize("seed", range(150))
def test_no_edit_of_a_plan_ends_in_anything_but_a_program_or_a_sentence(saved, seed):
    """Swaps, losses, repeats and foreign values, anywhere in the file."""
    job, _, values = saved
    draw, edited = random.Random(seed), json.loads(json.dumps(values))
    for _ in range(draw.choice((1, 1, 2, 5))):
        edit(draw, edited)
    try:
        found = evaluate(job, plan=Plan.from_json(json.dumps(edited), job.graphs[0]))
    except LayermemError as error:
        assert isinstance(error, (InputError, BudgetError)) and "\n" not in error.what
    else:
        assert found.peak_bytes > 0


def edit(draw, values):
    field = draw.choice(("order", "order", "order", "decisions", "decisions", "overlays", "copy_lead", "strategy"))
    foreign = draw.choice((None, True, -1, 10**6, 0.5, "no-op", [], {}, [["conv1", 0, "drop"]]))
    entries = values[field]
    if not isinstance(entries, list) or not entries or draw.random() < 0.1:
        values[field] = foreign
        return
    at, other = draw.randrange(len(entries)), draw.randrange(len(entries))
    match draw.randrange(5):
        case 0:
            del entries[at]
        case 1:
            entries.insert(other, entries[at])
        case 2:
            entries[at], entries[other] = entries[other], entries[at]
        case 3:
            entries[at] = foreign
        case 4 if isinstance(entries[at], list):
            entries[at][draw.randrange(len(entries[at]))] = foreign if draw.random() < 0.3 else draw.randrange(4)


def test_a_solver_refuses_an_edited_plan_in_a_sentence(tmp_path):
    solver = Solver(solver_file("chain", tmp_path), device="reference", strategy="liveness")
    values = json.loads(solver.program.train.plan.to_json(solver.graphs[0]))
    values["order"].reverse()
    (tmp_path / "plan.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match="make it again"):
        Solver(solver_file("chain", tmp_path), device="reference", plan=tmp_path / "plan.json")
