"""Every strategy at three budgets, on whole small nets: the same snapshot to the bit, and the predicted bytes.

Live bytes are measured in the arena itself after every row of a training step: freed bytes are NaN, so 256 bytes that
hold anything else are in use.
"""

from functools import partial

import numpy as np
import pytest

from layermem._native import cpu
from layermem.backends.arena import POISON
from layermem.backends.base import get_device
from layermem.backends.cpu import CpuDevice
from layermem.graph.net import NetOptions
from layermem.graph.ops import STASH
from layermem.interactive.solver import Solver
from layermem.nets import resnet
from layermem.planning.costs import model_costs
from layermem.planning.pipeline import Compiler
from layermem.planning.plan import Plan
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net, read_net_text, read_solver
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.ir import allocations
from layermem.solver.build import build_nets
from layermem.solver.jobs import StepOptions, solver_job
from layermem.utils.units import ALIGN
from tests.nets import LOSS, solver_file

SETTINGS = {"snapshot_after_train": True, "test_initialization": False}


def small(net, batch, side, until=None):
    """The text of a net whose data are noise of `side` x `side` pixels, up to the layer `until`."""
    message, kept = net.message, []
    for layer in message.layer:
        if layer.type == "DummyData":
            layer.include[0].ClearField("stage")
            for shape in layer.dummy_data_param.shape:
                shape.dim[0] = batch
                shape.dim[2:] = [side] * len(shape.dim[2:])
            layer.dummy_data_param.data_filler[1].max = 5
        if layer.type != "Data":
            kept.append(layer)
        if layer.name == until:
            break
    return "\n".join(f"layer {{ {layer} }}" for layer in kept)


def digits(folder):
    """The net of `make train`, on the real digits."""
    file = read_solver("prototxt/digits/solver.prototxt")
    file.message.snapshot_prefix, file.message.snapshot_after_train = str(folder / "run"), True
    return file


def cifar(folder):
    return solver_file(small(read_net_text(str(resnet.cifar(8, 2, 2))), 2, 16), folder, **SETTINGS)


def googlenet(folder):
    """GoogLeNet to the end of its first inception module, with a classifier on top."""
    whole = read_net("prototxt/googlenet/train_val.prototxt")
    text = small(whole, 2, 24, until="inception_3a/output") + LOSS % "inception_3a/output"
    return solver_file(text, folder, **SETTINGS)


NETS = {"digits": digits, "ResNet-8": cifar, "GoogLeNet's first module": googlenet}


@pytest.fixture(scope="module", params=["reference", "cpu"])
def device(request):
    before = cpu.threads()
    yield CpuDevice(1) if request.param == "cpu" else get_device(request.param)
    CpuDevice(before)


@pytest.fixture(scope="module", params=NETS)
def net(request):
    return NETS[request.param]


def trained(file, folder, device, **options):
    """Train two iterations; return the solver, the bytes in use after each row, and the weights that it wrote."""
    with Solver(file, device=device, iterations=2, batch=2, **options) as solver:
        bytes_after = watched(solver)
        solver.solve()
        (written,) = folder.glob("*.caffemodel")
        return solver, bytes_after, written.read_bytes()


def watched(solver):
    """Measure the bytes in use after every row of the first training step."""
    executor, found = solver.runner.executors[0], []
    floor = solver.program.persistent.device_bytes
    arena = solver.runner.arena.bytes[floor:]

    def look(call):
        if not found:  # what an earlier test left behind
            arena[:] = POISON
        call()
        if len(found) < len(executor.calls):
            used = (arena.reshape(-1, ALIGN) != POISON).any(axis=1)
            found.append(floor + int(used.sum()) * ALIGN)

    executor.calls = [partial(look, call) for call in executor.calls]
    return found


def foretold(schedule):
    """After each row: the bytes in use by the schedule, and how many of them may be all ones (masks)."""
    after = np.zeros((2, len(schedule.instructions) + 1), int)
    masks = {r.begin for r in schedule.residencies if _kind(schedule, r) == STASH}
    for begin, end, nbytes in allocations(schedule.residencies):
        after[0, begin : end - (end < len(schedule.instructions))] += nbytes
        if begin in masks:
            after[1, begin : end - (end < len(schedule.instructions))] += nbytes
    return after[:, :-1]


def _kind(schedule, residency):
    buffer = schedule.graph.buffers.get(residency.buffer)
    return buffer.kind if buffer is not None else None


@pytest.mark.whole
@pytest.mark.samples(9)
def test_every_strategy_at_three_budgets_writes_the_same_snapshot(net, device, tmp_path):
    """A plan that several strategies or budgets share runs only once."""
    expected = trained(net(tmp_path), tmp_path, device, strategy="caffe")[2]
    file = net(tmp_path)
    graphs = [*solver_job(file, build_nets(file, NetOptions(batch=2)), StepOptions(device=device)).graphs]
    chosen: dict[object, tuple[Plan, int]] = {}
    for strategy in STRATEGIES:
        compiler = Compiler(ArenaPlanner(graphs, model_costs(device.name)), strategy)
        least, most = compiler.search.min_memory_program.arena_bytes, compiler.compile(None).arena_bytes
        for budget in {least, (least + most) // 2, max(least, most)}:
            plan = compiler.compile(budget).train.plan
            key = plan.order, frozenset(plan.decisions.items()), plan.overlays, plan.copy_lead
            chosen.setdefault(key, (plan, budget))
    for plan, budget in chosen.values():
        options = {"plan": plan, "budget": budget, "host_budget": "1TiB", "poison": True}
        solver, bytes_after, found = trained(net(tmp_path), tmp_path, device, **options)
        assert found == expected, (plan.strategy, budget)
        program = solver.program
        assert program.arena_bytes == solver.runner.measured_peak_bytes == solver.runner.arena.nbytes <= budget
        in_use = np.array(bytes_after)
        said, masks = foretold(program.train)
        assert (in_use <= said).all() and (in_use >= said - masks).all(), (plan.strategy, budget)
