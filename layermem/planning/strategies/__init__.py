"""Every strategy, one file each: a module of this folder that registers one needs no entry anywhere else."""

from importlib import import_module
from pkgutil import iter_modules

from layermem.planning.registry import STRATEGIES, get_strategy

__all__ = ["STRATEGIES", "get_strategy", "load_strategies"]


def load_strategies() -> None:
    """Import every module of this folder."""
    for module in iter_modules(__path__, f"{__name__}."):
        import_module(module.name)


load_strategies()
