"""The benchmark of training steps: its contestants, their commands, their turns and the statistics."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from layermem.backends.cpu import CpuDevice
from tools.bench_cpu import PLANS, measure_costs, net_of, report_of
from tools.caffe_peer import seconds_per_step
from tools.cpu.contestants import (
    CAFFE,
    LAYERMEM,
    MALLOC_CONF,
    NNTRAINER,
    PYTORCH,
    Contestant,
    Setting,
    allocator_name,
    command,
    environment,
    find_allocators,
    list_contestants,
)
from tools.cpu.turns import LEFT_OUT, Result, comparison, last_error, race, table_rows

ROOT = Path(__file__).resolve().parents[2]
JEMALLOC = Path("/opt/lib/libjemalloc.so.2")
OURS, NCHW = Contestant(LAYERMEM), Contestant(PYTORCH, "NCHW")
COMPILED = Contestant(PYTORCH, "NCHW", compiled=True, allocator=JEMALLOC)
NET = "mnist:2"
PARAMETERS = 10

# A contestant that adds a line to `turns` and fails if --compile is given; its net in channels_last has no parameters.
FAKE = """#!{python}
import json, sys
steps = int(sys.argv[sys.argv.index("--steps") + 1])
name = "compiled" if "--compile" in sys.argv else sys.argv[sys.argv.index("--mode") + 1]
with open("{turns}", "a") as file:
    print(name, steps, file=file)
if name == "compiled":
    sys.exit("torch.InductorError: no compiler\\n\\nSet TORCHDYNAMO_VERBOSE=1")
seconds = [9.0, 8.0, *range(1, steps - 1)]
parameters = {parameters} if name == "nchw" else 0
print(json.dumps(dict([("is", "fake")], seconds=seconds, bytes=2**20, parameters=parameters)))
"""


@pytest.fixture
def fake(tmp_path):
    """A program to run instead of a Python with PyTorch, and the file that lists its runs."""

    def write(parameters=PARAMETERS):
        script, turns = tmp_path / "fake.py", tmp_path / "turns"
        script.write_text(FAKE.format(python=sys.executable, turns=turns, parameters=parameters))
        script.chmod(0o755)
        return script, turns

    return write


def setting_of(folder, torch_python="python", steps=5):
    files = {
        "description": folder / "net.json",
        "model": folder / "net.prototxt",
        "costs": folder / "costs.csv",
        "compile_cache": folder / "cache",
    }
    return Setting(NET, **files, steps=steps, threads=3, torch_python=str(torch_python))


def result_of(contestant, seconds, error=""):
    return Result(contestant, list(seconds), 2**21, "1.0", "a note", error)


# -- contestants -------------------------------------------------------------------------------------------------------


def test_each_layout_runs_compiled_or_not_and_under_each_allocator():
    names = [each.name for each in list_contestants(PLANS, [JEMALLOC], torch=True, caffe=True, nntrainer=True)]
    layouts = [
        f"PyTorch {layout}{compiled}{allocator}"
        for compiled in ("", " compiled")
        for layout in ("NCHW", "channels_last")
        for allocator in ("", " jemalloc")
    ]
    ours, nntrainer = ["layermem", "layermem --budget 40% --slices auto"], ["planned", "unplanned"]
    others = ["PyTorch checkpoint", "BVLC Caffe", *(f"nntrainer {mode}" for mode in nntrainer)]
    assert names == [*ours, *layouts, *others]


def test_frameworks_that_are_not_installed_do_not_take_part():
    alone = list_contestants(PLANS, [JEMALLOC], torch=False, caffe=False, nntrainer=False)
    assert [each.framework for each in alone] == [LAYERMEM] * 2


def test_layermem_runs_without_a_preloaded_allocator(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "")
    everyone = list_contestants(PLANS, [JEMALLOC], torch=True, caffe=True, nntrainer=True)
    preloaded = {each.name for each in everyone if "LD_PRELOAD" in environment(each, setting_of(tmp_path))}
    assert preloaded == {each.name for each in everyone if each.name.endswith(" jemalloc")} and len(preloaded) == 4


def test_the_environment_names_threads_allocator_and_compile_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("MALLOC_CONF", raising=False)
    values = environment(COMPILED, setting_of(tmp_path))
    assert values["OMP_NUM_THREADS"] == "3" and values["LD_PRELOAD"] == str(JEMALLOC)
    assert values["MALLOC_CONF"] == MALLOC_CONF and values["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "cache")
    monkeypatch.setenv("MALLOC_CONF", "narenas:1")
    assert environment(COMPILED, setting_of(tmp_path))["MALLOC_CONF"] == "narenas:1"


def test_commands_name_the_net_the_mode_and_the_steps(tmp_path):
    setting = setting_of(tmp_path, "/opt/python")
    tail = ["--steps", "5", "--threads", "3"]
    budget = command(Contestant(LAYERMEM, "--budget 40%"), setting)
    served = ["--serve", NET, "--budget 40%", str(setting.costs)]
    assert budget == [sys.executable, str(ROOT / "tools/bench_cpu.py"), *served, *tail]
    peer = ["/opt/python", str(ROOT / "tools/torch_peer.py"), str(tmp_path / "net.json")]
    assert command(NCHW, setting) == [*peer, "--mode", "nchw", *tail]
    assert command(COMPILED, setting) == [*peer, "--mode", "nchw", "--compile", *tail]
    assert str(tmp_path / "net.prototxt") in command(Contestant(CAFFE), setting)
    driver = ["--mode", "planned", "--driver", str(tmp_path / "nntrainer_steps")]
    assert command(Contestant(NNTRAINER, "planned"), setting)[2:] == [str(tmp_path / "net.json"), *driver, *tail]


def test_a_library_that_is_named_replaces_the_installed_one_of_its_allocator(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for file in (first / "libtcmalloc.so.4", second / "libtcmalloc_minimal.so.4", second / "libjemalloc.so.2"):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    installed = [second / "libjemalloc.so.2", second / "libtcmalloc_minimal.so.4"]
    assert find_allocators([], [str(first), str(second)]) == installed
    named = [JEMALLOC, Path("/opt/lib/libmimalloc.so")]
    assert find_allocators(named, [str(first), str(second)]) == [JEMALLOC, installed[1], named[1]]


@pytest.mark.parametrize(
    "file, name",
    [
        ("libtcmalloc_minimal.so.4", "tcmalloc"),
        ("libtcmalloc.so", "tcmalloc"),
        ("libjemalloc.so.2", "jemalloc"),
        ("mine.so", "mine.so"),
    ],
)
def test_an_allocator_is_named_after_its_library(file, name):
    assert allocator_name(Path("/usr/lib", file)) == name


# -- turns -------------------------------------------------------------------------------------------------------------


def test_turns_alternate_and_their_first_steps_do_not_count(tmp_path, fake):
    script, turns = fake()
    other = Contestant(PYTORCH, "NCHW", allocator=JEMALLOC)
    results = race([NCHW, other], setting_of(tmp_path, script), 2, PARAMETERS)
    assert turns.read_text().split("\n") == ["nchw 5"] * 4 + [""]
    assert [each.seconds for each in results] == [[1, 2, 3] * 2] * 2
    assert [(each.median, each.peak_bytes, each.error) for each in results] == [(2, 2**20, "")] * 2


def test_a_contestant_that_fails_has_no_further_turns_and_does_not_end_the_others(tmp_path, fake):
    script, turns = fake()
    failed, result = race([COMPILED, NCHW], setting_of(tmp_path, script), 2, PARAMETERS)
    assert turns.read_text().split("\n") == ["compiled 1", "compiled 5", "nchw 5", "nchw 5", ""]
    assert "InductorError: no compiler" in failed.error and result.median == 2


def test_one_run_per_compiled_mode_fills_the_cache(tmp_path, fake):
    script, turns = fake()
    both = [Contestant(PYTORCH, "NCHW", compiled=True), COMPILED]
    race(both, setting_of(tmp_path, script), 1, PARAMETERS)
    assert turns.read_text().split("\n") == ["compiled 1", "compiled 5", "compiled 5", ""]


def test_a_net_with_other_parameters_is_a_failure(tmp_path, fake):
    script, _ = fake()
    (result,) = race([Contestant(PYTORCH, "channels_last")], setting_of(tmp_path, script), 1, PARAMETERS)
    assert result.error == "the net has 0 parameters instead of 10" and not result.seconds


@pytest.mark.parametrize(
    "log, error",
    [
        (
            "a\ntorch.X.InductorError: CppCompileError: b\n\nSet TORCHDYNAMO_VERBOSE=1\n",
            "torch.X.InductorError: CppCompileError: b",
        ),
        ("layer 'a' is not supported\n", "layer 'a' is not supported"),
        ("", "without a word"),
    ],
)
def test_the_error_of_a_turn_is_the_last_line_that_names_an_exception(tmp_path, log, error):
    (tmp_path / "log").write_text(log)
    assert last_error(tmp_path / "log") == error


def test_the_steps_of_caffe_are_read_from_its_log():
    log = """I1 caffe.cpp:1] Iteration: 1 forward-backward time: 1200 ms.
I1 caffe.cpp:1] Iteration: 2 forward-backward time: 1.5e+06 ms.
I1 caffe.cpp:1] Average Forward-Backward: 1500 ms."""
    assert seconds_per_step(log) == [1.2, 1500.0]


# -- tables ------------------------------------------------------------------------------------------------------------


def test_the_table_has_median_minimum_ratio_and_bytes():
    rows = table_rows([result_of(OURS, [1, 5, 2]), result_of(NCHW, [4, 3, 8])])
    assert rows[0] == ["layermem", "2.000", "1.000", "1.00", "2", "a note"]
    assert rows[1] == ["PyTorch NCHW", "4.000", "3.000", "0.50", "2", "a note"]


def test_a_failure_has_a_row_with_its_error_in_one_cell():
    rows = table_rows([result_of(OURS, [2]), result_of(NCHW, [1], "exit code 1: a | b")])
    assert rows[1] == ["PyTorch NCHW", "failed", "", "", "", "exit code 1: a / b"]


def test_the_comparison_is_with_the_fastest_peer_that_completed():
    peers = [result_of(NCHW, [3]), result_of(Contestant(CAFFE), [4]), result_of(COMPILED, [1], "failed in turn 2")]
    sentence = comparison([result_of(OURS, [2]), *peers])
    assert sentence == "layermem is 1.50 times as fast as the fastest peer (PyTorch NCHW)."


def test_without_layermem_there_are_no_ratios():
    alone = [result_of(NCHW, [3]), result_of(OURS, [], "exit code 1")]
    assert table_rows(alone)[0][3] == "" and comparison(alone) == "The fastest peer is PyTorch NCHW."
    assert comparison([result_of(OURS, [3])]) == ""


# -- the command -------------------------------------------------------------------------------------------------------


def bench(*words):
    return subprocess.run([sys.executable, "tools/bench_cpu.py", *words], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.whole
def test_the_command_compares_layermem_with_a_peer(tmp_path, fake):
    script, _ = fake(net_of(NET).parameter_count)
    words = [
        "--net",
        NET,
        "--steps",
        "4",
        "--rounds",
        "2",
        "--torch-python",
        str(script),
        "--out",
        str(tmp_path / "out"),
    ]
    ended = bench(*words, "--only", "layermem", "--only", "PyTorch NCHW")
    assert ended.returncode == 0, ended.stderr
    rows = [line.split(" | ") for line in (tmp_path / "out").read_text().splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows[1:]] == ["| layermem", "| PyTorch NCHW"] and rows[2][1:3] == ["1.500", "1.000"]
    assert "times as fast as the fastest peer (PyTorch NCHW)." in ended.stdout


def test_the_command_runs_peers_alone(fake):
    script, _ = fake(net_of(NET).parameter_count)
    ended = bench("--net", NET, "--rounds", "1", "--torch-python", str(script), "--only", "PyTorch NCHW")
    assert ended.returncode == 0 and "The fastest peer is PyTorch NCHW." in ended.stdout, ended.stderr


@pytest.mark.whole
def test_layermem_reports_every_step_of_its_turn_planned_with_measured_costs(tmp_path):
    costs = tmp_path / "costs.csv"
    measure_costs(net_of(NET), 1, costs)
    ended = bench("--serve", NET, "", str(costs), "--steps", str(LEFT_OUT + 1))
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert f"predicted {report_of(net_of(NET), '', CpuDevice(1), costs).seconds:.3f} s" in report["note"]
    assert len(report["seconds"]) == LEFT_OUT + 1 and report["parameters"] == net_of(NET).parameter_count
    assert report["bytes"] > 2**20 and "of `caffe`" in report["note"]


@pytest.mark.whole
def test_layermem_runs_with_the_options_of_a_plan(tmp_path):
    options = "--strategy intra --storage bf16 --slices whole/2"
    ended = bench("--serve", "mnist:4", options, str(tmp_path / "none.csv"), "--steps", "1")
    assert ended.returncode == 0 and "slices whole/2" in json.loads(ended.stdout)["note"], ended.stderr


@pytest.mark.whole
def test_a_budget_that_does_not_fit_is_a_failure_with_a_reason(tmp_path):
    costs = tmp_path / "costs.csv"
    measure_costs(net_of(NET), 1, costs)
    ended = bench("--serve", NET, "--budget 1%", str(costs), "--steps", "1")
    assert ended.returncode and "BudgetError: budget " in ended.stderr


@pytest.mark.samples(4)
@pytest.mark.parametrize(
    "words, error",
    [
        (["--only", "PyTorch NHWC"], "there is no such contestant, but layermem, layermem --budget 40%"),
        (["--steps", "2"], "more than 2 steps"),
        (["--torch-python", "/nowhere/python"], "there is no program '/nowhere/python'"),
        (["--preload", "/nowhere/libjemalloc.so"], "there is no file '/nowhere/libjemalloc.so'"),
    ],
)
def test_options_that_no_turn_could_run_with_are_refused(words, error):
    ended = bench("--net", NET, *words)
    assert ended.returncode == 2 and error in ended.stderr
