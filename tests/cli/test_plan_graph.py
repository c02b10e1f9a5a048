"""`layermem plan-graph` and `--export-graph`."""

import json
import re

import pytest

from layermem.integrations.graph_files.node_link import run_sequence
from layermem.integrations.graph_files.schedule_text import run_schedule
from layermem.integrations.graph_files.text_format import read_graph
from layermem.utils.units import format_exact_bytes
from tests.integrations.graph_files.node_links import chain, chain_text

NET = "prototxt/mnist/train_val.prototxt"
KEYS = {
    "cost_forward",
    "cost_bound",
    "cost_recomputed",
    "peak_bytes",
    "peak_formula_bytes",
    "minimum_bytes",
    "lower_sets",
    "seconds",
    "proven_optimal",
    "cost_unit",
}


@pytest.fixture
def exported(layermem, tmp_path):
    path = tmp_path / "mnist.txt"
    assert layermem("plan", "--net", NET, "--export-graph", path).code == 0
    return path


@pytest.fixture
def scheduled(layermem, tmp_path):
    """scheduled(*words) plans a graph and returns how it ended, and the schedule that --output has."""

    def plan(*words):
        ended = layermem("plan-graph", *words, "--output", tmp_path / "schedule.txt")
        assert ended.code == 0
        return ended, (tmp_path / "schedule.txt").read_text()

    return plan


def test_an_exported_net_is_planned_and_its_schedule_runs(scheduled, exported):
    graph = read_graph(exported)
    assert sum(f.type_name.startswith("Conv") for f in graph.forward) == 2
    assert {"/conv1.w0", "/ip2.w1"} <= {v.name for v in graph.variables}
    assert run_schedule(graph, scheduled(exported)[1])[0] > 0


@pytest.mark.parametrize("family", ["extended", "nested"])
def test_a_terminal_gets_a_summary_and_the_schedule_goes_to_a_file_or_below_it(layermem, scheduled, exported, family):
    values = json.loads(layermem("plan-graph", exported, "--family", family, "--json").out)
    ended, schedule = scheduled(exported, "--family", family)
    lines = dict(re.split(r" {2,}", line, maxsplit=1) for line in ended.out.splitlines() if line[0] != " ")
    segments = ["segments"] if family == "extended" else []
    assert list(lines) == ["peak", "budget", "recomputes", "lower bound", *segments, "schedule"]
    assert lines["peak"] == format_exact_bytes(values["peak_bytes"])
    assert lines["budget"] == format_exact_bytes(values["budget_bytes"])
    assert lines["schedule"].startswith(f"{schedule.count(chr(10))} lines in")
    without = layermem("plan-graph", exported, "--family", family).out
    assert without.endswith("lines (-o S.txt writes them, -v prints them)\n")
    assert layermem("plan-graph", exported, "--family", family, "-v").out == without + schedule


def test_an_output_that_cannot_be_written_or_has_no_effect_is_refused_before_planning(layermem, exported, tmp_path):
    ended = layermem("plan-graph", exported, "-o", tmp_path / "no" / "s.txt")
    assert ended.code == 2 and "no" in ended.sentence
    ended = layermem("plan-graph", exported, "-o", tmp_path / "s.npz")
    assert ended.code == 2 and "is not a schedule by its name" in ended.sentence
    ended = layermem("plan-graph", exported, "--check", exported, "-o", tmp_path / "s.txt")
    assert ended.code == 2 and "--output writes the schedule of a plan, which --check does not make" in ended.sentence


@pytest.mark.parametrize("options", [(), ("--objective", "memory"), ("--family", "exact", "--model", "paper")])
def test_json_has_the_keys_that_programs_rely_on(layermem, exported, options):
    ended = layermem("plan-graph", exported, "-b", "100%", "--json", *options)
    values = json.loads(ended.out)
    assert ended.code == 0 and set(values) >= KEYS
    assert (
        values["peak_bytes"] <= values["budget_bytes"] and values["cost_forward"] > 20 and values["cost_unit"] == "ns"
    )


def test_the_costs_of_a_plan_reach_plan_graph(layermem, tmp_path):
    """conv2 takes half a second by the user's file, and of the authors' costs 10."""
    path, costs = tmp_path / "mnist.txt", tmp_path / "costs.csv"
    costs.write_text("op,seconds\nconv2.forward,0.5\nconv2.wgrad,0.25\nconv2.dgrad,0.125\n")
    assert layermem("plan", "--net", NET, "--costs", costs, "--export-graph", path).code == 0
    seconds = {f.writes: (f.seconds, b.seconds) for f, b in zip(read_graph(path).forward, read_graph(path).backward)}
    assert max(seconds.values()) == (0.5, 0.375)
    found = json.loads(layermem("plan-graph", path, "--json").out)
    assert found["cost_unit"] == "ns" and found["cost_forward"] > 500_000_000
    assert re.search(r"recomputes +\S+.* of 50\d ms \(", layermem("plan-graph", path).out)
    found = json.loads(layermem("plan-graph", path, "--op-costs", "authors", "--json").out)
    assert found["cost_unit"] == "authors" and 20 < found["cost_forward"] < 40


def test_measured_costs_are_exported(layermem, tmp_path):
    path, costs = tmp_path / "mnist.txt", tmp_path / "costs.csv"
    words = ("plan", "--net", NET, "--batch", 2, "--measure", "--save-costs", costs, "--export-graph", path)
    assert layermem(*words).code == 0
    measured = dict(line.split(",") for line in costs.read_text().splitlines() if not line.startswith("#"))
    exported = [f.seconds for f in read_graph(path).forward]
    assert len(exported) > 3 and set(exported) <= {float(value) for name, value in measured.items() if name != "op"}


def test_a_file_that_gives_no_time_to_some_functions_is_refused_with_its_line(layermem, exported):
    lines = exported.read_text().splitlines()
    (first, *_) = (i for i, line in enumerate(lines) if line.startswith('{"seconds"'))
    exported.write_text("\n".join([*lines[:first], "{}", *lines[first + 1 :]]) + "\n")
    ended = layermem("plan-graph", exported)
    assert ended.code == 2 and "mnist.txt:" in ended.sentence and "this function gives no seconds" in ended.sentence


def test_a_budget_below_the_least_ends_with_3_and_names_it(layermem, exported):
    least = json.loads(layermem("plan-graph", exported, "--json").out)["minimum_bytes"]
    ended = layermem("plan-graph", exported, "-b", least - 1, "--json")
    assert ended.code == 3 and format_exact_bytes(least) in ended.sentence
    values = json.loads(ended.out)
    assert values["feasible"] is False and values["minimum_bytes"] == least and values["cost_recomputed"] is None


def test_nested_plans_fit_below_the_minimum_of_lower_sets(layermem, scheduled, exported):
    least = json.loads(layermem("plan-graph", exported, "--json").out)["minimum_bytes"]
    refused = layermem("plan-graph", exported, "-b", least - 1).sentence
    assert "--family nested may need less" in refused
    ended, schedule = scheduled(exported, "-b", least, "--family", "nested")
    assert run_schedule(read_graph(exported), schedule)[0] <= least
    assert "recomputes " in ended.out and "optimality gap <= " in ended.out
    ended = layermem("plan-graph", exported, "-b", "1", "--family", "nested")
    assert ended.code == 3 and "is below the smallest budget found of family 'nested'" in ended.sentence


@pytest.mark.parametrize("option", [("--objective", "memory"), ("--model", "paper")])
def test_options_that_nested_plans_cannot_have_are_refused(layermem, exported, option):
    ended = layermem("plan-graph", exported, "--family", "nested", *option)
    assert ended.code == 2 and f"{option[1]}' is " in ended.sentence and "with family 'nested'" in ended.sentence


def test_a_file_that_is_no_graph_ends_with_2(layermem, tmp_path):
    (tmp_path / "g.txt").write_text("hello\n")
    ended = layermem("plan-graph", tmp_path / "g.txt")
    assert ended.code == 2 and "g.txt:1: " in ended.sentence


def test_the_options_of_nets_are_not_those_of_graph_files(layermem, exported):
    for option in (("--strategy", "hybrid"), ("--keep", "ip1"), ("--level", "1")):
        ended = layermem("plan-graph", exported, *option)
        assert ended.code == 2 and f"unknown argument '{option[0]}'" in ended.sentence


@pytest.mark.parametrize("option", ["--objective", "--family", "--model", "--time-limit"])
def test_the_options_of_graph_files_are_refused_of_a_net(layermem, option):
    ended = layermem("plan", "--net", NET, "--strategy", "recompute-exact", option, "1")
    assert ended.code == 2 and f"option {option} belongs to `layermem plan-graph`" in ended.sentence


def test_a_schedule_is_valid_for_the_reads_of_the_file_and_one_by_assumption_says_so(layermem, scheduled, exported):
    graph = read_graph(exported)
    (by_file, schedule), (assumed, _) = scheduled(exported), scheduled(exported, "--reads", "inputs")
    assert "assumption" not in by_file.err and run_schedule(graph, schedule)[0] > 0
    assert "note: reads 'inputs' is an assumption: " in assumed.err and "--reads file" in " ".join(assumed.err.split())
    assert json.loads(layermem("plan-graph", exported, "--json").out)["reads"] == "file"
    ended = layermem("plan-graph", exported, "--model", "paper", "--reads", "file")
    assert ended.code == 2 and "use model 'live', or reads 'inputs'" in ended.sentence


def test_node_link_json_is_planned_in_its_order_at_a_share_of_its_peak(layermem, scheduled, tmp_path):
    path = tmp_path / "chain.json"
    path.write_text(chain_text(8))
    found = json.loads(layermem("plan-graph", path, "--budget", "80%", "--json").out)
    graph = chain(8)
    assert run_sequence(graph, found["sequence"]) == (found["peak_bytes"], 16 + found["cost_recomputed"])
    assert found["peak_bytes"] <= found["budget_bytes"] == graph.order_bytes * 8 // 10 and found["cost_recomputed"] > 0
    ended, schedule = scheduled(path, "--budget", "80%")
    lines = schedule.splitlines()
    assert f"peak            {format_exact_bytes(found['peak_bytes'])}; " in ended.out and "schedule  " in ended.out
    assert [int(line.split()[1]) for line in lines if line.startswith("compute ")] == found["sequence"]


def test_a_terminal_sees_that_a_graph_is_planned(layermem, exported, tmp_path, terminal):
    path = tmp_path / "chain.json"
    path.write_text(chain_text(8))
    for words in ((exported,), (exported, "--family", "nested"), (path, "--budget", "80%")):
        stream = terminal()
        assert layermem("plan-graph", *words).code == 0
        assert f"planning {words[0]}"[:40] in stream.getvalue()
        stream = terminal()
        assert layermem("plan-graph", *words, "--quiet").code == 0 and stream.getvalue() == ""


def test_options_that_node_link_json_cannot_have_are_refused(layermem, tmp_path):
    path = tmp_path / "chain.json"
    path.write_text(chain_text(4))
    assert "needs a budget; give --budget, such as" in layermem("plan-graph", path).sentence
    ended = layermem("plan-graph", path, "--budget", "80%", "--family", "exact")
    assert ended.code == 2 and "--family has no effect on node-link JSON; leave it out" in ended.sentence
    ended = layermem("plan-graph", path, "--budget", "80%", "--op-costs", "authors")
    assert ended.code == 2 and "--op-costs has no effect on node-link JSON; leave it out" in ended.sentence
    ended = layermem("plan-graph", path, "--budget", "1")
    assert ended.code == 3 and "no sequence was found within" in ended.sentence and "the largest run" in ended.sentence


def test_a_schedule_of_another_program_is_checked_and_its_figures_are_those_of_its_plan(layermem, exported, tmp_path):
    schedule, drawing = tmp_path / "s.txt", tmp_path / "segments.dot"
    ended = layermem("plan-graph", exported, "--family", "sublinear", "--draw", drawing, "-o", schedule)
    assert ended.code == 0 and drawing.read_text().startswith("digraph segments {")
    planned = json.loads(layermem("plan-graph", exported, "--family", "sublinear", "--json").out)
    found = json.loads(layermem("plan-graph", exported, "--check", schedule, "--json").out)
    assert found["cost_recomputed"] == planned["cost_recomputed"] and found["peak_bytes"] <= planned["peak_bytes"]
    assert (
        f"peak            {format_exact_bytes(found['peak_bytes'])}"
        in layermem("plan-graph", exported, "--check", schedule).out
    )
    ended = layermem("plan-graph", exported, "--check", schedule, "--budget", found["peak_bytes"] - 1)
    assert ended.code == 3 and "the schedule needs" in ended.sentence
    schedule.write_text("compute 3\n")
    ended = layermem("plan-graph", exported, "--check", schedule)
    assert ended.code == 2 and f"{schedule}:1: function 3 reads the data" in ended.sentence


def test_a_schedule_of_another_program_is_a_plan_of_the_net(layermem, exported, tmp_path):
    schedule = tmp_path / "s.txt"
    assert layermem("plan-graph", exported, "--family", "nested", "-o", schedule).code == 0
    ended = layermem("plan", "--net", NET, "--import-schedule", schedule, "--save", tmp_path / "plan.json")
    assert ended.code == 0 and "strategy schedule" in ended.out
    again = layermem("plan", "--net", NET, "--load", tmp_path / "plan.json")
    assert again.code == 0 and again.out.split("process ")[0] == ended.out.split("process ")[0]
    ended = layermem("plan", "--net", NET, "--import-schedule", schedule, "--strategy", "vdnn")
    assert ended.code == 2 and "no effect on the plan of --import-schedule" in ended.sentence


def test_segments_are_drawn_where_there_are_some(layermem, exported, tmp_path):
    ended = layermem("plan-graph", exported, "--family", "nested", "--draw", tmp_path / "a.dot")
    assert ended.code == 2 and "family 'nested' has none" in ended.sentence
