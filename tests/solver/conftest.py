import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, of this test alone."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
