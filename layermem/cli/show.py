"""show: the layers of a net as a table."""

from __future__ import annotations

import argparse

from layermem.cli.options import (
    add_device,
    add_json,
    add_nets,
    device_of,
    make_job,
    net_of,
    net_options,
    print_json,
    print_warnings,
)
from layermem.cli.parser import Verbs, add_verb

EXAMPLE = """\
  layermem examples vgg16 mnist resnet20 digits
  layermem show --net vgg16/train_val.prototxt --batch 8
  layermem show --net mnist/train_val.prototxt --input data=64,1,28,28 --json
  layermem show --net resnet20/train_val.prototxt --fused
  layermem show --solver digits/solver.prototxt
"""


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "show",
        "print the layers of a net, or of all nets of a solver: shapes, parameters, FLOPs and bytes",
        EXAMPLE,
    )
    add_nets(parser)
    add_device(parser)
    parser.add_argument("--fused", action="store_true", help="print the op that runs each layer on the device")
    add_json(parser)
    parser.set_defaults(run=run_show)


def run_show(arguments: argparse.Namespace) -> int:
    from layermem import api
    from layermem.graph.warnings import net_warnings
    from layermem.report.net_table import FUSED_HEADINGS, HEADINGS, fused_rows, fused_values, net_rows, net_values
    from layermem.report.tables import print_table
    from layermem.solver.jobs import StepOptions

    device = device_of(arguments)
    if arguments.solver:
        job = make_job(arguments, net_options(arguments), StepOptions(device=device))
        nets, graphs = job.nets, (job.graphs[0], *job.graphs[len(job.graphs) - len(job.nets) + 1 :])
    else:
        nets = (net_of(arguments),)
        graphs = api.job_of(nets[0], device=device).graphs if arguments.fused else ()
    print_warnings(dict.fromkeys(warning for net in nets for warning in net_warnings(net)))
    shown = [net_values(net, parts=arguments.fused) for net in nets]
    if arguments.fused:
        shown = [fused_values(values, graph) for values, graph in zip(shown, graphs, strict=True)]
    if arguments.json:
        print_json({"nets": shown} if arguments.solver else shown[0])
        return 0
    for values in shown:
        title = f"{values['name']} {values['phase']}"
        if arguments.fused:
            print_table(FUSED_HEADINGS, fused_rows(values), title=f"{title} on {device.name}")
            continue
        rows, total = net_rows(values)
        print_table(HEADINGS, rows, total=total, title=title, optional=("tops", "bottoms", ">FLOPs"))
        print(f"Memory required for data, as Caffe counts it: {values['activation_bytes']}")
    return 0
