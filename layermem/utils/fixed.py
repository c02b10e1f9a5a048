"""Lists that show parts of a net: they read like any list, and refuse changes, which would change nothing of the net.

params = Fixed("params['ip1']", blobs, ".data[...]")
params[0] = x        TypeError: params['ip1'] cannot be changed; write to params['ip1'][0].data[...]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar

from layermem.errors import InputError, input_error_of

T = TypeVar("T")


def refusal(name: str, key: object, write: str) -> InputError:
    """The error, also a TypeError, for a change of item `key` of the list or mapping that code knows by `name`.

    write   what follows an item where its values are written to, such as ".data[...]"; "" if it has none
    """
    advice = f"write to {name}[{key!r}]{write}" if write else "it follows from the prototxt, so change that"
    return input_error_of(TypeError)(f"{name} cannot be changed; {advice}")


class Fixed(list[T]):
    """A list that cannot be changed; `name` and `write` are those of refusal().  Slices and copies are plain lists."""

    def __init__(self, name: str, items: Iterable[T] = (), write: str = ""):
        super().__init__(items)
        self.name, self.write = name, write

    def refusal(self, key: int) -> Exception:
        return refusal(self.name, key, self.write)

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise self.refusal(key if isinstance(key, int) else 0)

    def _refuse(self, *values: object, **options: object) -> NoReturn:
        raise self.refusal(0)

    __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)
