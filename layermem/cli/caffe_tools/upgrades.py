"""Programs that rewrite files of old versions: upgrade_net_proto_text, _binary, upgrade_solver_proto_text.

A net is upgraded by layer and by input, as Caffe does when it reads one; a solver by its type alone.

source  Caffe tools/upgrade_net_proto_text.cpp, upgrade_net_proto_binary.cpp, upgrade_solver_proto_text.cpp
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from layermem.cli.caffe_tools.program import Call, Program
from layermem.errors import InputError
from layermem.proto.schema import Message, NetParameter, SolverParameter
from layermem.proto.text import decode, parse
from layermem.proto.upgrade import upgrade_net, upgrade_solver_type
from layermem.utils.files import write_atomically
from layermem.utils.input_files import TEXT_LIMIT, read_bytes

UNREADABLE, NOT_UPGRADED = 2, 1  # exit codes
MESSAGE_LIMIT = 2**31  # bytes


@dataclass(frozen=True)
class Upgrade:
    """One of the programs: it reads a file, rewrites its message in place, and writes a file."""

    name: str  # of the message
    read: Callable[[str], Message]
    rewrite: Callable[[Message], object]
    content: Callable[[Message], bytes]

    def __call__(self, call: Call) -> int:
        source, target = call.words
        try:
            message = self.read(source)
        except InputError as error:
            call.log.write(f"Failed to parse input file as {self.name}: {error}", severity="E")
            return UNREADABLE
        before = message.SerializeToString(deterministic=True)
        try:
            self.rewrite(message)
        except InputError as error:
            call.log.write(f"Encountered error(s) while upgrading: {error.at(path=source)}", severity="E")
            return NOT_UPGRADED
        if message.SerializeToString(deterministic=True) == before:
            call.log.write(f"File already in latest proto format: {source}", severity="E")
        write_atomically(target, self.content(message))
        call.log.write(f"Wrote upgraded {self.name} to {target}")
        return 0


def _read_text(kind: Callable[[], Message]) -> Callable[[str], Message]:
    def read(path: str) -> Message:
        message = kind()
        text = decode(read_bytes(path, what="prototxt", limit=TEXT_LIMIT), path, what="prototxt")
        for unread in parse(text, message, path).unread.values():  # what is rewritten must lose nothing
            raise unread[0].error
        return message

    return read


def _read_binary(path: str) -> Message:
    try:
        return NetParameter.FromString(read_bytes(path, what="weight file", limit=MESSAGE_LIMIT))
    except DecodeError as error:
        raise InputError(f"is no weight file ({error}); give another file", path=path) from None


def _text(message: Message) -> bytes:
    return text_format.MessageToString(message, as_utf8=True).encode()


def _binary(message: Message) -> bytes:
    content: bytes = message.SerializeToString()
    return content


def _rewrite_net(net: Message) -> None:
    upgrade_net(net, [None] * len(net.layers or net.layer))


def _program(upgrade: Upgrade, place: str) -> Program:
    return Program(upgrade, "OLD_FILE NEW_FILE", range(2, 3), place)


PROGRAMS = {
    "upgrade_net_proto_text": _program(
        Upgrade("NetParameter", _read_text(NetParameter), _rewrite_net, _text), "upgrade_net_proto_text.cpp:1"
    ),
    "upgrade_net_proto_binary": _program(
        Upgrade("NetParameter", _read_binary, _rewrite_net, _binary), "upgrade_net_proto_binary.cpp:1"
    ),
    "upgrade_solver_proto_text": _program(
        Upgrade("SolverParameter", _read_text(SolverParameter), upgrade_solver_type, _text),
        "upgrade_solver_proto_text.cpp:1",
    ),
}
