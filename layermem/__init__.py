"""layermem trains Caffe networks inside a memory budget that you name.

    Net                a net of one phase, with every shape known
    LayermemError      every error that a user can cause; InputError, BudgetError, DeviceError are its kinds

Nothing is imported before it is asked for: `import layermem` needs no compiler, no PyCUDA and no GPU.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from layermem.errors import BudgetError, DeviceError, InputError, LayermemError

if TYPE_CHECKING:
    from layermem.api import Net as Net

__version__ = "0.1.0"

__all__ = ["BudgetError", "DeviceError", "InputError", "LayermemError", "Net"]

_LAZY = {"Net": "layermem.api"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'layermem' has no attribute '{name}'")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
