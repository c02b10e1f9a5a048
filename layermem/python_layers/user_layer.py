"""A Python layer of a net: an instance of the user's class, calls of its methods, and their errors.

    layer = UserLayer("name", PythonParameter, phase, "net.prototxt")
    layer.prepare([(4, 3), (4,)], tops=1)      setup, then reshape: top_shapes, initial values of its parameters
    layer.forward({"x0": .., "y0": ..})        arrays by role, contiguous, in Caffe's order
    layer.backward({..., "dx0": ..})

Tops and gradients are zero before the user's code writes them, so that results do not depend on old contents of memory.
If one blob is bottom and top, they are one array in Caffe: both then use the top's array, which first holds the
bottom's data; the bottom's gradient first holds the top's.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from typing import Any, TypeVar

import numpy as np

from layermem.errors import InputError, input_error_of
from layermem.python_layers.contract import (
    DATA,
    DIFF,
    OUTSIDE,
    Array,
    Blob,
    BlobList,
    Blobs,
    ContractError,
    PythonLayer,
)
from layermem.python_layers.loading import SEARCHED, class_of, import_user_module, user_code
from layermem.utils.text import printable

Shape = tuple[int, ...]
T = TypeVar("T")
PACKAGE = str(Path(__file__).parents[1])  # frames of modules below are not the user's
IMPORTLIB = str(Path(importlib.__file__).parent)
LATER = "which only backward has; keep what forward computes in an attribute of the layer"
UNDECLARED = "which its backward_reads does not name; add it there"
MAX_TEXT = 300  # letters of a user code's message


class UserLayer:
    """The layer `name` of the net at `path`; InputError if its class cannot be loaded.

    inplace   pairs (top, bottom) that are one blob in the net
    """

    def __init__(self, name: str, param: Any, phase: int, path: str, *, inplace: Sequence[tuple[int, int]] = ()):
        self.name, self.folder, self.inplace = name, Path(path).parent, tuple(inplace)
        self.module, self.class_name = str(param.module), str(param.layer)
        self.file: str | None = None
        if not (self.module and self.class_name):
            raise InputError("needs a module and a layer in its python_param: the names of a module and its class")
        self.instance = self._make(param, phase)
        self.bottom, self.top = BlobList("bottom"), BlobList("top")
        self._ahead: list[Array] | None = None  # the tops of the next forward, where `run_ahead` has made them

    def __getstate__(self) -> dict[str, Any]:
        """The pickled state: all but the user's object, whose class another process may not have."""
        return {**vars(self), "instance": None}

    @property
    def top_shapes(self) -> list[Shape]:
        return [each.shape for each in self.top]

    @property
    def initial_values(self) -> list[Array]:
        """The initial values of its parameters, set by setup."""
        return self._initial

    @property
    def recomputable(self) -> bool:
        return self._guarded("recomputable", lambda: bool(self.instance.recomputable))

    @property
    def has_backward(self) -> bool:
        return type(self.instance).backward is not PythonLayer.backward

    @property
    def backward_reads(self) -> frozenset[str]:
        """The data that backward reads: of "bottom", "top" or both."""

        def declared() -> frozenset[str]:
            names = self.instance.backward_reads
            return frozenset((names,) if isinstance(names, str) else names)

        reads = self._guarded("backward_reads", declared)
        if not reads <= {"bottom", "top"}:
            what = f'has backward_reads {sorted(map(str, reads))} in class {self.class_name}; use "bottom" and "top"'
            raise InputError(what, path=self.file, layer=self.name)
        return reads

    # -- calls -----------------------------------------------------------------------------------------------------

    def prepare(self, bottoms: Sequence[Shape], tops: int) -> None:
        """Run setup, unless it has run, and reshape, on blobs that have shapes, and zeros as data."""
        blobs = self.instance.blobs
        is_new = not blobs.closed
        self.bottom = BlobList("bottom", (Blob(f"bottom[{i}]", shape) for i, shape in enumerate(bottoms)))
        if is_new:
            self.top = BlobList("top", (Blob(f"top[{i}]", may_reshape=True) for i in range(tops)))
            self._call("setup", self.bottom, self.top)
            blobs.closed = True
        for each in (*self.top, *blobs):
            each._planning, each._absent = True, {}
        if self._ahead is None:
            self._call("reshape", self.bottom, self.top)
        for each in self.top:
            if each._shape is None:
                what = f"gives {each._label} no shape; call {each._label}.reshape(..) in setup or reshape"
                raise InputError(what, path=self.file, layer=self.name)
            if any(array.any() for array in each._arrays.values()):
                what = f"writes {each._label} in setup or reshape, where it has no memory yet; write it in forward"
                raise InputError(what, path=self.file, layer=self.name)
        if is_new:
            self._initial = [np.array(each.data, np.float32, order="C") for each in blobs]
        self._close()

    def run_ahead(self) -> list[Shape]:
        """Run the next forward of a layer without bottoms and parameters now, and return the shapes that it gives its
        tops; `forward` then copies them."""
        for each in self.top:
            each._planning, each._absent, each._arrays = True, {}, {}
        try:
            self._forward()
            self._ahead = [np.array(each.data) for each in self.top]
        finally:
            self._close()
        return self.top_shapes

    def forward(self, arrays: Mapping[str, Array]) -> None:
        """Write the tops y{i} from the bottoms x{i} and the parameters w{i}."""
        if self._ahead is not None:
            for i, array in enumerate(self._ahead):
                arrays[f"y{i}"][...] = array
            self._ahead = None
            return
        sources = {f"y{top}": f"x{bottom}" for top, bottom in self.inplace}
        _prepare_outputs(arrays, "y", sources)
        lent = _Lent()
        for stem, blobs in (("x", self.bottom), ("y", self.top), ("w", self.instance.blobs)):
            for i, blob in enumerate(blobs):
                blob._shape = arrays[f"{stem}{i}"].shape
                blob._arrays = {DATA: lent.lend(arrays[f"{stem}{i}"], write=stem == "y")}
                blob._absent = {DIFF: LATER}
        for top, bottom in self.inplace:
            self.bottom[bottom]._arrays = dict(self.top[top]._arrays)
        self._run(lent, "forward", lambda: self._forward())

    def _forward(self) -> None:
        self._call("reshape", self.bottom, self.top)
        self._call("forward", self.bottom, self.top)

    def backward(self, arrays: Mapping[str, Array]) -> None:
        """Write the gradients dx{i} and dw{i} that are in `arrays`, from the gradients dy{i} of the tops."""
        sources = {f"dx{bottom}": f"dy{top}" for top, bottom in self.inplace}
        _prepare_outputs(arrays, "d", sources)
        lent = _Lent()
        for stem, blobs in (("x", self.bottom), ("y", self.top), ("w", self.instance.blobs)):
            for i, blob in enumerate(blobs):
                blob._arrays, blob._absent = {}, {}
                data, diff = arrays.get(f"{stem}{i}"), arrays.get(f"d{stem}{i}")
                blob._shape = next((each.shape for each in (data, diff) if each is not None), blob._shape)
                if data is not None:
                    blob._arrays[DATA] = lent.lend(data, write=False)
                else:
                    blob._absent[DATA] = UNDECLARED
                if diff is not None:  # other gradients are made on demand and dropped
                    blob._arrays[DIFF] = lent.lend(diff, write=stem != "y")
        for top, bottom in self.inplace:
            if f"y{top}" in arrays:
                self.bottom[bottom]._arrays[DATA] = self.top[top]._arrays[DATA]
                self.bottom[bottom]._absent = {}
        down = [f"dx{i}" in arrays for i in range(len(self.bottom))]
        self._run(lent, "backward", lambda: self._call("backward", self.top, down, self.bottom))

    def _run(self, lent: _Lent, method: str, call: Callable[[], None]) -> None:
        try:
            call()
        finally:
            self._close()
        if kept := lent.kept():
            raise InputError(
                f"keeps a view of the data of {kept} of its blobs after {method}, whose memory other blobs use then; "
                "keep a copy: .copy()",
                path=self.file,
                layer=self.name,
            )

    def _close(self) -> None:
        """Release the arrays of all blobs until the next call."""
        for blob in (*self.bottom, *self.top, *self.instance.blobs):
            blob._planning = False
            blob._arrays, blob._absent = {}, {DATA: OUTSIDE, DIFF: OUTSIDE}

    # -- the user's code -------------------------------------------------------------------------------------------

    def _make(self, param: Any, phase: int) -> PythonLayer:
        where = "the import"
        try:
            with user_code(self.folder):
                module = import_user_module(self.module, self.folder)
                self.file, where = getattr(module, "__file__", None), "__init__"
                instance = class_of(module, self.class_name)(param)
                instance.blobs, instance.phase = Blobs(), phase
                instance.param_str = instance.param_str_ = str(param.param_str)
        except InputError as error:
            raise error.at(layer=self.name) from None
        except ModuleNotFoundError as error:
            if error.name is not None and f"{self.module}.".startswith(f"{error.name}."):
                raise InputError(
                    f"names the Python module '{self.module}', and there is no '{error.name}' in {SEARCHED}; correct "
                    "the name, or add its folder to PYTHONPATH",
                    layer=self.name,
                ) from None
            raise self._fault(where, error) from None
        except BaseException as error:
            raise self._fault(where, error) from None
        return instance

    def _call(self, method: str, *arguments: object) -> None:
        self._guarded(method, lambda: getattr(self.instance, method)(*arguments))

    def _guarded(self, where: str, code: Callable[[], T]) -> T:
        """The result of the user's code; InputError, with file and line, for all that it raises but an interrupt."""
        try:
            with user_code(self.folder):
                return code()
        except BaseException as error:
            raise self._fault(where, error) from None

    def _fault(self, where: str, error: BaseException) -> BaseException:
        """The error for an exception in the user's code, with its file and line; an interrupt stays one."""
        if isinstance(error, KeyboardInterrupt):
            return error
        file, line = self._place(error)
        if isinstance(error, ContractError):
            return InputError(f"{error} (in {where})", path=file, line=line, layer=self.name)
        text = ""
        with suppress(Exception):  # of its __str__
            text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
        text = printable(f"{type(error).__name__}: {text[:MAX_TEXT]}" if text else type(error).__name__)
        what = f"fails in {where} of its Python class {self.class_name}: {text}"
        kind: Any = type(error)
        fault = input_error_of(kind)(what, path=file, line=line, layer=self.name)
        fault.__dict__.update({name: value for name, value in vars(error).items() if name not in vars(fault)})
        return fault

    def _place(self, error: BaseException) -> tuple[str | None, int | None]:
        """File and line of the user's module where `error` was raised, or the nearest place outside of layermem."""
        if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
            return error.filename, error.lineno
        frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
        frames = [each for each in frames if not each[0].startswith((PACKAGE, IMPORTLIB, "<frozen"))]
        own = [each for each in frames if each[0] == self.file] if self.file else frames[:1]
        return (own or frames)[-1] if frames else (self.file, None)


class _Lent:
    """Views of memory that a call of the user's code may use until it returns.

    Each view is made over a buffer object, because NumPy then makes it the base of every view of it, so that its
    reference count shows whether a view is still in use.
    """

    def __init__(self) -> None:
        self.bases: list[Array] = []

    def lend(self, array: Array, *, write: bool) -> Array:
        if not array.size:
            return np.zeros_like(array)
        assert array.flags.c_contiguous
        buffer = array.reshape(-1).view(np.uint8).data
        base: Array = np.frombuffer(buffer if write else buffer.toreadonly(), array.dtype)
        self.bases.append(base)
        return base.reshape(array.shape)

    def kept(self) -> int:
        """The number of views that are still in use."""
        if self._count():
            gc.collect()  # frees views in cycles
        return self._count()

    def _count(self) -> int:
        references = 2  # from the list and from the call of getrefcount
        return sum(sys.getrefcount(self.bases[i]) > references for i in range(len(self.bases)))


def _prepare_outputs(arrays: Mapping[str, Array], stem: str, sources: Mapping[str, str]) -> None:
    """Set the arrays that the code writes to 0, or to the data of the blob that they share in the net."""
    for role, array in arrays.items():
        if role.startswith(stem) and not role.startswith("dy"):
            array[...] = arrays[sources[role]] if role in sources else 0
