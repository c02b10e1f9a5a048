"""`convert deploy`: the deploy form of a train_val.prototxt."""

from __future__ import annotations

import argparse
from pathlib import Path

from layermem.cli.options import Options, add_allow_python, read_shapes, stages
from layermem.errors import InputError
from layermem.utils.files import write_atomically
from layermem.utils.text import printable

USAGE = """
       layermem convert deploy [--batch N] [--input NAME=N,C,H,W] [--stage S] [--level N]
                               [--allow-python] NET OUT.prototxt"""
OPTIONS = ("batch", "input", "stage", "level", "allow_python")  # the first four are added by `convert onnx`


def add_deploy_options(parser: Options) -> None:
    add_allow_python(parser)


def run_deploy(source: str, target: str, arguments: argparse.Namespace) -> int:
    from google.protobuf import text_format

    from layermem import api

    if Path(target).suffix not in (".prototxt", ".txt", ".pbtxt"):
        raise InputError("is no name of a prototxt file; use a name that ends in .prototxt", path=target)
    message = api.deploy(
        source,
        batch=arguments.batch,
        inputs=read_shapes(arguments.input),
        level=arguments.level or 0,
        stages=stages(arguments.stage),
        allow_python=arguments.allow_python,
    )
    write_atomically(target, text_format.MessageToString(message, as_utf8=True).encode())
    net = api.build_net(message, "TEST", allow_python=arguments.allow_python)
    inputs = [f"{top} {net.blobs[top]}" for layer in net.layers if layer.type == "Input" for top in layer.message.top]
    print(printable(f"{target}: {len(net.layers)} layers, {', '.join(inputs)} -> {', '.join(net.outputs)}"))
    return 0
