from dataclasses import dataclass
from inspect import signature as shown

import pytest

from layermem.utils.keywords import documented, signature, split


@dataclass(frozen=True)
class Size:
    """How large it is.

    width   in pixels
    """

    width: int = 1
    scale: float = 1.0

    @classmethod
    def of(cls, width: str = "1", **options: float) -> "Size":
        return cls(int(width), **options)


@dataclass(frozen=True)
class Paint:
    """How it looks.

    colour   a name
    """

    colour: str = "red"

    @classmethod
    def of(cls, **options: str) -> "Paint":
        return cls(**options)


def test_keywords_are_the_fields_of_the_records():
    assert split("draw", {"colour": "blue", "width": "3"}, Size, Paint) == [Size(3), Paint("blue")]


@pytest.mark.parametrize("name", ["scale", "color"])
def test_a_keyword_that_is_no_field_or_hidden_is_a_type_error(name):
    with pytest.raises(TypeError, match=rf"draw\(\) got an unexpected keyword argument '{name}'; "):
        split("draw", {name: 1}, Size, Paint, hidden=["scale"])


def test_help_shows_them():
    def draw(path, **options):
        pass

    draw.__signature__ = signature("path", Size, Paint, hidden=["scale"])
    assert list(shown(draw).parameters) == ["path", "width", "colour"]
    assert documented(Size, Paint) == "width   in pixels\ncolour   a name"
