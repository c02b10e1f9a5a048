"""Schedules of graph files in the text form of Kusumoto et al.: written from a plan, and run as a check.

compute F              run forward function F (its number in the file) and keep all its outputs
compute F 0 2          a backward: add to the gradients of its outputs 0 and 2; a forward: keep those outputs only
forget V forward       free the data of variable V
forget V backward      free its gradient

A backward reads the gradients of its function's outputs, and the data that the file lists for it or, with reads
"inputs", the data of its function's inputs (value_graph.py).  The gradient of a value that no function reads is given;
a value to which no backward adds has no gradient, and none is read.

source  github.com/pfnet-research/recompute, scripts/run_schedule.py (format); no code is taken from it
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layermem.errors import InputError
from layermem.integrations.graph_files.text_format import GraphFile
from layermem.integrations.graph_files.value_graph import ValueGraph

Array = tuple[int, str]  # a variable, and "forward" for its data or "backward" for its gradient
DATA, GRADIENT = "forward", "backward"


def schedule_text(values: ValueGraph, actions: Sequence[tuple[str, int]]) -> str:
    """The text of a plan's actions: ('forward' | 'recompute', node), ('backward', step), steps from the last node down.

    Data that are not read again before they are next written are forgotten at once.
    """
    writer = _Writer(values)
    done = [
        writer.backward(len(values.variables) - 1 - i) if kind == "backward" else writer.forward(i)
        for kind, i in actions
    ]
    lines: list[str] = []
    next_is_read: set[Array] = set()
    for computes, reads, writes in reversed(done):
        touched = sorted(array for array in reads | writes if writer.may_forget(array))
        lines += [f"forget {v} {side}" for v, side in reversed(touched) if (v, side) not in next_is_read]
        lines += reversed(computes)
        next_is_read = (next_is_read - writes) | reads
    return "".join(line + "\n" for line in reversed(lines))


Done = tuple[list[str], set[Array], set[Array]]  # lines, arrays read, arrays newly written


class _Writer:
    """Turns nodes into the functions that compute their data and their gradients."""

    def __init__(self, values: ValueGraph):
        self.values, self.graph = values, values.graph
        self.half = len(self.graph.forward)
        self.begun: set[int] = set()  # functions whose gradients of parameters are complete
        self.readers = values.readers

    def forward(self, node: int) -> Done:
        variable = self.values.variables[node]
        index = self.values.writer[variable]
        function = self.graph.forward[index]
        which = f" {function.writes.index(variable)}" if len(function.writes) > 1 else ""
        return [f"compute {index}{which}"], _data(self.values.data_of_forward(index)), {(variable, DATA)}

    def backward(self, node: int) -> Done:
        """Compute the gradient of one value, and of every parameter whose function waits for no more gradients."""
        variable = self.values.variables[node]
        lines: list[str] = []
        reads: set[Array] = set()
        writes: set[Array] = set()
        for index in self.readers[variable]:
            self._run(index, {variable} if variable in self.values.with_gradient else set(), lines, reads, writes)
        own = self.values.writer[variable]
        if self.values.is_last_step(node):
            self._run(own, set(), lines, reads, writes)
        return lines, reads - writes, writes

    def _run(self, index: int, wanted: set[int], lines: list[str], reads: set[Array], writes: set[Array]) -> None:
        targets = self._targets(index)
        chosen = [k for k, v in enumerate(targets) if v in wanted]
        if index not in self.begun:
            chosen += [k for k, v in enumerate(targets) if v not in self.readers]
        if not chosen or not self.values.has_backward(index):
            return
        self.begun.add(index)
        lines.append(f"compute {self.half + index} {' '.join(map(str, sorted(chosen)))}")
        gradients = {(v, GRADIENT) for v in self.graph.forward[index].writes if v in self.values.with_gradient}
        reads |= _data(self.values.data_of_backward(index)) | gradients
        writes |= {(targets[k], GRADIENT) for k in chosen}

    def may_forget(self, array: Array) -> bool:
        """Whether an array may be forgotten: values and their gradients may; other data belong to the user, and
        gradients of parameters are results."""
        return array[0] in self.readers

    def _targets(self, index: int) -> tuple[int, ...]:
        return self.graph.backward[index].writes


def _data(values: Iterable[int]) -> set[Array]:
    return {(v, DATA) for v in values}


def run_schedule(graph: GraphFile, text: str, reads: str = "file", op_costs: str = "file") -> tuple[int, int]:
    """Return (peak bytes, cost of all forward runs) of a schedule; InputError with its line if it cannot run.

    Peak counts the data and gradients of values.  Every parameter that some backward adds to must get its gradient
    from each of them, once.
    """
    return run_on_values(ValueGraph(graph, reads, op_costs), text)


def run_on_values(values: ValueGraph, text: str) -> tuple[int, int]:
    """run_schedule() on a graph of values that is made already."""
    state = _ScheduleRun(values)
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        try:
            if len(words) >= 2 and words[0] == "compute":
                state.compute(int(words[1]), [int(word) for word in words[2:]])
            elif len(words) == 3 and words[0] == "forget" and words[2] in (DATA, GRADIENT):
                state.forget((int(words[1]), words[2]))
            else:
                raise ValueError(f"'{line.strip()}' is neither 'compute F [indices]' nor 'forget V forward|backward'")
        except ValueError as error:
            raise InputError(f"{error}; correct the line, or leave it out", line=number) from None
    state.finish()
    return state.peak_bytes, state.cost


def missing_reads(graph: GraphFile, text: str) -> int:
    """The number of backwards in a schedule that read, by the file, data that are absent when they run."""
    half, values, missing = len(graph.forward), ValueGraph(graph), 0
    present: set[int] = set()
    for verb, what, *rest in (line.split() for line in text.splitlines()):
        index = int(what)
        if verb == "forget":
            present -= {index} if rest == [DATA] else set()
        elif index < half:
            writes = graph.forward[index].writes
            present |= {writes[int(k)] for k in rest} if rest else set(writes)
        else:
            missing += not values.data_of_backward(index - half) <= present
    return missing


class _ScheduleRun:
    """The arrays that are present while a schedule runs."""

    def __init__(self, values: ValueGraph):
        self.values, self.graph = values, values.graph
        graph = values.graph
        self.functions = (*graph.forward, *graph.backward)
        self.present: set[Array] = set()
        self.added: set[tuple[int, int]] = set()  # (backward function, output) pairs that have run
        read = {v for function in graph.forward for v, _ in function.reads}
        self.given = {v for function in graph.forward for v in function.writes if v not in read}
        self.peak_bytes = self.cost = self.live_bytes = 0

    def compute(self, index: int, chosen: list[int]) -> None:
        if not 0 <= index < len(self.functions):
            raise ValueError(f"there is no function {index}; the file lists {len(self.functions)}, from 0")
        function = self.functions[index]
        if any(not 0 <= k < len(function.writes) for k in chosen):
            raise ValueError(f"function {index} has {len(function.writes)} outputs, from 0")
        which = chosen or range(len(function.writes))
        forward = index < len(self.graph.forward)
        half = len(self.graph.forward)
        self._need(
            index, _data(self.values.data_of_forward(index) if forward else self.values.data_of_backward(index - half))
        )
        if not forward:
            self._add_gradients(index, [(v, GRADIENT) for v in self.graph.forward[index - half].writes], which)
        else:
            self.cost += self.values.function_costs[index]
        self._allocate((function.writes[k], DATA if forward else GRADIENT) for k in which)

    def _add_gradients(self, index: int, of_outputs: list[Array], which: Iterable[int]) -> None:
        self._allocate(array for array in of_outputs if array[0] in self.given)
        exist = [array for array in of_outputs if array[0] in self.values.with_gradient]
        self._need(index, exist or of_outputs)
        for k in which:
            if (index, k) in self.added:
                raise ValueError(f"function {index} has already added to the gradient of its output {k}")
            self.added.add((index, k))

    def forget(self, array: Array) -> None:
        if array not in self.present:
            raise ValueError(f"there is no {_words(array)} to forget")
        self.present.remove(array)
        self.live_bytes -= self.graph.variables[array[0]].bytes

    def finish(self) -> None:
        half = len(self.graph.forward)
        for index, function in enumerate(self.graph.backward, half):
            for k, v in enumerate(function.writes if self.values.has_backward(index - half) else ()):
                if (index, k) not in self.added and not self.graph.variables[v].is_value:
                    what = f"the schedule ends before function {index} adds to the gradient of variable {v}; plan again"
                    raise InputError(what)

    def _need(self, index: int, arrays: Iterable[Array]) -> None:
        for array in arrays:
            if array not in self.present and (array[1] == GRADIENT or self.graph.variables[array[0]].is_value):
                raise ValueError(f"function {index} reads the {_words(array)}, which is not there")

    def _allocate(self, arrays: Iterable[Array]) -> None:
        for array in arrays:
            if self.graph.variables[array[0]].is_value and array not in self.present:
                self.present.add(array)
                self.live_bytes += self.graph.variables[array[0]].bytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)


def _words(array: Array) -> str:
    return f"{'data' if array[1] == DATA else 'gradient'} of variable {array[0]}"
