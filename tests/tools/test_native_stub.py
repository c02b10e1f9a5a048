"""The types of the native kernels are those of the built module."""

import ast

from layermem._native import cpu
from tools.native_stub import STUB, stub


def test_the_stub_is_what_the_built_module_reports():
    written, reported = STUB.read_text(), stub(cpu)
    assert ast.dump(ast.parse(written)) == ast.dump(ast.parse(reported)), "run tools/native_stub.py, then ruff format"
