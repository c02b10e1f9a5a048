"""A log of Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021) as node-link JSON for `layermem plan-graph`.

    python tools/dtr_log.py logs/resnet32-*.log > dtr-resnet32.json

A call is one node per output that owns its bytes; its time is split in proportion to them.  A view is its base.  A
mutation makes new outputs, as in DTR's simulator.  Constants are one node that all nodes read, so it stays; a last node
reads what the program still holds at the end.

source  github.com/uwsampl/dtr-prototype, simrd/logs.zip and simrd/simrd/parse/parse.py (form of the logs)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

CONSTANTS = 0  # the number of their node


class Trace:
    """The nodes of a log, and for each name in scope the node that has its bytes, and how many."""

    def __init__(self, records: Iterable[dict[str, Any]]):
        self.nodes = [{"name": "constants", "cost_ram": 0, "cost_cpu": 0}]
        self.reads: list[list[int]] = [[]]
        self.scope: dict[str, tuple[int, int]] = {}
        rest = iter(records)
        for record in rest:
            self._read(record, rest)
        self._run({"NAME": "end", "ARGS": self.scope, "TIME": 0}, [0])

    def _read(self, record: dict[str, Any], rest: Iterator[dict[str, Any]]) -> None:
        kind, scope = record["INSTRUCTION"], self.scope
        if kind == "CONSTANT":
            nbytes = int(next(rest)["MEMORY"])
            self.nodes[CONSTANTS]["cost_ram"] += nbytes
            scope[record["NAME"]] = CONSTANTS, nbytes
        elif kind in ("COPY", "COPY_FROM"):
            scope[record["DST"]] = scope[record["SRC"]]
        elif kind == "RELEASE":
            scope.pop(record["NAME"], None)
        elif kind == "CALL":
            outputs = [(name, int(next(rest)["MEMORY"]), int(next(rest)["ALIAS"])) for name in record["RESULT"]]
            made = iter(self._run(record, [nbytes for _, nbytes, base in outputs if base < 0]))
            for name, _, base in outputs:
                scope[name] = next(made) if base < 0 else scope[record["ARGS"][base]]
        elif kind == "MUTATE":
            names = [record["ARGS"][at] for at in record["MUTATE"]]
            scope.update(zip(names, self._run(record, [scope[name][1] for name in names])))
        elif kind != "ANNOTATE":
            raise ValueError(f"unknown instruction {kind}")

    def _run(self, call: dict[str, Any], sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Add a node per output of a call; return their numbers and bytes."""
        first, reads = len(self.nodes), sorted({CONSTANTS, *(self.scope[name][0] for name in call["ARGS"])})
        shares = sizes if sum(sizes) else [1] * len(sizes)
        until = [int(call["TIME"]) * part // max(1, sum(shares)) for part in accumulate(shares, initial=0)]
        for nbytes, (begin, end) in zip(sizes, pairwise(until)):
            self.nodes.append({"name": call["NAME"], "cost_ram": nbytes, "cost_cpu": end - begin})
            self.reads.append(reads)
        return list(enumerate(sizes, first))

    def graph(self, name: str) -> dict[str, Any]:
        links = [{"source": read, "target": node} for node, reads in enumerate(self.reads) for read in reads]
        return {"graph": {"name": name}, "nodes": self.nodes, "links": links}


def after_warm_up(text: str) -> list[dict[str, Any]]:
    """The records after the annotation START, which precedes the run that was timed."""
    records = [json.loads(line) for line in text.splitlines()]
    starts = [at for at, record in enumerate(records) if record.get("ANNOTATION") == "START"]
    return records[starts[0] + 1 :] if starts else records


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    log = parser.parse_args(words).log
    print(json.dumps(Trace(after_warm_up(log.read_text(encoding="utf-8"))).graph(log.stem)))


if __name__ == "__main__":
    main()
