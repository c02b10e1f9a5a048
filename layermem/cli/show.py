"""show: a net as a table."""

from __future__ import annotations

import argparse

from layermem.cli.options import Verbs, add_json, add_net, add_verb, net_of, print_json

EXAMPLE = """\
  layermem show --net prototxt/vgg16/train_val.prototxt --batch 8
  layermem show --net prototxt/mnist/train_val.prototxt --input data=64,1,28,28 --json
"""


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "show", "print a net as a table: shapes, parameters, FLOPs and bytes of each layer", EXAMPLE
    )
    add_net(parser)
    add_json(parser)
    parser.set_defaults(run=run_show)


def run_show(arguments: argparse.Namespace) -> int:
    from layermem.report.net_table import HEADINGS, net_rows, net_values
    from layermem.report.tables import print_table

    values = net_values(net_of(arguments))
    if arguments.json:
        print_json(values)
        return 0
    rows, total = net_rows(values)
    print_table(HEADINGS, rows, total=total, title=f"{values['name']} {values['phase']}")
    print(f"Memory required for data, as Caffe counts it: {values['activation_bytes']}")
    return 0
