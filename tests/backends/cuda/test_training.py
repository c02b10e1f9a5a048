"""Whole training steps through unmodified PyCUDA, on the fake driver: the numbers of the reference, the same bits
under every strategy and every order of the streams, and what happens when a schedule omits a wait."""

from __future__ import annotations

from collections import Counter
from itertools import compress, product

import pytest

from layermem.api import job_of
from layermem.backends.cuda.device import CudaDevice
from layermem.graph.fusion import fuse
from layermem.graph.net import Net
from layermem.graph.nodes import op_nodes
from layermem.graph.rewrite import rewrite
from layermem.graph.train import UpdateRule, train_graph
from layermem.ops import CONV_MOMENTS, DGRAD_SUMS_FUSION, JOINED_UPDATES, MASKED_DGRAD, NARROW
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.report.plan_report import evaluate
from tests.backends.cuda.on_fake_driver import trained
from tests.backends.cuda.training import LAZY, RULES, losses, same_numbers, solver_of
from tests.emulator import fake_driver
from tests.nets import DATA, LOSS, NETS, NOT_ON_CUDA, conv, norm, relu
from tests.planning.test_fusion_search import alone

pytestmark = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)
KINDS = ("caffe", "vdnn-all", "recompute", "nested", "hybrid")  # strategies whose plans are of one kind each


@pytest.mark.samples(4)
@pytest.mark.parametrize("net", [net for net in NETS if net not in NOT_ON_CUDA])
def test_a_net_learns_what_the_reference_learns(net):
    job = {"net": net, "steps": 4, "fields": RULES.get(net, {})}
    mine, reference = trained([job, {**job, "device": "reference"}])
    same_numbers(mine, reference, 1e-5)


@pytest.mark.samples(4)
@pytest.mark.parametrize("net", ["residual", "inception", "dropout"])
def test_no_strategy_changes_a_bit(net):
    job = {"net": net, "steps": 2}
    answers = trained([job, *({**job, "strategy": strategy, "poison": True} for strategy in STRATEGIES)])
    assert all("error" not in answer for answer in answers), answers
    assert len({(*answer["losses"], answer["parameters"]) for answer in answers}) == 1
    assert any(answer["host"] for answer in answers)  # some of them do offload


@pytest.mark.whole
@pytest.mark.samples(4)
@pytest.mark.parametrize(
    ("net", "cuts"),
    [
        ("chain", ["whole/2", "whole/4", "..pool1/2"]),
        ("inception", ["whole/2", "..pool/4"]),
        ("dropout", ["whole/4"]),
        ("residual", ["..stem_relu/4", "..sum_relu/2", "a..sum/4", "whole/2"]),
    ],
)
def test_slices_of_the_batch_change_no_bit(net, cuts):
    job = {"net": net, "steps": 2, "poison": True, "fields": RULES.get(net, {})}
    ways = [{"slices": cut, "strategy": strategy} for cut in cuts for strategy in ("recompute", "nested", "hybrid")]
    answers = trained([job, *({**job, **way} for way in ways)])
    assert all("error" not in answer for answer in answers), answers
    assert len({(*answer["losses"], answer["parameters"]) for answer in answers}) == 1


CLIPS = f"""
    {DATA} {conv("stem", "data", 4, 3)}
    layer {{ name: "clip" type: "Reshape" bottom: "stem" top: "clip"
            reshape_param {{ shape {{ dim: 0 dim: 4 dim: 3 dim: 2 dim: 5 }} }} }}
    {conv("conv1", "clip", 6, 3)} {relu("conv1")} {LOSS % "conv1"}
"""


@pytest.mark.whole
def test_slices_of_frames_change_no_bit(tmp_path):
    ways = [{"net": str(solver_of(tmp_path, CLIPS)), "steps": 2, "poison": True}]
    ways += [{**ways[0], "strategy": strategy, "slices": "whole/2"} for strategy in ("recompute", "hybrid")]
    answers = trained(ways)
    assert all("error" not in answer for answer in answers), answers
    assert len({(*answer["losses"], answer["parameters"]) for answer in answers}) == 1


def depthwise(name: str, bottom: str, outputs: int, kernel: int, settings: str) -> str:
    return conv(name, bottom, outputs, kernel).replace("num_output", f"{settings} num_output")


SEPARABLE = f"""
    {DATA} {conv("stem", "data", 8, 3)} {relu("stem")}
    {depthwise("dw1", "stem", 8, 3, "group: 8")} {relu("dw1")} {conv("pw1", "dw1", 12, 1)}
    {depthwise("groups", "pw1", 12, 3, "group: 3 pad: 1")} {relu("groups")}
    {depthwise("dw2", "groups", 12, 3, "group: 12 stride: 2")} {norm("dw2")} {relu("dw2")}
    {depthwise("dw3", "dw2", 24, 2, "group: 12")} {LOSS % "dw3"}
"""


@pytest.mark.whole
def test_direct_convolutions_learn_what_the_reference_learns_and_no_plan_changes_a_bit(tmp_path):
    solver = solver_of(tmp_path, SEPARABLE)
    job = {"net": str(solver), "steps": 2, "poison": True}
    ways = [
        {"strategy": strategy, "slices": cut}
        for strategy in ("hybrid", "nested")
        for cut in (None, "whole/2", "whole/4")
    ]
    mine, reference, *others = trained([job, {**job, "device": "reference"}, *({**job, **way} for way in ways)])
    same_numbers(mine, reference, 1e-5)
    assert all("error" not in answer for answer in others), others
    assert len({(*answer["losses"], answer["parameters"]) for answer in [mine, *others]}) == 1


@pytest.mark.whole
@pytest.mark.samples(6)
@pytest.mark.parametrize("storage", NARROW)
@pytest.mark.parametrize(
    ("net", "cuts"),
    [("chain", ["whole/2"]), ("inception", ["..pool/4"]), ("dropout", ["whole/4"]), ("residual", ["..sum_relu/2"])],
)
def test_activations_in_16_bits_are_the_same_under_every_plan(net, cuts, storage):
    job = {"net": net, "steps": 2, "poison": True, "fields": RULES.get(net, {}), "storage": storage}
    ways = [
        {"strategy": strategy, "slices": cut, "part_bytes": part}
        for strategy in ("hybrid", "recompute", "nested")
        for cut in (None, *cuts)
        for part in (1, 4096)
    ]
    answers = trained([job, *({**job, **way} for way in ways)])
    assert all("error" not in answer for answer in answers), answers
    assert len({(*answer["losses"], answer["parameters"]) for answer in answers}) == 1


@pytest.mark.samples(18)
@pytest.mark.parametrize("storage", NARROW)
@pytest.mark.parametrize("net", [net for net in NETS if net not in NOT_ON_CUDA])
def test_activations_in_16_bits_learn_what_they_do_on_the_reference(net, storage):
    job = {"net": net, "steps": 2, "fields": RULES.get(net, {}), "storage": storage}
    mine, reference, wide = trained([job, {**job, "device": "reference"}, {**job, "storage": "fp32"}])
    same_numbers(mine, reference, 0.01)
    same_numbers(mine, wide, 0.05)
    assert mine["losses"] != wide["losses"]


@pytest.mark.whole
@pytest.mark.parametrize("storage", NARROW)
def test_a_captured_step_converts_as_one_that_is_not(storage):
    job = {"net": "residual", "steps": 3, "storage": storage, "part_bytes": 4096}
    plain, captured, resumed = trained([job, {**job, "graph": True}, {**job, "resume": 1}])
    assert captured["graphs"] > 0 and plain["losses"] == captured["losses"]
    assert plain["parameters"] == captured["parameters"] == resumed["parameters"]


@pytest.mark.whole
@pytest.mark.parametrize("fields", [{}, {"type": "Adam", "base_lr": 0.002, "iter_size": 2}], ids=["SGD", "held Adam"])
def test_bands_of_rows_change_no_bit(fields):
    job = {"net": "wide", "steps": 3, "poison": True, "fields": fields}
    rows = {"wide/4": "off", "wide/2,flat/3": "off", "wide/3": "..stem_relu/2"}
    ways = [{"split_weights": each, "slices": cut, "strategy": "hybrid", "resume": 2} for each, cut in rows.items()]
    answers = trained([job, *({**job, **way} for way in ways)])
    assert all("error" not in answer for answer in answers), answers
    assert len({(answer["losses"][-1], answer["parameters"]) for answer in answers}) == 1


PREACTIVATED = f"""
    {DATA} {conv("stem", "data", 8, 3)} {norm("stem")} {relu("stem")}
    {conv("a", "stem", 8, 3)} {norm("a")} {relu("a")} {conv("b", "a", 8, 3)}
    layer {{ name: "one" type: "Eltwise" bottom: "stem" bottom: "b" top: "one" }}
    {conv("c", "one", 8, 1)}
    layer {{ name: "two" type: "Eltwise" bottom: "c" bottom: "one" top: "two" }} {relu("two")}
    layer {{ name: "pool" type: "Pooling" bottom: "two" top: "pool" pooling_param {{ kernel_size: 2 stride: 2 }} }}
    layer {{ name: "d" type: "InnerProduct" bottom: "pool" top: "d" inner_product_param {{ num_output: 16
            weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "e" type: "InnerProduct" bottom: "d" top: "e" inner_product_param {{ num_output: 16
            weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "three" type: "Eltwise" bottom: "d" bottom: "e" top: "three" }} {relu("three")}
    {LOSS % "three"}
"""


@pytest.mark.whole
def test_products_with_residual_epilogues_learn_what_the_reference_learns_under_every_strategy(tmp_path):
    net = Net(read_net_text(PREACTIVATED), 0)
    fusions = {node.emitter.record.fusion for node in fuse(op_nodes(net), CudaDevice.fusions)}
    assert {"Conv+residual", "Conv+residual+relu", "InnerProduct+residual+relu"} <= fusions
    solver = solver_of(tmp_path, PREACTIVATED)
    job = {"net": str(solver), "steps": 2}
    jobs = [{**job, "strategy": strategy, "poison": True} for strategy in STRATEGIES]
    reference, *answers = trained([{**job, "device": "reference"}, *jobs], streams="random")
    for answer in answers:
        same_numbers(answer, reference, 1e-5)
    assert len({(*answer["losses"], answer["parameters"]) for answer in answers}) == 1


@pytest.mark.whole
@pytest.mark.samples(4)
@pytest.mark.parametrize(
    "fields", [{}, {"type": "Adam", "base_lr": 0.002, "clip_gradients": 0.3}, {"iter_size": 2}], ids=str
)
def test_updates_of_one_launch_change_no_bit(fields):
    job = {"net": "residual", "steps": 3, "fields": fields}
    ways = [{"strategy": strategy, "poison": poison} for strategy in ("liveness", "auto") for poison in (False, True)]
    ways += [{"graph": True}, {"resume": 1}, {"slices": "..sum_relu/2"}]
    apart, *answers = trained(
        [{**job, "without": [JOINED_UPDATES]}, *({**job, **way} for way in ways)], streams="random"
    )
    assert all("error" not in answer for answer in answers), answers
    assert len({(answer["losses"][-1], answer["parameters"]) for answer in (apart, *answers)}) == 1
    assert answers[0]["arena"] <= apart["arena"]


MASKED = f"""
    {DATA} {conv("stem", "data", 8, 3)} {relu("stem")} {conv("c", "stem", 8, 3)} {relu("c")}
    {conv("p", "c", 16, 1).replace("kernel_size: 1", "kernel_size: 1 stride: 2")} {norm("p")}
    {conv("a", "c", 16, 3).replace("kernel_size: 3", "kernel_size: 3 stride: 2")} {norm("a")}
    layer {{ name: "one" type: "Eltwise" bottom: "p" bottom: "a" top: "one" }} {relu("one")}
    {conv("b", "one", 16, 3)} {norm("b")}
    layer {{ name: "two" type: "Eltwise" bottom: "one" bottom: "b" top: "two" }} {relu("two")}
    {conv("d", "two", 8, 1)} {norm("d")} {relu("d")} {LOSS % "d"}
"""


@pytest.mark.whole
def test_relus_and_moments_in_the_epilogues_of_products_change_no_bit_under_any_strategy(tmp_path):
    net = Net(read_net_text(MASKED), 0)
    graph = rewrite(train_graph(net, CudaDevice(), UpdateRule("SGD", 1)), CudaDevice())
    assert sum("bottom_mask" in op.roles for op in graph.ops) == 4
    assert sum(role.startswith("moments") for op in graph.ops for role in op.roles) == 2 * 4
    left = [op.name.partition(".")[0] for op in graph.ops if "norm_sums" in op.roles and op.step == "dgrad"]
    assert left == ["d", "b"]  # for b behind a masked sum, and for a
    assert all(op.step != "relu_backward" for op in graph.ops)
    solver = solver_of(tmp_path, MASKED)
    job = {"net": str(solver), "steps": 2}
    jobs = [{**job, "strategy": strategy, "poison": True} for strategy in STRATEGIES]
    cuts = ["..c_relu/2", "..one_relu/4", "p..two_relu/2", "..b/2", "whole/2"]
    jobs += [{**job, "slices": cut, "strategy": "nested"} for cut in cuts]
    jobs += [{**job, "slices": cut, "strategy": "hybrid"} for cut in cuts[::2]]
    every = [MASKED_DGRAD, CONV_MOMENTS, DGRAD_SUMS_FUSION]
    apart = [*([fusion] for fusion in every), every]
    jobs += [{**job, "without": fusions, "strategy": "recompute"} for fusions in apart]
    reference, *answers = trained([{**job, "device": "reference"}, *jobs], streams="random")
    for answer in answers:
        same_numbers(answer, reference, 1e-5)
    assert len({(*answer["losses"], answer["parameters"]) for answer in answers}) == 1


@pytest.mark.whole
@pytest.mark.samples(6)
@pytest.mark.parametrize(("precision", "storage"), [("bf16", "bf16"), ("fp32", "bf16"), ("fp32", "fp16")])
def test_moments_and_sums_of_what_is_stored_in_16_bits_change_no_bit_under_any_kind_of_plan(
    precision, storage, tmp_path
):
    solver = solver_of(tmp_path, MASKED)
    graph = job_of(None, solver=solver, device=CudaDevice(precision=precision, storage=storage)).graphs[0]
    sums = [(role, op) for op in graph.ops for role in op.roles if role.startswith(("moments", "norm_sums"))]
    assert Counter(role.rstrip("1") for role, _ in sums) == {"moments": 2 * 4, "norm_sums": 2 * 2}
    assert not any(op.part_passes for _, op in sums)
    job = {"net": str(solver), "steps": 2, "precision": precision, "storage": storage}
    ways = [{"strategy": strategy, "poison": True} for strategy in KINDS]
    ways += [{"strategy": "hybrid", "slices": cut, "part_bytes": 1} for cut in (None, "p..two_relu/2", "..b/2")]
    ways += [
        {"strategy": "nested", "without": fusions} for fusions in ([CONV_MOMENTS], [CONV_MOMENTS, DGRAD_SUMS_FUSION])
    ]
    reference, *answers = trained([{**job, "device": "reference"}, *({**job, **way} for way in ways)], streams="random")
    for answer in answers:
        same_numbers(answer, reference, 0.02)
    assert len({(*answer["losses"], answer["parameters"]) for answer in answers}) == 1


@pytest.mark.whole
def test_a_step_without_fusions_that_do_not_fit_has_the_same_bits(tmp_path):
    solver = solver_of(tmp_path, MASKED)
    planned, between = job_of(None, solver=solver, device="cuda"), {}
    for strategy in STRATEGIES:
        steps = (planned, planned.less_fused, planned.less_fused.less_fused)
        fused, *apart = (evaluate(alone(each), strategy, 1).minimum_bytes for each in steps)
        if min(apart) < fused:
            between[strategy] = min(apart)
    assert {"vdnn-all", "liveness"} <= between.keys()
    job = {"net": str(solver), "steps": 2}
    jobs = [{**job, "strategy": name, "budget": budget, "poison": True} for name, budget in between.items()]
    jobs.append({**jobs[0], "resume": 1})
    fused, *answers, resumed = trained([{**job, "strategy": "liveness"}, *jobs], streams="random")
    assert (resumed["losses"][-1], resumed["parameters"]) == (fused["losses"][-1], fused["parameters"])
    for budget, answer in zip(between.values(), answers, strict=True):
        assert answer.get("arena", budget + 1) <= budget, answer
    assert len({(*answer["losses"], answer["parameters"]) for answer in (fused, *answers)}) == 1


WEIGHTED_TWICE = f"""
    {DATA} {LOSS % "data"}
    layer {{ name: "more" type: "Power" bottom: "loss" top: "more" loss_weight: 0.5 power_param {{ scale: 3 }} }}"""


def test_a_loss_that_another_layer_reads_gets_both_gradients(tmp_path):
    solver = solver_of(tmp_path, WEIGHTED_TWICE)
    reference, answer = trained(
        [{"net": str(solver), "steps": 2, "device": device} for device in ("reference", "cuda")]
    )
    same_numbers(answer, reference, 1e-5)


@pytest.mark.samples(2)
@pytest.mark.parametrize("order", fake_driver.STREAMS)
def test_no_order_of_the_streams_changes_a_bit(order):
    job = {"net": "residual", "steps": 2}
    jobs = [{**job, "strategy": strategy} for strategy in ("caffe", "inter", "hybrid", "auto")]
    seeds = range(3 if order == "random" else 1)
    found = {answer["parameters"] for seed in seeds for answer in trained(jobs, streams=order, seed=seed)}
    (expected,) = trained([job])
    assert found == {expected["parameters"]}


@pytest.mark.parametrize("net", ["chain", "residual"])
def test_the_last_loss_of_a_run_is_that_of_one_more_iteration(net):
    job = {"net": net, "fields": {"max_iter": 3, "display": 3, "test_iter": None, "test_interval": None}}
    ways = [{"strategy": strategy, "graph": graph} for strategy in ("liveness", "hybrid") for graph in (False, True)]
    expected, *answers = trained([{**job, "steps": 4}, *({**job, "steps": 3, "finish": True, **way} for way in ways)])
    assert all(losses(answer) == losses(expected) for answer in answers)


@pytest.mark.whole
def test_a_schedule_that_omits_a_wait_is_caught():
    job = {"net": "residual", "steps": 1, "strategy": "inter"}
    (right,) = trained([job])
    assert right["waits"]
    missed = right["waits"]
    for seed, order in product(range(3), LAZY):  # what an order makes of a wait is drawn
        if missed:
            answers = trained([{**job, "missing_wait": tick} for tick in missed], streams=order, seed=seed)
            same = [all(answer.get(what) == right[what] for what in ("losses", "parameters")) for answer in answers]
            missed = list(compress(missed, same))
    assert not missed


@pytest.mark.whole
@pytest.mark.samples(4)
@pytest.mark.parametrize("net", ["residual", "dropout", "chain"])
def test_a_captured_step_gives_the_same_bits_in_every_order(net):
    job = {"net": net, "steps": 5, "fields": RULES.get(net, {})}
    (expected,) = trained([job])
    losses(expected)
    captured = [{**job, "graph": True, "strategy": strategy} for strategy in ("liveness", "inter", "hybrid")]
    for seed in range(2):
        for answer in trained(captured, streams="random", seed=seed):
            assert (answer["losses"], answer["parameters"]) == (expected["losses"], expected["parameters"])
            assert answer["graphs"] >= 2  # a step for each of the two sets of buffers that batches come through


@pytest.mark.whole
def test_a_captured_step_keeps_only_the_order_of_the_schedule():
    job = {"net": "residual", "steps": 4, "strategy": "inter", "graph": True}
    (right,) = trained([job])
    without_wait = [{**job, "missing_wait": tick} for tick in right["waits"][:8]]
    answers = trained(without_wait, streams="random")
    assert any(answer.get("parameters") != right["parameters"] for answer in answers)
