"""Machine code as nvdisasm prints it: the instructions of each kernel, and its loops.

A loop is what lies between a label and a later branch back to it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.sass.disassembly import disassembler

Range = tuple[int, int]  # half-open


@dataclass(frozen=True)
class Code:
    """Opcodes in the order of memory, such as "LDGSTS.E.BYPASS.128"; loops as half-open ranges of them.

    operands   of each instruction, as they are printed
    """

    opcodes: Sequence[str]
    loops: Sequence[Range]
    operands: Sequence[str] = ()

    def counts(self, loop: Range | None = None) -> Counter[str]:
        begin, end = loop or (0, len(self.opcodes))
        return Counter(self.opcodes[begin:end])

    def loads_in_flight(self, loop: Range | None = None) -> int:
        """The most loads from global memory of which none has been used, on the way through the code, or round and
        round a loop.  Those of fewer than the most bytes, such as a tail that goes element by element, do not count."""
        begin, end = loop or (0, len(self.opcodes))
        widths = {_bytes(self.opcodes[i]) for i in range(begin, end) if self.opcodes[i].startswith("LDG.")}
        waiting: list[frozenset[int]] = []
        most = 0
        for i in (*range(begin, end), *(range(begin, end) if loop else ())):
            loaded, named = _registers(self.opcodes[i], self.operands[i])
            waiting = [each for each in waiting if not each & (loaded | named)]
            if loaded and _bytes(self.opcodes[i]) == max(widths):
                waiting.append(loaded)
                most = max(most, len(waiting))
        return most

    @property
    def loading_loops(self) -> list[Range]:
        """The innermost loops that read global memory."""
        reading = [loop for loop in self.loops if any(o.startswith("LDG.") for o in self.opcodes[slice(*loop)])]
        return [
            loop for loop in reading
            if not any(loop != inner and loop[0] <= inner[0] and inner[1] <= loop[1] for inner in reading)
        ]  # fmt: skip

    def innermost(self, opcode: str) -> Range:
        """The smallest of the loops that hold most of what begins with `opcode`."""

        def held(loop: Range) -> int:
            return sum(each.startswith(opcode) for each in self.opcodes[loop[0] : loop[1]])

        most = max(map(held, self.loops))
        inner = [loop for loop in self.loops if 2 * held(loop) > most > 0]
        return min(inner, key=lambda loop: loop[1] - loop[0])

    def around(self, inner: Range, opcode: str) -> Range:
        """The smallest loop that holds `inner`, and something that begins with `opcode`."""
        outer = [
            loop
            for loop in self.loops
            if loop[0] <= inner[0]
            and inner[1] <= loop[1]
            and any(o.startswith(opcode) for o in self.opcodes[slice(*loop)])
        ]
        return min(outer, key=lambda loop: loop[1] - loop[0])

    def smallest(self, *beginnings: str) -> Range:
        """The smallest loop that has an opcode of each beginning."""
        found = [
            loop for loop in self.loops
            if all(any(o.startswith(each) for o in self.opcodes[slice(*loop)]) for each in beginnings)
        ]  # fmt: skip
        return min(found, key=lambda loop: loop[1] - loop[0])


def disassembled(cubin: bytes) -> dict[str, Code]:
    """The code of every kernel of a cubin, by name."""
    with tempfile.TemporaryDirectory(prefix="layermem-") as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([str(disassembler()), "-c", str(path)], capture_output=True, text=True, check=True)
    parts = re.split(r"^\.text\.(\w+):$", done.stdout, flags=re.MULTILINE)
    return {name: _code(text) for name, text in zip(parts[1::2], parts[2::2])}


# Labels, and instructions but those that are never executed (@!PT), which the compiler puts in front of some copies.
LINE = re.compile(r"^(\.L_\w+):|^\s+/\*[0-9a-f]{4,}\*/\s+(?:@(?!!PT)!?U?P\w+\s+)?([A-Z][\w.]*)(.*)$", re.MULTILINE)
REGISTER = re.compile(r"(?<![A-Z])R(\d+)(\.64)?")


def _bytes(opcode: str) -> int:
    """That a load or store moves."""
    return next((bits // 8 for bits in (128, 64) if f".{bits}" in opcode), 4)


def _registers(opcode: str, operands: str) -> tuple[frozenset[int], frozenset[int]]:
    """Those that a load from global memory fills, and all others that an instruction names.  Of a vector that is used,
    the first element stands for all."""
    found = [(int(m[1]), 2 if m[2] else 1) for m in REGISTER.finditer(operands)]
    loaded: frozenset[int] = frozenset()
    if opcode.startswith("LDG.") and found:
        loaded = frozenset(range(found[0][0], found[0][0] + _bytes(opcode) // 4))
        found = found[1:]
    return loaded, frozenset(register + i for register, wide in found for i in range(wide))


def _code(text: str) -> Code:
    labels: dict[str, int] = {}
    opcodes: list[str] = []
    operands: list[str] = []
    loops = []
    for label, opcode, rest in LINE.findall(text):
        if label:
            labels[label] = len(opcodes)
            continue
        opcodes.append(opcode)
        operands.append(rest.partition(";")[0])
        target = re.search(r"`\((\.L_\w+)\)", rest) if opcode.startswith("BRA") else None
        if target and target[1] in labels:
            loops.append((labels[target[1]], len(opcodes)))
    return Code(opcodes, loops, operands)
