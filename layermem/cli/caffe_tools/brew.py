"""The program `caffe`: train, test, time, device_query.

Each action translates Caffe's flags to options of the verb of `layermem` that does the same, and writes what the verb
reports as Caffe's log.  Options that Caffe does not have come from the environment: LAYERMEM_BUDGET is --budget.

source  Caffe tools/caffe.cpp, solver.cpp, common.cpp
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from layermem.cli import test as test_verb
from layermem.cli import time as time_verb
from layermem.cli import train as train_verb
from layermem.cli.caffe_tools.devices import DeviceChoice, asked_of, choose, selected
from layermem.cli.caffe_tools.gflags import Flag
from layermem.cli.caffe_tools.program import CaffeProgram, Call
from layermem.cli.caffe_tools.variables import environment_words
from layermem.cli.combinations import check_combinations
from layermem.cli.parser import Parser, VerbParser
from layermem.errors import InputError
from layermem.report.events import Event, Finished
from layermem.report.log import DONE, number
from layermem.utils.steps import is_quiet

if TYPE_CHECKING:
    from layermem.backends.cuda.driver.context import Gpu
    from layermem.interactive.solver import Solver
    from layermem.report.plan_report import PlanReport
    from layermem.solver.measure import MeasuredStep

FLAGS = (
    Flag("gpu", "", "the GPUs: numbers with commas between, or all; a batch for each in an iteration"),
    Flag("solver", "", "the solver prototxt"),
    Flag("model", "", "the net prototxt"),
    Flag("phase", "", "TRAIN or TEST, of `time`"),
    Flag("level", 0, "NetState level"),
    Flag("stage", "", "NetState stages, with commas between"),
    Flag("snapshot", "", "the .solverstate to resume from"),
    Flag("weights", "", "weight files, with commas between"),
    Flag("iterations", 50, "number of batches of `test`, of steps of `time`"),
    Flag("sigint_effect", "stop", "effect of Ctrl-C: stop, snapshot or none"),
    Flag("sighup_effect", "snapshot", "effect of a closed terminal: stop, snapshot or none"),
)
FLAGS_OF = {
    "train": ("gpu", "solver", "level", "stage", "snapshot", "weights", "sigint_effect", "sighup_effect"),
    "test": ("gpu", "model", "level", "stage", "weights", "iterations"),
    "time": ("gpu", "model", "phase", "level", "stage", "iterations"),
    "device_query": ("gpu",),
}


def run(call: Call) -> int:
    """Run the action that the command line names."""
    actions: Mapping[str, Callable[[Call], int]] = {
        "device_query": device_query,
        "test": test,
        "time": time,
        "train": train,
    }
    (action,) = call.words
    if action not in actions:
        call.log.write("\n".join(["Available caffe actions:", *(f"\t{name}" for name in actions)]), "caffe.cpp:81", "E")
        raise InputError(f"Unknown action: {action}")
    for flag in FLAGS:
        if flag.name not in FLAGS_OF[action] and call.values[flag.name] != flag.default:
            call.log.write(f"-{flag.name} has no effect on `caffe {action}`", severity="W")
    return actions[action](call)


# -- train -------------------------------------------------------------------------------------------------------------


def train(call: Call) -> int:
    """Train a net, or go on from a snapshot."""
    arguments = call.group.agree(lambda: _train_arguments(call))
    code = train_verb.run_train(arguments, lambda solver: _train_log(call, solver))
    return 0 if code in (128 + signal.SIGINT, 128 + signal.SIGHUP) else code


def _train_arguments(call: Call) -> argparse.Namespace:
    from layermem.proto.read import read_solver

    path = call.needed("solver", "a solver definition to train")
    if call.values["snapshot"] and call.values["weights"]:
        raise InputError("-snapshot resumes a training and -weights begins a finetuning; give only one of them")
    solver = read_solver(path)
    choice = choose(call, *asked_of(solver, call.text("gpu")), several=True)
    words = ["--solver", path, "--allow-nan", "--level", call.text("level")]
    for name in ("stage", "snapshot", "weights", "sigint_effect", "sighup_effect"):
        if call.values[name]:
            words += [f"--{name.replace('_', '-')}", call.text(name)]
    if choice.count > 1:
        words += ["--iter-size", str(choice.count * solver.message.iter_size)]
        words += ["--ranks", str(choice.count)] if choice.name == "cuda" else []
    return _arguments(call, "train", words, choice)


def _train_log(call: Call, solver: Solver) -> AbstractContextManager[Callable[[Event], None]]:
    """Log the beginning of a training; return the function that logs its events."""
    from layermem.proto.text import caffe_text

    if is_quiet():
        return nullcontext(lambda event: None)
    parameters = caffe_text(solver.param).rstrip()
    call.log.write(f"Initializing solver from parameters: \n{parameters}", "solver.cpp:45")
    call.log.write(saved(solver.report))
    for path in filter(None, call.text("weights").split(",")):
        call.log.write(f"Finetuning from {path.strip()}", "solver.cpp:72")
    if solver.resumed_from:
        call.log.write(f"Resuming from {solver.resumed_from}", "caffe.cpp:235")
    call.log.write("Starting Optimization", "caffe.cpp:239")

    def show(event: Event) -> None:
        call.log(event)
        if isinstance(event, Finished):
            call.log.write(DONE, "caffe.cpp:250")

    return nullcontext(show)


def saved(report: PlanReport) -> str:
    """One line with the bytes of the plan of a training, and of Caffe's training."""
    from layermem.utils.units import format_bytes, format_share

    caffe = report.job.bvlc_bytes
    limit = (
        "no budget (LAYERMEM_BUDGET)" if report.budget_bytes is None else f"budget {format_bytes(report.budget_bytes)}"
    )
    share = f"; {format_share(caffe - report.peak_bytes, caffe)} less" if report.peak_bytes < caffe else ""
    return (
        f"memory: {format_bytes(report.peak_bytes)} with strategy {report.strategy} and {limit}; "
        f"BVLC Caffe would take {format_bytes(caffe)} (computed){share}"
    )


# -- test --------------------------------------------------------------------------------------------------------------


def test(call: Call) -> int:
    """Score weights on the TEST phase of a net."""
    model = call.needed("model", "a model definition to score")
    weights = call.needed("weights", "model weights to score")
    choice = choose(call, call.text("gpu"), f"-gpu {call.text('gpu')}")
    words = ["--net", model, "--weights", weights, "--iterations", call.text("iterations")]
    arguments = _arguments(call, "test", words + _net_state(call), choice)
    call.log.write(f"Running for {call.values['iterations']} iterations.", "caffe.cpp:281")
    return test_verb.run_test(arguments)


# -- time --------------------------------------------------------------------------------------------------------------


def time(call: Call) -> int:
    """Measure the layers of a net."""
    model = call.needed("model", "a model definition to time")
    phase = call.text("phase")
    if phase not in ("", "TRAIN", "TEST"):
        raise InputError(f"-phase {phase} is no phase; give TRAIN or TEST")
    choice = choose(call, call.text("gpu"), f"-gpu {call.text('gpu')}")
    words = ["--net", model, "--iterations", call.text("iterations"), *(["--phase", phase] if phase else [])]
    arguments = _arguments(call, "time", words + _net_state(call), choice)
    call.log.write("*** Benchmark begins ***", "caffe.cpp:365")
    call.log.write(f"Testing for {call.values['iterations']} iterations.", "caffe.cpp:366")
    measured, network = time_verb.measure_all(arguments, call.group)
    if call.group.is_first:
        _log_times(call, measured)
        time_verb.show_times(arguments, measured, network)
    call.log.write("*** Benchmark ends ***", "caffe.cpp:415")
    return 0


def _log_times(call: Call, measured: MeasuredStep) -> None:
    """Write the times of layers and passes, in ms, in Caffe's words; a layer that the layer before it computes takes
    0."""
    from layermem.graph.ops import BACKWARD, FORWARD
    from layermem.solver.benchmark import times_by_layer

    job = measured.job
    spent = {each.name: each.seconds for each in times_by_layer(job.graphs[0], measured.step)}
    of_first = {name.partition("+")[0]: seconds for name, seconds in spent.items()}
    kinds = ((FORWARD, "forward", 400), (BACKWARD, "backward", 403))
    call.log.write("Average time per layer: ", "caffe.cpp:397")
    times = []
    for layer in job.nets[0].layers:
        times.append(spent.get(layer.name, of_first.get(layer.name, {})))
        for kind, word, line in kinds:
            text = f"{layer.name:>10}\t{word}: {number(1e3 * times[-1].get(kind, 0.0))} ms."
            call.log.write(text, f"caffe.cpp:{line}")
    forward, backward = (1e3 * sum(each.get(kind, 0.0) for each in times) for kind, *_ in kinds)
    call.log.write(f"Average Forward pass: {number(forward)} ms.", "caffe.cpp:408")
    call.log.write(f"Average Backward pass: {number(backward)} ms.", "caffe.cpp:410")
    call.log.write(f"Average Forward-Backward: {number(forward + backward)} ms.", "caffe.cpp:412")
    total = (forward + backward) * int(call.values["iterations"])
    call.log.write(f"Total Time: {number(total)} ms.", "caffe.cpp:414")


# -- device_query ------------------------------------------------------------------------------------------------------


def device_query(call: Call) -> int:
    """Describe the GPUs of -gpu."""
    gpu = call.text("gpu")
    call.log.write(f"Querying GPUs {gpu}", "caffe.cpp:138")
    for found in selected(gpu) if gpu else []:
        _log_gpu(call, found)
    return 0


def _log_gpu(call: Call, gpu: Gpu) -> None:
    facts = {
        "Device id": gpu.number,
        "Major revision number": gpu.capability[:-1],
        "Minor revision number": gpu.capability[-1:],
        "Name": gpu.name,
        "Total global memory": gpu.memory_bytes,
        "Total shared memory per block": gpu.shared_bytes,
        "Clock rate": int(gpu.clock / 1e3),
        "Number of multiprocessors": gpu.multiprocessors,
    }
    for label, value in facts.items():
        call.log.write(f"{label + ':':<30} {value}", "common.cpp:178")


# -- options of the verbs ----------------------------------------------------------------------------------------------


def _net_state(call: Call) -> list[str]:
    stage = ["--stage", call.text("stage")] if call.values["stage"] else []
    return ["--level", call.text("level"), *stage]


def _arguments(call: Call, verb: str, words: list[str], choice: DeviceChoice) -> argparse.Namespace:
    """Parse the options of a verb of `layermem`, with those of the environment and the device."""
    parser = Parser("caffe")
    module = {"train": train_verb, "test": test_verb, "time": time_verb}[verb]
    module.add_verbs(parser.add_subparsers(parser_class=VerbParser))
    arguments = parser.parse_args([verb, *words, "--device", choice.name, *environment_words(verb, choice.name)])
    check_combinations(arguments)
    arguments.index = choice.index
    arguments.group, arguments.words = call.group, call.arguments.words
    return arguments


CAFFE = CaffeProgram(
    run, "COMMAND, one of train, test, device_query, time", range(1, 2), "caffe.cpp:1", usage_code=0, flags=FLAGS
)
