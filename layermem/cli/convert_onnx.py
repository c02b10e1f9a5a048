"""`convert onnx` and `convert from-onnx`: nets with their weights as ONNX models, and back."""

from __future__ import annotations

import argparse
from pathlib import Path

from layermem.cli.options import Options, add_input, add_net_state, add_weights, read_shapes, stages, weight_files
from layermem.errors import InputError
from layermem.utils.text import printable

USAGE = """
       layermem convert onnx [--weights F] [--batch N | --any-batch] [--input NAME=N,C,H,W]
                             [--stage S] [--level N] NET OUT.onnx
       layermem convert from-onnx [--batch N] [--input NAME=N,C,H,W] MODEL.onnx NET"""
IMPORT_OPTIONS = ("batch", "input")  # options of both conversions
OPTIONS = ("weights", "batch", "any_batch", "input", "stage", "level")  # options of `convert onnx`


def add_onnx_options(parser: Options) -> None:
    add_weights(parser, "weights of the net")
    parser.add_argument("--batch", metavar="N", type=int, help="batch size, instead of the net's own")
    parser.add_argument("--any-batch", action="store_true", help="inputs that take batches of any size")
    add_input(parser)
    add_net_state(parser)


def run_export(source: str, target: str, arguments: argparse.Namespace) -> int:
    from layermem.integrations.onnx import export
    from layermem.interactive.building import build_net

    if Path(target).suffix != ".onnx":
        raise InputError("is no name of an ONNX model; give OUT a name that ends in .onnx", path=target)
    if arguments.any_batch and arguments.batch is not None:
        raise InputError("--batch and --any-batch exclude each other; give one of them")
    net = build_net(
        source,
        "TEST",
        batch=arguments.batch,
        inputs=read_shapes(arguments.input),
        level=arguments.level or 0,
        stages=stages(arguments.stage),
    )
    notes = export(net, target, weight_files(arguments), any_batch=arguments.any_batch)
    for note in notes:
        print(printable(f"{target}: {note}"))
    values = sum(owned.param.tensor.count for owned in net.params.values() if not owned.param.carried)
    print(printable(f"{target}: {len(net.layers)} layers, {values:,} values"))
    return 0


def run_import(source: str, target: str, arguments: argparse.Namespace) -> int:
    from layermem.integrations.onnx import convert

    if Path(target).suffix not in (".prototxt", ".txt", ".pbtxt"):
        raise InputError("is no name of a net; give NET a name that ends in .prototxt", path=target)
    imported, weights = convert(source, target, batch=arguments.batch, inputs=read_shapes(arguments.input))
    values = sum(blob.size for _, blobs in imported.weights.values() for blob in blobs)
    print(printable(f"{target}: {len(imported.net.layer)} layers"))
    print(printable(f"{weights}: {len(imported.weights)} layers, {values:,} values"))
    return 0
