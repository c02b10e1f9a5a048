"""tools/bench_plans.py: tables of pages are planned by their settings, compared, and written."""

import re
import sys

import pytest

from tests.integrations.graph_files.node_links import chain_text
from tools import bench_plans
from tools.bench_plans import COMMENT, PAGES, RESULTS, SETTINGS, Comparison, StepRow, changes_of, number_of, tables

PAGE = """# A page

| net | liveness |
|---|---|
| mnist x64 | not planned |

<!-- plans: device=cuda link=45 -->

| net | budget, MiB | overhead | peak, MiB | caffe | `intra` device=cpu | paper |
|---|---|---|---|---|---|---|
| mnist x64 | 64 | -99.0 % | 0 | 0 | 0 | 3 |
| mnist x64 | 2 | x | x | 9,999 | 9,999 | 4 |
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The exit code, what is printed, and the page then."""

    def run_on(text: str, *words: str) -> tuple[int, str, str]:
        page = tmp_path / "page.md"
        page.write_text(text)
        monkeypatch.setattr(sys, "argv", ["bench_plans.py", str(page), *words])
        return bench_plans.main(), capsys.readouterr().out, page.read_text()

    return run_on


def test_cells_that_got_worse_are_named_and_the_others_counted(run):
    code, said, page = run(PAGE)
    assert code == 1 and page == PAGE
    assert "worse: page.md:11 mnist x64" in said and ", overhead: " in said and "was -99.0 %" in said
    assert said.splitlines()[-1] == "1 equal, 2 better, 3 worse"


def test_results_are_written_and_equal_then(run):
    _, _, page = run(PAGE, "--write")
    assert "| mnist x64 | not planned |" in page
    fits, fails = page.splitlines()[-2:]
    assert re.fullmatch(r"\| mnist x64 \| 64 \| [+-][\d.]+ % \| \d+ \| \d+ \| \d+ \(-[\d.]+ %\) \| 3 \|", fits)
    assert re.fullmatch(r"\| mnist x64 \| 2 \| needs \d+ \| - \| \d+ \| \d+ \(-[\d.]+ %\) \| 4 \|", fails)
    code, said, again = run(page, "--write")
    assert (code, again) == (0, page) and " 0 better, 0 worse" in said


def test_only_some_rows_are_planned(run):
    _, said, _ = run(PAGE, "--only", "| 2 |", "--print")
    assert [line.split(" | ")[1] for line in said.splitlines() if line.startswith("| mnist")] == ["2"]


def test_a_step_is_compared_with_that_of_its_row():
    base = StepRow({"net": "mnist x64", "strategy": "liveness"})
    sliced = StepRow({**base.settings, "slices": "whole/4"}, base)
    assert base.overhead() == "+0.0 %" and sliced.overhead().startswith("+")
    assert sliced.result("slices chosen") == "whole/4" and sliced.result("no result") is None
    split = sliced.other(**{"split-weights": "ip1/4"})
    assert [split.result(f"{name} chosen") for name in ("slices", "split weights")] == ["whole/4", "ip1/4"]
    assert sliced.result("split weights chosen") == "off"


def test_ranks_have_an_efficiency_and_exposed_communication():
    step = StepRow({"net": "mnist x64", "ranks": "4", "network": "0.1"})
    assert 0 < float(step.efficiency().rstrip(" %")) < 100 and float(step.exposed()) > 0


def test_graph_files_are_planned_where_a_folder_is_given(run, tmp_path):
    (tmp_path / "chain.json").write_text(chain_text(16))
    page = "<!-- plans: -->\n\n| graph | budget | order |\n|---|---|---|\n| chain.json | 80 % | 99 |\n"
    assert run(page)[1] == "0 equal, 0 better, 0 worse\n"
    code, said, _ = run(page, "--graphs", str(tmp_path))
    assert (code, said) == (0, "0 equal, 1 better, 0 worse\n")


def test_placement_problems_are_solved_within_the_capacity_in_their_name(run, tmp_path):
    """Three of 4 bytes fit 8 bytes, since two live at a time; within 7 bytes nothing does."""
    rows = "id,lower,upper,size\n0,0,2,4\n1,1,3,4\n2,2,4,4\n"
    page = "<!-- plans: -->\n\n| problem | place, s |\n|---|---|\n"
    for capacity in (8, 7):
        (tmp_path / f"P.{capacity}.csv").write_text(rows)
        page += f"| P.{capacity}.csv | |\n"
    _, _, text = run(page, "--graphs", str(tmp_path), "--write")
    assert re.search(r"P.8.csv \| 0\.\d+ \|\n\| P.7.csv \| - \|", text)


def test_a_step_is_planned_for_the_gpu_of_its_row():
    steps = [StepRow({"net": "mnist x64", "device": "cuda", "gpu": gpu}) for gpu in ("V100_PCIe_16GB", "RTX 3090")]
    assert [step.job.costs.gpu.name for step in steps] == ["V100 PCIe 16GB", "RTX 3090"]


@pytest.mark.parametrize(
    "heading, changes, name",
    [
        ("`auto` device=cuda", {"device": "cuda"}, "auto"),
        ("storage=bf16 precision=bf16", {"storage": "bf16", "precision": "bf16"}, "overhead"),
        ("peak, MiB slices=whole/2", {"slices": "whole/2"}, "peak, MiB"),
        ("slices=whole/2 split-weights=fc6/8,fc7/4", {"slices": "whole/2", "split-weights": "fc6/8,fc7/4"}, "overhead"),
        ("`layermem plan --budget=3`", {}, "layermem plan --budget=3"),
    ],
)
def test_a_heading_may_change_settings(heading, changes, name):
    assert changes_of(heading) == (changes, name)


def test_a_plan_that_does_not_fit_is_worse_than_any_number():
    assert number_of("needs 1,593") == float("inf") > number_of("1,234 (-3 %)") == 1234
    assert number_of("-0.3 %") == -0.3
    comparison = Comparison()
    comparison.add("", "overhead", "+1.0 %", "needs 3")
    comparison.add("", "bound", "1", "9")
    assert str(comparison) == "0 equal, 0 better, 1 worse"


def test_every_table_of_the_documentation_has_settings_and_results():
    planned = [(page, table) for page in PAGES for table in tables(page.read_text().splitlines())]
    assert len(planned) == sum(len(COMMENT.findall(page.read_text())) for page in PAGES) > 15
    for page, table in planned:
        names = {heading.split(",")[0] for heading in table.headings} | {*table.settings}
        assert {"net", "graph", "problem"} & names and {*table.settings} <= SETTINGS, (page.name, table.headings)
        results = {changes_of(heading)[1] for heading in table.headings}
        known = {*RESULTS, *bench_plans.STRATEGIES, *bench_plans.FAMILIES, "order", "place, s"}
        assert results & known or any(name.startswith("layermem ") for name in results), (page.name, results)
        assert all({*changes_of(heading)[0]} <= SETTINGS for heading in table.headings)
