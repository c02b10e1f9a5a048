"""Graph files of Kusumoto et al.: what is written reads back to the letter, and errors name their line."""

import pytest

from layermem.errors import InputError
from layermem.integrations.graph_files.text_format import format_graph, parse_graph, read_graph, write_graph
from tests.integrations.graph_files.small_files import CHAIN


def test_a_file_is_read_and_written_back_to_the_letter(tmp_path):
    graph = parse_graph(CHAIN)
    assert format_graph(graph) == CHAIN
    write_graph(graph, tmp_path / "g.txt")
    assert (tmp_path / "g.txt").read_text() == CHAIN
    assert [f.type_name for f in graph.forward] == ["ReLU", "Convolution2DFunction", "ReLU"]
    assert graph.forward[1].cost == 10 and graph.forward[0].cost == 1


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("5 6", "5 5", 1, "must be even"),
        ("5 6", "five 6", 1, "two numbers"),
        ("1 100 _", "2 100 _", 3, "variable 2 where 1 should stand"),
        ("3 7 0", "3 7", 5, "ID BYTES NAME"),
        ("forward\n1 1\n1 _", "sideways\n1 1\n1 _", 7, "'sideways'"),
        ("2 gradient", "2 slope", 28, "not an input"),
        ("3 _\n4 _", "3 _\n9 _", 16, "no variable 9"),
        ('{"sx": 1}\nforward', "{sx}\nforward", 19, "not JSON"),
        ("1 _\n2\nReLU", "1 _\n0\nReLU", 13, "two writers"),
        ("backward\n2 1\n2 g", "forward\n2 1\n2 g", 28, "not an input"),
        ("5 6", "² 6", 1, "two numbers"),
        ("1 100 _", "1 ¹⁰⁰ _", 3, "ID BYTES NAME"),
        ("1 _\n2\nReLU", "¹ _\n2\nReLU", 9, "not an input"),
        ("5 6", f"5 {'6' * 5000}", 1, r"'5 6{55}\.\.\.' is not"),
        ("1 100 _", f"1 1{'0' * 40} _", 3, r"'1 10{40} _' is not a variable"),
        ("1 100 _", f"1 {2**60} _", 6, "take more than 1,048,576 TiB"),
        ('{"sx": 1}\nforward', "[" * 100_000 + "\nforward", 19, "are not JSON"),
        ('{"sx": 1}\nforward', f'{{"sx": {"1" * 5000}}}\nforward', 19, "are not JSON"),
        (
            '{"sx": 1}\nforward',
            '{"seconds": -1}\nforward',
            19,
            "gives -1 as its seconds; give a number from 0 to 10,000",
        ),
        ('{"sx": 1}\nforward', '{"seconds": "1"}\nforward', 19, "as its seconds"),
        ('{"sx": 1}\nforward', '{"seconds": true}\nforward', 19, "as its seconds"),
        ('{"sx": 1}\nforward', '{"seconds": NaN}\nforward', 19, "gives NaN as its seconds"),
        ('{"sx": 1}\nforward', '{"seconds": 1}\nforward', 7, "gives no seconds, and 1 others do; give those of all"),
    ],
)
def test_an_error_names_its_line(old, new, line, says):
    assert CHAIN.count(old) >= 1
    with pytest.raises(InputError, match=says) as caught:
        parse_graph(CHAIN.replace(old, new, 1), "g.txt")
    assert (caught.value.path, caught.value.line) == ("g.txt", line)


def test_costs_are_nanoseconds_where_all_functions_give_seconds_and_else_those_of_the_authors():
    graph = parse_graph(CHAIN)
    assert graph.costs() == graph.costs("authors") == ("authors", [1, 10, 1])
    seconds = CHAIN.replace("{}", '{"seconds": 2.5e-06}').replace('{"sx": 1}', '{"sx": 1, "seconds": 0}')
    graph = parse_graph(seconds)
    assert graph.costs() == ("ns", [2500, 1, 2500]) and graph.costs("authors") == ("authors", [1, 10, 1])
    assert format_graph(graph) == seconds
    with pytest.raises(InputError, match="unknown op costs 'weights'"):
        graph.costs("weights")


def test_a_file_cut_short_or_with_more_than_it_should_have_is_refused():
    with pytest.raises(InputError, match="cut short"):
        parse_graph("\n".join(CHAIN.splitlines()[:-1]))
    with pytest.raises(InputError, match="after the last"):
        parse_graph(CHAIN + "forward\n")


@pytest.mark.parametrize("path", ["/dev/zero", "x" * 300, "a\0b", "prototxt", "nowhere.txt"])
def test_a_file_that_is_no_graph_is_refused_with_its_path(path):
    with pytest.raises(InputError, match="graph file") as caught:
        read_graph(path)
    assert caught.value.path == path
