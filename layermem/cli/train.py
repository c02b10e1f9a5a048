"""train: trains the net of a solver within a memory budget."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from layermem.cli.launch import start_ranks, starts_ranks, threads_per_rank
from layermem.cli.measuring import add_measure, save_costs
from layermem.cli.options import (
    DEVICE,
    MEMORY,
    NETS,
    Options,
    add_allow_python,
    add_budget,
    add_costs,
    add_data,
    add_device,
    add_input,
    add_iter_size,
    add_net_state,
    add_storage,
    add_strategy,
    add_threads,
    add_weights,
    device_of,
    free_line,
    hints_of,
    print_warnings,
    read_shapes,
    solver_file,
    stages,
    strategies_text,
    titled,
    weight_files,
)
from layermem.cli.parser import Verbs, add_verb
from layermem.cli.run_outputs import RunOutputs, add_run_outputs, check_run_outputs
from layermem.cli.verbosity import lost_output
from layermem.errors import InputError
from layermem.utils.mapped_pages import map_large_blocks
from layermem.utils.progress import show_progress
from layermem.utils.steps import is_quiet

if TYPE_CHECKING:
    from layermem.backends.base import Device
    from layermem.distributed.group import Group
    from layermem.interactive.solver import Solver
    from layermem.proto.schema import Message
    from layermem.report.events import Event

    Display = Callable[[Solver], AbstractContextManager[Callable[[Event], None]]]

TRAIN_EXAMPLE = """\
  layermem examples digits python_layers
  layermem train --solver digits/solver.prototxt --budget 50%
  # without its data, for the memory and the time that it takes:
  layermem train --solver digits/solver.prototxt --data noise --batch 8 --iterations 2
  # a net with layers in Python, whose code runs:
  layermem train --solver python_layers/solver.prototxt --allow-python
  # another budget while it trains: echo 40% > budget.txt
  layermem train --solver digits/solver.prototxt --budget 50% --budget-file budget.txt
  # two processes, each with a share of 4 micro-batches an iteration:
  layermem train --solver digits/solver.prototxt --ranks 2 --iter-size 4
  # 100 iterations more, from its last snapshot:
  layermem train --solver digits/solver.prototxt --iterations 800 \\
                 --snapshot out/digits_iter_700.solverstate
"""


def add_verbs(verbs: Verbs) -> None:
    train = add_verb(
        verbs, "train", "train the net of a solver within a memory budget", TRAIN_EXAMPLE, more=strategies_text
    )
    train.add_argument("--solver", metavar="F", required=True, help="the solver prototxt")
    _add_run(train)
    _add_data(titled(train, NETS))
    _add_device(titled(train, DEVICE))
    _add_start(train.add_argument_group("start"))
    add_run_outputs(train.add_argument_group("output"))
    add_costs(train)
    add_measure(train)
    _add_memory(titled(train, MEMORY))
    _add_signals(train.add_argument_group("signals"))
    train.set_defaults(run=run_train)


def _add_run(train: Options) -> None:
    train.add_argument("--iterations", metavar="N", type=int, help="last iteration, instead of max_iter")
    train.add_argument(
        "--set",
        metavar="FIELD=VALUE",
        action="append",
        help="a field of the solver, instead of its own, such as base_lr=0.001 or stepvalue=100,200; again for others",
    )
    add_iter_size(train)
    train.add_argument(
        "--ranks",
        metavar="N",
        type=int,
        help="train with N processes on this machine: starts mpiexec (`layermem docs ranks`)",
    )
    train.add_argument(
        "--allow-nan",
        action="store_true",
        help="continue when the loss is NaN or infinite (default: stop, exit code 5)",
    )


def _add_data(nets: Options) -> None:
    nets.add_argument("--batch", metavar="N", type=int, help="batch size of the train net, instead of its own")
    add_data(nets)
    add_input(nets)
    add_net_state(nets)
    add_allow_python(nets)


def _add_device(device: Options) -> None:
    add_device(device)
    add_storage(device)
    device.add_argument(
        "--loss-scale",
        metavar="N",
        help="with --storage fp16: gradients are multiplied by N, a power of two, or by a dynamic scale that overflows "
        "halve (default: dynamic)",
    )
    add_threads(device)
    device.add_argument(
        "--transport", choices=("mpi", "nccl"), help="on cuda: what carries gradients between ranks (default: mpi)"
    )
    device.add_argument("--cuda-graph", action="store_true", help="on cuda: capture the iteration as one CUDA graph")


def _add_memory(memory: Options) -> None:
    add_budget(memory)
    memory.add_argument(
        "--budget-file",
        metavar="F",
        help="a file whose text is the budget, as --budget takes it; after a change of the file, or SIGUSR1, the next "
        "iteration has a plan within the new budget (`layermem docs live_budget`)",
    )
    add_strategy(memory)
    memory.add_argument("--load", metavar="P.json", help="use a plan that `layermem plan --save` wrote")


def _add_signals(signals: Options) -> None:
    for name, event, default in (("sigint", "Ctrl-C", "stop"), ("sighup", "a closed terminal", "snapshot")):
        signals.add_argument(
            f"--{name}-effect",
            choices=("stop", "snapshot", "none"),
            default=default,
            help=f"effect of {event} (default: {default})",
        )


def _add_start(start: Options) -> None:
    add_weights(start, "initial weights, by layer name")
    start.add_argument("--snapshot", metavar="F", help="the .solverstate to resume from")
    start.add_argument(
        "--restart", action="store_true", help="resume from the newest snapshot of the solver's prefix, if there is one"
    )
    start.add_argument("--seed", metavar="N", type=int, help="random seed, instead of the solver's random_seed")


def run_train(arguments: argparse.Namespace, display: Display | None = None) -> int:
    """Train; `display` shows the events instead of a progress bar or a log on standard output."""
    from layermem import _native
    from layermem.report.summary import summary

    if arguments.input and arguments.data is None:
        raise InputError("--input needs --data noise, since a data set has shapes of its own; add it")
    group: Group = arguments.group
    if group.agree(lambda: starts_ranks(arguments)):
        return start_ranks(arguments.ranks, arguments.words)
    if group.size > 1:
        threads = threads_per_rank(group)
        if arguments.threads is None and arguments.device in (None, "cpu"):
            arguments.threads = threads
    early_events: list[Event] = []
    _native.exit_on_bus_error()
    map_large_blocks()
    with _solver(arguments, group.agree(lambda: _prepare(arguments)), early_events) as solver:
        if solver.iteration > solver.max_iter:
            what = f"is of iteration {solver.iteration}, after the last one, {solver.max_iter}"
            raise group.agreed(InputError(f"{what}; give more --iterations", path=solver.resumed_from))
        group.agree(lambda: _check_arrays(solver))
        print_warnings(_ignored_mode(solver.param, arguments))
        if arguments.measure:
            save_costs(arguments, solver.job)
        if not is_quiet():
            plan = summary(solver.report, short=not arguments.verbose)
            print(free_line(arguments, solver.report.budget_bytes) + plan, end="", flush=True)
        with group.agree(lambda: RunOutputs(arguments, solver)) as outputs:
            _run(solver, arguments, early_events, outputs, display or _display)
        measured = group.gather((solver.program.arena_bytes, solver.runner.measured_peak_bytes))
        if not is_quiet():
            _print_memory(solver, arguments, measured)
        outputs.plot()
        if group.is_first:
            outputs.trace()
        for line in () if is_quiet() else outputs.closing_lines():
            print(line, flush=True)
        group.agree(outputs.check)
        return 128 + (solver.stopped_by or signal.SIGINT) if solver.interrupted else 0


def _check_arrays(solver: Solver) -> None:
    """Raise InputError if a net reads arrays that are not given."""
    from layermem.layers.data import FeedLayer
    from layermem.layers.given_arrays import given_arrays

    for net in solver.nets.all if not solver.nets.train.options.noise else ():
        layers = [node.layer for node in net.nodes if isinstance(node.layer, FeedLayer) and node.layer.is_given]
        names = [layer.name for layer in layers if not given_arrays(net.options.arrays, layer.param, net.phase)]
        if names:
            what = f"has layers whose data a program gives ({', '.join(names)}), and `train` has none"
            remedy = "give --data arrays.npz (`layermem docs arrays`), use data layers that read files, or --data noise"
            raise InputError(f"{what}; {remedy}", path=str(net.path))


def _ignored_mode(solver: Message, arguments: argparse.Namespace) -> Iterator[str]:
    """Yield a sentence if the solver asks for a GPU, and the device does not come from it."""
    if solver.HasField("solver_mode") and solver.solver_mode == solver.GPU and arguments.device is None:
        yield "solver_mode: GPU does not choose the device, which is cpu; add --device cuda, or --device cpu"
    if solver.device_id and arguments.device == "cuda" and getattr(arguments, "index", None) is None:
        number = solver.device_id
        yield f"device_id: {number} does not choose the GPU, which is the first; set CUDA_VISIBLE_DEVICES={number}"


def _print_memory(solver: Solver, arguments: argparse.Namespace, measured: Sequence[tuple[int, int]]) -> None:
    """Print the predicted and the measured peak of each rank, and what the process takes."""
    from layermem.report.summary import peaks, process_line
    from layermem.solver.process_memory import expected_memory, max_resident_bytes, uses_files, uses_hdf5

    size = len(measured)
    for rank, (predicted, found) in enumerate(measured):
        print(peaks(predicted, found, f"peak of rank {rank}" if size > 1 else "peak"))
    expected = expected_memory(
        solver.nets.all,
        solver.largest_program,
        solver.device,
        spill=arguments.spill is not None,
        files=uses_files(solver.param, loads=bool(arguments.weights or solver.resumed_from)),
        hdf5=uses_hdf5(solver.param),
        ranks=size,
        candidate_ops=solver.job.candidate_ops,
    )
    print(process_line(expected.total_bytes, str(expected), max_resident_bytes()), flush=True)


def _prepare(arguments: argparse.Namespace) -> Device:
    """Return the device, after checks of the outputs of the run."""
    check_run_outputs(arguments)
    return device_of(arguments)


def _measures(arguments: argparse.Namespace) -> bool | str:
    """Whether to measure the step: by default once on a GPU, if it has no costs or plan yet."""
    from layermem.solver.measure import ONCE

    if arguments.measure is not None:
        return bool(arguments.measure)
    return ONCE if arguments.costs is None and arguments.load is None and arguments.group.size == 1 else False


def _solver(arguments: argparse.Namespace, device: Device, early_events: list[Event]) -> Solver:
    """Return the solver with its plan; after two seconds the first rank shows progress."""
    planning = show_progress(None, f"planning {arguments.solver}") if arguments.group.is_first else nullcontext()
    with planning:
        return _planned_solver(arguments, device, early_events)


def _planned_solver(arguments: argparse.Namespace, device: Device, early_events: list[Event]) -> Solver:
    from layermem import api

    return api.Solver(
        solver_file(arguments),
        device=device,
        strategy=arguments.strategy,
        plan=arguments.load,
        budget=arguments.budget,
        budget_file=arguments.budget_file,
        follow_free=True,
        hints=hints_of(arguments),
        costs=arguments.costs,
        measure=_measures(arguments),
        batch=arguments.batch,
        slices=arguments.slices,
        split_weights=arguments.split_weights,
        spill=arguments.spill,
        weights=weight_files(arguments),
        snapshot=arguments.snapshot,
        iterations=arguments.iterations,
        seed=arguments.seed,
        level=arguments.level,
        stages=stages(arguments.stage),
        allow_nan=arguments.allow_nan,
        timed=bool(arguments.trace),
        log=early_events.append,
        data=arguments.data,
        inputs=read_shapes(arguments.input),
        allow_python=arguments.allow_python,
        iter_size=arguments.iter_size,
        loss_scale=arguments.loss_scale,
        restart=arguments.restart,
        transport=arguments.group.transport,
    )


def _run(
    solver: Solver, arguments: argparse.Namespace, early_events: list[Event], outputs: RunOutputs, display: Display
) -> None:
    """Iterate to the end, and show the events in `display`."""
    effects = {"sigint": arguments.sigint_effect, "sighup": arguments.sighup_effect}
    with display(solver) as show:

        def log(event: Event) -> None:
            try:
                show(event)
            except OSError as error:
                if (lost := lost_output(error)) is None:
                    raise
                outputs.stop(lost)
            outputs.record(event)

        for event in early_events:
            log(event)
        solver.log = log
        solver.solve(**effects, sigterm="stop", sigusr1="budget")


def _display(solver: Solver) -> AbstractContextManager[Callable[[Event], None]]:
    """Return a context whose function shows events to the user: a progress bar on a terminal, Caffe's log lines
    elsewhere."""
    if is_quiet():
        return nullcontext(_show_warning)
    if sys.stdout.isatty():
        from layermem.report.progress import Bar

        return Bar(solver.max_iter, solver.iteration)
    from layermem.report.log import Log

    return nullcontext(Log(sys.stdout))


def _show_warning(event: Event) -> None:
    """Show an event of a run that prints nothing else."""
    from layermem.report.events import Note

    if isinstance(event, Note) and event.is_warning:
        print_warnings([event.text], of_loss=True)
