"""ASK: the `layermem` command, a file a group of verbs."""

from layermem.cli.main import main

__all__ = ["main"]
