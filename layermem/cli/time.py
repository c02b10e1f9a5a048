"""time: measures ops, the link to the host and the network between ranks.  devices: lists the devices of this
machine."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from layermem.cli.launch import threads_per_rank
from layermem.cli.options import (
    add_budget,
    add_json,
    add_net_or_solver,
    add_strategy,
    add_threads,
    device_of,
    job_of,
    print_json,
    print_warnings,
    strategies_text,
)
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.files import check_name, check_output, write_atomically
from layermem.utils.text import wrap

if TYPE_CHECKING:
    from layermem.distributed.group import Group
    from layermem.distributed.network_rates import NetworkRates
    from layermem.planning.job import Job
    from layermem.solver.measure import MeasuredStep

TIME_EXAMPLE = """\
  layermem examples mnist
  layermem time --net mnist/train_val.prototxt --out costs.csv
  layermem plan --net mnist/train_val.prototxt --costs costs.csv --budget 50%
"""
DEVICES_EXAMPLE = "  layermem devices\n  layermem devices --gpus\n"
GPU_HEADINGS = ["GPU", ">memory", ">GB/s", ">fp32", ">tf32", ">bf16", ">link", ">capability", ">SMs", ">MHz", ">shared"]
GPU_OPTIONAL = (">shared", ">MHz", ">SMs", ">capability")  # columns that a narrow terminal leaves out
HEADINGS = ["layer", "type", ">forward", ">backward", ">update", ">GFLOP/s", ">GB/s"]


def add_verbs(verbs: Verbs) -> None:
    description = "measure every op of a training step, the link to the host and, under mpiexec, the network"
    parser = add_verb(verbs, "time", description, TIME_EXAMPLE, more=strategies_text)
    add_net_or_solver(parser)
    add_threads(parser)
    add_budget(parser)
    add_strategy(parser)
    parser.add_argument(
        "--iterations", metavar="N", type=int, default=5, help="steps to take the median of (default: 5)"
    )
    parser.add_argument("--out", metavar="costs.csv", help="write the times to a file, for `layermem plan --costs`")
    add_json(parser)
    parser.set_defaults(run=run_time)

    parser = add_verb(verbs, "devices", "list the devices of this machine", DEVICES_EXAMPLE)
    parser.add_argument("--gpus", action="store_true", help="list the GPUs that `plan --card` knows, here or not")
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the kernels of each GPU that is here beside NumPy; the first training of a kind does so by itself",
    )
    add_json(parser)
    parser.set_defaults(run=run_devices)


def run_time(arguments: argparse.Namespace) -> int:
    group: Group = arguments.group
    measured, network = measure_all(arguments, group)
    if group.is_first:
        show_times(arguments, measured, network)
    return 0


def measure_all(arguments: argparse.Namespace, group: Group) -> tuple[MeasuredStep, NetworkRates | None]:
    """Measure the step on every rank, and the network between them."""
    if group.size > 1 and arguments.threads is None and arguments.device in (None, "cpu"):
        arguments.threads = threads_per_rank(group)
    return group.agree(lambda: _measure(arguments, group))


def _measure(arguments: argparse.Namespace, group: Group) -> tuple[MeasuredStep, NetworkRates | None]:
    """Measure the step on this rank, while the others measure theirs, and the network between them."""
    from layermem.distributed.network_rates import measure_network
    from layermem.solver.measure import measure_step

    if arguments.iterations < 1:
        raise InputError(f"--iterations {arguments.iterations} is too few; give 1 or more")
    check_output(arguments.out)
    check_name(arguments.out, (".csv",), "a file of costs")
    device, job = device_of(arguments), job_of(arguments)
    if group.is_first:
        print_warnings(job.warnings)
    measured = measure_step(job, device, arguments.strategy, arguments.budget, iterations=arguments.iterations)
    return measured, None if group.transport is None else measure_network(group.transport)


def show_times(arguments: argparse.Namespace, measured: MeasuredStep, network: NetworkRates | None) -> None:
    from layermem.solver.measure import costs_text

    if arguments.out:
        write_atomically(arguments.out, costs_text(measured.job_with_costs(), network).encode())
    d2h, h2d = measured.d2h, measured.h2d
    if arguments.json:
        between = {} if network is None else {"network": {"net": network.net, "latency": network.latency}}
        link = {"d2h": d2h, "h2d": h2d}
        print_json(
            {"device": measured.job.graphs[0].device.split()[0], "ops": dict(measured.seconds), "link": link, **between}
        )
        return
    _print_layers(measured.job, measured.step)
    print(f"link: {d2h / 1e9:.3g} GB/s to the host, {h2d / 1e9:.3g} GB/s to the device")
    if network is not None:
        print(f"network: {network.net / 1e9:.3g} GB/s from each rank, {network.latency * 1e6:.3g} us a message")


def _print_layers(job: Job, seconds: Mapping[str, float]) -> None:
    from layermem.graph.ops import BACKWARD, FORWARD, UPDATE
    from layermem.report.tables import print_table
    from layermem.solver.benchmark import times_by_layer
    from layermem.utils.units import format_seconds

    kinds = (FORWARD, BACKWARD, UPDATE)
    layers = times_by_layer(job.graphs[0], seconds)
    rows = [
        [
            each.name,
            each.type,
            *(format_seconds(each.seconds[kind]) if kind in each.seconds else "" for kind in kinds),
            *(f"{each.rate(amount):.3g}" if amount else "" for amount in (each.flops, each.nbytes)),
        ]
        for each in layers
    ]
    sums = [format_seconds(sum(each.seconds.get(kind, 0.0) for each in layers)) for kind in kinds]
    total = [f"{len(layers)} rows", "", *sums, "", ""]
    print_table(
        HEADINGS, rows, total=total, title=f"{job.title} on {job.graphs[0].target}", optional=(">GB/s", ">GFLOP/s")
    )


def run_devices(arguments: argparse.Namespace) -> int:
    from layermem.backends.base import describe_devices
    from layermem.interactive.jobs import default_device

    if arguments.gpus:
        return _show_gpus(arguments)
    if arguments.check:
        return _check_gpus(arguments)
    devices = describe_devices()
    if arguments.json:
        print_json({"devices": devices, "default": default_device()})
        return 0
    width = max(map(len, devices))
    for name, description in devices.items():
        print(wrap(f"{name:<{width}}  {description}{' (default)' if name == default_device() else ''}"))
    print(wrap("note: cuda has not run on a GPU yet; its kernels run on an emulator (`layermem docs benchmarks/cuda`)"))
    return 0


def _check_gpus(arguments: argparse.Namespace) -> int:
    """Print the results of each GPU's self-test; return the exit code of a failed device if one is wrong."""
    from layermem.backends.cuda.checks.checked import check_all, summary
    from layermem.backends.cuda.driver.context import gpus
    from layermem.errors import DeviceError

    found = [check_all(gpu) for gpu in gpus()]
    if arguments.json:
        print_json(
            {
                "gpus": [
                    {"gpu": checked.title, "record": str(checked.path), "wrong": all_of} for checked, all_of in found
                ]
            }
        )
    else:
        for checked, results in found:
            print(wrap(f"{checked.title}: {len(results)} kinds of kernels checked{summary(results, checked.path)}"))
            width = max(map(len, results))
            for key, text in sorted(results.items()):
                print(wrap(f"  {key:<{width}}  {text or 'ok'}"))
    return DeviceError.exit_code if any(any(results.values()) for _, results in found) else 0


def _show_gpus(arguments: argparse.Namespace) -> int:
    from layermem.planning.gpus import gpus
    from layermem.report.tables import print_table
    from layermem.utils.units import format_bytes

    specs = list(gpus().values())
    if arguments.json:
        print_json({"gpus": [{**vars(spec), "link": spec.link} for spec in specs]})
        return 0
    rows = [
        [
            spec.name,
            format_bytes(spec.memory_bytes),
            f"{spec.memory / 1e9:,.0f}",
            *(f"{rate / 1e12:.4g}" if rate else "" for rate in (spec.fp32, spec.tf32, spec.bf16)),
            f"{spec.link / 1e9:.3g}",
            spec.capability_text,
            str(spec.multiprocessors),
            f"{spec.clock / 1e6:.0f}",
            format_bytes(spec.shared_bytes),
        ]
        for spec in specs
    ]
    print_table(GPU_HEADINGS, rows, title="GPUs as published: GB/s, TFLOP/s without sparsity", optional=GPU_OPTIONAL)
    return 0
