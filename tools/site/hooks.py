"""Hooks that adapt the documents of the repository to MkDocs.

pages outside of docs/   CONTRIBUTING.md, CHANGELOG.md and the READMEs of the code become pages of the site
links                    between files of the repository become links between pages; to a file that is no page, its name
quotes                   "```python FILE" becomes a block with the title FILE
reference.md             one entry for each name of layermem.__all__, under the module that defines it
tables                   columns of numbers are aligned at the right
notebooks                docs/examples/NAME.ipynb becomes examples/NAME.md
scripts                  addresses of other hosts are removed from the theme's scripts, which do not need them here
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import notebooks  # noqa: E402
import reference  # noqa: E402
import tables  # noqa: E402

OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "prototxt/README.md": "nets.md"}
OUTSIDE["README.md"] = "index.md"  # links to it; the front page of the site is docs/index.md
PACKAGES = {"cuda/README.md": "packages/cuda.md", "tools/README.md": "packages/tools.md"} | {
    file.relative_to(ROOT).as_posix(): f"packages/{'.'.join(file.parent.relative_to(ROOT).parts)}.md"
    for file in sorted((ROOT / "layermem").rglob("README.md"))
}
DETAILS = ("packages/", "benchmarks/")  # pages that a search lists below those of the guide
LINK = re.compile(r"(?<!!)\[([^]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    packages = [{posixpath.basename(uri).removesuffix(".md"): uri} for uri in sorted(PACKAGES.values())]
    config.nav = expand(config.nav, packages)
    return config


def expand(nav: Any, packages: list[dict[str, str]]) -> Any:
    """`nav` with the word PACKAGES replaced by the pages of the packages."""
    if isinstance(nav, list):
        return [expand(each, packages) for each in nav]
    if isinstance(nav, dict):
        return {title: expand(each, packages) for title, each in nav.items()}
    return packages if nav == "PACKAGES" else nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, uri in {**OUTSIDE, **PACKAGES}.items():
        if uri != "index.md":
            files.append(File.generated(config, uri, content=(ROOT / source).read_text()))
    files.append(File.generated(config, "reference.md", content=reference.page()))
    for file in sorted((ROOT / "docs").rglob("*.ipynb")):
        uri = file.relative_to(ROOT / "docs").with_suffix(".md").as_posix()
        files.append(File.generated(config, uri, content=notebooks.page(file)))
    for name in ("extra.css", "file_worker.js"):
        files.append(File.generated(config, f"site/{name}", content=(Path(__file__).parent / name).read_text()))
    return files


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """Let long names wrap on the page for an address without a page.  It has absolute addresses, so it is without the
    theme's styles where it is opened as a file."""
    if template_name != "404.html":
        return output
    return output.replace("</head>", "<style>body { overflow-wrap: anywhere; }</style></head>")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    if uri.startswith(DETAILS):
        page.meta["search"] = {"boost": 0.2}
    sources = {site: source for source, site in {**OUTSIDE, **PACKAGES}.items() if site != "index.md"}
    folder = posixpath.dirname(sources.get(uri, f"docs/{uri}"))
    markdown = re.sub(r"^```python (\S+/\S+)$", r'```python title="\1"', markdown, flags=re.MULTILINE)
    return LINK.sub(lambda link: site_link(link, folder, posixpath.dirname(uri) or ".", files), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return tables.align_numbers(html)


def site_link(link: re.Match[str], folder: str, place: str, files: Files) -> str:
    """Convert a link of a file in `folder` of the repository to a link of a page in folder `place` of the site."""
    text, target, anchor = link[1], link[2], link[3] or ""
    if not target or ":" in target:
        return link[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    if (ROOT / path).is_dir() and (ROOT / path / "README.md").exists():
        path = f"{path}/README.md"
    uri = OUTSIDE.get(path) or PACKAGES.get(path) or path.removeprefix("docs/").replace(".ipynb", ".md")
    if files.get_file_from_path(uri):
        return f"[{text}]({posixpath.relpath(uri, place)}{anchor})"
    if (ROOT / path).exists():
        return text if "`" in text else f"{text} (`{path}`)" if text != target else f"`{path}`"
    return link[0]  # MkDocs reports it


def on_env(env: Any, config: MkDocsConfig, files: Files) -> Any:
    """Replace the library that plugin `offline` adds to every page from another host by file_worker.js."""
    config.extra["polyfills"] = ["site/file_worker.js"]
    return env


def on_post_build(config: MkDocsConfig) -> None:
    """Remove addresses of two libraries that the theme would load from another host for diagrams or old browsers."""
    for script in Path(config.site_dir).rglob("*.js"):
        text = script.read_text()
        if "https://unpkg.com" in text:
            script.write_text(text.replace("https://unpkg.com", "."))
    for map_file in Path(config.site_dir).rglob("*.map"):
        os.remove(map_file)
