"""Where lines of a log go, and their prefix."""

import io
import re
import resource
import sys

import pytest

from layermem.cli.caffe_tools.glog import Glog, flags_of, into_log

PREFIX = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [\w.]+:\d+\] ")


def values_of(*, on_terminal=True, environment=(), **given):
    flags = flags_of(dict(environment), on_terminal=on_terminal)
    return {**{flag.name: flag.default for flag in flags}, **given}


def written(**options):
    """The lines on standard error of one message of each severity."""
    stream = io.StringIO()
    log = Glog("caffe", values_of(**options), stream)
    for severity in "IWEF":
        log.write(f"text {severity}", "caffe.cpp:3", severity)
    log.close()
    return stream.getvalue().splitlines()


def severities(**options):
    return "".join(line[0] for line in written(**options))


def test_every_line_of_a_text_has_the_prefix():
    stream = io.StringIO()
    Glog("caffe", values_of(), stream).write("a\nb", "solver.cpp:7")
    first, second = stream.getvalue().splitlines()
    assert all(PREFIX.match(line) and " solver.cpp:7] " in line for line in (first, second))
    assert (first[-1], second[-1]) == ("a", "b")


def test_flags_decide_which_lines_are_on_standard_error():
    assert severities() == "IWEF"
    assert severities(on_terminal=False) == "EF"
    assert severities(on_terminal=False, stderrthreshold=1) == "WEF"
    assert severities(on_terminal=False, logtostderr=True) == "IWEF"
    assert severities(minloglevel=2) == "EF"
    assert severities(minloglevel=9) == "F"
    assert written(log_prefix=False) == [f"text {severity}" for severity in "IWEF"]


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"GLOG_logtostderr": "1"}, "IWEF"),
        ({"GLOG_alsologtostderr": "0"}, "EF"),
        ({"GLOG_minloglevel": "1"}, "WEF"),
        ({"GLOG_stderrthreshold": "1", "GLOG_alsologtostderr": "false"}, "WEF"),
        ({"GLOG_minloglevel": "high", "LAYERMEM_minloglevel": "2"}, "IWEF"),
    ],
)
def test_variables_of_the_environment_are_the_defaults_of_flags(environment, found):
    assert severities(environment=environment) == found


def test_a_folder_gets_a_file_for_each_severity_and_links_to_them(tmp_path):
    other = tmp_path / "links"
    other.mkdir()
    for _ in range(2):  # a second run replaces the links
        assert severities(log_dir=str(tmp_path), log_link=str(other)) == "IWEF"
    for name, found in (("INFO", "IWEF"), ("WARNING", "WEF"), ("ERROR", "EF")):
        link = tmp_path / f"caffe.{name}"
        assert link.is_symlink() and (other / link.name).resolve() == link.resolve()
        assert re.fullmatch(rf"caffe\.[\w-]+\.[\w-]+\.log\.{name}\.\d{{8}}-\d{{6}}\.\d+", link.resolve().name)
        head, lines = link.read_text().splitlines()[:3], link.read_text().splitlines()[3:]
        assert head[0].startswith("Log file created at: ") and "file:line" in head[2]
        assert all(PREFIX.match(line) for line in lines) and "".join(line[0] for line in lines) == found


def test_with_logtostderr_there_are_no_files(tmp_path):
    assert severities(log_dir=str(tmp_path), logtostderr=True) == "IWEF" and not [*tmp_path.iterdir()]


def test_a_folder_that_is_not_there_is_said_and_the_run_goes_on(tmp_path):
    first, *rest = written(log_dir=str(tmp_path / "absent"))
    assert first.startswith("E") and "Could not create logging file: " in first and len(rest) == 4
    assert not (tmp_path / "absent").exists()


def test_a_full_disk_of_the_files_is_said_once_for_each_and_the_run_goes_on(tmp_path):
    stream = io.StringIO()
    log = Glog("caffe", values_of(log_dir=str(tmp_path)), stream)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        for severity in "IEI":
            log.write("text", "caffe.cpp:3", severity)
        log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    lines = stream.getvalue().splitlines()
    assert [line[0] for line in lines if line.endswith("text")] == ["I", "E", "I"]
    lost = [line for line in lines if "Could not write to logging file" in line]
    assert len(lost) == 3 and all(line.endswith(": File too large") for line in lost)


def test_what_is_printed_becomes_lines_of_the_log():
    stream = io.StringIO()
    log = Glog("caffe", values_of(), stream)
    before = sys.stdout, sys.stderr
    with into_log(log, "caffe.cpp:9"):
        assert not sys.stdout.isatty()
        print("one\ntwo")
        print("warned", file=sys.stderr)
        print("no end", end="")
    assert (sys.stdout, sys.stderr) == before
    lines = stream.getvalue().splitlines()
    assert [(line[0], line.partition("caffe.cpp:9] ")[2]) for line in lines] == [
        ("I", "one"),
        ("I", "two"),
        ("W", "warned"),
        ("I", "no end"),
    ]
