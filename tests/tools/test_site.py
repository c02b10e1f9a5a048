"""The documents as a site: every page is in the navigation, links lead somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import layermem

ROOT = Path(__file__).parents[2]
SITE = ROOT / "tools" / "site"
CONFIG = SITE / "mkdocs.yml"
MADE = {"nets.md", "reference.md", "contributing.md", "changelog.md"}  # by hooks.py, as are the pages of notebooks
LOADS = {"img": "src", "script": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}


def test_every_page_is_in_the_navigation_once_and_every_page_of_the_navigation_exists():
    navigation = re.findall(
        r"^ +- (?:[^:\n]+: )?([\w/]+\.md)$", CONFIG.read_text().partition("\nnav:")[2], re.MULTILINE
    )
    docs = ROOT / "docs"
    pages = {file.relative_to(docs).as_posix() for file in docs.rglob("*.md")} | MADE
    pages |= {file.relative_to(docs).with_suffix(".md").as_posix() for file in docs.rglob("*.ipynb")}
    missing = sorted(pages - set(navigation))
    assert not missing, f"in no group of `nav` in tools/site/mkdocs.yml: {', '.join(missing)}"
    assert sorted(navigation) == sorted(pages)


class Loaded(HTMLParser):
    """The addresses that a browser loads by itself when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        name = "href" if tag == "link" and values.get("rel") != "canonical" else LOADS.get(tag)
        if name and values.get(name):
            self.addresses.append(str(values[name]))


def loaded_from_elsewhere(file: Path) -> list[str]:
    text = file.read_text()
    if file.suffix == ".html":
        parser = Loaded()
        parser.feed(text)
        addresses = parser.addresses + re.findall(r"(?:url\(|@import )['\"]?([^'\")]+)", text)
    elif file.suffix == ".css":
        addresses = re.findall(r"(?:url\(|@import )['\"]?([^'\")]+)", text)
    else:
        addresses = re.findall(r"https?://[\w.]*(?:unpkg|cdn|jsdelivr|googleapis|gstatic)[\w./@-]*", text)
    return [each for each in addresses if re.match(r"(?:https?:)?//", each)]


def build(config: Path, into: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(into)],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    into = tmp_path_factory.mktemp("site")
    ended = build(CONFIG, into)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return into


@pytest.mark.whole
def test_no_page_loads_anything_from_another_host(site):
    files = [file for file in site.rglob("*") if file.suffix in (".html", ".css", ".js")]
    assert len(files) > 40
    assert not [(file.name, found) for file in files if (found := loaded_from_elsewhere(file))]


@pytest.mark.whole
def test_the_reference_has_every_public_name(site):
    text = (site / "reference.html").read_text()
    for name in layermem.__all__:
        assert re.search(rf'id="[\w.]*\b{name}"|<code>layermem\.{name}</code>', text), name


def test_pages_of_the_repository_link_to_pages_of_the_site(site):
    contributing = (site / "contributing.html").read_text()
    assert 'href="architecture.html"' in contributing and 'href="changelog.html"' in contributing


@pytest.mark.samples(2)
@pytest.mark.parametrize("width, theme", [(375, "dark"), (768, "light"), (1366, "dark"), (1600, "light")])
def test_pages_can_be_read_at_every_width_and_in_both_themes(site, chromium, width, theme):
    contrast = (ROOT / "tests" / "contrast.js").read_text()
    for name in ("index", "start"):
        page = chromium.new_page(viewport={"width": width, "height": 800}, color_scheme=theme)
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_selector("body:not([data-md-color-scheme='']) .md-content")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.evaluate(contrast) == [], name
        page.close()


def test_the_page_of_an_address_without_a_page_fits_a_phone_also_as_a_file(site, chromium):
    page = chromium.new_page(viewport={"width": 375, "height": 800})
    page.goto((site / "404.html").as_uri(), wait_until="domcontentloaded")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_numbers_of_a_table_are_at_the_right_in_one_piece_and_a_search_finds_the_guide(site, chromium):
    page = chromium.new_page(viewport={"width": 1366, "height": 800})
    page.goto((site / "comparison.html").as_uri())
    cell = page.locator("td", has_text="(-47.2 %)").first
    assert cell.evaluate("cell => getComputedStyle(cell).textAlign").endswith("right")
    assert cell.evaluate("cell => [...cell.children].every(each => each.getClientRects().length == 1)")
    page.focus(".md-search__input")
    page.keyboard.type("largest batch")
    found = page.locator(".md-search-result__item a.md-search-result__link")
    found.first.wait_for(state="attached")
    pages = [re.search(r"(\w+\.html)", link.get_attribute("href"))[1] for link in found.all()]
    assert "strategies.html" in [*dict.fromkeys(pages)][:3], pages
    page.close()


@pytest.mark.parametrize(
    "name, text", [("link.html", '<script src="https://x.org/a.js">'), ("a.css", "@import '//x.org/b.css'")]
)
def test_resources_from_another_host_are_detected(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert loaded_from_elsewhere(tmp_path / name)


@pytest.mark.parametrize("wrong", ["[a](missing.md)", "[a](index.md#missing)"])
def test_a_broken_link_is_an_error(tmp_path, wrong):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Title\n\n{wrong}\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"INHERIT: {CONFIG}\ndocs_dir: docs\nplugins: []\nhooks: []\nextra_css: []\nnav: [index.md]\n")
    ended = build(config, tmp_path / "site")
    assert ended.returncode != 0 and "missing" in ended.stderr


def test_aligned_lists_of_docstrings_become_lists_and_brackets_stay_brackets():
    pytest.importorskip("griffe")
    from tools.site.docstrings import to_markdown

    text = "Run.\n\nnames   of blobs, as\n        net.blobs[name][i]\na, b    `x[0]`\n\n    code[0]"
    assert to_markdown(text).splitlines() == [
        "Run.",
        "",
        "- `names`: of blobs, as",
        r"  net.blobs\[name\]\[i\]",
        "- `a, b`: `x[0]`",
        "",
        "    code[0]",
    ]
