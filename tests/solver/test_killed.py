"""A run that is killed at any moment resumes from its last snapshot, and ends in the same bits."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layermem.interactive.solver import Solver
from layermem.proto.read import read_solver_text
from layermem.solver.snapshot import read_snapshot
from tests.nets import NETS, solver_file, solver_text

LAST = 100
FIELDS = {"snapshot": 1, "max_iter": LAST, "test_iter": None, "test_interval": None, "type": "Adam", "base_lr": 0.01}
RUN = """
import sys
from pathlib import Path
from layermem.interactive.solver import Solver
from tests.nets import NETS, solver_file, solver_text
from tests.solver.test_killed import FIELDS
folder, snapshot = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
Solver(solver_file("dropout", folder, **FIELDS), device="reference", snapshot=snapshot).solve()
"""
ROOT = Path(__file__).parents[2]


def start(folder, *snapshot):
    return subprocess.Popen([sys.executable, "-c", RUN, str(folder), *map(str, snapshot)], cwd=ROOT)


def newest(folder):
    """The state of the latest iteration, which must be readable."""
    states = sorted(folder.glob("run_iter_*.solverstate"), key=lambda path: int(path.stem.split("_")[-1]))
    for path in states:
        read_snapshot(str(path))
    return states[-1:]


@pytest.mark.whole
def test_a_run_killed_at_random_moments_ends_in_the_bits_of_one_that_was_not(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    with Solver(solver_file("dropout", whole, **FIELDS), device="reference") as solver:
        solver.solve()
    rng, kills = random.Random(7), 0
    for _ in range(3):
        process = start(broken, *newest(broken))
        before = len(list(broken.glob("*.solverstate")))
        while process.poll() is None and len(list(broken.glob("*.solverstate"))) < before + 2:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert kills >= 2 and len(list(broken.glob("*.solverstate"))) < LAST
    assert start(broken, *newest(broken)).wait() == 0
    for iteration in (LAST // 2, LAST):
        name = f"run_iter_{iteration}.caffemodel"
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
        name = f"run_iter_{iteration}.solverstate.json"  # holds the hash of the state's values
        assert (broken / name).read_bytes() == (whole / name).read_bytes()


# ---- signals that ask ----------------------------------------------------------------------------------------------


def interrupted(folder, effect="stop", number=signal.SIGINT, after=2, **fields):
    """A solver that got a signal in its iteration `after`."""
    solver = None

    def log(event):
        if type(event).__name__ == "Stepped" and event.iteration == after:
            signal.raise_signal(number)

    solver = Solver(solver_file("chain", folder, **fields), device="reference", log=log)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGHUP)
    with solver:
        solver.solve(**{number.name.lower(): effect})
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGHUP)) == handlers
    return solver, sorted(path.name for path in folder.glob("*.solverstate"))


def test_an_interrupt_stops_after_the_iteration_with_a_snapshot(tmp_path):
    solver, saved = interrupted(tmp_path, snapshot_after_train=True)
    assert solver.interrupted and solver.iteration == 2 and saved == ["run_iter_2.solverstate"]


def test_an_interrupt_saves_nothing_where_the_solver_wants_no_snapshot_after_training(tmp_path):
    solver, saved = interrupted(tmp_path)
    assert solver.interrupted and solver.iteration == 2 and saved == []


def test_a_hangup_saves_a_snapshot_and_goes_on(tmp_path):
    solver, saved = interrupted(tmp_path, "snapshot", signal.SIGHUP)
    assert not solver.interrupted and solver.iteration == 6 and saved == ["run_iter_2.solverstate"]


def test_a_signal_may_be_given_no_effect(tmp_path):
    solver, saved = interrupted(tmp_path, "none")
    assert not solver.interrupted and solver.iteration == 6 and saved == []


def test_a_second_interrupt_ends_at_once(tmp_path):
    def log(event):
        if type(event).__name__ == "Stepped" and event.iteration == 2:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    solver = Solver(solver_file("chain", tmp_path, snapshot_after_train=True), device="reference", log=log)
    with solver, pytest.raises(KeyboardInterrupt):
        solver.solve()
    assert not list(tmp_path.glob("run*"))


def test_an_interrupted_run_goes_on_to_the_bits_of_the_whole_one(tmp_path):
    (tmp_path / "whole").mkdir()
    file = solver_file("chain", tmp_path / "whole", snapshot_after_train=True)
    with Solver(file, device="reference") as whole:
        whole.solve()
    interrupted(tmp_path, snapshot_after_train=True)
    file = solver_file("chain", tmp_path, snapshot_after_train=True)
    with Solver(file, device="reference", snapshot=tmp_path / "run_iter_2.solverstate") as solver:
        solver.solve()
    assert (tmp_path / "run_iter_6.caffemodel").read_bytes() == (
        tmp_path / "whole" / "run_iter_6.caffemodel"
    ).read_bytes()


@pytest.mark.parametrize("index", [0, 1])
def test_a_stop_at_the_end_of_a_test_leaves_its_data_where_an_uninterrupted_run_has_them(tmp_path, index):
    """Between two tests both are rewound, to be repeated; after the last one the iteration is still completed."""
    text = solver_text(snapshot_after_train=True, test_iter=[1, 2], test_interval=2, snapshot_prefix="PREFIX")
    text += "test_state {} test_state {} " + f"net_param {{ name: 'tiny' {NETS['chain']} }}"

    def run(folder, log=None, **options):
        folder.mkdir(exist_ok=True)
        file = read_solver_text(text.replace("PREFIX", str(folder / "run")), str(folder / "solver.prototxt"))
        with Solver(file, device="reference", log=log, **options) as solver:
            stopping.append(solver)
            solver.solve()
        return solver.iteration

    stopping = []

    def stop(event):
        if type(event).__name__ == "Tested" and (event.iteration, event.index) == (2, index):
            stopping[-1].request("stop")

    run(tmp_path / "whole")
    at = run(tmp_path / "broken", stop)
    assert at == 2 + index
    run(tmp_path / "broken", snapshot=tmp_path / f"broken/run_iter_{at}.solverstate")
    for end in ("caffemodel", "solverstate.json"):
        name = f"run_iter_6.{end}"
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
