"""Kernels of a cubin as nvdisasm prints them, with the control bits of every instruction.

An instruction is two words of 64 bits.  Bits 41..57 of the upper one steer the issue, since sm_70:

    41..44  stall       cycles until the warp may issue again
    45      0: yield    the scheduler should prefer another warp
    46..48  written     scoreboard that is raised until the result is there, 7: none
    49..51  read        scoreboard that is raised until the operands have been read, 7: none
    52..57  wait        mask of the scoreboards that must be clear before this is issued

source  Jia et al., "Dissecting the NVIDIA Volta GPU architecture via microbenchmarking" (2018), section 2
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from layermem.backends.cuda.kernel_images.toolkit import program

NO_SCOREBOARD = 7


class Control(NamedTuple):
    """How the issue of an instruction is steered; `written` and `read` are scoreboards or None."""

    stall: int
    yields: bool
    written: int | None
    read: int | None
    wait: tuple[int, ...]

    @classmethod
    def decode(cls, upper: int) -> Control:
        """From the upper word of an instruction."""
        bits = upper >> 41
        written, read, mask = bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63
        return cls(
            bits & 15,
            not bits >> 4 & 1,
            None if written == NO_SCOREBOARD else written,
            None if read == NO_SCOREBOARD else read,
            tuple(s for s in range(6) if mask >> s & 1),
        )


@dataclass(frozen=True)
class Instruction:
    """`@!P0 IMAD.WIDE R2, R4, 0x4, R6`: guard "!P0", opcode "IMAD.WIDE", operands ("R2", "R4", "0x4", "R6")."""

    address: int
    guard: str
    opcode: str
    operands: tuple[str, ...]
    control: Control

    @cached_property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.split(".")[0]

    @cached_property
    def target(self) -> str | None:
        """The label that a branch leads to."""
        found = re.search(r"`\((\.L_\w+)\)", self.operands[-1]) if self.operands else None
        return found[1] if found else None


@dataclass(frozen=True)
class Kernel:
    """A kernel's instructions in the order of memory, and what one block of it takes.

    labels       index of the instruction behind each label
    registers    of a thread        threads   of a block
    shared       bytes that the kernel declares, without those that a launch adds
    parameters   offset of the argument struct in constant bank 0
    """

    name: str
    code: Sequence[Instruction]
    labels: Mapping[str, int]
    registers: int = 0
    threads: int = 0
    shared: int = 0
    parameters: int = 0


def disassembler() -> str | None:
    """nvdisasm, of a toolkit or of the wheel nvidia-cuda-nvdisasm."""
    return program("nvdisasm")


def disassembled(cubin: bytes) -> dict[str, Kernel]:
    """The kernels of a cubin by name."""
    with tempfile.TemporaryDirectory(prefix="layermem-") as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        command = [str(disassembler()), "-hex", "-c", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    resources = dict(_resources(cubin))
    return {name: Kernel(name, code, labels, **resources.get(name, {})) for name, (code, labels) in parse(text).items()}


# -- text --------------------------------------------------------------------------------------------------------------

LINE = re.compile(
    r"^(\.L_\w+):"
    r"|^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?PT?\d*)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;\s*/\* 0x[0-9a-f]{16} \*/"
    r"\s*/\* 0x([0-9a-f]{16}) \*/",
    re.MULTILINE,
)


def parse(text: str) -> dict[str, tuple[list[Instruction], dict[str, int]]]:
    """Instructions and labels of each kernel in the output of `nvdisasm -hex -c`."""
    parts = re.split(r"^\.text\.(\w+):$", text, flags=re.MULTILINE)
    return {name: _parse_kernel(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def _parse_kernel(body: str) -> tuple[list[Instruction], dict[str, int]]:
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    for label, address, guard, opcode, operands, upper in LINE.findall(body):
        if label:
            labels[label] = len(code)
            continue
        split = tuple(each.strip() for each in operands.split(",")) if operands else ()
        code.append(Instruction(int(address, 16), guard, opcode, split, Control.decode(int(upper, 16))))
    return code, labels


# -- ELF ---------------------------------------------------------------------------------------------------------------

MAX_THREADS, PARAMETER_BANK, REGISTERS = 0x05, 0x0A, 0x2F  # attributes of .nv.info
SIZED = 4  # format of an attribute: two bytes of size, then its value


def _resources(cubin: bytes) -> Iterator[tuple[str, dict[str, int]]]:
    """(kernel, its fields `registers`, `threads`, `shared`, `parameters`) from the sections of the file."""
    sections = dict(_sections(cubin))
    symbols = _symbols(sections)
    for attribute, value in _attributes(sections[".nv.info"]):
        if attribute != REGISTERS:
            continue
        symbol, registers = struct.unpack_from("<II", value)
        kernel = symbols[symbol]
        own = dict(_attributes(sections[f".nv.info.{kernel}"]))
        yield kernel, {
            "registers": registers,
            "threads": struct.unpack_from("<I", own[MAX_THREADS])[0],
            "shared": len(sections.get(f".nv.shared.{kernel}", b"")),
            "parameters": struct.unpack_from("<IH", own[PARAMETER_BANK])[1],
        }  # fmt: skip


def _symbols(sections: Mapping[str, bytes]) -> list[str]:
    table, names = sections[".symtab"], sections[".strtab"]
    begins = [struct.unpack_from("<I", table, at)[0] for at in range(0, len(table), 24)]
    return [names[begin : names.index(b"\0", begin)].decode() for begin in begins]


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, contents) of each section; zeros for one that takes no space in the file."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    for name, kind, _, _, offset, length, *_ in headers:
        begin = headers[names][4] + name
        in_file = kind != 8  # SHT_NOBITS
        contents = elf[offset : offset + length] if in_file else bytes(length)
        yield elf[begin : elf.index(b"\0", begin)].decode(), contents


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == SIZED:
            yield attribute, data[at : at + size]
            at += size
