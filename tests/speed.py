"""The slow tests, by file: `make fast` runs the others in under a minute on two cores.

A file is slow if its tests together take more than about five seconds of CPU time."""

from __future__ import annotations

EMULATOR = ("backends/cuda/", "emulator/")  # CUDA kernels compiled for the host
SLOW = (
    "backends/test_cpu.py",
    "cli/test_changing_files.py",
    "cli/test_every_net.py",
    "cli/test_examples.py",
    "cli/test_init.py",
    "cli/test_main.py",
    "cli/test_train.py",
    "native/test_cpu_activation.py",
    "native/test_cpu_convolution.py",
    "native/test_cpu_eltwise.py",
    "native/test_cpu_inner_product.py",
    "native/test_cpu_loss.py",
    "native/test_cpu_softmax.py",
    "native/test_cpu_update.py",
    "native/test_planning_live_peaks.py",
    "native/test_planning_placement.py",
    "native/test_planning_threads.py",
    "planning/strategies/test_auto_on_nets.py",
    "planning/test_budget_search.py",
    "planning/test_budgets.py",
    "proto/test_opencv.py",
    "proto/test_text.py",
    "prototxt/",
    "report/test_plan_report.py",
    "integrations/page/test_timeline.py",
    "schedule/test_check_random.py",
    "solver/test_digits.py",
    "solver/test_killed.py",
    "solver/test_process_memory.py",
    "solver/test_snapshot_damage.py",
    "solver/test_snapshot_resume.py",
    "solver/test_strategies.py",
    "solver/test_three_budgets.py",
    "test_examples.py",
    "test_guide.py",
    "tools/",
)


def needs_emulator(path: str) -> bool:
    """`path` is relative to this folder, with slashes."""
    return path.startswith(EMULATOR)


def is_slow(path: str) -> bool:
    return needs_emulator(path) or path.startswith(SLOW)
