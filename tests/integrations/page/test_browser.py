"""The page in a real browser: its drawings, its reactions, and that no request leaves it."""

from pathlib import Path

import pytest

from layermem.graph.net import Net
from layermem.integrations.page.data import comparison_page, plan_page
from layermem.integrations.page.html import page_html
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.report.memory import spans
from layermem.report.plan_report import evaluate
from layermem.solver.jobs import StepOptions, net_job
from tests.integrations.page.colours import families, nearest

TESTS = Path(__file__).parents[2]
NASTY = "<script>document.title='owned'</script>", "</script><img src=x onerror=alert(1)>", "{{data}} ${1} &lt;"
NET = "".join(
    f'layer {{ name: "{name}" type: "ReLU" bottom: "{bottom}" top: "{top}" }}\n'
    for name, bottom, top in zip(NASTY, ("fc", "<b>r0</b>", "r1"), ("<b>r0</b>", "r1", "r2"))
)
NASTY_NET = (
    """name: "<img src=x onerror=alert(2)>"
layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 4 } }
"""
    + NET
    + 'layer { name: "loss" type: "EuclideanLoss" bottom: "r2" bottom: "fc" top: "loss" }'
)


@pytest.mark.samples(2)
@pytest.mark.parametrize("size", ["phone", "laptop", "wide"])
def test_the_page_draws_every_section_at_every_size(page, show, size):
    with show(page.as_uri(), size, "dark" if size == "wide" else "light") as shown:
        sections = shown.page.eval_on_selector_all("main > section", "all => all.map(each => each.id)")
        assert sections == ["plan", "arena", "net", "strategies", "costs"]
        assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # nothing is cut off
        colours = """canvas => {
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(data.buffer)).size;
        }"""
        assert shown.page.eval_on_selector(".canvas canvas", colours) > 6
        assert shown.page.locator(".chart canvas").count() == 2 and shown.page.locator(".node").count() > 5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read_and_no_section_is_empty(page, show, theme):
    with show(page.as_uri(), "phone", theme) as shown:
        tab = shown.page
        assert tab.evaluate((TESTS / "contrast.js").read_text()) == []
        assert tab.inner_text("#net .details h3") and tab.locator("#net .details tbody tr").count() > 3
        markers = ".u-legend .u-series:not(:first-child) .u-marker"  # the first is the x axis
        filled = "all => all.every(each => each.style.background || each.style.backgroundColor)"
        assert tab.locator(markers).count() > 3 and tab.eval_on_selector_all(markers, filled)
        width = tab.evaluate("document.querySelector('.chart').clientWidth")
        labels = tab.evaluate(
            """width => chartOptions({clientWidth: width}, [], {x: {format: formatBytes, base: 1024},
            y: {format: formatSeconds}}, []).axes[0].splits(null, 0, 0, 5 * 2 ** 30).map(formatBytes)""",
            width,
        )
        assert 2 <= len(labels) <= (width - 60) / 70  # "1.00 GiB" takes 50 pixels


@pytest.mark.parametrize("width", [375, 768])
def test_no_size_or_option_is_broken_and_long_legends_begin_beside_their_marker(page, show, width):
    lines = "all => all.map(each => [each.textContent, each.getClientRects().length])"
    lefts = """all => all.map(each => {
        const range = document.createRange();
        range.selectNodeContents(each.querySelector(".u-label"));
        return [...range.getClientRects()].map(box => box.left).filter(left => left > 0);
    }).filter(each => each.length)"""
    with show(page.as_uri()) as shown:
        tab = shown.page
        tab.set_viewport_size({"width": width, "height": 800})
        parts = tab.eval_on_selector_all(".facts .unbroken, .tile .unbroken, .note .unbroken", lines)
        assert {count for _, count in parts} == {1}
        texts = [text for text, _ in parts]
        assert any(text.endswith("KiB") for text in texts) and any(text.endswith(" %") for text in texts)
        assert any(text.startswith("--") for text in texts)
        tab.evaluate(
            """document.querySelector('.chart .u-series:last-child .u-label').textContent = 'liveness = '.repeat(99)"""
        )
        found = tab.eval_on_selector_all(".u-legend .u-series", lefts)
        assert max(map(len, found)) > 1
        assert all(max(each) - min(each) < 4 for each in found), found


def test_colours_that_stand_beside_one_another_differ():
    for theme in ("light", "dark"):
        found = families(theme)
        for beside in (found["kind"] + found["step"], found["origin"] + found["step"], found["line"]):
            distance, *pair = nearest(list(dict.fromkeys(beside)))  # a recomputed buffer has the colour of its op
            assert distance > 15, pair
    assert len(found["line"]) > len(STRATEGIES) + 1  # those, a saved plan and the lower bound


def test_the_page_counts_the_bytes_in_use_as_the_schedule_does(page, report, show):
    schedule = report.program.train
    with show(page.as_uri()) as shown:
        live = shown.page.evaluate("[...layermem.arena.live.total]")
        boxes = shown.page.evaluate("[...layermem.arena.boxes.from].map((t, i) => [t, layermem.arena.boxes.to[i]])")
        unit = shown.page.evaluate("layermem.arena.unit")
    assert max(live) == schedule.max_live_bytes and live.index(max(live)) == schedule.peak_tick
    wanted = [(span.begin, span.end) for span in spans(schedule, report.timeline)]
    assert len(boxes) == len(wanted)
    for (begin, end), (first, last) in zip(boxes, wanted):
        assert begin * unit == pytest.approx(first, abs=unit) and end * unit == pytest.approx(last, abs=unit)


def test_the_keys_move_a_cursor_that_says_what_is_in_use(page, report, show):
    with show(page.as_uri()) as shown:
        tab = shown.page
        tab.focus(".canvas canvas")
        tab.evaluate("layermem.view.moveTo(0)")
        tab.keyboard.press("ArrowRight")
        assert tab.inner_text("#arena .details h3 >> nth=0") == report.program.train.instructions[1].what
        in_use = report.program.train.live_at(1)
        assert tab.inner_text("#arena .details h3 >> nth=1") == f"In use at this tick: {len(in_use)} buffers"
        names = tab.eval_on_selector_all("#arena .details tbody th", "all => all.map(each => each.textContent)")
        assert names and set(names) <= {residency.buffer for residency in in_use}
        tab.keyboard.press("+")
        assert tab.evaluate("layermem.view.x1 - layermem.view.x0 < layermem.view.extent")
        tab.keyboard.press("0")
        assert tab.evaluate("layermem.view.x1 - layermem.view.x0 == layermem.view.extent")


def test_the_pointer_says_what_a_box_is_and_drags_zoom(page, report, show):
    with show(page.as_uri()) as shown:
        tab = shown.page
        tab.locator("#arena .note").scroll_into_view_if_needed()
        box = tab.locator(".canvas canvas").bounding_box()
        largest = tab.evaluate("""() => {
            const { view, arena: { boxes } } = layermem;
            const areas = [...boxes.from].map((t, i) => (boxes.to[i] - t) * boxes.bytes[i]);
            const i = areas.indexOf(Math.max(...areas));
            return [(view.x(boxes.from[i]) + view.x(boxes.to[i])) / 2, view.y(boxes.offset[i] + boxes.bytes[i] / 2),
                    layermem.arena.names[layermem.arena.buffers.name[boxes.buffer[i]]]];
        }""")
        x, y, name = largest
        tab.mouse.move(box["x"] + x, box["y"] + y)
        assert tab.inner_text(".tip strong") == name
        assert {"kind", "shape", "bytes", "made by", "ticks", "offset"} <= set(
            tab.eval_on_selector_all(".tip dt", "all => all.map(each => each.textContent)")
        )
        tab.mouse.down()
        tab.mouse.move(box["x"] + x + 200, box["y"] + y + 5, steps=3)
        tab.mouse.up()
        assert tab.evaluate("layermem.view.x1 - layermem.view.x0 < 0.5 * layermem.view.extent")


def test_a_layer_shows_its_ops_and_the_decisions_for_its_buffers(page, report, show):
    drawn = {layer.name for layer in report.job.nets[0].layers}
    ops = [r.op for r in report.program.train.instructions if r.is_recompute and r.op is not None]
    recomputed = next(op for op in ops if op.layers[0] in drawn)
    with show(page.as_uri()) as shown:
        tab = shown.page
        tab.fill("#net input[type=search]", recomputed.layers[0])
        tab.keyboard.press("Enter")
        assert tab.inner_text("#net .details h3") == recomputed.layers[0]
        assert "recompute" in tab.inner_text("#net .details")
        tab.focus("#net .node.chosen")
        assert tab.get_attribute("#net .node.chosen", "aria-label").startswith(recomputed.layers[0])


def test_names_in_a_net_are_texts_and_never_markup(show, tmp_path):
    net = Net(read_net_text(NASTY_NET), 0)
    job = net_job(net, StepOptions(device="reference"))
    path = tmp_path / "it.html"
    path.write_bytes(page_html(plan_page(evaluate(job))))
    assert not any(text.encode() in path.read_bytes() for text in (*NASTY, "<img"))
    with show(path.as_uri()) as shown:
        assert shown.page.inner_text("#title").startswith("<img src=x onerror=alert(2)>")
        labels = shown.page.eval_on_selector_all(".node", "all => all.map(each => each.getAttribute('aria-label'))")
        for name in NASTY:
            assert any(label.startswith(f"{name}, ReLU") for label in labels)
        assert shown.page.locator("img").count() == 0
        assert shown.page.title() == "<img src=x onerror=alert(2)> x2 - layermem"


def test_the_policy_of_the_page_forbids_scripts_and_requests_of_others(page, show):
    with show(page.as_uri()) as shown:
        blocked = """() => new Promise((done) => {
            const kinds = [];
            document.addEventListener("securitypolicyviolation", (event) => {
                kinds.push(event.effectiveDirective);
                if (kinds.length === 2) done(kinds.sort());
            });
            const script = document.createElement("script");
            script.textContent = "window.injected = 1";
            document.body.append(script);
            fetch("https://example.org/").catch(() => 0);
        })"""
        assert shown.page.evaluate(blocked) == ["connect-src", "script-src-elem"]
        assert shown.page.evaluate("window.injected === undefined")
        assert all("Content Security Policy" in text for text in shown.errors)  # what the browser blocked
        shown.errors.clear()


def test_equal_curves_are_one_line_with_all_names(strategies, show, tmp_path):
    same = {**strategies, "memory": [{**each, "seconds": [0, 1], "bytes": [2, 3]} for each in strategies["memory"]]}
    path = tmp_path / "it.html"
    path.write_bytes(page_html(comparison_page("it", same)))
    with show(path.as_uri()) as shown:
        names = shown.page.locator(".chart").nth(1).locator(".u-label").all_inner_texts()
        assert len(names) == 2 and names[1].rstrip(":") == "liveness = recompute = auto"
