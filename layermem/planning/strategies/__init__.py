"""Every strategy of this folder: a module that registers a strategy needs no entry anywhere else."""

from importlib import import_module
from pkgutil import iter_modules

from layermem.planning.base import STRATEGIES, get_strategy

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

__all__ = ["STRATEGIES", "get_strategy"]
