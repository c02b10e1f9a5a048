"""Exit codes and errors of the command, independent of the verb."""

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from layermem import cli
from layermem.cli import show
from layermem.errors import BudgetError, DeviceError, DivergenceError, InputError

NET = "prototxt/digits/train_val.prototxt"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("is wrong", path="a.prototxt", line=3), 2),
        (BudgetError("does not fit", budget_bytes=1, minimum_bytes=2), 3),
        (DeviceError("is on fire"), 4),
        (DivergenceError("the loss is nan"), 5),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_error_of_ours_is_a_line_and_its_exit_code(layermem, monkeypatch, error, code):
    def fail(arguments):
        raise error

    monkeypatch.setattr(show, "run_show", fail)
    ended = layermem("show", "--net", NET)
    assert ended.code == code and ended.sentence


@pytest.mark.parametrize("where", ["a finalizer", "an import of native code"])
def test_an_interrupt_that_python_would_drop_or_rename_ends_the_command(layermem, monkeypatch, where):
    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def run(arguments):
        if where == "a finalizer":
            Finalized()
            time.sleep(60)
        raise ImportError("initialization failed") from KeyboardInterrupt()

    monkeypatch.setattr(show, "run_show", run)
    ended = layermem("show", "--net", NET)
    assert (ended.code, ended.err) == (130, "layermem: interrupted\n")


def test_an_interrupt_is_the_only_error_that_the_command_takes_from_a_callback(layermem, monkeypatch):
    class Finalized:
        def __del__(self):
            raise ValueError

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))
    monkeypatch.setattr(show, "run_show", lambda arguments: Finalized() and 0)
    assert layermem("show", "--net", NET).code == 0 and reported == [ValueError]


def test_an_error_of_several_lines_is_one_line(layermem, monkeypatch):
    def fail(arguments):
        raise InputError("is\n    wrong")

    monkeypatch.setattr(show, "run_show", fail)
    assert layermem("show", "--net", NET).err == "layermem: is wrong\n"


def test_a_reader_that_has_seen_enough_ends_it_quietly():
    words = [sys.executable, "-m", "layermem", "show", "--net", "prototxt/resnet152/train_val.prototxt"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        first = run.stdout.readline()
        run.stdout.close()
        error = run.stderr.read()
    assert first.startswith("ResNet-152") and error == "" and run.returncode == 0


def test_without_a_verb_it_says_which_there_are(layermem):
    ended = layermem()
    assert ended.code == 2 and ended.out == layermem("--help").out == layermem("help").out
    ended = layermem("--help")
    assert ended.code == 0 and layermem("help", "plan").out == layermem("plan", "--help").out
    for verb in ("train", "test", "plan", "plan-graph", "compare", "fit", "show", "time", "devices", "convert"):
        assert f"\n    {verb} " in ended.out
    assert "5 training diverged" in ended.out


def test_the_version_is_that_of_the_package(layermem):
    ended = layermem("--version")
    assert layermem("version") == ended
    assert ended.code == 0 and ended.out == f"layermem {cli.main.__globals__['__version__']}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("device_query", "-gpu", "0"), "Caffe's 'device_query' is `layermem devices` here"),
        (("train", "-solver", "s.prototxt"), "Caffe's '-solver' is written --solver here"),
        (("train", "--solver=s.prototxt", "-weights=w"), "Caffe's '-weights' is written --weights here"),
        (("train", "--solver", "s.prototxt", "--gpu=all"), "Caffe's '--gpu' is written --device cuda here"),
        (("train", "--solver", "s.prototxt", "--sigint_effect", "stop"), "is written --sigint-effect here"),
        (("time", "-model", "net.prototxt"), "is written --net here; `layermem caffe time` takes Caffe's flags"),
    ],
)
def test_a_word_of_the_caffe_command_is_answered_with_ours(layermem, words, says):
    ended = layermem(*words)
    assert ended.code == 2 and says in ended.sentence


def test_options_that_both_commands_have_mean_the_same(layermem):
    net = "prototxt/resnet20/train_val.prototxt"
    ended = layermem("plan", "--net", net, "--stage", "dummy,other", "--level=1", "--phase=TEST")
    assert ended.code == 0 and not ended.err


def test_an_unknown_option_is_answered_with_the_nearest_one(layermem):
    ended = layermem("plan", "--net", NET, "--bugdet=2GiB")
    assert ended.code == 2 and "unknown argument '--bugdet=2GiB' (did you mean --budget?)" in ended.sentence


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
def test_an_output_that_fills_the_disk_is_one_sentence():
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "layermem", "show", "--net", NET]
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    says = "layermem: cannot write the output: No space left on device; free some space or write to another disk"
    assert (ended.returncode, " ".join(ended.stderr.split())) == (2, says)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["plan", "--help"]])
def test_a_help_that_cannot_be_written_is_an_error(words):
    words = [sys.executable, "-m", "layermem", *words]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 2 and "cannot write the output: No space left on device" in ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
@pytest.mark.parametrize("net", [NET, "none.prototxt"])
def test_on_a_full_disk_of_standard_error_the_exit_code_is_the_same(net):
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "layermem", "show", "--net", net]
        assert subprocess.run(words, stdout=full, stderr=full).returncode == 2


def test_a_checkout_without_its_native_module_says_how_to_build_it(layermem, monkeypatch):
    def fail(arguments):
        raise ImportError("cannot import name '_native' from 'layermem'", name="layermem")

    monkeypatch.setattr(show, "run_show", fail)
    ended = layermem("show", "--net", NET)
    assert ended.code == 2 and "build it with `make native`" in ended.sentence


NAMED = 'name: "日本 \x1b[2J" layer { name: "é[/x]" type: "Input" top: "é" input_param { shape { dim: 2 dim: 3 } } }'


def run_shell(command, prototxt, **environment):
    words = ["sh", "-c", f"exec {shlex.quote(sys.executable)} -m layermem {command}", "sh", str(prototxt(NAMED))]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment}, errors="replace")


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("verb", ["show", "plan"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_letter_that_standard_output_cannot_encode_is_escaped(prototxt, encoding, verb):
    ended = run_shell(f'{verb} --net "$1"', prototxt, PYTHONIOENCODING=encoding)
    assert ended.returncode == 0 and "Error" not in ended.stderr and "\x1b" not in ended.stdout
    assert ("日本" if encoding == "utf-8" else "\\u65e5\\u672c") in ended.stdout


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize("verb", ["plan --json", "compare --strategies caffe"])
def test_a_closed_stream_is_an_empty_one(prototxt, verb, closed):
    ended = run_shell(f'{verb} --net "$1" {closed}', prototxt)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.samples(3)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_an_error_is_not_lost_with_another_stream(prototxt, closed):
    ended = run_shell(f'show --net "$1.missing" {closed}', prototxt)
    assert ended.returncode == 2 and ("no such file" in " ".join(ended.stderr.split())) == ("2>&-" not in closed)


def test_an_unknown_verb_is_answered_with_the_nearest_one(layermem):
    ended = layermem("plna")
    assert ended.code == 2 and "unknown verb 'plna' (did you mean plan? choose from train, " in ended.sentence


@pytest.mark.parametrize(
    "error, says",
    [
        (PermissionError(13, "Permission denied", "db/data.mdb"), "db/data.mdb: Permission denied; change its perm"),
        (FileNotFoundError(2, "No such file or directory", "w.caffemodel"), "w.caffemodel: No such file or directory;"),
        (OSError(24, "Too many open files"), "Too many open files; raise the limit of open files (ulimit -n)"),
        (RuntimeError("can't start new thread"), "starts no further thread"),
        (MemoryError(), "there is no memory left"),
    ],
)
def test_what_the_system_refuses_is_one_sentence_wherever_it_does(layermem, monkeypatch, error, says):
    def fail(arguments):
        raise error

    monkeypatch.setattr(show, "run_show", fail)
    ended = layermem("show", "--net", NET)
    assert ended.code == 2 and says in ended.sentence


@pytest.mark.samples(4)
@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.parametrize(
    "limit, code", [("-s 256", 4), ("-s 8192", 0), *((f"-v {limit}", 2) for limit in range(140000, 180001, 5000))]
)
def test_a_machine_of_small_limits_gets_a_sentence(limit, code, tmp_path):
    text = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: [2, 3] } } } '
    text += 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 } }'
    (tmp_path / "net.prototxt").write_text(text)
    command = f"ulimit {limit}; exec {sys.executable} -m layermem time --net {tmp_path}/net.prototxt --iterations 1"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert ended.returncode == code and "Traceback" not in ended.stderr, ended.stderr
    assert ("ulimit" in ended.stderr) == (code != 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "F.prototxt"), "unknown argument 'F.prototxt' (a file is given as --net F.prototxt or --solver F"),
        (("train", "F"), "unknown argument 'F' (a file is given as --solver F)"),
        (("test", "F"), "unknown argument 'F' (a file is given as --net F)"),
        (("plan", "--nett", "F"), "unknown argument '--nett' (did you mean --net?)"),
        (("train", "--max_iter", "2"), "a field of the solver is given as --iterations N, or --set max_iter=VALUE"),
        (("train", "--base-lr=0.1"), "a field of the solver is given as --set base_lr=VALUE"),
        (("train", "--solvr=F"), "unknown argument '--solvr=F' (did you mean --solver?)"),
        (("plan",), "one of the arguments --net --solver is required"),
        (("plan", "--net", NET, "--budget", "50"), "'50' is 50 bytes; did you mean '50%'?"),
        (("plan", "--net", NET, "--budget", "0.5"), "'0.5' is 0.5 bytes; did you mean '50%'?"),
        (("plan", "--net", NET, "--budget", "-5%"), "'-5%' is not an amount of memory"),
        (("plan", "--net", NET, "--strategy", "best"), "choose from"),
        (("convert", "x.onnx", "y.prototxt"), "is an ONNX model; use `layermem convert from-onnx MODEL NET OUT`"),
    ],
)
def test_the_error_of_a_command_that_is_nearly_right_says_what_is_right(layermem, words, says):
    ended = layermem(*words)
    assert ended.code == 2 and says in ended.sentence


def test_an_amount_of_memory_may_have_an_exponent(layermem):
    plans = [layermem("plan", "--net", NET, "--budget", text) for text in ("1e9", "1,000,000,000")]
    assert plans[0] == plans[1] and plans[0].code == 0


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\x80\x02"])
def test_a_checkpoint_of_pytorch_is_named(layermem, tmp_path, start):
    (tmp_path / "model.pth").write_bytes(start + bytes(range(256)))
    ended = layermem("convert", tmp_path / "model.pth", tmp_path / "x.caffemodel")
    assert ended.code == 2 and "is a checkpoint of PyTorch; save its weights as .safetensors" in ended.sentence


def test_a_command_that_needs_no_net_loads_no_code_for_nets():
    """Completion and help start in a tenth of a second."""
    code = "import sys; from layermem.cli import main; main(['docs']); print(*sys.modules, file=sys.stderr)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()
    assert not [name for name in loaded if name.startswith(("numpy", "google", "layermem.graph", "layermem.layers"))]
