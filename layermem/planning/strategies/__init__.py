"""Every strategy, one file each: a module of this folder that registers one needs no entry anywhere else."""

from importlib import import_module

from layermem.planning.registry import STRATEGIES, get_strategy
from layermem.utils.modules import modules_in

__all__ = ["STRATEGIES", "get_strategy", "load_strategies"]


def load_strategies() -> None:
    """Import every module of this folder."""
    for name, _ in modules_in(__path__):
        import_module(f"{__name__}.{name}")


load_strategies()
