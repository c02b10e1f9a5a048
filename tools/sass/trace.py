"""What a warp executes: a kernel up to its main loop, one iteration of that, and what comes after it.

The first thread of a block runs from the kernel's entry, over integers alone: its index, its block's and the arguments
of the launch are known; results of floating point and what memory returns are not.  Every known branch goes where it
goes on a GPU, so that trip counts of the loops inside are exact.  An unknown condition depends on data or borders: it
leads neither out of the kernel nor past the instructions behind it, as for a block inside the image.  So the trace is
that of a block whose every copy is needed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from tools.sass.disassembly import Instruction, Kernel
from tools.sass.loops import main_loop

MOST = 1_000_000  # instructions, beyond which a kernel is not followed
WORD = 0xFFFFFFFF

Value = int | None  # 32 bits, or unknown
Bits = tuple[int, int]  # a word and the mask of those of its bits that are known


class Step(NamedTuple):
    """An issued instruction; `off` if its guard is false: it takes an issue slot and nothing else."""

    instruction: Instruction
    off: bool


class Block(NamedTuple):
    """Which block is followed, by which thread, and the grid's size."""

    place: tuple[int, int, int]
    grid: tuple[int, int, int]
    thread: int = 0

    @classmethod
    def inside(cls, grid: tuple[int, int, int], thread: int = 0) -> Block:
        """In the middle of the first axis, along which the rows of the result lie."""
        return cls((grid[0] // 2, 0, 0), grid, thread)


class Trace(NamedTuple):
    """Instructions in the order of their execution: before the main loop, one iteration of it, after it."""

    before: Sequence[Step]
    loop: Sequence[Step]
    after: Sequence[Step]


def traced(kernel: Kernel, args: bytes, grid: tuple[int, int, int]) -> Trace:
    """The kernel with the packed arguments; ValueError where it cannot be followed."""
    loop = main_loop(kernel)
    thread = _Thread(kernel, args, Block.inside(grid))
    parts: tuple[list[Step], ...] = ([], [], [])
    index, part = 0, 0
    for _ in range(MOST):
        if part == 0 and index == loop.begin:
            part = 1
        instruction = kernel.code[index]
        guard = thread.predicate(instruction.guard)
        parts[part].append(Step(instruction, guard is False))
        if instruction.name == "EXIT" and guard is True:
            if part == 2:
                return Trace(*parts)
            raise ValueError(f"{kernel.name} ends at {instruction.address:#x}, before its main loop")
        if part == 1 and index == loop.end - 1:
            part, index = 2, loop.end
            continue
        if part == 1 and guard is None and kernel.labels.get(str(instruction.target), index) < index:
            raise ValueError(f"{kernel.name}: how often its loop at {instruction.address:#x} runs is not known")
        index = _next(kernel, thread, index, guard)
        if part == 1 and not loop.begin <= index < loop.end:
            raise ValueError(f"{kernel.name} leaves its main loop at {instruction.address:#x}")
    raise ValueError(f"{kernel.name} does not end within {MOST} instructions")


def followed(
    kernel: Kernel, args: bytes, grid: tuple[int, int, int], most: int = MOST, number: int = 0
) -> Iterator[Step]:
    """The first `most` instructions that thread `number` of a block issues, or all of them."""
    thread, index = _Thread(kernel, args, Block.inside(grid, number)), 0
    for _ in range(most):
        instruction = kernel.code[index]
        guard = thread.predicate(instruction.guard)
        yield Step(instruction, guard is False)
        if instruction.name == "EXIT" and guard is True:
            return
        index = _next(kernel, thread, index, guard)


def _next(kernel: Kernel, thread: _Thread, index: int, guard: bool | None) -> int:
    """Executes an instruction; the index of the one that follows."""
    instruction = kernel.code[index]
    if instruction.name == "BRA":
        taken = _all(guard, *map(thread.predicate, instruction.operands[:-1]))
        return kernel.labels[str(instruction.target)] if taken is True else index + 1
    if guard is not False:
        thread.execute(instruction, sure=guard is True)
    return index + 1


def _all(*conditions: bool | None) -> bool | None:
    if any(each is False for each in conditions):
        return False
    return None if None in conditions else True


# -- integers ----------------------------------------------------------------------------------------------------------

FLAG = re.compile(r"U?P[T\d]$")
PREDICATE = re.compile(r"^(!?)(U?P(?:T|\d))$")
REGISTER = re.compile(r"^([-~|]*)(U?R(?:Z|\d+))((?:\.\w+)*)\|?$")
INDEXED = re.compile(r"^c\[0x0\]\[(R\d+)?\+?(-?0x\w+)?\]$")
CONSTANT = re.compile(r"^(-?)c\[0x0\]\[(\w+)\](?:\.\w+)?$")
COMPARE = {
    "LT": lambda a, b: a < b, "LE": lambda a, b: a <= b, "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b,
}  # fmt: skip
NO_RESULT = {
    "ST", "STG", "STS", "STL", "BAR", "BSSY", "BSYNC", "NOP", "DEPBAR", "LDGDEPBAR", "LDGSTS", "WARPSYNC", "MEMBAR",
    "ERRBAR", "CCTL", "BREAK", "YIELD", "UCGABAR_WAIT", "UCGABAR_ARV",
}  # fmt: skip


class _Thread:
    """Registers and predicates of one thread, uniform ones included; those not in the maps are unknown."""

    def __init__(self, kernel: Kernel, args: bytes, where: Block):
        self.registers: dict[str, int] = {}
        self.partial: dict[str, Bits] = {}  # words of which some bits are known: the compiler keeps predicates in them
        self.predicates: dict[str, bool] = {}
        self.constants = _constants(kernel, args, where)
        x, y, z = where.place
        self.special: Mapping[str, int] = {
            "SR_TID.X": where.thread, "SR_TID.Y": 0, "SR_TID.Z": 0, "SR_CTAID.X": x, "SR_CTAID.Y": y, "SR_CTAID.Z": z,
            "SR_LANEID": 0, "SR_CgaCtaId": 0, "SRZ": 0,
        }  # fmt: skip

    # operands

    def predicate(self, text: str) -> bool | None:
        """Of a guard, empty where there is none; None: unknown."""
        if not text:
            return True
        found = PREDICATE.match(text)
        if not found:
            return None
        value = True if found[2] in ("PT", "UPT") else self.predicates.get(found[2])
        return value if value is None or not found[1] else not value

    def value(self, text: str) -> Value:
        if text.startswith(("0x", "-0x")):
            return int(text, 16) & WORD
        if found := CONSTANT.match(text):
            word = self.constants.get(int(found[2], 16))
            return None if word is None else (-word if found[1] else word) & WORD
        found = REGISTER.match(text)
        if not found or set(found[3].split(".")) - {"", "reuse"}:
            return None
        word = 0 if found[2] in ("RZ", "URZ") else self.registers.get(found[2])
        if word is None or "|" in found[1]:
            return None
        return {"": word, "-": -word, "~": ~word}[found[1]] & WORD

    def bits(self, text: str) -> Bits:
        """What is known of a word."""
        word = self.value(text)
        return (word, WORD) if word is not None else self.partial.get(text.removesuffix(".reuse"), (0, 0))

    def pair(self, text: str) -> Value:
        """64 bits from a register and the one behind it."""
        low, high = self.value(text), self.value(_behind(text))
        return None if low is None or high is None else high << 32 | low

    # results

    def execute(self, instruction: Instruction, sure: bool) -> None:
        """Sets what the instruction writes; to unknown where its guard is."""
        if instruction.name in NO_RESULT or not instruction.operands:
            return
        modifiers = instruction.opcode.split(".")[1:]
        name = instruction.name[1:] if instruction.name in UNIFORM else instruction.name
        result = RESULTS.get(name)
        results = result(self, modifiers, instruction.operands) if result else {}
        partial = _partial_result(self, name, modifiers, instruction.operands)
        if partial and not sure:
            partial = {written: _agreed(bits, self.bits(written)) for written, bits in partial.items()}
        for written in written_by(instruction):
            word = results.get(written) if sure else None
            store: dict[str, Any] = self.predicates if "P" in written else self.registers
            self.partial.pop(written, None)
            if word is None:
                store.pop(written, None)
            else:
                store[written] = word
        self.partial |= {written: bits for written, bits in partial.items() if written not in self.registers}


UNIFORM = {"UMOV", "UIADD3", "UIMAD", "ULOP3", "USHF", "ULEA", "UISETP", "USEL", "UPLOP3", "ULDC"}


def _constants(kernel: Kernel, args: bytes, where: Block) -> dict[int, int]:
    """Words of constant bank 0 by offset: sizes of block and grid, and the arguments."""
    words = [kernel.threads, 1, 1, *where.grid]
    constants = {4 * i: word for i, word in enumerate(words)}
    for at in range(0, len(args) // 4 * 4, 4):
        constants[kernel.parameters + at] = struct.unpack_from("<I", args, at)[0]
    return constants


def _behind(register: str) -> str:
    """R4 -> R5."""
    found = REGISTER.match(register)
    if not found or found[2] in ("RZ", "URZ"):
        return register
    return re.sub(r"\d+", lambda number: str(int(number[0]) + 1), found[2], count=1)


def written_by(instruction: Instruction) -> list[str]:
    """Registers and predicates that the instruction writes: `p, q` of comparisons, else `[p,] d [, carry, carry]`."""
    operands = instruction.operands
    compares = instruction.name.endswith(("SETP", "PLOP3"))
    leading = list(takewhile(FLAG.match, operands[: 2 if compares else None]))
    written = [each for each in leading if each[-1] != "T"]
    if not compares and len(leading) < len(operands):
        found = re.fullmatch(r"(U?R)(\d+)(?:\.\w+)*", operands[len(leading)])
        if found:
            written += [f"{found[1]}{int(found[2]) + i}" for i in range(_words(instruction))]
            written += takewhile(FLAG.match, operands[len(leading) + 1 :])
    if instruction.name == "R2P":
        mask = int(operands[2], 16) if operands[2:] and operands[2].startswith("0x") else 0x7F
        written += [f"P{i}" for i in range(7) if mask >> i & 1]
    return written


def _words(instruction: Instruction) -> int:
    """Of 32 bits, in the result."""
    modifiers = instruction.opcode.split(".")
    if instruction.name in ("HMMA", "IMMA") or "128" in modifiers or (instruction.name == "LDSM" and "4" in modifiers):
        return 4
    wide = instruction.name in ("CS2R", "CS2UR") and "32" not in modifiers
    return 2 if wide or {"64", "WIDE", "2"} & set(modifiers) else 1


def _signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


Operands = tuple[str, ...]
Results = dict[str, int | bool]


def _one(operands: Operands, word: Value) -> Results:
    return {} if word is None else {operands[0]: word & WORD}


def _two(operands: Operands, both: Value) -> Results:
    if both is None:
        return {}
    return {operands[0]: both & WORD, _behind(operands[0]): both >> 32 & WORD}


def _move(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    return _one(operands, thread.value(operands[1]))


def _special(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    word = thread.special.get(operands[1])
    return _two(operands, word) if operands[1] == "SRZ" else _one(operands, word)


def _load_constant(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """LDC d, c[0x0][offset], or c[0x0][register + offset]."""
    found = INDEXED.match(operands[1])
    base = thread.value(found[1]) if found and found[1] else 0
    if not found or base is None:
        return {}
    at = base + int(found[2] or "0", 16) & WORD
    words = [thread.constants.get(at + 4 * i) for i in range(2 if "64" in modifiers else 1)]
    names = (operands[0], _behind(operands[0]))
    return {name: word for name, word in zip(names, words, strict=False) if word is not None}


def _add(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """IADD3 d, [carries,] a, b, c and VIADD d, a, b."""
    if "X" in modifiers:
        return {}
    terms = [thread.value(each) for each in operands[1:] if not PREDICATE.match(each)]
    return {} if None in terms else _one(operands, sum(term for term in terms if term is not None))


def _multiply_add(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """IMAD[.WIDE|.HI][.U32] d, a, b, c; .MOV, .SHL, .IADD and .U32 alone are the same with other numbers."""
    if "X" in modifiers or any(PREDICATE.match(each) for each in operands):
        return {}
    a, b = thread.value(operands[1]), thread.value(operands[2])
    wide = "WIDE" in modifiers or "HI" in modifiers
    c = thread.pair(operands[3]) if wide else thread.value(operands[3])
    if c is None or (0 not in (a, b) and None in (a, b)):
        return {}
    a, b = a or 0, b or 0
    if wide and "U32" not in modifiers:
        a, b = _signed(a), _signed(b)
    total = (a * b + c) & (1 << 64) - 1
    if "WIDE" in modifiers:
        return _two(operands, total)
    return _one(operands, total >> 32 if "HI" in modifiers else total)


def _shift_add(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """LEA d, a, b, s = (a << s) + b; LEA.HI d, a, b, c, s = ((c:a) << s >> 32) + b; .SX32: c is a's sign."""
    words = [thread.value(each) for each in operands[1:]]
    if "X" in modifiers or None in words:
        return {}
    if "SX32" in modifiers:
        a, b, shift = (word or 0 for word in words)
        return _one(operands, (_signed(a) << shift >> 32) + b)
    if "HI" in modifiers:
        a, b, c, shift = (word or 0 for word in words)
        return _one(operands, ((c << 32 | a) << shift >> 32) + b)
    a, b, shift = (word or 0 for word in words)
    return _one(operands, (a << shift) + b)


def _funnel_shift(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """SHF.L|R[.U32|S32][.HI] d, low, shift, high."""
    low, shift, high = (thread.value(each) for each in operands[1:])
    left, upper = "L" in modifiers, "HI" in modifiers
    if not left and upper and shift is not None and high is not None:  # the low word cannot reach the result
        return _one(operands, (_signed(high) if "S32" in modifiers else high) >> shift)
    if low is None or shift is None or high is None or {"U64", "S64", "W"} & set(modifiers):
        return {}
    both = high << 32 | low
    moved = both << shift if left else both >> shift
    return _one(operands, moved >> 32 if upper else moved)


def _logic(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """LOP3.LUT [p,] d, a, b, c, table, q; p: whether any bit is set."""
    is_tested = bool(PREDICATE.match(operands[0]))
    target, (word, mask) = operands[is_tested], _logic_bits(thread, operands[is_tested:])
    found: Results = {target: word} if mask == WORD else {}
    if is_tested and (word or mask == WORD):
        found[operands[0]] = word != 0
    return found


def _logic_bits(thread: _Thread, operands: Operands) -> Bits:
    """Of d, a, b, c, table: a bit is known where all that a, b and c may be give the same."""
    table, words = thread.value(operands[4]), [thread.bits(each) for each in operands[1:4]]
    if table is None:
        return 0, 0
    possible = {0: 0, 1: 0}  # bits that may be so
    for index in range(8):
        both = WORD
        for place, (word, mask) in enumerate(words):
            both &= (word if index >> (2 - place) & 1 else ~word) | ~mask
        possible[table >> index & 1] |= both & WORD
    known = WORD & ~(possible[0] & possible[1])
    return possible[1] & known, known


def _predicates_as_bits(thread: _Thread, operands: Operands) -> Bits:
    """P2R d, PR, a, mask: predicates in the bits of the mask, a's in all others."""
    (word, known), mask = thread.bits(operands[2]), thread.value(operands[3])
    if mask is None:
        return 0, 0
    word, known = word & ~mask, known & ~mask
    for i in range(7):
        value = thread.predicate(f"P{i}")
        if mask >> i & 1 and value is not None:
            word, known = word | value << i, known | 1 << i
    return word, known


def _bits_as_predicates(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """R2P PR, a[.B1], mask."""
    name, _, byte = operands[1].partition(".B")
    word, known = thread.bits(name)
    shift = 8 * int(byte or 0)
    return {f"P{i}": bool(word >> shift + i & 1) for i in range(7) if known >> shift + i & 1}


def _partial_result(thread: _Thread, name: str, modifiers: list[str], operands: Operands) -> dict[str, Bits]:
    """What is known of the word that an instruction writes, where that may be a part of its bits."""
    if name == "LOP3":
        own = operands[bool(PREDICATE.match(operands[0])) :]
        return {own[0]: _logic_bits(thread, own)}
    if name == "P2R" and len(operands) == 4 and len(modifiers) == 0:
        return {operands[0]: _predicates_as_bits(thread, operands)}
    if name == "MOV" or (name == "IMAD" and "MOV" in modifiers):
        return {operands[0]: thread.bits(operands[-1])}
    return {}


def _agreed(one: Bits, other: Bits) -> Bits:
    """What is known of a word that is one of two."""
    known = one[1] & other[1] & ~(one[0] ^ other[0])
    return one[0] & known, known


def _compare(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """ISETP.LT[.U32].AND p, q, a, b, r: p = (a < b) and r, q = not (a < b) and r; .EX has the same of the lower words
    behind r."""
    if modifiers[0] not in COMPARE:
        return {}
    a, b, other = thread.value(operands[2]), thread.value(operands[3]), thread.predicate(operands[4])
    outcome: bool | None = None
    if a is not None and b is not None:
        if "U32" not in modifiers:
            a, b = _signed(a), _signed(b)
        outcome = COMPARE[modifiers[0]](a, b)
        if "EX" in modifiers and a == b:
            outcome = thread.predicate(operands[5])
    inverse = None if outcome is None else not outcome
    found = {
        name: _combine(modifiers, value, other) for name, value in zip(operands[:2], (outcome, inverse), strict=True)
    }
    return {name: value for name, value in found.items() if value is not None}


def _combine(modifiers: list[str], value: bool | None, other: bool | None) -> bool | None:
    if "AND" in modifiers:
        return _all(value, other)
    if "OR" in modifiers:
        return True if value or other else None if None in (value, other) else False
    return None if None in (value, other) else value != other


def _logic_of_predicates(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """PLOP3.LUT p, q, a, b, c, table, table."""
    conditions = [thread.predicate(each) for each in operands[2:5]]
    found: Results = {}
    for name, text in zip(operands[:2], operands[5:7], strict=False):
        table = int(text, 16)
        outcomes = {
            bool(table >> index & 1)
            for index in range(8)
            if all(each is None or each == bool(index >> (2 - place) & 1) for place, each in enumerate(conditions))
        }
        if len(outcomes) == 1:
            found[name] = outcomes.pop()
    return found


def _select(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    chosen = thread.predicate(operands[3])
    return {} if chosen is None else _one(operands, thread.value(operands[1 if chosen else 2]))


def _least(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """VIMNMX[.U32] d, a, b, p: the smaller one if p, else the larger."""
    a, b, smaller = thread.value(operands[1]), thread.value(operands[2]), thread.predicate(operands[3])
    if a is None or b is None or smaller is None:
        return {}
    if "U32" not in modifiers:
        a, b = _signed(a), _signed(b)
    return _one(operands, min(a, b) if smaller else max(a, b))


def _least_of_sum(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """VIADDMNMX[.U32] d, a, b, c, p: the smaller one of a + b and c if p, else the larger."""
    a, b, c, smaller = (*map(thread.value, operands[1:4]), thread.predicate(operands[4]))
    if a is None or b is None or c is None or smaller is None:
        return {}
    total = a + b & WORD
    if "U32" not in modifiers:
        total, c = _signed(total), _signed(c)
    return _one(operands, min(total, c) if smaller else max(total, c))


def _absolute(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    word = thread.value(operands[1])
    return {} if word is None else _one(operands, abs(_signed(word)))


def _constant_of_halves(thread: _Thread, modifiers: list[str], operands: Operands) -> Results:
    """HFMA2 d, -RZ, RZ, upper, lower: how the compiler moves a small constant on the pipe that is free."""
    if [each.lstrip("-") for each in operands[1:3]] != ["RZ", "RZ"]:
        return {}
    upper, lower = (struct.unpack("<H", struct.pack("<e", float(each)))[0] for each in operands[3:5])
    return {operands[0]: upper << 16 | lower}


RESULTS = {
    "MOV": _move, "R2UR": _move, "S2R": _special, "S2UR": _special, "CS2R": _special, "LDC": _load_constant,
    "IADD3": _add, "VIADD": _add, "IMAD": _multiply_add, "LEA": _shift_add, "SHF": _funnel_shift, "LOP3": _logic,
    "ISETP": _compare, "VIMNMX": _least, "IMNMX": _least, "VIADDMNMX": _least_of_sum, "IABS": _absolute,
    "HFMA2": _constant_of_halves, "PLOP3": _logic_of_predicates, "SEL": _select, "R2P": _bits_as_predicates,
}  # fmt: skip
