"""Updates that wait for each other: hand plans over live bytes, and whole nets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layermem.backends.base import get_device
from layermem.graph.net import Net, NetOptions
from layermem.graph.ops import BACKWARD, GRADIENT, HISTORY, PARAMETER, UPDATE, Graph
from layermem.graph.rewrite import rewrite
from layermem.graph.train import UpdateRule, train_graph
from layermem.planning.costs import Costs, Rates, model_costs
from layermem.planning.joined_updates import with_joined_updates
from layermem.planning.pipeline import Compiler
from layermem.planning.plan import Decision, Gap, Plan, program_order
from layermem.planning.strategies.auto import unjoined_seconds
from layermem.proto.read import read_net
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.joined import joined
from tests.compiling import compile
from tests.schedule.small_graphs import buffer, graph, op

DEEP = "prototxt/resnet20/train_val.prototxt"


def chain(joins: str = "SGD", shared: bool = False) -> Graph:
    """wgrad1 update1 wgrad2 update2 wgrad3 update3: parameters and gradients of 512 bytes; wgrad2 reads w1 if it is
    `shared`."""
    kinds = {"w": PARAMETER, "h": HISTORY, "dw": GRADIENT}
    ops = []
    for i in "123":
        ops.append(op(f"wgrad{i}", BACKWARD, reads="w1" * (shared and i == "2"), writes=f"dw{i}"))
        ops.append(op(f"update{i}", UPDATE, reads=f"dw{i}", updates=f"w{i} h{i}", joins=joins))
    return graph([buffer(stem + i, kind, 512) for i in "123" for stem, kind in kinds.items()], ops)


def order_of(step: Graph, limit_bytes: int, profile: list[int], decisions: dict | None = None) -> str:
    plan = Plan("by hand", program_order(step), decisions or {})
    return " ".join(with_joined_updates(plan, step, profile, limit_bytes).order)


def test_updates_wait_to_the_end_where_there_are_bytes_for_their_gradients():
    assert order_of(chain(), 2000, [512] * 6) == "wgrad1 wgrad2 wgrad3 update1 update2 update3"


def test_joined_updates_run_before_an_op_that_has_no_bytes_for_their_gradients():
    assert order_of(chain(), 1024, [512] * 6) == "wgrad1 wgrad2 update1 update2 wgrad3 update3"
    assert order_of(chain(), 1023, [512] * 6) == "wgrad1 update1 wgrad2 update2 wgrad3 update3"
    assert order_of(chain(), 2000, [512, 512, 512, 512, 1500, 512]) == "wgrad1 wgrad2 update1 update2 wgrad3 update3"


def test_joined_updates_run_before_an_op_that_touches_their_parameters():
    assert order_of(chain(shared=True), 2000, [512] * 6) == "wgrad1 update1 wgrad2 wgrad3 update2 update3"


def test_an_update_of_buffers_that_are_copied_stays_where_it_is():
    decisions = {Gap("h2", -1): Decision.OFFLOAD}
    assert order_of(chain(), 2000, [512] * 6, decisions) == "wgrad1 wgrad2 update2 wgrad3 update1 update3"


def test_each_update_that_cannot_be_joined_costs_a_launch():
    costs = Costs(Rates(flops=1.0, memory=1.0, d2h=1.0, h2d=1.0, launch=3.0))
    state = {Gap("h2", -1): Decision.OFFLOAD, Gap("w2", -1): Decision.OFFLOAD, Gap("h3", -1): Decision.OFFLOAD}
    for decisions, seconds in ((state, 6.0), ({}, 0.0)):
        plan = Plan("by hand", program_order(chain()), decisions)
        assert unjoined_seconds(plan, chain(), costs) == seconds
        assert unjoined_seconds(plan, chain(joins=""), costs) == 0.0


def test_a_plan_without_updates_that_join_is_left_as_it_is():
    step = chain(joins="")
    plan = Plan("by hand", program_order(step))
    assert with_joined_updates(plan, step, [512] * 6, 2000) is plan


@pytest.mark.samples(3)
@pytest.mark.parametrize("strategy, share", [("liveness", None), ("auto", 0.8), ("auto", 0.5)])
def test_a_net_has_fewer_launches_in_no_more_bytes(strategy, share):
    net, device = Net(read_net(DEEP), 0, NetOptions(stages=["dummy"])), get_device("cuda")
    step = replace(rewrite(train_graph(net, device, UpdateRule("SGD", 1)), device), less_fused=None)
    apart = replace(step, ops=tuple(replace(each, joins="") for each in step.ops))
    budget = None if share is None else int(share * compile([apart]).arena_bytes)
    found, before = (compile([each], strategy=strategy, budget_bytes=budget) for each in (step, apart))
    sizes = [len(group) for group in joined(found.train.instructions) if group[0].kind == UPDATE]
    assert sum(sizes) == len(step.of_kind(UPDATE)) > 60
    assert len(sizes) < 12
    assert found.arena_bytes <= before.arena_bytes and found.host_bytes <= before.host_bytes
    assert found.seconds < before.seconds


def test_a_saved_plan_with_joined_updates_gives_the_same_program():
    net, device = Net(read_net(DEEP), 0, NetOptions(stages=["dummy"])), get_device("cuda")
    step = train_graph(net, device, UpdateRule("SGD", 1))
    first = compile([step], strategy="liveness")
    plan = Plan.from_json(first.plan.to_json(step), step)
    again = Compiler(ArenaPlanner([step], model_costs(step.device)), plan).compile(None)
    assert again.plan.order == first.plan.order and again.arena_bytes == first.arena_bytes
