"""The file of a page: complete, closed, with the libraries as they were published."""

import hashlib
import re
from pathlib import Path

import pytest

from layermem.errors import InputError
from layermem.integrations.page.columns import unpack
from layermem.integrations.page.data import plan_page
from layermem.integrations.page.html import SCRIPTS, STYLES, check_page, page_html

ASSETS = Path("layermem/integrations/page/assets")


def test_the_page_is_one_file_with_the_data_inside_and_names_no_address_to_load(page, report):
    text = page.read_text()
    data = unpack(re.search(r'id="data">([^<]*)<', text)[1])
    assert data["title"] == report.job.title and not data["live"]
    assert not re.search(r'(src|href)="(?!data:|#)', text) and "sourceMappingURL" not in text
    assert "connect-src 'none'" in text and "'unsafe" not in text and page.stat().st_size < 300_000


def test_a_live_page_may_ask_its_own_server_only(report):
    assert "connect-src 'self'" in page_html(plan_page(report), live=True).decode()


def test_the_libraries_in_the_page_are_those_that_the_readme_names():
    readme = (ASSETS / "README.md").read_text()
    for name in (*STYLES, *SCRIPTS):
        if ".min." not in name:
            continue
        digest = hashlib.sha256((ASSETS / name).read_bytes()).hexdigest()
        assert re.search(rf"\b{re.escape(name)}\b.*\n.*{digest}", readme), name
        licence = (ASSETS / f"{name.partition('.')[0]}.LICENSE").read_text()
        assert "Permission is hereby granted, free of charge" in licence and "Copyright (c)" in licence


def test_every_asset_is_in_the_page_or_a_licence():
    parts = {*STYLES, *SCRIPTS, "page.html", "README.md"}
    assert {path.name for path in ASSETS.iterdir() if path.suffix != ".LICENSE"} == parts


def test_a_name_that_is_not_that_of_a_page_is_refused():
    with pytest.raises(InputError, match=r"x\.pdf: is not a page by its name; use a name that ends in \.html"):
        check_page("x.pdf")
