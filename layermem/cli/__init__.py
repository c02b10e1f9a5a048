"""The `layermem` command; main.py has the entry point, the other files one or two verbs each."""

import sys

from layermem.utils.early_signals import at_start
from layermem.utils.system_faults import system_fault

try:
    with at_start():
        from layermem.cli.main import main
except Exception as error:  # MemoryError, or what libraries raise where an allocation failed
    fault = system_fault(error)
    if fault is None:
        raise
    print(f"layermem: {fault}", file=sys.stderr)
    sys.exit(fault.exit_code)

__all__ = ["main"]
