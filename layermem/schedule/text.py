"""A schedule as text that people can read and `parse` can read back.

    # mlp3 train   strategy inter   peak 1328K   max live 1328K   host 256K
    tick stream   op        what         reads                  writes       after
       0 compute  forward   data.forward                        data@0
       1 compute  forward   ip1.forward  data@0 ip1.w0@1280K    ip1@512K
       2 d2h      offload   data         data@0                 host@0       1
      ...
    # residencies
      id buffer  arena      offset      bytes  ticks      over
       0 data    device          0     524288  [0,3)
      ...

op      forward, recompute, backward, update; offload, prefetch: copies of the buffer `what`
reads   residencies that are only read, as buffer@offset; those that are read and written are listed under `writes`; if
        an op accesses only some items of the batch, these follow: data@0[8:16] for items 8 to 15
offsets and sizes in bytes, or exactly in K, M or G of 1024; white space in names is written as in a URL

Instructions that are wider than a terminal are folded.  `parse` reads this form as well:

    tick stream   op        what
       1 compute  forward   ip1.forward
         reads    data@0 ip1.w0@1280K
         writes   ip1@512K
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from layermem.errors import InputError
from layermem.graph.ops import Graph
from layermem.ops import BatchSlice
from layermem.planning.plan import Plan
from layermem.schedule.ir import COMM, COMPUTE, Instruction, Residency, Schedule

HEADINGS = ("tick", "stream", "op", "what", "reads", "writes", "after")
FOLDED_HEADINGS, LABELS = HEADINGS[:4], HEADINGS[4:]  # of folded instructions and of their continuation lines
RESIDENCY_HEADINGS = ("id", "buffer", "arena", "offset", "bytes", "ticks", "over")
RESIDENCIES = "# residencies"
RECOMPUTE = "recompute"
GAP = "   "  # between the facts in the first line
UNITS = (("G", 2**30), ("M", 2**20), ("K", 2**10))


def text(schedule: Schedule) -> str:
    """Return `schedule` as text that `parse` can read."""
    return "\n".join([*_instruction_lines(schedule), *_residency_lines(schedule)]) + "\n"


def instruction_text(schedule: Schedule, width: int | None = None) -> str:
    """Return only the instructions, without lines for residencies; folded if they are wider than `width` columns."""
    lines = _instruction_lines(schedule)
    if width is not None and max(map(len, lines)) > width:
        lines = _folded_lines(schedule, width)
    return "\n".join(lines) + "\n"


def schedule_values(schedule: Schedule) -> dict[str, object]:
    """Return the schedule for JSON: a value per instruction; reads and writes are residencies with their offsets."""
    return {
        "graph": schedule.graph.name,
        "peak_bytes": schedule.peak_bytes,
        "host_peak_bytes": schedule.host_peak_bytes,
        "instructions": [
            {
                "tick": instruction.tick,
                "stream": instruction.stream,
                "op": RECOMPUTE if instruction.is_recompute else instruction.kind,
                "what": instruction.what,
                "reads": [_residency_values(schedule.residencies[r], instruction) for r in _only_read(instruction)],
                "writes": [_residency_values(schedule.residencies[r], instruction) for r in instruction.writes],
                "after": list(instruction.after),
            }
            for instruction in schedule.instructions
        ],
    }


def _only_read(instruction: Instruction) -> list[int]:
    return [rid for rid in instruction.reads if rid not in instruction.writes]


def _residency_values(r: Residency, instruction: Instruction) -> dict[str, object]:
    items = _items_of(r, instruction)
    values: dict[str, object] = {
        "buffer": r.buffer,
        "arena": "host" if r.host else "device",
        "offset": r.offset,
        "bytes": r.nbytes,
    }
    return values if items is None else {**values, "items": [items.first, items.first + items.count]}


def _items_of(r: Residency, instruction: Instruction) -> BatchSlice | None:
    """The items of a residency that an instruction accesses; None for all items."""
    return instruction.op.view_of.get(r.buffer) if instruction.op is not None else None


def place_of(r: Residency) -> str:
    """The name of a residency: buffer@offset, or host@offset."""
    return f"{'host' if r.host else r.buffer}@{format_offset(r.offset)}"


def format_offset(nbytes: int) -> str:
    """Format the exact number of bytes, in the largest unit of which it is a multiple of a quarter: 1310720 ->
    '1.25M'."""
    for unit, size in UNITS:
        if nbytes >= size and nbytes % (size // 4) == 0:
            return f"{nbytes / size:.2f}".rstrip("0").rstrip(".") + unit
    return str(nbytes)


# -- writing ---------------------------------------------------------------------------------------------------


def _instruction_lines(schedule: Schedule) -> list[str]:
    return [GAP.join(_facts(schedule)), *_align(HEADINGS, _instruction_rows(schedule), right=("tick",))]


def _folded_lines(schedule: Schedule, width: int) -> list[str]:
    """The facts, one per line, then folded instructions with reads, writes and after on separate lines; words stay
    whole."""
    first, *facts = _facts(schedule)
    rows = _instruction_rows(schedule)
    headings, *lines = _align(FOLDED_HEADINGS, [row[:4] for row in rows], right=("tick",))
    label_at, words_at, _ = _column_starts(headings, FOLDED_HEADINGS)[1:]
    folded = [first, *(f"#{GAP}{fact}" for fact in facts), headings]
    for line, row in zip(lines, rows):
        folded.append(line)
        for label, words in zip(LABELS, row[4:]):
            parts = textwrap.wrap(words, max(width - words_at, 1), break_long_words=False, break_on_hyphens=False)
            folded += [
                " " * label_at + f"{'' if number else label:<{words_at - label_at}}{part}"
                for number, part in enumerate(parts)
            ]
    return folded


def _facts(schedule: Schedule) -> list[str]:
    host = [f"host {format_offset(schedule.host_peak_bytes)}"] if schedule.host_peak_bytes else []
    return [
        f"# {schedule.graph.name}",
        f"strategy {schedule.plan.strategy}",
        f"peak {format_offset(schedule.peak_bytes)}",
        f"max live {format_offset(schedule.max_live_bytes)}",
        *host,
    ]


def _instruction_rows(schedule: Schedule) -> list[tuple[str, ...]]:
    places = _Places(schedule.residencies)
    return [_instruction_row(places, instruction) for instruction in schedule.instructions]


def _instruction_row(places: _Places, instruction: Instruction) -> tuple[str, ...]:
    def named(ids: Sequence[int]) -> str:
        return " ".join(places.name_of(rid, instruction.tick) + _view_text(rid) for rid in ids)

    def _view_text(rid: int) -> str:
        items = _items_of(places.residencies[rid], instruction)
        return "" if items is None else f"[{items.first}:{items.first + items.count}]"

    kind = RECOMPUTE if instruction.is_recompute else instruction.kind
    reads = _only_read(instruction)
    after = " ".join(map(str, instruction.after))
    return (
        str(instruction.tick),
        instruction.stream,
        kind,
        _escape(instruction.what),
        named(reads),
        named(instruction.writes),
        after,
    )


def _residency_lines(schedule: Schedule) -> list[str]:
    rows = [
        (
            str(r.id),
            _escape(r.buffer),
            "host" if r.host else "device",
            format_offset(r.offset),
            str(r.nbytes),
            f"[{r.begin},{r.end})",
            "" if r.over is None else str(r.over),
        )
        for r in schedule.residencies
    ]
    return [RESIDENCIES, *_align(RESIDENCY_HEADINGS, rows, right=("id", "offset", "bytes"))]


def _align(headings: Sequence[str], rows: Sequence[tuple[str, ...]], right: Sequence[str]) -> Iterator[str]:
    """Lines whose cells begin (or end, for `right`) in one column."""
    widths = [max(map(len, column)) for column in zip(headings, *rows)]
    for row in (tuple(headings), *rows):
        cells = (
            cell.rjust(width) if heading in right else cell.ljust(width)
            for heading, cell, width in zip(headings, row, widths)
        )
        yield " ".join(cells).rstrip()


def _escape(name: str) -> str:
    if name == "host":  # the word for the host arena
        return "%68ost"
    return re.sub(r"[\s%]", lambda match: f"%{ord(match[0]):02X}", name)


# -- places ----------------------------------------------------------------------------------------------------


class _Places:
    """The names of residencies in instructions: buffer@offset or host@offset, followed by #id if that is ambiguous."""

    def __init__(self, residencies: Sequence[Residency]):
        self.residencies = residencies
        # Residencies of one buffer at one offset of one arena.
        self.alike: dict[tuple[bool, str, int], list[Residency]] = {}
        for r in residencies:
            self.alike.setdefault((r.host, r.buffer, r.offset), []).append(r)

    def name_of(self, rid: int, tick: int) -> str:
        r = self.residencies[rid]
        name = f"{'host' if r.host else _escape(r.buffer)}@{format_offset(r.offset)}"
        return name if self._at(r.host, r.buffer, r.offset, tick) == [rid] else f"{name}#{rid}"

    def find(self, name: str, buffer: str, tick: int) -> int:
        """The id of the residency of `buffer` that an instruction calls `name`."""
        arena, _, place = name.rpartition("@")
        offset, _, rid = place.partition("#")
        candidates = [int(rid)] if rid else self._at(arena == "host", buffer, parse_offset(offset), tick)
        if len(candidates) != 1:
            raise ValueError(f"{len(candidates)} residencies are '{name}' at tick {tick}")
        return candidates[0]

    def _at(self, host: bool, buffer: str, offset: int, tick: int) -> list[int]:
        return [r.id for r in self.alike.get((host, buffer, offset), ()) if r.begin <= tick < r.end]


# -- reading ---------------------------------------------------------------------------------------------------


def parse(source: str, graph: Graph, plan: Plan | None = None, path: str | None = None) -> Schedule:
    """Parse a schedule of `graph` that `text` wrote; InputError, with the line, if it is none.

    plan   the plan that it was lowered from; without one, a plan with the same strategy and order and no decisions
    """
    lines = source.splitlines()
    middle = lines.index(RESIDENCIES) if RESIDENCIES in lines else len(lines)
    number = 0  # number of the current line
    try:
        head = next((at for at in range(1, middle) if not lines[at].startswith("#")), middle)
        facts = dict(re.findall(r" {3}(strategy|peak|max live|host) (.+?)(?= {3}|$)", GAP.join(lines[:head])))
        residencies = []
        for number in range(middle + 2, len(lines)):
            residencies.append(_read_residency(lines[number]))
        number = head
        is_folded = tuple(lines[number].split()) == FOLDED_HEADINGS
        starts = _column_starts(lines[number], FOLDED_HEADINGS if is_folded else HEADINGS)
        reader = _InstructionReader(graph, residencies)
        ticks_end = starts[1] if is_folded else None
        for number, end in _instruction_spans(lines, head + 1, middle, ticks_end):
            reader.read(_unfold(lines[number:end], starts) if is_folded else _cells(lines[number], starts))
        number = 0
        peak_bytes, host_bytes, live_bytes = (
            parse_offset(facts.get(name, "0")) for name in ("peak", "host", "max live")
        )
    except (ValueError, KeyError, IndexError) as error:
        raise InputError(
            f"is not part of a schedule of this graph ({error}); print it again", path=path, line=number + 1
        ) from error
    plan = plan or Plan(facts["strategy"], tuple(i.what for i in reader.instructions if i.op is not None))
    return Schedule(graph, plan, tuple(reader.instructions), tuple(residencies), peak_bytes, host_bytes, live_bytes)


def parse_offset(word: str) -> int:
    """The bytes that `format_offset` wrote."""
    size = dict(UNITS).get(word[-1:])
    return round(float(word[:-1]) * size) if size else int(word)


def _column_starts(line: str, headings: Sequence[str] = HEADINGS) -> list[int]:
    """The columns at which the cells of instructions begin; the first column is aligned at its end."""
    if line.split() != list(headings):
        raise ValueError(f"the headings should be {' '.join(headings)}")
    _, *others = (match.start() for match in re.finditer(r"\S+", line))
    return [0, *others]


def _instruction_spans(lines: Sequence[str], begin: int, end: int, ticks_end: int | None) -> Iterator[tuple[int, int]]:
    """Half-open ranges of the lines of each instruction; lines without a tick before `ticks_end` continue one."""
    heads = [at for at in range(begin, end) if at == begin or lines[at][:ticks_end].strip()]
    return zip(heads, [*heads[1:], end])


def _unfold(lines: Sequence[str], starts: Sequence[int]) -> list[str]:
    """The cells of one folded instruction, in the order of HEADINGS."""
    words: dict[str, list[str]] = {label: [] for label in LABELS}
    label = ""
    for line in lines[1:]:
        label = line[: starts[2]].strip() or label
        words[label].append(line[starts[2] :])
    return [*_cells(lines[0], starts), *(" ".join(parts) for parts in words.values())]


def _cells(line: str, starts: Sequence[int]) -> list[str]:
    return [line[begin:end].strip() for begin, end in zip(starts, [*starts[1:], None])]


def _read_residency(line: str) -> Residency:
    words = line.split()
    rid, buffer, arena, offset, nbytes, ticks, *over = words
    begin, end = ticks.strip("[)").split(",")
    return Residency(
        int(rid),
        unquote(buffer),
        int(begin),
        int(end),
        int(nbytes),
        parse_offset(offset),
        arena == "host",
        int(over[0]) if over else None,
    )


class _InstructionReader:
    """Instructions over known residencies.  The graph states what an op reads and writes; the text, the offsets."""

    def __init__(self, graph: Graph, residencies: Sequence[Residency]):
        self.graph, self.places = graph, _Places(residencies)
        self.instructions: list[Instruction] = []

    def read(self, cells: Sequence[str]) -> None:
        tick, stream, kind, what, reads, writes, after = cells
        name = unquote(what)
        if stream in (COMPUTE, COMM):
            instruction = self._op(int(tick), kind, name, [*reads.split(), *writes.split()])
        else:
            ids = [self.places.find(word, name, int(tick)) for word in (reads, writes)]
            instruction = Instruction(int(tick), stream, kind, name, None, {}, (ids[0],), (ids[1],))
        self.instructions.append(instruction._replace(after=tuple(map(int, after.split()))))

    def _op(self, tick: int, kind: str, name: str, places: Sequence[str]) -> Instruction:
        op = self.graph.by_name[name]
        is_recompute = kind == RECOMPUTE
        if is_recompute:
            if op.recompute is None:
                raise ValueError(f"'{name}' cannot be recomputed")
            op = op.recompute
        ids = {}
        for place in places:
            word = re.sub(r"\[\d+:\d+\]$", "", place)  # the op determines the items
            arena = word.rpartition("@")[0]
            buffer = f"{name}.host_workspace" if arena == "host" else unquote(arena)
            ids[buffer] = self.places.find(word, buffer, tick)
        roles = {role: ids[buffer] for role, buffer in op.roles.items()}
        reads = tuple(ids[b] for b in (*op.reads, *op.updates))
        writes = tuple(ids[b] for b in (*op.updates, *op.writes))
        for role in ("workspace", "host_workspace"):
            if f"{name}.{role}" in ids:
                roles[role] = ids[f"{name}.{role}"]
                writes = (*writes, roles[role])
        return Instruction(tick, op.stream, op.kind, name, op, roles, reads, writes, is_recompute=is_recompute)
