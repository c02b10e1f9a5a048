"""Sets aside what the schema does not have in layers whose shapes may be known without it.

A plan needs the shapes of blobs, and no pixel: a source of an unknown type has those that the user gives, and a source
of images those that its crop states.  So an error about one of these is kept until the net is built (graph/net.py):

    a block that resembles no block of the schema              my_data_param { }
    a type of an old `layers` block                            type: VIDEO_DATA
    a field, or a named value, in a layer without bottoms      transform_param { noise_param { } }
    all but the largest of several resize_param in such        a fork draws one of them from time to time
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from layermem.errors import InputError
from layermem.proto.blanking import FieldText
from layermem.proto.explain import wrong_value
from layermem.proto.forks import REPEATED, augments, owner_name, repeated_refusal
from layermem.proto.outline import Field, Outline, Place, Token, Unread
from layermem.proto.remedy import unknown_field
from layermem.proto.schema import Message
from layermem.proto.upgrade import v2_type
from layermem.utils.similar import did_you_mean

_OLD_TYPE = ("layers", "type")
_BLOCK = "_param"


def set_aside(text: str, message: Message, layout: Outline, path: str) -> tuple[str, dict[Place, tuple[Unread, ...]]]:
    """Return `text` with blanks for what is set aside, and the errors about it by place of the layer."""
    return _Reader(text, message, layout, path).run()


class _Reader:
    def __init__(self, text: str, message: Message, layout: Outline, path: str):
        self.fields = FieldText(text, message.DESCRIPTOR, layout)
        self.message, self.layout, self.path = message, layout, path

    def run(self) -> tuple[str, dict[Place, tuple[Unread, ...]]]:
        spans, unread = [], {}
        for place, fields in self.layout.layers():
            found = [(self.fields.span(field), each) for field, each in self._unread(fields, len(place))]
            spans += [span for span, _ in found]
            if found:
                unread[place] = tuple(each for _, each in found)
        return self.fields.blanked(spans), unread

    def _unread(self, fields: Sequence[Field], depth: int) -> Iterator[tuple[Field, Unread]]:
        """The part of the `fields` of a layer that is set aside; `depth` is the length of the path of the layer."""
        stated = {field.path[depth] for field in fields if len(field.path) == depth + 1}
        if not {"type", "top"} <= stated:
            return
        is_source = "bottom" not in stated
        left_out = self._smaller(fields) if is_source else []
        end = 0
        for field in fields:
            at = self.fields.offset(*field.value)
            owner, name = self.fields.owner(field.path[:-1]), field.path[-1]
            if at < end or owner is None or self.fields.text[at].isspace():
                continue
            if field in left_out:
                what = f"is given a second time in this {owner.name}: {repeated_refusal(owner.name, name)}"
                found = self._error(field, f"'{name}' (column {self._column(field)}) {what}", augments=True)
            elif name not in owner.fields_by_name and (
                (len(field.path) > depth + 1 and is_source) or self._is_block(owner, field, depth)
            ):
                what = unknown_field(owner.name, name, self._column(field), self.message)
                found = self._error(field, what, augments=augments(owner_name(owner), name))
            elif self.fields.has_unknown_name(field) and (is_source or field.path[depth - 1 :] == _OLD_TYPE):
                word = self.fields.word(field)
                what = wrong_value(Token("word", word, *field.value), field.value[1], self.message, field)
                found = self._error(field, what, type=v2_type(word) if len(field.path) == depth + 1 else "")
            else:
                continue
            end = self.fields.span(field)[1]
            yield field, found

    def _smaller(self, fields: Sequence[Field]) -> list[Field]:
        """The blocks of a repeated field but the one of the most pixels."""
        sizes: dict[Field, int] = {}
        last = None
        for field in fields:
            owner = self.fields.owner(field.path[:-1])
            if owner is not None and (owner.name, field.path[-1]) in REPEATED:
                last, sizes[field] = field, 1
            elif last and field.path[:-1] == last.path and field.path[-1] in ("height", "width"):
                word = self.fields.word(field)
                sizes[last] *= int(word) if word.isdecimal() else 1
        largest = max(sizes, key=lambda field: sizes[field], default=None)
        return [field for field in sizes if field != largest]

    def _is_block(self, owner: Message, field: Field, depth: int) -> bool:
        """Whether an unknown field is a block of a layer that resembles no block of the schema."""
        name = field.path[-1]
        return len(field.path) == depth + 1 and name.endswith(_BLOCK) and not did_you_mean(name, owner.fields_by_name)

    def _column(self, field: Field) -> int:
        return self.fields.span(field)[0] - self.fields.offset(field.line, 1) + 1

    def _error(self, field: Field, what: str, *, augments: bool = False, type: str = "") -> Unread:
        return Unread(InputError(what, path=self.path, line=field.line), augments, type)
