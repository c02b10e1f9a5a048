"""The data of a page as one JSON object.  Sections may be absent; the page then leaves them out.

    version     version of this format
    made_by     "layermem 0.1.0"
    title       title of the job, or the name of a log
    summary     device, strategy, peak_bytes, budget_bytes, seconds, baseline_bytes, baseline_seconds, recomputed_ops,
                offloaded_bytes, host_bytes, ops
    facts       [label, text], as `layermem plan` prints them
    net         page/net.py           arena       page/arena.py
    strategies  page/strategies.py    training    page/training.py

Numbers are bytes and seconds; lists of equal length are columns (page/columns.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from layermem import __version__
from layermem.integrations.page.arena import arena_page
from layermem.integrations.page.net import LayerIndex, net_page
from layermem.report.plan_report import PlanReport
from layermem.report.summary import plan_facts

VERSION = 1
Section = Mapping[str, object]


def empty_page(title: str) -> dict[str, object]:
    """A page without sections."""
    return {"version": VERSION, "made_by": f"layermem {__version__}", "title": title}


def plan_page(
    report: PlanReport, *, strategies: Section | None = None, training: Section | None = None
) -> dict[str, object]:
    """The page of a plan with the given sections."""
    index = LayerIndex(report.job.nets[0], report.job.graphs[0])
    page = {
        **empty_page(report.job.title),
        "summary": {
            "device": report.device,
            "strategy": report.strategy,
            "peak_bytes": report.peak_bytes,
            "budget_bytes": report.budget_bytes,
            "seconds": report.seconds,
            "baseline_bytes": report.job.baseline_bytes,
            "baseline_seconds": report.job.baseline_seconds,
            "recomputed_ops": report.recomputed_ops,
            "offloaded_bytes": report.offloaded_bytes,
            "host_bytes": report.program.host_bytes,
            "ops": len(report.job.graphs[0].ops),
        },
        "facts": [list(fact) for fact in plan_facts(report)],
        "net": net_page(report.job.nets[0], index),
        "arena": arena_page(report, index),
    }
    return page | _given(strategies=strategies, training=training)


def comparison_page(title: str, strategies: Section) -> dict[str, object]:
    """The page of a comparison: strategies without a main plan."""
    return empty_page(title) | {"strategies": strategies}


def log_page(title: str, training: Section) -> dict[str, object]:
    """The page of a log only."""
    return empty_page(title) | {"training": training}


def _given(**sections: Section | None) -> dict[str, object]:
    return {name: section for name, section in sections.items() if section is not None}
