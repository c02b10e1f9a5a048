"""Replaces layermem._native by another build, such as one with sanitizers (make sanitize); to be imported before it.

LAYERMEM_NATIVE_DIR names its folder; without it nothing changes.
"""

import importlib.util
import os
import sys
from pathlib import Path

if os.environ.get("LAYERMEM_NATIVE_DIR"):
    import layermem

    (_built,) = Path(os.environ["LAYERMEM_NATIVE_DIR"]).glob("_native*.so")
    _spec = importlib.util.spec_from_file_location("layermem._native", _built)
    assert _spec is not None and _spec.loader is not None
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["layermem._native"] = _module
    layermem._native = _module  # type: ignore[attr-defined]
    _spec.loader.exec_module(_module)
