"""Machine code as nvdisasm prints it: the instructions of each kernel, and its loops.

A loop is what lies between a label and a later branch back to it.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from layermem.backends.cuda.kernel_images.toolkit import program


@functools.cache
def disassembler() -> str | None:
    """nvdisasm, of a toolkit or of the wheel nvidia-cuda-nvdisasm."""
    return program("nvdisasm")


@dataclass(frozen=True)
class Code:
    """Opcodes in the order of memory, such as "LDGSTS.E.BYPASS.128"; loops as half-open ranges of them."""

    opcodes: Sequence[str]
    loops: Sequence[tuple[int, int]]

    def counts(self, loop: tuple[int, int] | None = None) -> Counter[str]:
        begin, end = loop or (0, len(self.opcodes))
        return Counter(self.opcodes[begin:end])

    def innermost(self, opcode: str) -> tuple[int, int]:
        """The smallest of the loops that hold most of what begins with `opcode`."""

        def held(loop: tuple[int, int]) -> int:
            return sum(each.startswith(opcode) for each in self.opcodes[loop[0] : loop[1]])

        most = max(map(held, self.loops))
        inner = [loop for loop in self.loops if 2 * held(loop) > most > 0]
        return min(inner, key=lambda loop: loop[1] - loop[0])

    def around(self, inner: tuple[int, int], opcode: str) -> tuple[int, int]:
        """The smallest loop that holds `inner`, and something that begins with `opcode`."""
        outer = [
            loop
            for loop in self.loops
            if loop[0] <= inner[0]
            and inner[1] <= loop[1]
            and any(o.startswith(opcode) for o in self.opcodes[slice(*loop)])
        ]
        return min(outer, key=lambda loop: loop[1] - loop[0])


def disassembled(cubin: bytes) -> dict[str, Code]:
    """The code of every kernel of a cubin, by name."""
    with tempfile.TemporaryDirectory(prefix="layermem-") as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([str(disassembler()), "-c", str(path)], capture_output=True, text=True, check=True)
    parts = re.split(r"^\.text\.(\w+):$", done.stdout, flags=re.MULTILINE)
    return {name: _code(text) for name, text in zip(parts[1::2], parts[2::2])}


LINE = re.compile(r"^(\.L_\w+):|^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)$", re.MULTILINE)


def _code(text: str) -> Code:
    labels: dict[str, int] = {}
    opcodes: list[str] = []
    loops = []
    for label, opcode, rest in LINE.findall(text):
        if label:
            labels[label] = len(opcodes)
            continue
        opcodes.append(opcode)
        target = re.search(r"`\((\.L_\w+)\)", rest)
        if opcode.startswith("BRA") and target and target[1] in labels:
            loops.append((labels[target[1]], len(opcodes)))
    return Code(opcodes, loops)
