"""A build with sanitizers (`make sanitize`) reports a seeded error of each kind; otherwise its silence proves nothing.

LAYERMEM_SANITIZE holds the sanitizers that the extension under test was built with; without it nothing is tested here.
"""

import os
import subprocess
import sys

import pytest

ACTIVE = os.environ.get("LAYERMEM_SANITIZE", "").split(",")

PRELUDE = """
import numpy as np
import tests.conftest
from layermem._native import cpu
from layermem.backends.cpu.support.launch import launch

count = 1 << 18
cpu.set_threads(3)

def memory(count):
    return np.ones(count, np.float32)

def add(y, a, b):
    addresses = [array if isinstance(array, int) else array.ctypes.data for array in (a, b)]
    launch("eltwise_sum", count, y=y.ctypes.data, xs=addresses, coefficients=[1.0, 1.0])()
"""
# sanitizer, what the process does, a line of the report
ERRORS = {
    "a write past the end of an array": ("address", "add(memory(count - 1), memory(count), memory(count))", "WRITE of"),
    "a read past the end of an array": ("address", "add(memory(count), memory(count), memory(count - 1))", "READ of"),
    "a read of a guard between arrays": (
        "address",
        "from tests.native.conftest import Memory\n"
        "area = Memory()\n"
        "add(memory(count), memory(count), area.put(np.ones(count - 1)))",
        "READ of",
    ),
    "a misaligned address": (
        "undefined",
        "cpu.set_isa('base')\nadd(memory(count), memory(count), memory(count + 1).ctypes.data + 1)",
        "misaligned address",
    ),
    "tasks that write to each other's input": (
        "thread",
        "y = memory(2 * count)\nfor _ in range(20): add(y[1:], y, memory(count))",
        "data race",
    ),
}


@pytest.mark.parametrize("error", [name for name, row in ERRORS.items() if row[0] in ACTIVE])
def test_a_sanitizer_reports(error):
    _, statements, report = ERRORS[error]
    process = subprocess.run([sys.executable, "-c", PRELUDE + statements], capture_output=True, text=True, timeout=120)
    assert process.returncode != 0 and report in process.stderr, process.stderr


@pytest.mark.skipif(ACTIVE == [""], reason="no sanitizers")
def test_the_same_program_without_an_error_passes():
    statements = "add(memory(count), memory(count), memory(count))"
    subprocess.run([sys.executable, "-c", PRELUDE + statements], check=True, timeout=120)
