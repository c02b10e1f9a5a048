"""caffe train, test, time, device_query, on the digits."""

import re
import signal
from pathlib import Path

import numpy as np
import pytest

from layermem.cli.caffe_tools import devices
from layermem.proto.weights import read_weights

NET = "prototxt/digits/train_val.prototxt"
SOLVER = Path("prototxt/digits/solver.prototxt")


@pytest.fixture
def solver(tmp_path):
    """Writes the digits solver, which trains for 3 iterations below tmp_path, with fields changed."""

    def write(**fields):
        given = {"snapshot_prefix": f'"{tmp_path}/digits"', "max_iter": 3, "display": 1, "net": f'"{NET}"', **fields}
        text = SOLVER.read_text()
        for name, value in given.items():
            text = re.sub(rf"(?m)^{name}:.*\n", "", text) + f"\n{name}: {value}"
        path = tmp_path / "solver.prototxt"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def weights(caffe, solver, tmp_path):
    assert caffe("train", "-solver", solver()).code == 0
    return tmp_path / "digits_iter_3.caffemodel"


@pytest.mark.parametrize(
    "words",
    [
        ["train", "-solver", "{}"],
        ["train", "-solver={}"],
        ["train", "--solver", "{}"],
        ["--solver={}", "train"],
        ["-solver", "{}", "-gpu", "0", "train"],
    ],
)
def test_train_logs_caffes_lines_wherever_the_flags_are(caffe, solver, tmp_path, words):
    run = caffe(*(word.format(solver()) for word in words))
    assert (run.code, run.out) == (0, "") and (tmp_path / "digits_iter_3.caffemodel").exists()
    places = {text: place.partition(":")[0] for _, place, text in run.log}
    assert places["Solving LeNet (digits)"] == "solver.cpp" and places["Iteration 0, lr = 0.05"] == "sgd_solver.cpp"
    assert [text for _, place, text in run.log if place == "caffe.cpp:250"] == ["Optimization Done."]
    assert places["Iteration 0, Testing net (#0)"] == "solver.cpp"
    assert ("Use CPU." in places) != ("No GPU was found for -gpu 0" in run.text)


def test_refusals_name_the_variables_that_state_options(caffe, solver, monkeypatch):
    monkeypatch.setenv("LAYERMEM_BUDGET", "foo")
    assert "LAYERMEM_BUDGET: 'foo' is not an amount of memory" in caffe("train", "-solver", solver()).text
    monkeypatch.setenv("LAYERMEM_BUDGET", "1KiB")
    refused = caffe("train", "-solver", solver()).text
    assert "LAYERMEM_HOST_BUDGET=B" in refused and "LAYERMEM_SLICES=auto" in refused and "--" not in refused
    assert "--device" not in caffe("device_query", "-gpu", "0").text


def test_train_obeys_the_budget_of_the_environment_and_says_what_it_saves(caffe, solver, monkeypatch):
    free = caffe("train", "-solver", solver())
    monkeypatch.setenv("LAYERMEM_BUDGET", "760KiB")
    monkeypatch.setenv("LAYERMEM_STRATEGY", "recompute")
    monkeypatch.setenv("LAYERMEM_PRECISION", "tf32")  # of cuda, so that it has no effect here
    run = caffe("train", "-solver", solver())
    (line,) = [text for _, _, text in run.log if text.startswith("memory: ")]
    found = re.fullmatch(
        r"memory: (\d+) KiB with strategy recompute and budget 760 KiB; "
        r"BVLC Caffe would take ([\d.]+) MiB \(computed\); ([\d.]+) % less",
        line,
    )
    assert int(found[1]) <= 760 and abs(float(found[3]) - 100 * (1 - int(found[1]) / 1024 / float(found[2]))) < 0.2

    def losses(run):
        return [text.partition("), ")[2] for _, place, text in run.log if place == "solver.cpp:239"]

    assert losses(run) == losses(free) and len(losses(run)) == 3
    monkeypatch.setenv("LAYERMEM_BUDGET", "1KiB")
    assert "is below the minimum of 'recompute'" in caffe("train", "-solver", solver()).fatal


def test_train_goes_on_from_a_snapshot_and_from_weights(caffe, solver, weights, tmp_path):
    state = tmp_path / "digits_iter_3.solverstate"
    run = caffe("train", "-solver", solver(max_iter=4), "-snapshot", state)
    assert run.code == 0 and f"Resuming from {state}\n" in run.text and "Iteration 3 (" in run.text
    run = caffe("train", "-solver", solver(base_lr=0, snapshot_prefix=f'"{tmp_path}/tuned"'), "-weights", weights)
    assert run.code == 0
    first, second = (read_weights(path) for path in (weights, tmp_path / "tuned_iter_3.caffemodel"))
    assert all(np.array_equal(a, b) for name in first for a, b in zip(first[name], second[name]))
    both = caffe("train", "-solver", solver(), "-snapshot", state, "-weights", weights)
    assert "give only one of them" in both.fatal


def test_train_goes_on_when_the_loss_is_no_number(caffe, solver):
    run = caffe("train", "-solver", solver(base_lr="1e30"))
    assert run.code == 0 and re.search(r"Iteration 2 .*loss = -?nan", run.text)


def test_the_mode_and_the_device_of_a_solver_are_answered_in_the_log(caffe, layermem, solver, monkeypatch):
    monkeypatch.setattr(devices, "found_gpus", no_gpus)
    run = caffe("train", "-solver", solver(solver_mode="GPU", device_id=1))
    (warning,) = [text for severity, _, text in run.log if severity == "W"]
    assert warning.startswith("No GPU was found for solver_mode: GPU with device_id: 1, so the CPU computes: ")
    assert "Use CPU.\n" in caffe("train", "-solver", solver(solver_mode="CPU")).text
    assert "Use CPU.\n" in caffe("train", "-solver", solver()).text  # its default, GPU, is not stated
    ended = layermem("train", "--solver", solver(solver_mode="GPU"))
    assert ended.code == 0 and "solver_mode: GPU does not choose the device, which is cpu" in ended.sentence
    assert layermem("train", "--solver", solver(solver_mode="GPU"), "--device", "cpu").err == ""
    assert layermem("train", "--solver", solver(solver_mode="CPU")).err == ""


def no_gpus():
    from layermem.errors import CudaUnavailable

    raise CudaUnavailable("there is none")


def test_without_gpus_the_cpu_computes_the_batches_of_all_of_them(caffe, solver, monkeypatch):
    monkeypatch.setattr(devices, "found_gpus", no_gpus)
    run = caffe("train", "-solver", solver(iter_size=2), "-gpu", "0,1")
    assert "so the CPU computes, with 2 batches an iteration as 2 GPUs would: there is none" in run.text
    same = caffe("train", "-solver", solver(iter_size=4))
    lines = [[line for line in each.log if line[1] == "solver.cpp:258"] for each in (run, same)]
    assert lines[0] == lines[1] and lines[0]


@pytest.mark.parametrize("sent, code", [(signal.SIGINT, 0), (signal.SIGHUP, 0), (signal.SIGTERM, 143)])
def test_a_training_that_a_signal_stops_has_caffes_exit_code(caffe, monkeypatch, sent, code):
    monkeypatch.setattr("layermem.cli.train.run_train", lambda arguments, log: 128 + sent)
    assert caffe("train", "-solver", SOLVER).code == code


def test_test_prints_each_batch_and_the_means(caffe, layermem, weights):
    run = caffe("test", "-model", NET, "-weights", weights, "-iterations", "2")
    ours = layermem("test", "--net", NET, "--weights", weights, "--iterations", "2").out.splitlines()
    assert run.code == 0 and "Running for 2 iterations." in run.text
    assert [text for _, place, text in run.log if place == "caffe.cpp:1"] == ours
    assert ours[0].startswith("Batch 0, accuracy = ") and any(line.startswith("Loss: ") for line in ours)


@pytest.mark.samples(2)
@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_time_prints_caffes_lines_and_the_table(caffe, phase):
    run = caffe("time", "-model", NET, "-iterations", "2", "-phase", phase)
    assert run.code == 0
    forward = dict(re.findall(r"(\S+)\tforward: ([\d.e-]+) ms\.", run.text))
    backward = dict(re.findall(r"(\S+)\tbackward: ([\d.e-]+) ms\.", run.text))
    layers = ["data", "conv1", "relu1", "pool1"]
    assert [*forward][:4] == layers and {"ip2", "loss"} <= forward.keys() == backward.keys()
    means = dict(re.findall(r"Average (Forward pass|Backward pass|Forward-Backward): ([\d.e-]+) ms\.", run.text))
    for name, layers in (("Forward pass", forward), ("Backward pass", backward)):
        assert float(means[name]) == pytest.approx(sum(map(float, layers.values())), rel=1e-3)
    both = float(means["Forward-Backward"])
    assert both == pytest.approx(float(means["Forward pass"]) + float(means["Backward pass"]), rel=1e-3)
    assert (float(means["Backward pass"]) > 0) == (phase == "TRAIN")
    assert f"Total Time: {2 * both:.4g}"[:14] in run.text and "*** Benchmark ends ***" in run.text
    assert "link: " in run.text and re.search(r"layer +type +forward", run.text)


def test_device_query_describes_the_gpus(caffe, monkeypatch):
    from layermem.backends.cuda.driver.context import Gpu

    assert caffe("device_query").code == 0
    monkeypatch.setattr(devices, "found_gpus", no_gpus)
    assert caffe("device_query", "-gpu", "0").fatal == "there is none"
    monkeypatch.setattr(devices, "found_gpus", lambda: [Gpu(i, f"GPU {i}", "90", 2**34, 132) for i in range(2)])
    run = caffe("device_query", "-gpu", "all")
    assert run.code == 0 and re.findall(r"Name: +(.*)", run.text) == ["GPU 0", "GPU 1"]
    assert re.findall(r"Total global memory: +(\d+)", run.text) == [str(2**34)] * 2
    assert re.findall(r"Name: +(.*)", caffe("device_query", "--gpu=1").text) == ["GPU 1"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["train"], "needs a solver definition to train; give -solver FILE"),
        (["train", "-solver", "absent.prototxt"], "absent.prototxt: no such file"),
        (["train", "-solver", str(SOLVER), "-sigint_effect", "kill"], "unknown --sigint-effect 'kill'"),
        (["train", "-solver", str(SOLVER), "-gpu", "first"], "-gpu first is no list of GPUs"),
        (["test", "-weights", "a.caffemodel"], "needs a model definition to score"),
        (["test", "-model", NET], "needs model weights to score"),
        (["test", "-model", NET, "-weights", "absent.caffemodel"], "absent.caffemodel: no such file"),
        (["time"], "needs a model definition to time"),
        (["time", "-model", NET, "-phase", "test"], "-phase test is no phase; give TRAIN or TEST"),
        (["brew"], "Unknown action: brew"),
    ],
)
def test_what_caffe_refuses_aborts(caffe, words, what):
    run = caffe(*words)
    assert what in run.fatal and run.out == ""
    if words == ["brew"]:
        assert [text.strip() for severity, _, text in run.log if severity == "E"][1:] == [
            "device_query",
            "test",
            "time",
            "train",
        ]


def test_a_flag_without_effect_is_a_warning(caffe, solver):
    run = caffe("train", "-solver", solver(), "-iterations", "7", "-phase", "TEST")
    assert [text for severity, _, text in run.log if severity == "W"] == [
        "-phase has no effect on `caffe train`",
        "-iterations has no effect on `caffe train`",
    ]


def test_several_gpus_are_ranks_of_the_same_command(caffe, solver, monkeypatch):
    from layermem.backends.cuda.driver.context import Gpu

    monkeypatch.setenv(devices.VISIBLE, "4,5,6")  # is changed by the command, and restored after the test
    monkeypatch.setattr(devices, "found_gpus", lambda: [Gpu(i, f"GPU {i}", "90", 2**34, 132) for i in range(3)])
    started = []
    monkeypatch.setattr("layermem.cli.train.start_ranks", lambda *call: started.append(call) or 0)
    words = ["train", "-solver", str(solver(iter_size=2)), "-gpu", "2,0"]
    run = caffe(*words)
    assert run.code == 0 and started == [(2, ["caffe", *words])]
    assert devices.os.environ[devices.VISIBLE] == "6,4" and "Using GPUs 2, 0\n" in run.text


@pytest.mark.parametrize(("ended", "code"), [(130, 0), (134, 134), (0, 0)])
def test_a_stopped_training_ends_as_in_caffe(caffe, solver, monkeypatch, ended, code):
    monkeypatch.setattr("layermem.cli.train.run_train", lambda arguments, display: ended)
    assert caffe("train", "-solver", solver()).code == code


VARIABLES = {
    "budget": "2GiB",
    "host_budget": "1GiB",
    "strategy": "offload",
    "spill": "folder",
    "slices": "auto",
    "split_weights": "off",
    "storage": "bf16",
    "loss_scale": "8",
    "threads": "1",
    "precision": "tf32",
    "transport": "nccl",
    "allow_python": "1",
}


@pytest.mark.parametrize(
    ("verb", "function", "gpu", "without"),
    [
        ("train", "train.run_train", "", {"precision", "transport"}),
        ("train", "train.run_train", "0", {"threads"}),
        ("test", "test.run_test", "", {*VARIABLES} - {"budget", "storage", "threads", "allow_python"}),
        ("test", "test.run_test", "0", {*VARIABLES} - {"budget", "storage", "precision", "allow_python"}),
        ("time", "time.measure_all", "", {"loss_scale", "precision", "transport"}),
        ("time", "time.measure_all", "0", {"loss_scale", "threads", "transport"}),
    ],
)
def test_every_variable_is_an_option_where_it_has_an_effect(
    caffe, solver, weights, monkeypatch, verb, function, gpu, without
):
    from layermem.backends.cuda.driver.context import Gpu
    from layermem.errors import InputError

    seen = []

    def stop(arguments, *_):
        seen.append(vars(arguments))
        raise InputError("stopped")

    for name, value in VARIABLES.items():
        monkeypatch.setenv(f"LAYERMEM_{name.upper()}", value)
    monkeypatch.setattr(devices, "found_gpus", lambda: [Gpu(0, "GPU", "90", 2**34, 132)])
    monkeypatch.setattr(f"layermem.cli.{function}", stop)
    files = ["-solver", solver()] if verb == "train" else ["-model", NET]
    files += ["-weights", weights] if verb == "test" else []
    assert caffe(verb, *files, "-gpu", gpu).fatal == "stopped"
    expected = {**VARIABLES, "threads": 1, "allow_python": True}
    off = (None, False)
    for name, value in expected.items():
        found = seen[0].get(name)
        assert found in off if name in without else found == value, name
    assert (seen[0]["device"], seen[0]["index"]) == (("cuda", 0) if gpu else ("cpu", None))
