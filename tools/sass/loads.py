"""What a kernel that memory bounds keeps in flight, and the rate at which DRAM then serves it.

By Little's law no more bytes a second arrive than are in flight over the latency of DRAM.  With x bytes in flight the
model has   rate x / (x + rate latency / 2):   it lies between that bound, or the rate if it is smaller, and the rate
x / (x + rate latency) of loads each of which waits for all others.
"""

from __future__ import annotations

import re
from functools import cache
from math import prod

from layermem.backends.cuda.launch import Launch
from tools.sass.disassembly import Instruction, Kernel
from tools.sass.engine import kernels_of
from tools.sass.gpus import Gpu, blocks_at_once
from tools.sass.pipeline import GLOBAL_LATENCY
from tools.sass.trace import followed, written_by

FOLLOWED = 20_000  # instructions: enough for many turns of a loop
REGISTER = re.compile(r"(?<![A-Z])R(\d+)(\.64)?")


def share_of(each: Launch, gpu: Gpu) -> float:
    """Of DRAM's rate, by the launch's loads in flight; 1 for a kernel that reads nothing."""
    in_flight = launch_bytes(each, gpu)
    half = gpu.dram * GLOBAL_LATENCY / gpu.clock / 2
    return in_flight / (in_flight + half) if in_flight else 1.0


def launch_bytes(each: Launch, gpu: Gpu) -> int:
    """In flight on the whole GPU: those of the threads that it holds at once."""
    kernel = kernels_of(each.module, gpu.architecture)[each.function]
    blocks = min(prod(each.grid), resident_blocks(each, gpu) * gpu.multiprocessors)
    return blocks * kernel.threads * thread_bytes(each, gpu)


def resident_blocks(each: Launch, gpu: Gpu) -> int:
    """Of one multiprocessor."""
    kernel = kernels_of(each.module, gpu.architecture)[each.function]
    return blocks_at_once(gpu, kernel.threads, kernel.registers, kernel.shared + each.shared)


def thread_bytes(each: Launch, gpu: Gpu) -> int:
    return _thread_bytes(each.module, each.function, each.args, each.grid, gpu.architecture)


@cache
def _thread_bytes(module: str, function: str, args: bytes, grid: tuple[int, int, int], architecture: str) -> int:
    return bytes_in_flight(kernels_of(module, architecture)[function], args, grid)


def bytes_in_flight(kernel: Kernel, args: bytes, grid: tuple[int, int, int]) -> int:
    """The most bytes of loads that a thread has issued of which it has not named the result; copies to shared memory
    count until it waits for them."""
    most, copied, waiting = 0, 0, dict[frozenset[str], int]()
    for instruction, off in followed(kernel, args, grid, FOLLOWED):
        if off:
            continue
        named = named_by(instruction)
        waiting = {loaded: nbytes for loaded, nbytes in waiting.items() if not loaded & named}
        if instruction.name == "LDG":
            waiting[frozenset(written_by(instruction))] = width_of(instruction)
        elif instruction.name == "LDGSTS":
            copied += width_of(instruction)
        elif instruction.name == "DEPBAR":
            copied = 0
        most = max(most, copied + sum(waiting.values()))
    return most


def width_of(instruction: Instruction) -> int:
    """Bytes that a load brings."""
    modifiers = instruction.opcode.split(".")
    return next((nbytes for name, nbytes in (("128", 16), ("64", 8), ("U16", 2), ("U8", 1)) if name in modifiers), 4)


def named_by(instruction: Instruction) -> frozenset[str]:
    """Registers, read or written; of a vector that is read, the first stands for all."""
    read = {
        f"R{int(found[1]) + i}"
        for operand in instruction.operands
        for found in REGISTER.finditer(operand)
        for i in range(2 if found[2] else 1)
    }
    return frozenset(read).union(written_by(instruction))
