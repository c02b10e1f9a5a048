"""Makes `import caffe` import layermem.caffe: while code of a Python layer runs, or from install() on.

    with answered():            in a `with` block; an installed Caffe is back afterwards
        import caffe
    install()                   for the rest of the process
    from caffe import layers as L, params as P

`caffe.io` is layermem.caffe.io, and so on; modules that layermem.caffe lacks are not found.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

NAME = "caffe"


class _Loader(Loader):
    """Loads `caffe.x` as the module layermem.caffe.x itself."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        name = module.__spec__.name
        sys.modules[name] = importlib.import_module(f"layermem.{name}")  # the import statement returns this module


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_ours(fullname):
            return None
        if find_spec(f"layermem.{fullname}") is None:
            raise ModuleNotFoundError(
                f"No module named '{fullname}' here: layermem answers `import caffe`, and does not have it; "
                "dir(caffe) lists what it has",
                name=fullname,
            )
        return ModuleSpec(fullname, _Loader(), is_package=True)


_FINDER = _Finder()


def install() -> None:
    """Make `import caffe` import layermem.caffe from now on, instead of a Caffe that is installed or imported."""
    if _FINDER not in sys.meta_path:
        _take()
        sys.meta_path.insert(0, _FINDER)


@contextmanager
def answered() -> Iterator[None]:
    """A context in which `import caffe` imports layermem.caffe."""
    if _FINDER in sys.meta_path:
        yield
        return
    others = _take()
    sys.meta_path.insert(0, _FINDER)
    try:
        yield
    finally:
        sys.meta_path.remove(_FINDER)
        _take()
        sys.modules.update(others)


def _is_ours(name: str) -> bool:
    return name == NAME or name.startswith(f"{NAME}.")


def _take() -> dict[str, ModuleType]:
    """Remove the modules of `caffe`, of layermem or of another Caffe, and return them."""
    if NAME not in sys.modules:
        return {}
    return {name: sys.modules.pop(name) for name in list(sys.modules) if _is_ours(name)}
