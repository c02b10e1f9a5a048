"""Which strategy to choose, as a picture: the questions, and what `layermem compare` finds on two nets.

    python tools/plot_choice.py [--out docs/pictures/choice.svg]

Runs `layermem compare` without and with a host budget, and `auto` at every budget of BUDGETS; plans only.  Prints the
numbers that it draws.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from layermem.cli.main import main as layermem  # noqa: E402

NETS = (("resnet50", 32, "ResNet-50, batch 32"), ("vgg16", 16, "VGG-16, batch 16"))
MOVED = {("VGG-16, batch 16", "vdnn-conv"): (-10, -1), ("VGG-16, batch 16", "inter"): (-10, -10)}  # names in the way
BUDGETS = (60, 52, 49, 45, 40, 35, 30, 25, 20, 18, 16, 14, 12, 10, 8, 6)  # percent of strategy `caffe`
HOST = "64GiB"
NAMED = {  # the strategies that are drawn, and where their names go: right of the dot, left or above
    "caffe": (0, -9),
    "liveness": (8, -9),
    "sublinear": (10, 4),
    "recompute": (10, 4),
    "vdnn-conv": (10, 4),
    "inter": (-10, 1),
    "hybrid": (10, 4),
}
COPIES = {"vdnn-conv", "inter", "hybrid"}
INK, GREY, LINE, PLAIN, HOSTED = "#222", "#666", "#c8ccd4", "#1b5fa8", "#b4560f"


class Point(NamedTuple):
    name: str
    share: float  # of the bytes of strategy `caffe`
    overhead: float  # predicted, over its time
    copies: bool


def compare(net: str, batch: int, *options: str) -> list[dict[str, object]]:
    """The strategies that `layermem compare --json` lists."""
    printed = io.StringIO()
    words = ["compare", "--net", str(ROOT / f"prototxt/{net}/train_val.prototxt"), "--batch", str(batch), "--json"]
    with contextlib.redirect_stdout(printed):
        assert layermem([*words, *options]) == 0
    return [each for each in json.loads(printed.getvalue())["strategies"] if each["feasible"]]


def points(net: str, batch: int) -> Iterator[Point]:
    for host in (False, True):
        for row in compare(net, batch, *(["--host-budget", HOST] if host else [])):
            if row["strategy"] in NAMED and (row["strategy"] in COPIES) == host:
                yield Point(str(row["strategy"]), float(row["share_of_caffe"]), float(row["overhead"]), host)  # type: ignore[arg-type]


def curve(net: str, batch: int, host: bool) -> list[Point]:
    """`auto` within each budget that it fits."""
    found = []
    for percent in BUDGETS:
        options = ["--strategies", "auto", "--budget", f"{percent}%", *(["--host-budget", HOST] if host else [])]
        try:
            rows = compare(net, batch, *options)
        except AssertionError:  # nothing fits: a refusal
            break
        found += [Point("auto", float(row["share_of_caffe"]), float(row["overhead"]), host) for row in rows]  # type: ignore[arg-type]
    return found


# -- drawing -------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT = 960, 830
FONT = 'font-family="Helvetica, Arial, sans-serif"'


def text(
    x: float, y: float, words: str, *, size: int = 14, color: str = INK, anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    style = f'font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'


def box(x: float, y: float, width: float, lines: Iterable[str], *, answer: bool = False) -> str:
    """A question, or the answer to one, whose first line is what to type."""
    rows = list(lines)
    fill, border = ("#eaf2fb", PLAIN) if answer else ("#fff", "#8a93a3")
    height = 18 + 19 * len(rows)
    shown = [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{border}"/>']
    for number, row in enumerate(rows):
        shown.append(
            text(x + 12, y + 23 + 19 * number, row, bold=answer and number == 0, color=INK if number == 0 else GREY)
        )
    return "".join(shown)


def arrow(x1: float, y1: float, x2: float, y2: float, word: str = "") -> str:
    middle = (x1 + x2) / 2 - 12 if y1 == y2 else x1 + 8
    label = text(middle, (y1 + y2) / 2 + (-6 if y1 == y2 else 5), word, size=13, color=GREY) if word else ""
    ends = f'x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"'
    return f'<line {ends} stroke="#8a93a3" stroke-width="1.5" marker-end="url(#tip)"/>{label}'


def questions() -> str:
    left, right, width, answers = 20, 450, 360, 490
    rows = [
        (52, "Does the step fit into your memory|as it is? (layermem plan)",
         "no option: liveness|Reuses memory by lifetime. Costs no time."),
        (152, "Can a plan within --budget B be found|that moves nothing out of the device?",
         "--budget B: auto|Mixes reuse, fused updates and recomputation|for the least predicted time."),
        (252, "Is there host memory or a disk for the rest?|cuda uses host memory by default.",
         "--budget B --host-budget H, or --spill DIR: auto|Offloads too: the least memory of all;|"
         "the link to the host decides the time."),
        (352, "Is a smaller batch an option?",
         "layermem fit --budget B|The largest batch that fits; iter_size in the|solver makes up for it."),
    ]  # fmt: skip
    shown = []
    for number, (y, *columns) in enumerate(rows):
        question, answer = (column.split("|") for column in columns)
        shown += [box(left, y, width, question), box(right, y, answers, answer, answer=True)]
        shown.append(arrow(left + width, y + 28, right, y + 28, "yes"))
        if number + 1 < len(rows):
            shown.append(arrow(left + 60, y + 18 + 19 * len(question), left + 60, rows[number + 1][0], "no"))
    return "".join(shown)


class Panel:
    """Predicted time over peak memory, on linear axes; memory grows to the right."""

    def __init__(self, x: float, y: float, width: float, height: float, title: str, top: float):
        self.x, self.y, self.width, self.height, self.title, self.top = x, y, width, height, title, top

    def at(self, share: float, overhead: float) -> tuple[float, float]:
        return self.x + share * self.width, self.y + self.height * (1 - max(overhead, 0) / self.top)

    def axes(self) -> str:
        bottom = self.y + self.height
        shown = [text(self.x, self.y - 18, self.title, bold=True)]
        for share in (0, 0.25, 0.5, 0.75, 1):
            x = self.x + share * self.width
            shown.append(f'<line x1="{x}" y1="{self.y}" x2="{x}" y2="{bottom}" stroke="{LINE}"/>')
            shown.append(text(x, bottom + 18, f"{100 * share:.0f} %", size=12, color=GREY, anchor="middle"))
        for number in range(int(self.top * 10 + 0.5) + 1):
            y = self.at(0, number / 10)[1]
            shown.append(f'<line x1="{self.x}" y1="{y:.1f}" x2="{self.x + self.width}" y2="{y:.1f}" stroke="{LINE}"/>')
            shown.append(text(self.x - 8, y + 4, f"+{10 * number} %", size=12, color=GREY, anchor="end"))
        shown.append(
            text(
                self.x + self.width / 2,
                bottom + 38,
                "peak memory, of strategy caffe",
                size=13,
                color=GREY,
                anchor="middle",
            )
        )
        return "".join(shown)

    def line(self, found: list[Point]) -> str:
        color = HOSTED if found and found[0].copies else PLAIN
        path = " ".join("{:.1f},{:.1f}".format(*self.at(p.share, p.overhead)) for p in found)
        dots = "".join(
            f'<circle cx="{at.split(",")[0]}" cy="{at.split(",")[1]}" r="3" fill="{color}"/>' for at in path.split()
        )
        return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.5"/>{dots}'

    def mark(self, point: Point) -> str:
        x, y = self.at(point.share, point.overhead)
        dx, dy = MOVED.get((self.title, point.name), NAMED[point.name])
        color = HOSTED if point.copies else PLAIN
        anchor = "start" if dx > 0 else "end"
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{color}"/>' + text(
            x + dx, y + dy, point.name, size=13, anchor=anchor
        )


def svg(panels: list[tuple[Panel, list[Point], list[list[Point]]]]) -> str:
    drawn = []
    for panel, marks, lines in panels:
        drawn += [panel.axes(), *map(panel.line, filter(None, lines)), *map(panel.mark, marks)]
    legend = (
        f'<line x1="70" y1="800" x2="100" y2="800" stroke="{PLAIN}" stroke-width="2.5"/>'
        + text(108, 804, "auto, nothing leaves the device", size=13)
        + f'<line x1="340" y1="800" x2="370" y2="800" stroke="{HOSTED}" stroke-width="2.5"/>'
        + text(378, 804, f"auto with --host-budget {HOST}", size=13)
        + text(620, 804, "dots: strategies of the literature, without a budget", size=13)
    )
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#8a93a3"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>'
        f'<title>Which strategy to choose</title>{marker}<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
        + text(20, 32, "Which strategy?", size=18, bold=True)
        + questions()
        + text(20, 470, "What it costs: predicted time over peak memory, device cpu", size=18, bold=True)
        + "".join(drawn)
        + legend
        + "</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/pictures/choice.svg")
    arguments = parser.parse_args()
    panels = []
    for number, (net, batch, title) in enumerate(NETS):
        marks = list(points(net, batch))
        lines = [curve(net, batch, host) for host in (True, False)]
        for point in [*marks, *lines[0], *lines[1]]:
            print(f"{title}  {point.name:10} {100 * point.share:5.1f} %  {100 * point.overhead:+6.1f} %")
        panels.append((Panel(70 + 470 * number, 525, 400, 210, title, 0.5), marks, lines))
    arguments.out.write_text(svg(panels))


if __name__ == "__main__":
    main()
