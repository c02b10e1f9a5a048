"""layermem trains Caffe networks inside a memory budget that you name.

    Net, Solver        a net of one phase; a solver with its nets, ready to train
    plan(...)          what a training step would take, and why
    compile(...)       the schedule itself
    LayermemError      every error that a user can cause; InputError, BudgetError, DeviceError are its kinds

Nothing is imported before it is asked for: `import layermem` needs no compiler, no PyCUDA and no GPU.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from layermem.errors import BudgetError, DeviceError, InputError, LayermemError

if TYPE_CHECKING:
    from layermem.api import Net as Net
    from layermem.api import Solver as Solver
    from layermem.api import compile as compile
    from layermem.api import plan as plan

__version__ = "0.1.0"

__all__ = ["BudgetError", "DeviceError", "InputError", "LayermemError", "Net", "Solver", "compile", "plan"]

_LAZY = {"Net": "layermem.api", "Solver": "layermem.api", "plan": "layermem.plan", "compile": "layermem.compile"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'layermem' has no attribute '{name}'")
    module = import_module(_LAZY[name])
    return module if module.__name__ == f"layermem.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
