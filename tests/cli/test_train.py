"""`layermem train`, on the digits that are in the repository."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nets import ABSENT, absent_net

ROOT = Path(__file__).parents[2]

SOLVER = Path("prototxt/digits/solver.prototxt")
NET = "prototxt/digits/train_val.prototxt"


def test_a_run_prints_its_plan_then_the_lines_of_caffe_then_both_peaks(layermem, solver):
    ended = layermem("train", "--solver", solver(), "--budget", "50%", "--iterations", "3")
    lines = ended.out.splitlines()
    assert ended.code == 0 and "strategy auto" in lines[0] and lines[1].startswith("peak ")
    caffe = [line for line in lines if re.match(r"I\d{4} [\d:.]+ +\d+ \w+\.\w+:\d+\] ", line)]
    said = [line.split("] ", 1)[1] for line in caffe]
    assert said[0] == "Solving LeNet (digits)" and said[-1] == "Optimization Done."
    assert "Iteration 0, Testing net (#0)" in said and "Iteration 0, lr = 0.05" in said
    predicted, measured = re.search(r"predicted ([\d,]+) bytes, measured ([\d,]+) bytes", ended.out).groups()
    assert predicted == measured == re.search(r"([\d,]+) bytes", lines[1])[1]
    process = ended.out.partition("\nprocess ")[2]
    assert "max RSS " in process and "expected " in process


def test_the_last_lines_name_the_weights_and_a_command_that_tests_them(layermem, solver):
    ended = layermem("train", "--solver", solver(), "--iterations", "3")
    weights, command = ended.out.splitlines()[-2:]
    assert Path(weights.removeprefix("weights").strip()).exists()
    tested = layermem(*shlex.split(command.partition("layermem ")[2]))
    assert tested.code == 0 and "accuracy = " in tested.out
    assert (
        "\nweights " not in layermem("train", "--solver", solver(snapshot_after_train="false"), "--iterations", "3").out
    )
    ended = layermem("train", "--solver", solver(), "--iterations", "3", "--data", "noise")
    assert ended.out.splitlines()[-1].startswith("weights ")


def test_a_terminal_sees_that_a_run_is_planned(layermem, solver, terminal):
    path, stream = solver(), terminal()
    assert layermem("train", "--solver", path, "--iterations", "1").code == 0
    assert "planning " in stream.getvalue()


def test_at_the_minimum_it_trains_and_a_byte_below_nothing_is_written(layermem, solver, tmp_path):
    path = solver()
    refused = layermem("train", "--solver", path, "--budget", "1KiB", "--iterations", "1")
    assert refused.code == 3 and refused.out == ""
    minimum = json.loads(layermem("plan", "--solver", path, "--budget", "1KiB", "--json").out)["minimum_bytes"]
    assert f"({minimum:,} bytes)" in refused.sentence
    assert layermem("train", "--solver", path, "--budget", minimum - 1, "--iterations", "1").code == 3
    assert [p.name for p in tmp_path.iterdir()] == ["solver.prototxt"]
    ended = layermem("train", "--solver", path, "--budget", minimum, "--iterations", "1")
    assert ended.code == 0 and (tmp_path / "digits_iter_1.caffemodel").exists()


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_snapshots_are_the_same_under_any_strategy(layermem, solver, tmp_path, device):
    path, saved = solver(), set()
    for strategy in ("caffe", "hybrid"):
        words = ("--strategy", strategy, "--host-budget", "1TiB", "--device", device, "--iterations", "2")
        assert layermem("train", "--solver", path, *words).code == 0
        saved.add((tmp_path / "digits_iter_2.caffemodel").read_bytes())
    assert len(saved) == 1


def test_a_run_goes_on_from_a_snapshot_to_the_same_bits(layermem, solver, tmp_path):
    path = solver()
    model = tmp_path / "digits_iter_4.caffemodel"
    assert layermem("train", "--solver", path, "--iterations", "4").code == 0
    whole = model.read_bytes()
    model.unlink()
    assert layermem("train", "--solver", path, "--iterations", "2").code == 0
    state = tmp_path / "digits_iter_2.solverstate"
    assert layermem("train", "--solver", path, "--snapshot", state, "--iterations", "4").code == 0
    assert model.read_bytes() == whole


def test_a_seed_changes_the_start(layermem, solver, tmp_path):
    path, saved = solver(), set()
    for seed in (1, 2):
        layermem("train", "--solver", path, "--seed", seed, "--iterations", "0")
        saved.add((tmp_path / "digits_iter_0.caffemodel").read_bytes())
    assert len(saved) == 2


def test_a_saved_plan_is_run(layermem, solver, tmp_path):
    path, plan = solver(), tmp_path / "plan.json"
    assert layermem("plan", "--solver", path, "--strategy", "sublinear", "--save", plan).code == 0
    ended = layermem("train", "--solver", path, "--load", plan, "--iterations", "1")
    assert ended.code == 0 and "strategy sublinear" in ended.out.splitlines()[0]
    ended = layermem("train", "--solver", path, "--load", plan, "--iterations", "1", "--batch", "3")
    assert ended.code == 2 and "was made for another net" in ended.sentence


def test_offloaded_bytes_may_live_in_a_file(layermem, solver, tmp_path):
    ended = layermem("train", "--solver", solver(), "--strategy", "hybrid", "--spill", tmp_path, "--iterations", "1")
    assert ended.code == 0 and "\nhost " in ended.out
    ended = layermem("train", "--solver", solver(), "--strategy", "hybrid", "--spill", tmp_path / "none")
    assert ended.code == 2 and "--spill" in ended.sentence


def test_ctrl_c_stops_after_the_iteration_with_a_snapshot_and_130(solver, tmp_path):
    words = [sys.executable, "-m", "layermem", "train", "--solver", str(solver(max_iter=10**6))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            if "Iteration 50 " in line:
                run.send_signal(signal.SIGINT)
                break
        rest = run.stdout.read()
    assert run.returncode == 130 and "Optimization stopped early." in rest
    iteration = int(re.search(r"digits_iter_(\d+).solverstate", rest)[1])
    command = rest.splitlines()[-1].partition("resume with ")[2].split()
    assert command == ["layermem", *words[3:], "--snapshot", str(tmp_path / f"digits_iter_{iteration}.solverstate")]
    assert 50 <= iteration < 10**6 and (tmp_path / f"digits_iter_{iteration}.caffemodel").exists()


def test_a_loss_of_nan_is_exit_code_5_unless_allowed(layermem, solver, tmp_path):
    path = solver(base_lr="1e30")
    ended = layermem("train", "--solver", path, "--iterations", "9")
    assert ended.code == 5 and "training has diverged" in ended.sentence
    assert not list(tmp_path.glob("*.caffemodel"))
    assert layermem("train", "--solver", path, "--iterations", "9", "--allow-nan").code == 0
    assert (tmp_path / "digits_iter_9.caffemodel").exists()


def test_weights_are_given_several_times_or_with_commas(layermem, solver, tmp_path):
    layermem("train", "--solver", solver(), "--iterations", "0")
    weights = tmp_path / "digits_iter_0.caffemodel"
    for ending in ("npz", "safetensors"):
        assert layermem("convert", weights, tmp_path / f"w.{ending}").code == 0
    words = ("--weights", f"{weights}, {tmp_path / 'w.npz'}", "--weights", tmp_path / "w.safetensors")
    several = layermem("test", "--net", NET, *words, "--iterations", "1")
    one = layermem("test", "--net", NET, "--weights", weights, "--iterations", "1")
    assert several.code == 0 and several.out == one.out
    assert layermem("train", "--solver", solver(), *words, "--iterations", "0").code == 0
    gone = layermem("test", "--net", NET, *words, "--weights", tmp_path / "gone.npz", "--iterations", "1")
    assert gone.code == 2 and "gone.npz" in gone.sentence


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("train", "--solver", "nowhere"), "no such file"),
        (("train", "--solver", SOLVER, "--device", "reference", "--threads", "2"), "--threads needs --device cpu"),
        (("train", "--solver", SOLVER, "--threads", "0"), "give at least 1"),
        (("train", "--solver", SOLVER, "--threads", "100000"), "give at most 1,024"),
        (("train", "--solver", SOLVER, "--iterations", "-1"), "give 0 or more"),
        (("train", "--solver", SOLVER, "--weights", "nowhere"), "nowhere"),
        (("train", "--solver", SOLVER, "--snapshot", "nowhere"), "nowhere"),
        (("train", "--solver", SOLVER, "--weights", "a", "--snapshot", "b"), "give only one of them"),
        (("test", "--net", NET, "--weights", "nowhere"), "nowhere"),
        (("test", "--net", NET, "--weights", "w", "--iterations", "0"), "give 1 or more"),
    ],
)
def test_impossible_runs_are_refused(layermem, words, says):
    ended = layermem(*words)
    assert ended.code == 2 and says in ended.sentence


@pytest.mark.samples(4)
@pytest.mark.parametrize("columns", ["1", "20", "40"])
def test_a_narrow_terminal_in_an_ascii_locale_shows_the_run(solver, columns):
    pty = pytest.importorskip("pty")
    main, terminal = pty.openpty()
    words = [sys.executable, "-m", "layermem", "train", "--solver", solver(), "--iterations", "2"]
    settings = {**os.environ, "COLUMNS": columns, "PYTHONIOENCODING": "ascii", "TERM": "xterm"}
    ended = subprocess.Popen(words, stdout=terminal, stderr=subprocess.PIPE, env=settings)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is closed
        while part := os.read(main, 65536):
            shown += part
    os.close(main)
    assert (ended.communicate()[1], ended.returncode) == (b"", 0) and b"2iterations" in b"".join(shown.split())


def test_a_test_interval_without_test_iter_is_noted(layermem, solver):
    path = solver(test_interval=2)
    assert "test_interval has no effect" not in layermem("train", "--solver", path, "--iterations", "1").out
    path.write_text(re.sub(r"test_(iter|initialization):.*", "", path.read_text()))
    ended = layermem("train", "--solver", path, "--iterations", "1")
    assert ended.code == 0 and "test_interval has no effect without test_iter, the number of batches" in ended.out


def test_force_gray_of_raw_images_is_noted_once(layermem, solver, tmp_path):
    net = tmp_path / "gray.prototxt"
    text = Path(NET).read_text().replace("transform_param {", "transform_param { force_gray: true ")
    net.write_text(text.replace('source: "', f'source: "{Path(NET).parent.resolve()}/'))
    assert net.read_text().count("force_gray") == 2
    said = layermem("train", "--solver", solver(net=f'"{net}"'), "--iterations", "1").out
    note = "layer 'data': force_gray has no effect on images that are not encoded, as in BVLC Caffe"
    assert " ".join(said.split()).count(note) == 1
    assert "has no effect" not in layermem("train", "--solver", solver(), "--iterations", "1").out
    ended = layermem("test", "--net", net, "--weights", tmp_path / "digits_iter_1.caffemodel", "--iterations", "1")
    assert ended.code == 0 and f"warning: {note}" in " ".join(ended.err.split())


TWO_STEPS = 'base_lr: 1 lr_policy: "fixed" max_iter: 2 snapshot_after_train: false'


PLANNING = [
    "show --net",
    "show --solver",
    "plan --net",
    "plan --solver",
    "time --iterations 1 --net",
    "time --iterations 1 --solver",
    "compare --strategies liveness --net",
    "compare --strategies liveness --solver",
    "fit --budget 1MiB --max 4 --strategies liveness --net",
    "fit --budget 1MiB --max 4 --strategies liveness --solver",
    "train --data noise --solver",
]


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("command", PLANNING)
@pytest.mark.parametrize("kind", ABSENT)
def test_every_verb_that_plans_takes_shapes_for_a_source_that_is_not_there(kind, command, layermem, prototxt):
    net = prototxt(absent_net(ABSENT[kind]))
    solver = prototxt(f'net: "{net}" {TWO_STEPS}', "s.prototxt")
    words = (*command.split(), net if command.endswith("--net") else solver)
    assert layermem(*words, "--input", "x=4,1,6,6", "--input", "t=4").code == 0


def test_train_takes_shapes_for_noise_only_and_says_that_it_is_noise(layermem, prototxt):
    net = prototxt(absent_net(ABSENT["HDF5"]))
    solver = prototxt(f'net: "{net}" {TWO_STEPS}', "s.prototxt")
    shapes = ("--input", "x=4,1,6,6", "--input", "t=4")
    ended = layermem("train", "--solver", solver, *shapes)
    assert ended.code == 2 and "--input needs --data noise" in ended.sentence
    ended = layermem("train", "--solver", solver, "--data", "nosie", *shapes)
    assert ended.code == 2 and "unknown data 'nosie'; use noise or noise:SEED" in ended.sentence
    assert "the data are noise of seed 3" in layermem("train", "--solver", solver, "--data", "noise:3", *shapes).out


def started(tmp_path, iterations, prefix="s", more="", words=(), program=None, **streams):
    """A training in a process of its own, of the code `program` if there is one."""
    net = """
        layer { name: "d" type: "DummyData" top: "x" top: "label" dummy_data_param {
                shape { dim: [2, 3] } shape { dim: 2 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2 } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""
    (tmp_path / "net.prototxt").write_text(net)
    text = f'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: {iterations} display: 1 {more}'
    text += f' snapshot_prefix: "{prefix}"'
    (tmp_path / "solver.prototxt").write_text(text)
    main = ["-m", "layermem"] if program is None else ["-c", program]
    command = [sys.executable, *main, "train", "--solver", "solver.prototxt", "--device", "cpu", *words]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=tmp_path, text=True, env=variables, **streams)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_training_goes_on_without_a_reader_of_its_log(tmp_path, stream):
    with started(tmp_path, 200, **{stream: subprocess.PIPE}) as run:
        if stream == "stdout":
            assert run.stdout.readline()
        getattr(run, stream).close()
    assert run.returncode == 0 and (tmp_path / "s_iter_200.solverstate").exists()


def test_sigterm_saves_a_snapshot_and_ends_with_its_code(tmp_path):
    with started(tmp_path, 10**8, stdout=subprocess.PIPE) as run:
        for line in run.stdout:
            if "Iteration 3 " in line:
                break
        run.send_signal(signal.SIGTERM)
        said = run.stdout.read()
    assert run.returncode == 143 and "Snapshotting solver state" in said and "stopped early" in said
    assert len([*tmp_path.glob("s_iter_*.solverstate")]) == 1


def test_fields_of_the_solver_are_set_for_one_run(layermem, tmp_path, monkeypatch):
    started(tmp_path, 3, stdout=subprocess.DEVNULL).wait()
    monkeypatch.chdir(tmp_path)
    words = ["train", "--solver", "solver.prototxt", "--device", "cpu", "--set", "base_lr=0.25", "--set", "max_iter=2"]
    ended = layermem(*words, "--set", "snapshot_prefix=other")
    assert ended.code == 0 and "Iteration 1, lr = 0.25" in ended.out and Path("other_iter_2.caffemodel").exists()
    refused = layermem(*words, "--set", "base_rl=1")
    assert refused.code == 2 and "did you mean 'base_lr'?" in refused.sentence


def test_the_last_lines_name_the_best_weights_and_the_run_ends_without_better_ones(layermem, solver, tmp_path):
    words = ("train", "--solver", solver(base_lr="0"), "--set", "patience=2", "--set", "test_interval=2")
    ended = layermem(*words, "--iterations", "20")
    assert ended.code == 0 and "2 tests without a better one, so training ends" in ended.out
    best = tmp_path / "digits_best.caffemodel"
    lines = dict(re.split(r" {2,}", line, maxsplit=1) for line in ended.out.splitlines()[-3:])
    assert lines["best weights"].startswith(f"{best}  (iteration 2, accuracy = ")
    assert lines["weights"] == str(tmp_path / "digits_iter_6.caffemodel")
    assert f"--weights {best}" in lines["test with"] and best.exists()


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no SIGUSR1")
def test_a_signal_lets_a_training_look_at_its_budget_file_at_any_moment(tmp_path):
    budget = tmp_path / "budget.txt"
    budget.write_text("1GiB")
    with started(tmp_path, 10**6, words=("--budget-file", str(budget)), stdout=subprocess.PIPE) as run:
        assert "budget 1.00 GiB" in run.stdout.readline()  # before its first iteration
        run.send_signal(signal.SIGUSR1)
        expected = ["there is still a budget of 2.00 GiB: ", "there is a budget of 2.00 GiB: "]
        for line in run.stdout:
            if "Iteration 3," in line:
                budget.write_text("2GiB")
            if expected and expected[-1] in line:
                expected.pop()
                budget.write_text("1")
                run.send_signal(signal.SIGUSR1)
                run.send_signal(signal.SIGUSR1)
            if not expected:
                break
        run.send_signal(signal.SIGTERM)
        run.stdout.read()
    assert run.returncode == 128 + signal.SIGTERM and not expected


def test_a_budget_file_that_is_not_there_is_refused_without_another_budget(layermem, solver, tmp_path):
    words = ("train", "--solver", solver(), "--budget-file", tmp_path / "none", "--iterations", 1)
    assert layermem(*words).sentence.endswith("none: no such file; give an existing budget file")
    assert layermem(*words, "--budget", "50%").code == 0
