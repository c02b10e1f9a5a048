"""Golden schedules: the schedules of four strategies for six small nets, as text in NET.STRATEGY.sched, and of some in
slices of the batch, with BatchNorms in two passes, and with weights in bands of rows.

They are for the device `reference`, whose workspaces do not depend on the thread count or instruction set.  A change of
a strategy, of lowering or of placement shows here as a diff.  To accept one:

    python -m tests.golden.schedules          write all files anew
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from layermem.api import build_net
from layermem.planning.job import Job
from layermem.planning.pipeline import Compiler
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.ir import Schedule
from layermem.schedule.text import text
from layermem.solver.jobs import StepOptions, net_job

FOLDER = Path(__file__).parent
NETS = ("lenet", "alexnet", "resnet20_block", "googlenet_inception", "vgg_block", "unet")
SLICES = {  # name -> net and its slices
    "resnet20_block_slices": ("resnet20_block", "conv1..relu2/2"),
    "alexnet_rows": ("alexnet", "fc6/rows/3"),
}
STRATEGIES = ("liveness", "hybrid", "recompute", "nested")
CASES = [
    *((net, strategy) for net in (*NETS, "resnet20_block_slices") for strategy in STRATEGIES),
    ("alexnet_rows", "hybrid"),
]


@cache
def job(net: str) -> Job:
    net, slices = SLICES.get(net, (net, ""))
    made = net_job(build_net(FOLDER / f"{net}.prototxt"), StepOptions(device="reference"))
    return made.in_slices(slices)


def schedule(net: str, strategy: str) -> Schedule:
    """The training step under the strategy's minimum budget; liveness needs none."""
    compiler = Compiler(ArenaPlanner(job(net).graphs, job(net).costs), strategy)
    return compiler.compile(None if strategy == "liveness" else compiler.search.min_memory_program.arena_bytes).train


def file_of(net: str, strategy: str) -> Path:
    return FOLDER / f"{net}.{strategy}.sched"


def main() -> None:
    for net, strategy in CASES:
        file_of(net, strategy).write_text(text(schedule(net, strategy)))


if __name__ == "__main__":
    main()
