"""Training runs on the fake driver: batches, whole runs of LeNet, files, memory, graphs and events."""

from __future__ import annotations

import ast
import re

import h5py
import numpy as np
import pytest

from layermem.planning.strategies import STRATEGIES
from tests.backends.cuda.on_fake_driver import run, trained
from tests.backends.cuda.training import DIGITS, RULES, same_numbers
from tests.emulator import fake_driver
from tests.nets import NETS, solver_text

pytestmark = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)


@pytest.fixture(scope="module")
def lenet(tmp_path_factory) -> str:
    """A solver of LeNet on the digits, with a quarter of its batches, and one batch a test."""
    folder = tmp_path_factory.mktemp("lenet")
    net = (DIGITS / "train_val.prototxt").read_text()
    for its, mine in ('"digits_', f'"{DIGITS}/digits_'), ("batch_size: 64", "batch_size: 16"):
        assert its in net
        net = net.replace(its, mine)
    (folder / "train_val.prototxt").write_text(net.replace("batch_size: 60", "batch_size: 12"))
    solver = (DIGITS / "solver.prototxt").read_text().replace("test_iter: 6", "test_iter: 1")
    (folder / "solver.prototxt").write_text(solver)
    return str(folder / "solver.prototxt")


BATCHES = """
import sys
from layermem.backends.cuda.driver.host_io import InputStager
from layermem.interactive.solver import Solver
from layermem.backends.base import get_device

calls, stage = [], InputStager.stage

def staged(self, arrays, buffer_index):
    calls.append((sys._getframe(1).f_code.co_name, buffer_index, self.layer))
    stage(self, arrays, buffer_index)

InputStager.stage = staged
with Solver(sys.argv[1], device=get_device("cuda", graph=sys.argv[2] == "graph")) as solver:
    solver.step(1)
    calls.clear()
    solver.step(4)
print(calls)
"""


@pytest.mark.parametrize("way", ["eager", "graph"])
def test_the_next_batch_is_staged_while_the_gpu_works(way, lenet):
    done = run(BATCHES, lenet, way)
    assert done.returncode == 0, done.stderr
    calls = ast.literal_eval(done.stdout)
    assert [caller for caller, _, _ in calls] == [
        "stage_next_batch"
    ] * 4  # and never by the step itself, which would wait for it
    indices = [index for _, index, _ in calls]
    assert indices in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_a_resumed_run_reads_the_batches_of_the_uninterrupted_one(lenet):
    job = {"net": lenet, "steps": 4}
    whole, resumed = trained([job, {**job, "resume": 2}])
    assert (whole["losses"][2:], whole["parameters"]) == (resumed["losses"], resumed["parameters"])


@pytest.mark.whole
def test_lenet_learns_digits_under_every_strategy_as_the_reference_does(lenet):
    job = {"net": lenet, "steps": 2}
    jobs = [{**job, "device": "reference"}, *({**job, "strategy": name} for name in STRATEGIES)]
    reference, *answers = trained(jobs, streams="random")
    for answer in answers:
        same_numbers(answer, reference, 1e-5)
    assert len({(*answer["losses"], answer["parameters"]) for answer in answers}) == 1


@pytest.mark.whole
def test_lenet_learns_digits_in_its_own_batches():
    job = {"net": str(DIGITS / "solver.prototxt"), "steps": 1}
    mine, reference = trained([job, {**job, "device": "reference"}])
    same_numbers(mine, reference, 1e-5)


@pytest.mark.whole
def test_lenet_learns_digits_under_auto_in_a_part_of_the_memory_offload_included(lenet):
    job = {"net": lenet, "steps": 2}
    (free,) = trained([{**job, "strategy": "caffe"}])
    for order in fake_driver.STREAMS:
        for answer in trained([{**job, "strategy": "auto", "budget": "35%"}], streams=order):
            assert (answer["losses"], answer["parameters"]) == (free["losses"], free["parameters"])
            assert answer["arena"] <= 0.35 * free["arena"] and answer["host"] > 0


def test_an_invalid_label_ends_the_run_with_a_sentence():
    (answer,) = trained([{"net": "chain", "steps": 1, "labels": [5, 9]}])
    assert answer["error"].startswith("InputError: ")
    assert re.search(r"prototxt:\d+: layer 'accuracy' reads label", answer["error"])  # in the test before training


RECORDED = """
import sys
from layermem.backends.base import get_device
from layermem.interactive.solver import Solver

device, strategy, graph = sys.argv[2:]
settings = {"graph": True} if graph == "graph" else {}
with Solver(sys.argv[1], device=get_device(device, **settings), strategy=strategy) as solver:
    solver.step(2)
    solver.test()
"""


def recorded(folder, *how: str) -> dict[str, np.ndarray]:
    """The datasets of two HDF5Output layers, of the last iteration and of a test."""
    folder.mkdir()
    layers = "".join(
        f"""layer {{ name: "{phase}" type: "HDF5Output" bottom: "score" bottom: "label" include {{ phase: {phase} }}
            hdf5_output_param {{ file_name: "{folder / phase}" }} }}"""
        for phase in ("TRAIN", "TEST")
    )
    solver = folder / "solver.prototxt"
    solver.write_text(solver_text(iter_size=2) + f"net_param {{ name: 'recorded' {NETS['chain']} {layers} }}\n")
    done = run(RECORDED, str(solver), *how)
    assert done.returncode == 0, done.stderr
    datasets = {}
    for phase in ("TRAIN", "TEST"):
        with h5py.File(folder / phase) as file:
            datasets |= {f"{phase} {name}": file[name][...] for name in file}
    return datasets


@pytest.mark.whole
def test_hdf5_output_writes_the_rows_that_the_reference_writes(tmp_path):
    expected = recorded(tmp_path / "reference", "reference", "liveness", "eager")
    eager = recorded(tmp_path / "eager", "cuda", "liveness", "eager")
    assert {rows.shape for rows in eager.values()} == {(8, 5, 1, 1), (8, 1, 1, 1)}
    for name, rows in eager.items():
        np.testing.assert_allclose(rows, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    captured = recorded(tmp_path / "captured", "cuda", "hybrid", "graph")
    assert {name: rows.tobytes() for name, rows in captured.items()} == {n: rows.tobytes() for n, rows in eager.items()}


TILED = """
import sys
from layermem.backends.base import get_device
from layermem.backends.cuda.products import gemm_tiles
from layermem.interactive.solver import Solver

gemm_tiles.TILES = tuple(tile for tile in gemm_tiles.TILES if tile.name == sys.argv[2])
with Solver(sys.argv[1], device=get_device("cuda", precision=sys.argv[3])) as solver:
    solver.step(1)
"""


@pytest.mark.samples(2)
@pytest.mark.parametrize("tile, precision", [("128x64", "fp32"), ("64x64", "tf32")])
def test_a_tile_that_fills_48_kib_with_its_stages_opts_in_for_its_tables(tile, precision, lenet):
    """Without an opt-in a kernel gets 48 KiB of shared memory, static and dynamic together."""
    done = run(TILED, lenet, tile, precision)
    assert done.returncode == 0, done.stderr


GARBAGE = """
import gc, sys
from layermem.backends.cuda.driver.graph import GraphCapture
from layermem.backends.base import get_device
from layermem.interactive.solver import Solver

device, entered = get_device("cuda", graph=True), GraphCapture.__enter__

def leaving_garbage(self):
    entered(self)
    for _ in range(3):
        held = [device.driver_memory.pop()]
        held.append(held)  # only the collector finds it
    return self

GraphCapture.__enter__ = leaving_garbage
device.driver_memory = [device.driver.allocate(64) for _ in range(60)]
gc.set_threshold(1)
with Solver(sys.argv[1], device=device) as solver:
    solver.step(4)
    graphs = solver.runner.executors[0].calls.graphs
print(len(graphs), len(device.driver_memory) < 60)
"""


@pytest.mark.whole
def test_garbage_waits_until_a_step_is_captured(lenet):
    done = run(GARBAGE, lenet)
    assert done.returncode == 0 and "clean-up" not in done.stderr, done.stderr
    assert done.stdout.split() == ["2", "True"]


RELEASED = """
import gc, sys
from collections import Counter
from layermem.backends.cuda.driver.graph import DriverLibrary
from layermem.backends.base import get_device
from layermem.interactive.solver import Solver

called, call = Counter(), DriverLibrary.__call__

def counted(self, name, *arguments):
    called[name] += 1
    call(self, name, *arguments)

DriverLibrary.__call__ = counted
with Solver(sys.argv[1], device=get_device("cuda", graph=True)) as solver:
    solver.step(4)
del solver
gc.collect()
print(*(called[name] for name in ("cuGraphInstantiateWithFlags", "cuGraphExecDestroy", "cuGraphDestroy")))
"""


@pytest.mark.whole
def test_captured_steps_give_their_graphs_back(lenet):
    done = run(RELEASED, lenet)
    made, *destroyed = done.stdout.split()
    assert done.returncode == 0 and int(made) >= 2 and destroyed == [made, made], done.stdout + done.stderr


def test_a_captured_step_cannot_be_poisoned():
    (answer,) = trained([{"net": "chain", "steps": 1, "graph": True, "poison": True}])
    assert answer["error"].startswith("InputError: a captured step cannot poison")


def test_too_little_memory_is_an_error_that_says_what_would_fit():
    (answer,) = trained([{"net": "residual", "steps": 1}], memory=20_000)
    assert answer["error"].startswith("DeviceError") and answer["error"].endswith("try once other programs have ended")
    program = """
from layermem.backends.cuda.driver.context import Driver
driver = Driver()
held = driver.allocate(64 << 20)
driver.allocate(100 << 20)"""
    done = run(program, memory=134 << 20)
    assert (
        "cannot allocate 100 MiB (104857600 bytes): 70.0 MiB of 134 MiB are free, 64.0 MiB are taken by CUDA's context "
        "and other programs; try --budget free, which is now 6.00 MiB"
    ) in done.stderr


def test_the_gpu_holds_the_bytes_of_the_plan_and_not_one_more():
    """A GPU of exactly these bytes, and those of the images of kernels and of what the host pins, is enough; one of a
    byte less is not."""
    job = {"net": "residual", "steps": 2, "strategy": "hybrid"}
    (free,) = trained([job])
    (exact,) = trained([job], memory=free["taken"])
    assert (exact["losses"], exact["arena"]) == (free["losses"], free["arena"])
    (less,) = trained([job], memory=free["arena"] - 1)
    assert less["error"].startswith("DeviceError") and f"({free['arena']} bytes)" in less["error"]
    (less,) = trained([job], memory=free["taken"] - 1)
    assert less["error"].startswith("DeviceError") and "give a smaller --budget" in less["error"]


EVENTS = """
import sys
from layermem.backends.cuda.driver.context import Driver
from layermem.interactive.solver import Solver
from layermem.backends.base import get_device
from layermem.schedule.upload_ahead import feed_workspaces

made, event = [], Driver.event

def counted(self, timed=False):
    made.append(event(self, timed))
    return made[-1]

Driver.event = counted
with Solver(sys.argv[1], device=get_device("cuda"), strategy=sys.argv[2]) as solver:
    bound = len(made)
    solver.step(3)
    rows = [row for executor in solver.runner.executors for row in executor.schedule.instructions]
    awaited = sum(len({tick for row in e.schedule.instructions for tick in row.after}) for e in solver.runner.executors)
    feeds = sum(len(feed_workspaces(e.schedule.instructions)) for e in solver.runner.executors)
    awaited += feeds * len(solver.runner.device.driver.streams)  # when the bytes for the next batch are free
    print(bound, awaited, len(made) - bound, sum(row.op is None for row in rows))
"""


@pytest.mark.whole
@pytest.mark.parametrize("strategy", ["liveness", "inter"])
def test_events_are_made_once_and_only_where_the_schedule_waits(strategy, lenet):
    done = run(EVENTS, lenet, strategy)
    assert done.returncode == 0, done.stderr
    bound, awaited, later, copies = map(int, done.stdout.split())
    assert bound == awaited and later == 0
    assert awaited > 0 and (copies > 0) == (strategy == "inter")


@pytest.mark.exhaustive(2)
@pytest.mark.parametrize("graph", [False, True], ids=["calls", "graph"])
@pytest.mark.parametrize("net", ["chain", "residual"])
def test_another_budget_keeps_the_bits_the_context_and_the_modules_and_frees_the_arena_first(net, graph):
    job = {"net": net, "steps": 6, "fields": RULES.get(net, {}), "graph": graph}
    plain, least = trained([job, {**job, "budget": "60%"}])
    budgets = [least["arena"], None, least["arena"], "1GiB", "90%", least["arena"]]
    (changed,) = trained([{**job, "budgets": budgets}])
    assert (changed["losses"], changed["parameters"]) == (plain["losses"], plain["parameters"])
    assert changed["kept"] and changed["arena"] == least["arena"] < plain["arena"]
    assert changed["most"] - changed["taken"] <= plain["arena"] - least["arena"]  # never more than the larger arena
