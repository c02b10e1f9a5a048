"""Plan a net that does not fit: the refusal, the smallest budget, and what host memory changes.  Nothing runs.

python docs/examples/does_not_fit.py
"""

from pathlib import Path

import layermem

NET = Path(__file__).parents[2] / "prototxt/resnet20/train_val.prototxt"
MIB = 2**20


def main() -> None:
    net = layermem.Net(NET)  # batch 128
    try:
        layermem.compile(net, budget="30MiB")
    except layermem.BudgetError as refusal:
        print(refusal)
        minimum = refusal.minimum_bytes
    for budget, host in ((minimum, None), ("30MiB", "1GiB")):
        report = layermem.plan(net, budget=budget, host_budget=host)
        print(
            f"{report.peak_bytes / MIB:.1f} MiB with {report.recomputed_ops} recomputed ops and "
            f"{report.offloaded_bytes / MIB:.0f} MiB on the host: {100 * report.overhead:+.1f} % time"
        )


if __name__ == "__main__":
    main()
