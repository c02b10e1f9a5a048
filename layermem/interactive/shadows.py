"""Parameters as arrays that a user may write to.

If the host can reach the arena and NumPy can express the memory order, `.data` is a view.  Otherwise it is a separate
array, which is written back before a program runs or the parameters are read, and read again afterwards, so that it
behaves like a view.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from layermem.backends.arena import axes_of_caffe
from layermem.interactive.blob import Array
from layermem.runtime.runner import Runner


class Shadows:
    """The arrays outside the arena, by name of the persistent buffer, as long as they are referenced."""

    def __init__(self) -> None:
        self._arrays: WeakValueDictionary[str, Array] = WeakValueDictionary()
        self._unwritten: list[Array] = []  # arrays that a user may have written and dropped

    def array(self, runner: Runner, name: str, shape: tuple[int, ...]) -> Array:
        """The buffer `name` in Caffe's order and shape, writable."""
        stored = runner.view(name)
        if stored is not None:
            view = axes_of_caffe(stored)
            if view.shape == shape:
                return view
            if not runner.persistent[name].tensor.interleaved:
                return stored.reshape(shape)
        array = self._arrays.get(name)
        if array is None:
            self._arrays[name] = array = runner.read(name).flatten()  # an array that owns its memory
        self._unwritten.append(array)
        return array.reshape(shape)

    def flush(self, runner: Runner) -> None:
        """Write all arrays back."""
        for name, array in list(self._arrays.items()):
            runner.write(name, array)
        self._unwritten.clear()

    def refresh(self, runner: Runner) -> None:
        """Read all arrays again, after the buffers changed."""
        for name, array in list(self._arrays.items()):
            array[:] = runner.read(name).reshape(-1)
