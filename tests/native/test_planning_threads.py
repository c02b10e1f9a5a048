"""A native planner is shared by threads: calls wait for each other without holding the GIL."""

import subprocess
import sys

PLANNER = """
import _thread, sys, threading
from layermem._native import LowerSetPlanner, StepGraph

nodes = range(300)
edges = [(node, node + step) for node in nodes for step in (1, 3) if node + step < len(nodes)]
graph = StepGraph.value_gradients([float(1 + n % 7) for n in nodes], [1024 * (1 + n * 37 % 101) for n in nodes], edges)
planner = LowerSetPlanner(graph, "extended", "live")
"""

SEARCH_AND_EVALUATE = """
search = threading.Thread(target=lambda: planner.minimum(step_seconds=0.5))
search.start()
costs = [planner.segment(0, planner.lower_sets - 1) for _ in range(50)]
search.join()
assert all(cost == costs[0] for cost in costs)
"""

SEARCH_BESIDE_PYTHON = """
sys.setswitchinterval(1e6)  # the main thread keeps the GIL
search = threading.Thread(target=lambda: planner.minimum(step_seconds=0.2), daemon=True)
search.start()
while not planner.searched_step_seconds:
    pass
"""

INTERRUPT = """
import signal
from layermem._native import polish_order
from tests.native.test_planning_nested import random_values

signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background it is ignored
values = random_values(41)
start = values.planner.minimum()
threading.Timer(0.1, _thread.interrupt_main).start()
try:
    evictable = list(range(values.free.count))
    polish_order(values.layout, start.order, evictable, [], 0, start.live_bytes, 10**7)  # takes seconds
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("the search was not interrupted")
"""


def test_a_segment_is_evaluated_while_another_thread_searches():
    _run(SEARCH_AND_EVALUATE)


def test_a_search_ends_while_the_main_thread_computes_in_python():
    _run(SEARCH_BESIDE_PYTHON)


def test_an_interrupt_ends_a_search_of_the_main_thread():
    _run(INTERRUPT)


def _run(use):
    # In a separate process: a deadlock with the GIL would stop this one as well.
    subprocess.run([sys.executable, "-c", PLANNER + use], check=True, timeout=60)
