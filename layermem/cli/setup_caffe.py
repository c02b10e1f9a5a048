"""setup-caffe: writes a tree like that of a built Caffe, whose programs and module are layermem's.

DIR/build/tools/caffe                        and caffe.bin, convert_imageset, ...
DIR/build/examples/mnist/convert_mnist_data.bin     and those of cifar10 and siamese
DIR/python/caffe                             with PYTHONPATH=DIR/python, `import caffe` is layermem.caffe
DIR/README                                   what the tree is; shows that it may be written again
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from layermem import __version__
from layermem.cli.caffe import CONVERTERS, TOOLS
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.files import write_atomically
from layermem.utils.text import printable, wrap

EXAMPLE = """\
  layermem setup-caffe caffe
  # then `./caffe/build/tools/caffe train --solver=digits/solver.prototxt` trains
"""
MARK = "This tree was written by `layermem setup-caffe`."
PROGRAM = """\
#!/bin/sh
# {name} of Caffe, run by layermem: written by `layermem setup-caffe`.
exec {python} -c {code} "$@"
"""
CODE = (
    "import sys; sys.path[0] = {folder}; from layermem.cli.main import main; sys.exit(main([{words}, *sys.argv[1:]]))"
)
MODULE = '''\
"""`import caffe` is layermem.caffe: written by `layermem setup-caffe`."""

import sys

try:
    import layermem
except ModuleNotFoundError:
    sys.path.append({folder!r})

from layermem.caffe.modes import configure_from_environment
from layermem.python_layers.answering import install

configure_from_environment()
install()
import caffe  # noqa: E402  (layermem.caffe, which this import statement returns)
'''
README = f"""\
{MARK}

build/tools, build/examples   programs of Caffe, run by layermem {__version__}
python                        for PYTHONPATH: `import caffe` is layermem.caffe

LAYERMEM_BUDGET and other variables of the environment state options that Caffe does not have:
`layermem docs caffe_command` lists them.
"""


def add_verbs(verbs: Verbs) -> None:
    description = "write a folder like a built Caffe's, so that scripts that name its programs run here"
    parser = add_verb(verbs, "setup-caffe", description, EXAMPLE)
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder to write, or to write again")
    parser.set_defaults(run=run_setup_caffe)


def run_setup_caffe(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    _check(folder)
    count = _write(folder)
    print(wrap(printable(f"{folder}: {count} programs in build, and the module caffe in python")))
    return 0


def _write(folder: Path) -> int:
    """Write all files of the tree, each at once; return the number of programs."""
    files = {"README": README, "python/caffe/__init__.py": MODULE.format(folder=_package_folder())}
    programs = {f"build/tools/{name}": name for name in ("caffe", *TOOLS)}
    programs |= {f"build/examples/{part}/{name}": name for name, part in CONVERTERS.items()}
    for path, name in programs.items():
        files[path] = files[f"{path}.bin"] = _program(name)
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, text.encode())
        if text.startswith("#!"):
            target.chmod(0o755)
    return len(programs)


def _check(folder: Path) -> None:
    """Raise InputError for a folder that holds something else."""
    if folder.is_dir():
        mark = folder / "README"
        if not any(folder.iterdir()) or (mark.is_file() and mark.read_text(errors="replace").startswith(MARK)):
            return
        what = "holds other files, which could be overwritten; give a new folder, and link build and python to its own"
        raise InputError(what, path=str(folder))
    if folder.exists():
        raise InputError("is a file; give a new folder", path=str(folder))


def _program(name: str) -> str:
    words = ["caffe"] if name == "caffe" else ["caffe", name]
    code = CODE.format(folder=json.dumps(_package_folder()), words=", ".join(map(json.dumps, words)))
    return PROGRAM.format(name=name, python=shlex.quote(sys.executable), code=shlex.quote(code))


def _package_folder() -> str:
    """The folder from which `layermem` is imported."""
    import layermem

    return str(Path(layermem.__file__).resolve().parent.parent)
