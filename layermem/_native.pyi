# The native module documents itself (bind_*.cpp); for type checkers it is opaque.
from typing import Any

def __getattr__(name: str) -> Any: ...
