# The planning half documents itself (native/planning); for type checkers it is opaque.
from typing import Any

from layermem import _native_cpu as cpu

__all__ = ["cpu"]

def __getattr__(name: str) -> Any: ...
