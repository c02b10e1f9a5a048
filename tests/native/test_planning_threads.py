"""A native planner is shared by threads: calls wait for each other without holding the GIL."""

import subprocess
import sys

SEARCH_AND_EVALUATE = """
import threading
from layermem._native import LowerSetPlanner, StepGraph

nodes = range(300)
edges = [(node, node + step) for node in nodes for step in (1, 3) if node + step < len(nodes)]
graph = StepGraph.value_gradients([float(1 + n % 7) for n in nodes], [1024 * (1 + n * 37 % 101) for n in nodes], edges)
planner = LowerSetPlanner(graph, "extended", "live")
search = threading.Thread(target=lambda: planner.minimum(time_limit=0.5))
search.start()
costs = [planner.segment(0, planner.lower_sets - 1) for _ in range(50)]
search.join()
assert all(cost == costs[0] for cost in costs)
"""


def test_a_segment_is_evaluated_while_another_thread_searches():
    # In a process of its own: a deadlock with the GIL would stop this one as well.
    subprocess.run([sys.executable, "-c", SEARCH_AND_EVALUATE], check=True, timeout=60)
