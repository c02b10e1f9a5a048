"""Programs that rewrite files of old versions: upgrade_net_proto_text, _binary, upgrade_solver_proto_text.

A net is upgraded by layer and by input, as Caffe does when it reads one; a solver by its type alone.

source  Caffe tools/upgrade_net_proto_text.cpp, upgrade_net_proto_binary.cpp, upgrade_solver_proto_text.cpp
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from layermem.cli.caffe_tools.program import CaffeProgram, Call
from layermem.errors import InputError
from layermem.proto.schema import Message, NetParameter, SolverParameter
from layermem.proto.text import caffe_text, decode, parse
from layermem.proto.upgrade import upgrade_net, upgrade_solver_type
from layermem.utils.files import write_atomically
from layermem.utils.input_files import TEXT_LIMIT_BYTES, exists, read_bytes

UNREADABLE = 2  # exit code, of a file that is there
MESSAGE_LIMIT_BYTES = 2**31


@dataclass(frozen=True)
class Upgrade:
    """One of the programs: it reads a file, rewrites its message in place, and writes a file."""

    name: str  # of the message
    form: str  # text or binary
    place: str  # of lines of the log
    read: Callable[[str], Message]
    rewrite: Callable[[Message], object]
    content: Callable[[Message], bytes]

    def __call__(self, call: Call) -> int:
        source, target = call.words
        if not exists(source):
            raise InputError("no such file; give an existing one", path=source)
        try:
            message = self.read(source)
        except InputError as error:
            call.log.write(f"Failed to parse input {self.form} file as {self.name}: {error}", self.place, "E")
            return UNREADABLE
        before = message.SerializeToString(deterministic=True)
        try:
            self.rewrite(message)
        except InputError as error:
            raise error.at(path=source) from None
        if message.SerializeToString(deterministic=True) == before:
            call.log.write(f"File already in latest proto format: {source}", self.place, "E")
        write_atomically(target, self.content(message))
        call.log.write(f"Wrote upgraded {self.name} {self.form} proto to {target}", self.place)
        return 0


def _read_text(kind: Callable[[], Message]) -> Callable[[str], Message]:
    def read(path: str) -> Message:
        message = kind()
        text = decode(read_bytes(path, what="prototxt", limit=TEXT_LIMIT_BYTES), path, what="prototxt")
        for unread in parse(text, message, path).unread.values():  # what is rewritten must lose nothing
            raise unread[0].error
        return message

    return read


def _read_binary(path: str) -> Message:
    try:
        return NetParameter.FromString(read_bytes(path, what="weight file", limit=MESSAGE_LIMIT_BYTES))
    except DecodeError as error:
        raise InputError(f"is no weight file ({error}); give another file", path=path) from None


def _text(message: Message) -> bytes:
    return caffe_text(message).encode()


def _binary(message: Message) -> bytes:
    content: bytes = message.SerializeToString()
    return content


def _rewrite_net(net: Message) -> None:
    upgrade_net(net, [None] * len(net.layers or net.layer))


def _program(name: str, form: str, place: str, *steps: Callable[..., Any]) -> CaffeProgram:
    return CaffeProgram(Upgrade(name, form, place, *steps), "OLD_FILE NEW_FILE", range(2, 3), place, has_flags=False)


PROGRAMS = {
    "upgrade_net_proto_text": _program(
        "NetParameter", "text", "upgrade_net_proto_text.cpp:49", _read_text(NetParameter), _rewrite_net, _text
    ),
    "upgrade_net_proto_binary": _program(
        "NetParameter", "binary", "upgrade_net_proto_binary.cpp:48", _read_binary, _rewrite_net, _binary
    ),
    "upgrade_solver_proto_text": _program(
        "SolverParameter",
        "text",
        "upgrade_solver_proto_text.cpp:49",
        _read_text(SolverParameter),
        upgrade_solver_type,
        _text,
    ),
}
