"""The `layermem` command; main.py has the entry point, the other files one or two verbs each."""

from layermem.cli.main import main

__all__ = ["main"]
