from tests.cli.conftest import layermem as layermem_here  # noqa: F401  (the command, inside this process)
