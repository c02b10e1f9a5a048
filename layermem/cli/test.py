"""test: runs a net in phase TEST with weights, and prints its mean outputs and how often each class is right."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from layermem.cli.options import (
    add_allow_python,
    add_device,
    add_json,
    add_net_state,
    add_storage,
    add_threads,
    add_weights,
    device_of,
    print_json,
    print_warnings,
    stages,
    weight_files,
)
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.files import check_name, check_output, write_atomically
from layermem.utils.steps import is_quiet
from layermem.utils.text import printable

if TYPE_CHECKING:
    from layermem.graph.net import Net
    from layermem.solver.confusion import Confusion
    from layermem.solver.scoring import Scoring

TEST_BATCHES = 50  # of data whose size is not known, as in Caffe
TEST_EXAMPLE = """\
  layermem examples digits
  # of the weights that `layermem train --solver digits/solver.prototxt` saves:
  layermem test --net digits/train_val.prototxt --iterations 6 \\
                --weights out/digits_iter_700.caffemodel
  # and which digits it takes for which:
  layermem test --net digits/train_val.prototxt --iterations 6 --confusion digits.csv \\
                --weights out/digits_iter_700.caffemodel
"""


def add_verbs(verbs: Verbs) -> None:
    test = add_verb(verbs, "test", "evaluate weights on the TEST phase of a net", TEST_EXAMPLE)
    test.add_argument("--net", metavar="F", required=True, help="the net prototxt")
    add_weights(test, "weights, by layer name", required=True)
    test.add_argument(
        "--iterations",
        metavar="N",
        type=int,
        help=f"number of batches (default: once over the data set, or {TEST_BATCHES} if its size is not known)",
    )
    test.add_argument("--data", metavar="D", help="noise or noise:SEED: test on noise instead of the data of the net")
    add_json(test)
    add_device(test)
    add_storage(test)
    add_threads(test)
    test.add_argument("--batch", metavar="N", type=int, help="batch size, instead of the net's own")
    test.add_argument(
        "--confusion",
        metavar="OUT.csv",
        nargs="?",
        const="",
        help="print the accuracy of each class, and the classes that its items are mistaken for; with a file, write "
        "the whole matrix there",
    )
    test.add_argument("--labels", metavar="F", help="with --confusion: names of the classes, one in a line")
    test.add_argument("-b", "--budget", metavar="B", help="device memory: 2GiB, 512KiB or 50%%")
    add_net_state(test)
    add_allow_python(test)
    test.set_defaults(run=run_test)


def run_test(arguments: argparse.Namespace) -> int:
    from layermem import _native
    from layermem.report.plan_report import evaluate
    from layermem.report.summary import peaks
    from layermem.solver.jobs import StepOptions, net_job
    from layermem.solver.scoring import Scoring

    if arguments.iterations is not None and arguments.iterations < 1:
        raise InputError(f"--iterations {arguments.iterations} is too few; give 1 or more")
    net, noise = _test_net(arguments)
    device = device_of(arguments)
    _native.exit_on_bus_error()
    confusion, names = _confusion(arguments, net)
    copied = () if confusion is None else confusion.blobs
    report = evaluate(net_job(net, StepOptions(device=device, copied=copied)), None, arguments.budget)
    if report.refusal is not None:
        raise report.explain_refusal()
    print_warnings(report.job.graphs[0].warnings)
    with Scoring(net, report.program, device, noise=noise) as scoring:
        scoring.confusion = confusion
        print_warnings(scoring.feeds.notes)
        for name in scoring.load(weight_files(arguments)):
            print_warnings([f"layer '{name}' is not in the weight files and keeps its initial values"])
        batches = arguments.iterations or scoring.feeds.batches_of_a_pass(0) or TEST_BATCHES
        lines = _score_lines(scoring, batches)
        if arguments.json:
            deque(lines, maxlen=0)
            _write_confusion(confusion, names, arguments.confusion)
            counted = confusion.values(names) if confusion is not None else {}
            print_json({**_score_values(scoring, batches, report.peak_bytes), **counted})
            return 0
        for line in lines:
            print(printable(line), flush=True)
        _print_confusion(confusion, names)
        _write_confusion(confusion, names, arguments.confusion)
        if not is_quiet():
            print(peaks(report.peak_bytes, scoring.runner.measured_peak_bytes))
    return 0


def _test_net(arguments: argparse.Namespace) -> tuple[Net, int | None]:
    """Return the net, and the seed of the noise that it reads; None if it reads its own data."""
    from layermem.data import probe, probe_files
    from layermem.graph.net import Net, NetOptions
    from layermem.proto.read import read_net
    from layermem.proto.schema import PHASES
    from layermem.solver.noise import noise_seed

    noise = noise_seed(arguments.data)
    if arguments.data and noise is None:
        raise InputError(f"--data {arguments.data} names arrays, which only `train` takes; give noise, or leave it out")
    state = arguments.level, tuple(stages(arguments.stage)), arguments.allow_python
    options = NetOptions(arguments.batch, None, *state, noise=noise is not None)
    net = Net(read_net(arguments.net), PHASES["TEST"], options, probe=probe if options.noise else probe_files)
    return net, noise


def _confusion(arguments: argparse.Namespace, net: Net) -> tuple[Confusion | None, list[str] | None]:
    """Return the counts of --confusion, after checks of its files, and the names that --labels gives the classes."""
    from layermem.report.predictions import read_labels
    from layermem.solver.confusion import Confusion

    if arguments.confusion is None:
        if arguments.labels:
            raise InputError("--labels has no effect without --confusion; add it")
        return None, None
    if arguments.confusion:
        check_name(arguments.confusion, (".csv",), "a table")
        check_output(arguments.confusion)
    confusion = Confusion(net)
    names = [each.name for each in read_labels(arguments.labels, confusion.classes)] if arguments.labels else None
    return confusion, names


def _write_confusion(confusion: Confusion | None, names: list[str] | None, path: str | None) -> None:
    """Write the matrix if there is a file for it."""
    if confusion is not None and path:
        write_atomically(path, confusion.csv(names))


def _print_confusion(confusion: Confusion | None, names: list[str] | None) -> None:
    """Print a line for each class if they are counted."""
    from layermem.report.tables import print_table

    if confusion is not None:
        print_table(["class", ">items", ">right", ">accuracy", "others mostly"], confusion.rows(names))


def _score_values(scoring: Scoring, batches: int, peak_bytes: int) -> dict[str, object]:
    """The output of --json: means over the batches, null where a mean is not a number, and the peaks."""
    from layermem.report.records import number
    from layermem.solver.scoring import outputs_of

    weights = {output.name: output.weight for output in outputs_of(scoring.net) if output.weight}
    means = {name: [number(each) for each in values.ravel()] for name, values in scoring.means.items()}
    losses = [weight * float(scoring.means[name].sum()) for name, weight in weights.items()]
    return {
        "batches": batches,
        "loss": number(sum(losses)) if losses else None,
        "outputs": {name: values[0] if len(values) == 1 else values for name, values in means.items()},
        "predicted_peak_bytes": peak_bytes,
        "measured_peak_bytes": scoring.runner.measured_peak_bytes,
    }


def _score_lines(scoring: Scoring, batches: int) -> Iterator[str]:
    """Yield the lines of `caffe test`: one for each batch and value, then the means."""
    from layermem.report.log import number
    from layermem.solver.scoring import outputs_of

    weights = {output.name: output.weight for output in outputs_of(scoring.net)}
    for batch, values in scoring.run(batches):
        for name, value in () if is_quiet() else values.items():
            yield from (f"Batch {batch}, {name} = {number(each)}" for each in value.ravel())
    means = scoring.means
    if any(weights.values()):
        yield f"Loss: {number(sum(weights[name] * float(value.sum()) for name, value in means.items()))}"
    for name, value in means.items():
        for each in value.ravel():
            share = f" (* {number(weights[name])} = {number(weights[name] * each)} loss)" if weights[name] else ""
            yield f"{name} = {number(each)}{share}"
