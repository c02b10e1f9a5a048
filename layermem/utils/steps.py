"""Reports the library's actions, for `--verbose` and for programs: the logger "layermem", at level INFO.

import logging
logging.basicConfig(level=logging.INFO)          prints "INFO:layermem:read net.prototxt: 9 layers" and so on
"""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("layermem")
LOGGER.addHandler(logging.NullHandler())


def report_step(text: str, *values: object) -> None:
    """Log a completed step, formatted as by logging; the text costs nothing if no handler shows it."""
    LOGGER.info(text, *values)


def is_quiet() -> bool:
    """Whether only results and errors are to be shown, as with --quiet."""
    return not LOGGER.isEnabledFor(logging.WARNING)
