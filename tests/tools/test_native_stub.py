"""The types of the native module are those of the built one."""

import ast

import pytest

from layermem import _native
from tools.native_stub import PACKAGE, file_name, stub


@pytest.mark.parametrize("module", [_native, _native.cpu], ids=file_name)
def test_the_stub_is_what_the_built_module_reports(module):
    written, reported = (PACKAGE / file_name(module)).read_text(), stub(module)
    assert ast.dump(ast.parse(written)) == ast.dump(ast.parse(reported)), "run tools/native_stub.py, then ruff format"
