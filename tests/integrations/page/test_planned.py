"""Sections that become ready while a page is shown."""

from layermem.integrations.page.planned import PlannedPage


def test_sections_and_progress_are_in_the_state_and_each_change_has_another_version():
    planned = PlannedPage()
    versions = [planned.state()[0]]
    plan = planned.begin()
    changes = (
        lambda: planned.note(plan, "a note"),
        lambda: planned.add(plan, "plan", b"{}"),
        lambda: planned.advance(plan, "auto", 1, 2),
        lambda: planned.fail(plan, "no memory"),
    )
    for change in changes:
        versions.append(planned.state()[0])
        change()
    version, state = planned.state()
    assert len({*versions, version}) == len(versions) + 1
    assert state == {
        "plan": 1,
        "ready": ["plan"],
        "doing": "auto",
        "done": 1,
        "total": 2,
        "notes": ["a note"],
        "error": "no memory",
    }
    assert planned.content("plan") == b"{}" and planned.content("strategies") is None


def test_late_reports_of_an_earlier_plan_are_dropped():
    planned = PlannedPage()
    earlier = planned.begin()
    planned.add(earlier, "plan", b"1")
    newer = planned.begin()
    before = planned.state()
    planned.add(earlier, "strategies", b"2")
    planned.fail(earlier, "ended")
    assert planned.state() == before and planned.content("plan") is None
    planned.add(newer, "plan", b"3")
    assert planned.content("plan") == b"3"
