"""The `layermem` command; main.py has the entry point, the other files one or two verbs each."""

import signal
import sys
import threading

# SIGUSR1 would end a training that does not handle it yet, for as long as the imports below and the planning take.
if "train" in sys.argv and hasattr(signal, "SIGUSR1") and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

from layermem.utils.system_faults import system_fault

try:
    from layermem.cli.main import main
except Exception as error:  # MemoryError, or what libraries raise where an allocation failed
    fault = system_fault(error)
    if fault is None:
        raise
    print(f"layermem: {fault}", file=sys.stderr)
    sys.exit(fault.exit_code)

__all__ = ["main"]
