"""All errors for users, and the exit codes of the command.

LayermemError            a RuntimeError, which pycaffe raises for most of them
 ├── InputError      2   a file, option or net is wrong: where, what, and what would work
 ├── BudgetError     3   no plan fits the budget: the budget, the minimum, and what uses the memory at the peak
 ├── DeviceError     4   the device is missing or failed
 │    └── CudaUnavailable
 └── DivergenceError 5   the loss or a parameter of a training is not a number
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any


class LayermemError(RuntimeError):
    """Base of all errors that are reported as text, without a traceback.

    With several ranks: is_agreed is whether all raise the error at the same point; is_reported, whether another rank
    reports it.
    """

    exit_code = 1
    is_agreed = is_reported = False

    def __reduce__(self) -> tuple[Any, ...]:  # the default calls the class with arguments that may not fit
        return _restored, (type(self), self.args, self.__dict__)

    @property
    def lines(self) -> list[str]:
        """The report before wrapping: a sentence, then indented lines of details if there are any."""
        return [" ".join(str(self).split())]


def _restored(kind: type[LayermemError], args: tuple[object, ...], values: dict[str, object]) -> LayermemError:
    """A copy of an error, which another process may have raised."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(values)
    return error


class InputError(LayermemError):
    """The input is wrong.  `path`, `line` and `layer` give the location as far as it is known."""

    exit_code = 2

    def __init__(self, what: str, *, path: str | None = None, line: int | None = None, layer: str | None = None):
        self.what, self.path, self.line, self.layer = what, path, line, layer
        RuntimeError.__init__(self, what)  # a class of input_error_of has another base, whose arguments may differ

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.path, self.line) if part is not None)
        subject = f"layer '{self.layer}' " if self.layer is not None else ""
        return f"{where}: {subject}{self.what}" if where else f"{subject}{self.what}"

    def at(self, *, path: str | None = None, line: int | None = None, layer: str | None = None) -> InputError:
        """Return this error with the unknown parts of its location filled in; a line is taken only with its own
        file."""
        other_file = self.path is not None and path is not None and self.path != path
        error = type(self)(
            self.what,
            path=self.path if self.path is not None else path,
            line=self.line if self.line is not None or other_file else line,
            layer=self.layer if self.layer is not None else layer,
        )
        own = {name: value for name, value in vars(self).items() if name not in vars(InputError) | vars(LayermemError)}
        error.__dict__.update({**own, **vars(error)})  # attributes of an exception of the user's code
        return error


class ArgumentError(InputError, ValueError):
    """An argument of a function is wrong: a number, an array, a shape."""


@cache
def input_error_of(kind: Any) -> type[InputError]:
    """The class of errors that are both an InputError and a `kind`, a class, for callers that catch the latter."""
    if issubclass(InputError, kind) or not issubclass(kind, Exception):
        return InputError
    try:
        made = type("InputError", (InputError, kind), {"__module__": __name__, "__reduce__": _reduced})
        made("")
    except Exception:  # `kind` permits no subclass, or needs other arguments
        return InputError
    return made


def not_copyable(what: str, advice: str) -> InputError:
    """The error of __reduce__ of an object that owns memory or threads."""
    return input_error_of(TypeError)(f"{what} cannot be copied or pickled; {advice}")


def _reduced(error: InputError) -> tuple[Any, ...]:
    """Let another process restore the error as an InputError, since it may not have the other class."""
    own = ("what", "path", "line", "layer", "is_agreed", "is_reported")
    return _restored, (InputError, error.args, {name: getattr(error, name) for name in own})


class BudgetError(LayermemError):
    """No plan fits: `budget_bytes` and `minimum_bytes` refer to the device, or to the `host`.

    details   (label, text) pairs, printed below the sentence as an aligned list
    """

    exit_code = 3

    def __init__(
        self,
        what: str,
        *,
        budget_bytes: int,
        minimum_bytes: int,
        host: bool = False,
        details: Sequence[tuple[str, str]] = (),
    ):
        self.what, self.budget_bytes, self.minimum_bytes, self.host = what, budget_bytes, minimum_bytes, host
        self.details = tuple(details)
        super().__init__(what)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def lines(self) -> list[str]:
        width = max((len(label) for label, _ in self.details), default=0)
        return [self.what, *(f"  {label:<{width}}  {text}" for label, text in self.details)]

    def with_detail(self, label: str, text: str) -> BudgetError:
        """Return this error with one more line of details."""
        return type(self)(
            self.what,
            budget_bytes=self.budget_bytes,
            minimum_bytes=self.minimum_bytes,
            host=self.host,
            details=(*self.details, (label, text)),
        )


class DeviceError(LayermemError):
    """The device is missing, too small, or failed during a run."""

    exit_code = 4


class CudaUnavailable(DeviceError):
    """The CUDA device cannot be used on this machine; the message says why."""


class GpuLost(DeviceError):
    """A kernel has failed and invalidated everything that this process has on the GPU; the GPU cannot be used any
    more."""


class DivergenceError(LayermemError):
    """Training has diverged: the loss, a parameter or a history is NaN or infinite."""

    exit_code = 5
