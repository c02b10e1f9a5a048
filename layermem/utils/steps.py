"""What the library does, step by step, for `--verbose` and for programs: the logger "layermem", at level INFO.

import logging
logging.basicConfig(level=logging.INFO)          prints "INFO:layermem:read net.prototxt: 9 layers" and so on
"""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("layermem")
LOGGER.addHandler(logging.NullHandler())


def report_step(text: str, *values: object) -> None:
    """A step that is done, as logging formats it; the text costs nothing where no handler shows it."""
    LOGGER.info(text, *values)


def is_quiet() -> bool:
    """Whether results and errors alone are to be shown, as with --quiet."""
    return not LOGGER.isEnabledFor(logging.WARNING)
