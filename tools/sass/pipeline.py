"""An in-order model of one sub-partition of a multiprocessor that runs some warps through a loop.

The scheduler issues one instruction a cycle: of the warps that may issue, the one that issued last goes on, and the
others take turns.  A warp may issue when the stall count of its last instruction has passed, the scoreboards that its
next one waits for are clear, and the pipe that this one needs is free.

    tensor   HMMA: its FLOPs over the rate of the tensor cores
    fma      FFMA, FADD, FMUL                    multiply   IMAD, 2 cycles
    alu      integers, logic, comparisons, conversions, 2 cycles
    shared   LDS, LDSM, STS, LDGSTS: wavefronts of 128 bytes through a port that the four sub-partitions share

Shared memory takes its instructions from a queue: an issue waits while more than QUEUE cycles of work are ahead of it.
Nothing is modelled of caches and DRAM (copies arrive in time in the main loop; behind it a wait for them is one for
memory), of bank conflicts (there are none, by the swizzle), of barriers but a fixed cost, and of register banks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from tools.sass.disassembly import Instruction
from tools.sass.gpus import SUB_PARTITIONS, WARP, Gpu
from tools.sass.trace import Step

HALF_RATE = 2  # cycles of a pipe of 16 lanes
SHARED_LATENCY, COPY_LATENCY, OTHER_LATENCY = 29, 20, 30  # cycles from the port to the result
GLOBAL_LATENCY = 700  # of DRAM
READ_LATENCY, COPY_READ_LATENCY = 12, 20  # until operands have been read
TENSOR_LATENCY = 18
QUEUE = 60
BARRIER = 25
PRODUCTS_DONE = 6  # a scoreboard beside those of the hardware: what products of warpgroups have been started
COPIES_DONE = 7  # the first of as many scoreboards as there are groups of copies to shared memory
OFFSET = 37  # cycles between the warps' starts

MATRICES = {"1688": (16, 8, 8), "16816": (16, 8, 16), "1684": (16, 8, 4)}  # m, n, k in the name of an HMMA
MULTIPLY = {"IMAD", "HFMA2"}
FLOATS = {"FFMA", "FMUL", "FADD"}
SHARED = {"LDS", "LDSM", "STS", "LDGSTS"}
MEMORY = {"LDC", "S2R", "S2UR", "LDG", "STG"}
NO_PIPE = {
    "BAR", "BSSY", "BSYNC", "BRA", "NOP", "DEPBAR", "LDGDEPBAR", "EXIT", "WARPSYNC", "YIELD", "ARRIVES", "SYNCS",
}  # fmt: skip


class Issue(NamedTuple):
    """What one instruction takes: `cycles` of `pipe`; cycles until its result is there, and its operands are read."""

    pipe: str
    cycles: float
    latency: float
    read_latency: float
    stall: int
    wait: tuple[int, ...]
    written: int | None
    read: int | None


class Rate(NamedTuple):
    """`cycles` of an iteration of all warps; what share of them each pipe is busy."""

    cycles: float
    busy: Mapping[str, float]


def flops(instruction: Instruction) -> int:
    """Of a whole warp, for products; 0 for all else."""
    if instruction.name == "FFMA":
        return 2 * WARP
    if instruction.name == "HMMA":
        m, n, k = MATRICES[instruction.opcode.split(".")[1]]
        return 2 * m * n * k
    return 0


def issues_of(steps: Sequence[Step], gpu: Gpu) -> list[Issue]:
    """What each step takes.  A load from an address that was loaded before comes from L1."""
    known: set[str] = set()  # address operands of loads, such as "desc[UR8][R2.64+0x24]"
    issues = []
    for step in steps:
        issue, instruction = issue_of(step, gpu), step.instruction
        if instruction.name == "LDG" and not step.off:
            if instruction.operands[1] in known:
                issue = issue._replace(latency=SHARED_LATENCY)
            known.add(instruction.operands[1])
        elif instruction.operands:
            known = {address for address in known if f"{instruction.operands[0]}." not in address}
        issues.append(issue)
    return issues


def waiting_for_copies(steps: Sequence[Step], issues: Sequence[Issue]) -> list[Issue]:
    """The issues of the steps, where a wait for groups of asynchronous copies lasts until memory has answered."""
    groups, timed = 0, []
    for step, issue in zip(steps, issues, strict=True):
        name = step.instruction.name
        if name == "LDGSTS" and not step.off:
            issue = issue._replace(latency=GLOBAL_LATENCY, written=COPIES_DONE + groups)
        elif name == "LDGDEPBAR":
            groups += 1
        elif name == "DEPBAR":
            newest = int(step.instruction.operands[1], 16)
            issue = issue._replace(wait=(*issue.wait, *range(COPIES_DONE, COPIES_DONE + max(0, groups - newest))))
        timed.append(issue)
    return timed


def issue_of(step: Step, gpu: Gpu) -> Issue:
    instruction, control = step.instruction, step.instruction.control
    pipe, cycles, latency = ("", 0.0, 0.0) if step.off else _use(instruction, gpu)
    read = COPY_READ_LATENCY if instruction.name == "LDGSTS" else READ_LATENCY
    stall = max(control.stall, BARRIER if instruction.name == "BAR" else 1)
    return Issue(pipe, cycles, latency, read, stall, control.wait, control.written, control.read)


def _use(instruction: Instruction, gpu: Gpu) -> tuple[str, float, float]:
    """(pipe, cycles of it, latency)."""
    name = instruction.name
    if name == "HMMA":
        rate = gpu.tensor * gpu.mma * (1 if "TF32" in instruction.opcode else 2)
        return "tensor", flops(instruction) / rate, TENSOR_LATENCY
    if name in SHARED:
        latency = COPY_LATENCY if name == "LDGSTS" else SHARED_LATENCY
        return "shared", wavefronts(instruction.opcode) * SUB_PARTITIONS, latency
    if name in MEMORY:
        return "memory", HALF_RATE, GLOBAL_LATENCY if name == "LDG" else OTHER_LATENCY
    if name in FLOATS:
        return "fma", WARP / gpu.lanes, 0.0
    if name in MULTIPLY:
        return "multiply", HALF_RATE, 0.0
    if name in NO_PIPE or name.startswith("U"):
        return "", 0.0, 0.0
    return "alu", HALF_RATE, 0.0


def wavefronts(opcode: str) -> int:
    """Of 128 bytes, for an access without bank conflicts."""
    modifiers = opcode.split(".")
    if modifiers[0] == "LDSM":
        return next((int(each) for each in modifiers[1:] if each in ("4", "2", "1")), 1)
    return 4 if "128" in modifiers else 2 if "64" in modifiers else 1


def simulate(issues: Sequence[Issue], warps: int, iterations: int = 8) -> Rate:
    """Warps that run the sequence again and again, without end; the cycles in which all together issue the second half
    of so many iterations."""
    state = _SubPartition([issues] * warps)
    total = len(issues) * warps * iterations
    for _ in range(total // 2):
        state.step()
    half = state.time
    for _ in range(total - total // 2):
        state.step()
    return Rate((state.time - half) / iterations * 2, {p: c / state.time for p, c in state.busy.items() if p})


def duration(warps: Sequence[Sequence[Issue]]) -> float:
    """Cycles until warps, which start together, have all run their sequences once."""
    state = _SubPartition(warps)
    while state.running:
        warp = state.step()
        if state.place[warp] == 0:
            state.running.remove(warp)
    return state.time


class _SubPartition:
    """Warps of one scheduler: where each is, when it may issue, when its scoreboards clear; when each pipe is free."""

    def __init__(self, warps: Sequence[Sequence[Issue]]):
        self.warps = warps
        self.running = [warp for warp, issues in enumerate(warps) if issues]
        self.place = [0] * len(warps)
        self.ready = [float(OFFSET * warp) for warp in range(len(warps))]
        self.clear = [defaultdict[int, float](float) for _ in warps]
        self.free: dict[str, float] = {"": 0.0}
        self.busy: dict[str, float] = {}
        self.port = 0.0  # when the port to shared memory has done all that was issued
        self.time = 0.0
        self.last = 0

    def step(self) -> int:
        """Issues one instruction; the warp that it is of."""
        warp, time = self.next_issue()
        issues = self.warps[warp]
        self.issue(warp, time, issues[self.place[warp]])
        self.place[warp] += 1
        if self.place[warp] == len(issues):
            self.place[warp] = 0
            self.last = (warp + 1) % len(self.warps)
        return warp

    def next_issue(self) -> tuple[int, float]:
        """The warp that issues next, and when."""
        count, best, first = len(self.warps), -1, float("inf")
        for warp in sorted(self.running, key=lambda warp: (warp - self.last) % count):
            issue = self.warps[warp][self.place[warp]]
            time = max(self.ready[warp], self.free.get(_queue(issue.pipe), 0.0), self.time)
            for scoreboard in issue.wait:
                time = max(time, self.clear[warp][scoreboard])
            if time < first:
                best, first = warp, time
        return best, first

    def issue(self, warp: int, time: float, issue: Issue) -> None:
        end = time + issue.latency
        if issue.pipe == "shared":
            start = max(time, self.port)
            self.port = start + issue.cycles
            end = start + issue.cycles + issue.latency - SUB_PARTITIONS
            self.free["queue"] = max(time + HALF_RATE, start - QUEUE)
        elif issue.pipe:
            self.free[_queue(issue.pipe)] = time + issue.cycles
        self.busy[issue.pipe] = self.busy.get(issue.pipe, 0.0) + issue.cycles
        clear = self.clear[warp]
        if issue.written is not None:
            clear[issue.written] = max(clear[issue.written], end)
        if issue.read is not None:
            clear[issue.read] = max(clear[issue.read], time + issue.read_latency)
        self.ready[warp] = time + issue.stall
        self.time = time + 1
        self.last = warp


@cache
def _queue(pipe: str) -> str:
    """The pipe whose time of being free an issue waits for: accesses to memory of all kinds share a queue."""
    return "queue" if pipe in ("shared", "memory") else pipe
