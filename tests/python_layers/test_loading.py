"""The search for modules, and `import caffe` in them."""

import sys
from types import ModuleType

import pytest

from layermem.caffe import modes
from layermem.errors import InputError
from layermem.python_layers.contract import PythonLayer
from layermem.python_layers.loading import class_of, import_user_module, user_code
from tests.python_layers.modules import write_module


def load(name, folder):
    with user_code(folder):
        return import_user_module(name, folder)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The folders of PYTHONPATH, of the net and the current one, in this order."""
    found = [tmp_path / name for name in ("path", "net", "here")]
    for folder in found:
        folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(found[0]))
    monkeypatch.chdir(found[2])
    return found


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_module_is_searched_for_in_pythonpath_the_folder_of_the_net_and_the_current_one(folders, first):
    before = list(sys.path)
    for number in range(first, 3):
        (folders[number] / f"searched_{first}.py").write_text(f"number = {number}")
    assert load(f"searched_{first}", folders[1]).number == first
    assert sys.path == before


def test_a_module_in_a_package_is_imported_by_its_dotted_name(folders):
    (folders[1] / "user_package").mkdir()
    (folders[1] / "user_package" / "inner.py").write_text("import caffe\nclass L(caffe.Layer): pass")
    assert class_of(load("user_package.inner", folders[1]), "L").__name__ == "L"


def test_a_module_of_the_same_name_from_another_folder_replaces_the_first(folders):
    for number in (0, 1):
        (folders[number] / "twice.py").write_text(f"number = {number}")
    (folders[0] / "twice.py").rename(folders[2] / "twice.py")
    assert load("twice", folders[1]).number == 1
    (folders[1] / "twice.py").unlink()
    assert load("twice", folders[1]).number == 0
    assert load("twice", folders[1]) is load("twice", folders[1])


def test_a_module_is_the_same_by_another_path_to_its_file(folders, tmp_path):
    (folders[1] / "linked.py").write_text("numbers = []")
    first = load("linked", folders[1])
    (tmp_path / "link").symlink_to(folders[1])
    assert load("linked", tmp_path / "link") is first


def test_a_module_of_a_name_that_python_has_already_is_refused(folders):
    (folders[1] / "json.py").write_text("")
    with pytest.raises(InputError, match=r"Python has imported 'json' from .*; rename yours"):
        load("json", folders[1])
    assert "dumps" in vars(sys.modules["json"])


@pytest.mark.parametrize("installed", [False, True])
def test_import_caffe_is_answered_while_the_code_runs_and_never_afterwards(folders, installed, monkeypatch):
    monkeypatch.setattr(modes, "_mode", modes.CPU)  # of the whole process
    real = ModuleType("caffe")
    monkeypatch.delitem(sys.modules, "caffe", raising=False)
    if installed:
        monkeypatch.setitem(sys.modules, "caffe", real)
    text = """
import caffe
from caffe import Layer, TEST
caffe.set_mode_gpu()
numbers = caffe.TRAIN, TEST
def late():
    import caffe as again
    return again is caffe
"""
    module = load(write_module(folders[1], text), folders[1])
    assert module.Layer is PythonLayer and module.numbers == (0, 1)
    with user_code(folders[1]):
        assert module.late()
    assert sys.modules.get("caffe") is (real if installed else None)


def test_the_rest_of_caffe_is_missing_with_a_sentence(folders):
    with pytest.raises(AttributeError, match=r"no 'Nett' in module 'caffe', .*; did you mean 'Net'"):
        load(write_module(folders[1], "import caffe\ncaffe.Nett"), folders[1])


def test_output_of_the_code_goes_to_standard_error(folders, capsys):
    load(write_module(folders[1], "print('loaded')"), folders[1])
    assert capsys.readouterr() == ("", "loaded\n")


def test_a_class_that_is_none_is_answered_with_those_there_are(folders):
    text = "import caffe\nclass A(caffe.Layer): pass\nclass B: pass"
    module = load(write_module(folders[1], text), folders[1])
    with pytest.raises(InputError, match=r"the class 'L' of .*, which has A; correct the name"):
        class_of(module, "L")
    with pytest.raises(InputError, match=r"names 'B' .*, which is no class derived from caffe.Layer"):
        class_of(module, "B")
