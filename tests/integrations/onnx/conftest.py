"""Fixtures that run the command as in tests/cli."""

from tests.cli.conftest import layermem as layermem
