"""Mutations of files: of tokens in text files, of bytes in any file.

mutate_text(rng, text, others)     one to six edits of tokens; `others` are files of the same kind to take parts of
mutate_bytes(rng, raw, others)     one to six edits of bytes
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from layermem.layers import LAYERS
from layermem.layers.data import FEEDS
from layermem.proto.schema import LayerParameter, Message, NetParameter, SolverParameter

TOKEN = re.compile(r'"[^"\n]*"|[\w.+-]+|\s+|.', re.DOTALL)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
NUMBERS = (
    "0", "1", "-1", "2", "3", "7", "255", "65536", "2147483647", "2147483648", "4294967295", "-2147483648",
    "9223372036854775807", "18446744073709551616", "0.5", "-0.75", "1e-30", "1e38", "1e39", "1e308", "1e400", "nan",
    "inf", "-inf", "0x10", "1e", "9" * 400,
)  # fmt: skip
SMALL_NUMBERS = ("0", "1", "2", "3", "4", "5", "0.5", "-1")
STRINGS = ('""', '"data"', '"loss"', '"a+b"', '"[/x]"', '"x' + "y" * 300 + '"', '"\\000"', '"\\377"', '"日本"', "'")
CHARACTERS = ("{", "}", ":", '"', "#", ",", "[", "]", "\0", "\n", "²", "<", ";", "\\")


def _fields(message: Message) -> list[str]:
    names = [field.name for field in message.DESCRIPTOR.fields]
    inner = [f.message_type for f in message.DESCRIPTOR.fields if f.message_type is not None]
    return names + [field.name for each in inner for field in each.fields]


WORDS = sorted({*_fields(LayerParameter()), *_fields(NetParameter()), *_fields(SolverParameter())})
TYPES = sorted(f'"{name}"' for name in {*LAYERS, *FEEDS})

Tokens = list[str]
Others = Sequence[str]


def _replace_number(rng: random.Random, tokens: Tokens, others: Others) -> None:
    """Replace a number, mostly an integer by an integer."""
    at = [i for i, token in enumerate(tokens) if NUMBER.fullmatch(token)]
    if at:
        chosen = rng.choice(at)
        choices = rng.choice((NUMBERS, SMALL_NUMBERS, SMALL_NUMBERS))
        whole = tokens[chosen].isdigit() and rng.random() < 0.9
        tokens[chosen] = rng.choice([number for number in choices if not whole or number.lstrip("-").isdigit()])


def _replace_string(rng: random.Random, tokens: Tokens, others: Others) -> None:
    at = [i for i, token in enumerate(tokens) if token[:1] == '"']
    if at:
        mine = [tokens[i] for i in at]
        tokens[rng.choice(at)] = rng.choice([rng.choice(STRINGS), rng.choice(TYPES), rng.choice(mine)])


def _replace_word(rng: random.Random, tokens: Tokens, others: Others) -> None:
    at = [i for i, token in enumerate(tokens) if token[:1].isalpha()]
    if at:
        mine = [tokens[i] for i in at]
        tokens[rng.choice(at)] = rng.choice([rng.choice(WORDS), rng.choice(mine), rng.choice(mine)])


def _delete(rng: random.Random, tokens: Tokens, others: Others) -> None:
    start = rng.randrange(len(tokens))
    del tokens[start : start + rng.choice((1, 1, 2, 5, 20))]


def _repeat(rng: random.Random, tokens: Tokens, others: Others) -> None:
    start = rng.randrange(len(tokens))
    part = tokens[start : start + rng.choice((1, 3, 10, 40))]
    tokens[start:start] = part * rng.choice((1, 1, 2, 8))


def _insert_character(rng: random.Random, tokens: Tokens, others: Others) -> None:
    tokens.insert(rng.randrange(len(tokens)), rng.choice(CHARACTERS))


def _swap(rng: random.Random, tokens: Tokens, others: Others) -> None:
    i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    tokens[i], tokens[j] = tokens[j], tokens[i]


def _line(rng: random.Random, tokens: Tokens, others: Others) -> None:
    """Delete, repeat or move a line, or copy one from another file."""
    lines = "".join(tokens).splitlines(keepends=True)
    at = rng.randrange(len(lines))
    other = rng.choice(others).splitlines(keepends=True) or [""]
    line = rng.choice((lines.pop(at), "", rng.choice(other)))
    lines.insert(rng.randrange(len(lines) + 1), line)
    tokens[:] = TOKEN.findall("".join(lines))


def _setting(rng: random.Random, tokens: Tokens, others: Others) -> None:
    """Insert a new field with a value where a field may begin."""
    at = [i + 1 for i, token in enumerate(tokens) if token in "{}" or token.isspace()]
    value = rng.choice((rng.choice(NUMBERS), rng.choice(STRINGS), "true", "{ }"))
    tokens.insert(rng.choice(at or [0]), f" {rng.choice(WORDS)}: {value} ")


TEXT_EDITS: tuple[Callable[[random.Random, Tokens, Others], None], ...] = (
    *[_replace_number] * 8,
    *[_replace_string] * 2,
    *[_replace_word] * 2,
    *[_line] * 2,
    _delete,
    _repeat,
    _insert_character,
    _swap,
    _setting,
)


def mutate_text(rng: random.Random, text: str, others: Others) -> str:
    tokens = TOKEN.findall(text)
    for _ in range(rng.choice(EDITS)):
        if tokens:
            rng.choice(TEXT_EDITS)(rng, tokens, others)
    return "".join(tokens)


EDITS = (1, 1, 1, 2, 2, 3, 6)  # numbers of edits of one input, each equally likely
BYTES = (b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff\x0f", b"\0" * 8, b"\xff" * 8, b"\0\0\xc0\x7f")


def mutate_bytes(rng: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    data = bytearray(raw)
    for _ in range(rng.choice(EDITS)):
        at = rng.randrange(len(data)) if data else 0
        match rng.randrange(12):
            case 0 | 1 | 2 | 3 | 4 | 5 | 6 if data:
                data[at] ^= 1 << rng.randrange(8)
            case 7:
                chosen = rng.choice(BYTES)
                data[at : at + len(chosen)] = chosen
            case 8:
                data[at:at] = rng.choice(BYTES)
            case 9:
                del data[at : at + rng.choice((1, 2, 4, 64))]
            case 10:
                data[at:at] = data[at : at + rng.choice((1, 8, 64))]
            case _:
                other = rng.choice(others)
                start = rng.randrange(len(other)) if other else 0
                data[at : at + 16] = other[start : start + 16]
    return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data)
