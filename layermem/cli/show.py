"""show: the layers of a net as a table."""

from __future__ import annotations

import argparse

from layermem.cli.options import (
    Verbs,
    add_device,
    add_json,
    add_net,
    add_verb,
    device_of,
    net_of,
    print_json,
    print_warnings,
)

EXAMPLE = """\
  layermem show --net prototxt/vgg16/train_val.prototxt --batch 8
  layermem show --net prototxt/mnist/train_val.prototxt --input data=64,1,28,28 --json
  layermem show --net prototxt/resnet20/train_val.prototxt --fused
"""


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(verbs, "show", "print the layers of a net: shapes, parameters, FLOPs and bytes", EXAMPLE)
    add_net(parser)
    add_device(parser)
    parser.add_argument("--fused", action="store_true", help="print the op that runs each layer on the device")
    add_json(parser)
    parser.set_defaults(run=run_show)


def run_show(arguments: argparse.Namespace) -> int:
    from layermem import api
    from layermem.graph.warnings import net_warnings
    from layermem.report.net_table import FUSED_HEADINGS, HEADINGS, fused_rows, fused_values, net_rows, net_values
    from layermem.report.tables import print_table

    device, net = device_of(arguments), net_of(arguments)
    print_warnings(net_warnings(net))
    values = net_values(net)
    if arguments.fused:
        values = fused_values(values, api.job_of(net, device=device).graphs[0])
    if arguments.json:
        print_json(values)
        return 0
    if arguments.fused:
        print_table(FUSED_HEADINGS, fused_rows(values), title=f"{values['name']} {values['phase']} on {device.name}")
        return 0
    rows, total = net_rows(values)
    title = f"{values['name']} {values['phase']}"
    print_table(HEADINGS, rows, total=total, title=title, optional=("tops", "bottoms"))
    print(f"Memory required for data, as Caffe counts it: {values['activation_bytes']}")
    return 0
