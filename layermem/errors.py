"""Every error that a user can cause or meet, and the exit code it ends the command with.

LayermemError
 ├── InputError      2   a file, option or net is wrong: where, what, what would work
 ├── BudgetError     3   no plan fits the budget: asked, least possible, what stands in the way
 └── DeviceError     4   the device is missing or failed
      └── CudaUnavailable
"""

from __future__ import annotations


class LayermemError(Exception):
    """Base of all errors that are reported as one sentence, without a traceback."""

    exit_code = 1


class InputError(LayermemError):
    """The input is wrong.  `path`, `line` and `layer` say where, as far as they are known."""

    exit_code = 2

    def __init__(self, what: str, *, path: str | None = None, line: int | None = None, layer: str | None = None):
        self.what, self.path, self.line, self.layer = what, path, line, layer
        super().__init__(what)

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.path, self.line) if part is not None)
        who = f"layer '{self.layer}' " if self.layer is not None else ""
        return f"{where}: {who}{self.what}" if where else f"{who}{self.what}"

    def at(self, *, path: str | None = None, line: int | None = None, layer: str | None = None) -> InputError:
        """The same error with the parts of its place that were not known yet filled in; a line goes with its file."""
        known = self.path is not None and path is not None and self.path != path
        return type(self)(
            self.what,
            path=self.path if self.path is not None else path,
            line=self.line if self.line is not None or known else line,  # never the line of another file
            layer=self.layer if self.layer is not None else layer,
        )


class BudgetError(LayermemError):
    """No plan fits: `budget` and `minimum` are bytes of the device, or of the `host`."""

    exit_code = 3

    def __init__(self, what: str, *, budget: int, minimum: int, host: bool = False):
        self.budget, self.minimum, self.host = budget, minimum, host
        super().__init__(what)


class DeviceError(LayermemError):
    """The device is missing, too small, or failed while running."""

    exit_code = 4


class CudaUnavailable(DeviceError):
    """The CUDA device cannot be used here, and why."""
