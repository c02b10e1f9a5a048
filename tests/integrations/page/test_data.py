"""The sections of a page."""

from layermem.integrations.page.data import comparison_page, log_page, plan_page
from layermem.report.summary import plan_facts

FRAME = {"version", "made_by", "title"}


def test_a_page_has_the_sections_that_it_was_given(report):
    whole = plan_page(report, strategies={"rows": []}, training={"charts": []})
    assert set(whole) == FRAME | {"summary", "facts", "net", "arena", "strategies", "training"}
    assert set(plan_page(report)) == set(whole) - {"strategies", "training"}
    assert set(comparison_page("it", {})) == FRAME | {"strategies"} and set(log_page("it", {})) == FRAME | {"training"}


def test_a_page_has_what_plan_prints(report):
    page = plan_page(report)
    assert page["facts"] == [list(fact) for fact in plan_facts(report)] and page["title"] == report.job.title
    assert page["summary"]["peak_bytes"] == report.peak_bytes and page["summary"]["seconds"] == report.seconds
