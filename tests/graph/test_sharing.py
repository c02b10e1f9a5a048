"""A training step shared by ranks: its ops, and the bits that every number of ranks must give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.distributed.loopback import Loopback, run_ranks
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.ops import COMPUTE, UPDATE
from layermem.graph.sharing import BUCKET_BYTES, ORDER, check_shareable
from layermem.proto.read import SolverFile, read_net
from layermem.proto.schema import PHASES
from layermem.runtime.runner import Runner
from layermem.schedule.check import UnsafeSchedule, check
from layermem.schedule.ir import Schedule
from layermem.solver.build import build_nets
from layermem.solver.feeds import Feeds
from layermem.solver.jobs import StepOptions, solver_job
from layermem.solver.parameters import Parameters
from layermem.solver.rules import learning_rate, settings
from tests.compiling import compile
from tests.nets import DATA, LOSS, conv, norm, relu, solver_file

MICRO_BATCHES, ITERATIONS = 4, 3
NORMS = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {norm("conv1")} {relu("conv1")}
    layer {{ name: "fc" type: "InnerProduct" bottom: "conv1" top: "fc"
            inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "drop" type: "Dropout" bottom: "fc" top: "fc" dropout_param {{ dropout_ratio: 0.4 }} }}
    layer {{ name: "bn" type: "BatchNorm" bottom: "fc" top: "bn" }}
    {LOSS % "bn"}
"""
INNER = """layer { name: "fc" type: "InnerProduct" bottom: "%s" top: "fc"
                  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }"""
AFFINE_NORMS = f"""
    {DATA} {conv("conv1", "data", 4, 3)} layer {{ name: "bn1" type: "BN" bottom: "conv1" top: "bn1" }} {relu("bn1")}
    {INNER % "bn1"}
    layer {{ name: "bn2" type: "BN" bottom: "fc" top: "bn2" bn_param {{ decay: 0.3 moving_average: true }} }}
    {LOSS % "bn2"}
"""


def shared_norm(kind: str, name: str, bottom: str, averages: str = "abc", settings: str = "") -> str:
    params = " ".join(f'param {{ name: "{each}" }}' for each in averages)
    return f'layer {{ name: "{name}" type: "{kind}" bottom: "{bottom}" top: "{name}" {params} {settings} }}'


SIAMESE = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {shared_norm("BatchNorm", "n1", "conv1")}
    {conv("conv2", "n1", 4, 3)} {shared_norm("BatchNorm", "n2", "conv2")}
    {shared_norm("BN", "n3", "n2", "defg")} {shared_norm("BN", "n4", "n3", "hifg")}
    {INNER % "n4"} {LOSS % "fc"}
"""


def job(file: SolverFile, device, ranks: Ranks, slices: str | None = None):
    nets = build_nets(file)
    return nets, solver_job(file, nets, StepOptions(device=device), ranks).with_slices(slices)


def train(file: SolverFile, device, ranks: Ranks, transport, *, strategy="liveness", budget=None, slices=None):
    """Some iterations of one rank, which has all data: its parameters, and the optimizer state of its own rows."""
    nets, made = job(file, device, ranks, slices)
    program = compile(made.graphs, strategy=strategy, budget_bytes=made.resolve_budget(budget))
    check(*program.schedules)
    context = {**settings(file.message), "seed": 7, "step": 0, "iteration": 0, "rate": 0.0, "transport": transport}
    runner = Runner(program, device, context, poison=True)
    parameters, feeds = Parameters(nets.all, runner, 0), Feeds(nets.all, 7)
    parameters.fill(7)
    try:
        for iteration in range(ITERATIONS):
            context["iteration"], context["rate"] = iteration, learning_rate(file.message, iteration)
            batches = [feeds.next(0) for _ in range(ranks.micro_batches)]
            for sub_step in range(ranks.sub_steps):
                micro_batch = ranks.micro_batch(sub_step)
                context["step"], context["batch"] = iteration * ranks.micro_batches + micro_batch, batches[micro_batch]
                runner.run(0)
            if ranks.sub_steps > 1:
                runner.run(1)
        assert runner.measured_peak_bytes == program.arena_bytes
        state = [name for name, buffer in runner.persistent.items() if buffer.kind == "history"]
        return (
            {name: runner.read(name) for name in nets.train.params},
            {name: [runner._read(band.name, 0, band.tensor) for band in runner._bands[name]] for name in state},
        )
    finally:
        feeds.close()


def train_on(file, size, device="cpu", **options):
    """The parameters, which all ranks must have alike, and the optimizer state of all rows."""

    def run(transport: Loopback):
        ranks = Ranks(transport.rank, size, MICRO_BATCHES)
        return train(file, get_device(device), ranks, transport, **options)

    results = run_ranks(size, run, seed=size)
    for parameters, _ in results[1:]:
        for name, value in parameters.items():
            assert np.array_equal(value, results[0][0][name]), name
    names = dict.fromkeys(name for _, state in results for name in state)
    state = {name: np.concatenate([np.concatenate(s[name]) for _, s in results if name in s]) for name in names}
    return results[0][0], state


def assert_same(one, other):
    for mine, theirs in zip(one, other, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert np.array_equal(mine[name], theirs[name]), name


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("net", "fields"),
    [
        ("chain", {}),
        ("residual", {"type": "Adam"}),
        (NORMS, {"type": "Adam", "clip_gradients": 0.05}),
        (AFFINE_NORMS, {"type": "Adam"}),
        (SIAMESE, {}),
        ("shared", {"type": "Nesterov", "clip_gradients": 0.05}),
        ("dropout", {"type": "AdaDelta"}),
        ("unreached", {"type": "RMSProp", "momentum": 0, "clip_gradients": 0.05}),
    ],
    ids=[
        "chain",
        "residual",
        "norms, dropout and clip",
        "BN",
        "shared averages",
        "shared weights",
        "dropout",
        "unreached",
    ],
)
def test_every_number_of_ranks_gives_the_same_bits(net, fields, device, tmp_path):
    file = solver_file(net, tmp_path, iter_size=MICRO_BATCHES, **fields)
    one = train_on(file, 1, device)
    for size in (2, 4):
        assert_same(one, train_on(file, size, device))


@pytest.mark.whole
@pytest.mark.samples(4)
@pytest.mark.parametrize(
    ("strategy", "budget"), [("auto", "55%"), ("recompute", None), ("nested", None), ("auto", "70%")]
)
def test_plans_of_ranks_change_no_bit(strategy, budget, tmp_path):
    file = solver_file(NORMS, tmp_path, iter_size=MICRO_BATCHES, type="Adam", clip_gradients=0.05)
    one = train_on(file, 1)
    for size in (1, 2, 4):
        assert_same(one, train_on(file, size, strategy=strategy, budget=budget))


@pytest.mark.samples(2)
@pytest.mark.parametrize("slices", ["whole/2", "conv1..pool1/2"])
def test_slices_of_micro_batches_change_no_bit(slices, tmp_path):
    file = solver_file("chain", tmp_path, iter_size=MICRO_BATCHES)
    one = train_on(file, 1)
    for size in (1, 2, 4):
        assert_same(one, train_on(file, size, slices=slices))


def test_a_gradient_that_slices_carry_is_not_made_with_its_sum(tmp_path):
    """As one op that covers both, it would be there as a whole in no slice."""
    narrow = """layer { name: "narrow" type: "InnerProduct" bottom: "conv1" top: "narrow"
                        inner_product_param { num_output: 2 bias_term: false weight_filler { type: "xavier" } } }"""
    net = f"{DATA} {conv('conv1', 'data', 4, 3)} {narrow} {LOSS % 'narrow'}"
    file = solver_file(net, tmp_path, iter_size=MICRO_BATCHES)
    _, made = job(file, get_device("cpu"), Ranks(micro_batches=MICRO_BATCHES), "whole/2")
    step = made.graphs[0]
    assert step.by_name["narrow.wgrad@2/2"].roles["dw0"] == "narrow.w0.part"
    assert all(step.by_name[op.covers[0]].record.batch_slice is None for op in step.fused_updates)
    assert_same(train_on(file, 1), train_on(file, 1, slices="whole/2"))


def test_micro_batches_are_summed_from_zero(tmp_path):
    """The gradient of two micro-batches, where iter_size 1 with the same weights gives each part."""
    file = solver_file("chain", tmp_path, iter_size=2, momentum=0, weight_decay=0, base_lr=1.0)
    nets, made = job(file, get_device("cpu"), Ranks(micro_batches=2))
    parts = [op for op in made.graphs[0].ops if op.name.endswith(".accumulate")]
    assert {op.roles["dw0"] for op in parts} == {f"{op.roles['w0'].removesuffix('.diff')}.part" for op in parts}
    assert len(parts) == len(nets.train.params)


def test_one_micro_batch_is_the_step_of_one_machine(tmp_path):
    _, made = job(solver_file("chain", tmp_path), get_device("cpu"), Ranks())
    assert all(op.stream == COMPUTE for op in made.graphs[0].ops)
    assert not any(name.endswith(".part") for name in made.graphs[0].buffers)


@pytest.mark.parametrize("slices", [None, "whole/2", "fc..drop2/2"])
def test_all_ranks_communicate_in_one_order(slices, tmp_path):
    file = solver_file("dropout", tmp_path, iter_size=2, clip_gradients=1.0)
    orders = set()
    for rank, cut in ((0, None), (1, slices)):
        _, made = job(file, get_device("cpu"), Ranks(rank, 2, 2), cut)
        orders.add(tuple(op.name for op in made.graphs[0].ops if ORDER in op.touches))
    assert len(orders) == 1


def test_buckets_have_about_the_same_bytes_and_follow_the_backward_pass(tmp_path):
    layers = "".join(
        f'layer {{ name: "ip{i}" type: "InnerProduct" bottom: "{below}" top: "ip{i}" '
        'inner_product_param { num_output: 700 weight_filler { type: "xavier" } } }'
        for i, below in enumerate(["data", "ip0", "ip1", "ip2"])
    )
    file = solver_file(f"{DATA} {layers} {LOSS % 'ip3'}", tmp_path, iter_size=2)
    _, made = job(file, get_device("cpu"), Ranks(0, 2, 2))
    reduces = [op for op in made.graphs[0].ops if op.name.startswith("reduce.")]
    assert [op.name for op in reduces] == [f"reduce.{i}" for i in range(len(reduces))] and len(reduces) > 1
    assert all(BUCKET_BYTES <= op.record.nbytes < 2 * BUCKET_BYTES for op in reduces[:-1])
    first = made.graphs[0].ops.index(reduces[0])
    assert any(op.kind != UPDATE for op in made.graphs[0].ops[first:]), "nothing is left to hide it"


def test_optimizer_state_is_shared_out(tmp_path):
    file = solver_file("residual", tmp_path, iter_size=4, type="Adam")
    nbytes = {}
    for size in (1, 2, 4):
        graphs = [job(file, get_device("cpu"), Ranks(rank, size, 4))[1].graphs for rank in range(size)]
        found = [{b.name: b for graph in each for b in graph.buffers.values()} for each in graphs]
        nbytes[size] = [sum(b.nbytes for b in each.values() if b.kind == "history") for each in found]
    for size in (2, 4):
        assert sum(nbytes[size]) == nbytes[1][0]
        assert max(nbytes[size]) <= 1.2 * nbytes[1][0] / size + 256


def test_a_rank_without_rows_of_a_parameter_has_no_state_of_it(tmp_path):
    file = solver_file("chain", tmp_path, iter_size=8)
    names = []
    for rank in range(8):
        _, made = job(file, get_device("cpu"), Ranks(rank, 8, 8))
        names.append({b.name for b in made.graphs[0].buffers.values() if b.name == "conv1.w1.h0"})
    assert sum(map(len, names)) == 4  # conv1 has 4 outputs


def test_a_reduce_that_does_not_wait_for_its_gradients_is_unsafe(tmp_path):
    _, made = job(solver_file("chain", tmp_path, iter_size=2), get_device("cpu"), Ranks(0, 2, 2))
    schedule = compile(made.graphs, strategy="liveness").train
    check(schedule)
    with pytest.raises(UnsafeSchedule, match="without waiting"):
        check(without_wait(schedule, "reduce."))


def test_an_update_that_does_not_wait_for_its_reduce_is_unsafe(tmp_path):
    """On the stream of its reduce it comes after it; on another one it waits."""
    _, made = job(solver_file("chain", tmp_path, iter_size=2), get_device("cpu"), Ranks(0, 2, 2))
    step = made.graphs[0]
    ops = [replace(op, stream=COMPUTE) if op.step == "update" else op for op in step.ops]
    schedule = compile([replace(step, ops=tuple(ops)), *made.graphs[1:]], strategy="liveness").train
    check(schedule)
    with pytest.raises(UnsafeSchedule, match=r"update.* without waiting for tick"):
        check(without_wait(schedule, "score.w1.update"))  # the first of them


def without_wait(schedule: Schedule, name: str) -> Schedule:
    """`schedule`, in which the first instruction of that name waits for no other stream."""
    instructions = list(schedule.instructions)
    at = next(i for i, each in enumerate(instructions) if each.what.startswith(name) and each.after)
    instructions[at] = instructions[at]._replace(after=())
    return replace(schedule, instructions=tuple(instructions))


def test_state_that_goes_from_batch_to_batch_cannot_be_shared():
    net = Net(read_net("prototxt/lstm_lm/train_val.prototxt"), PHASES["TRAIN"])
    check_shareable(net, Ranks(0, 1, 4))
    with pytest.raises(InputError, match="carries its state"):
        check_shareable(net, Ranks(0, 2, 4))
