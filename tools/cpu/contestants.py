"""The contestants of tools/bench_cpu.py, with the command and environment of each.

Every command runs `steps` training steps in a row and then prints one line of JSON:

    seconds     list of seconds per step       bytes  peak resident set of the process
    parameters  their count (not from Caffe)   is     version of the framework or device
    note        for the last column of the table (optional)
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.nntrainer_peer import MODES

TOOLS = Path(__file__).resolve().parents[1]
LAYERMEM, PYTORCH, CAFFE, NNTRAINER = "layermem", "PyTorch", "BVLC Caffe", "nntrainer"
LAYOUTS = ("NCHW", "channels_last")
CHECKPOINT = "checkpoint"  # a mode of PyTorch, in channels_last
ALLOCATORS = {  # the first installed file of each is used
    "jemalloc": ("libjemalloc.so.2",),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"),
}
LIBRARY_FOLDERS = (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
# The settings of jemalloc that PyTorch's performance tuning guide recommends; other allocators do not read them.
MALLOC_CONF = "oversize_threshold:1,background_thread:true,metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1"


@dataclass(frozen=True)
class Contestant:
    """A framework and the way in which it runs a net."""

    framework: str
    mode: str = ""  # the options of layermem; the layout of PyTorch, or CHECKPOINT; a mode of nntrainer_peer.py
    compiled: bool = False  # whether it runs under torch.compile
    allocator: Path | None = None  # preloaded instead of the allocator of the C library

    @property
    def name(self) -> str:
        how = [self.mode, "compiled" if self.compiled else "", allocator_name(self.allocator) if self.allocator else ""]
        return " ".join(word for word in (self.framework, *how) if word)

    @property
    def is_peer(self) -> bool:
        return self.framework != LAYERMEM


@dataclass(frozen=True)
class Setting:
    """Settings that all contestants on one net share."""

    net: str  # NAME:BATCH
    description: Path  # the net for torch_peer.py and nntrainer_peer.py
    model: Path  # the net for Caffe
    costs: Path  # measured costs for layermem's plans
    compile_cache: Path
    steps: int
    threads: int
    torch_python: str
    compile_threads: int = 1  # with one, torch.compile starts no worker processes


def list_contestants(
    ours: Iterable[str], allocators: Iterable[Path], *, torch: bool, caffe: bool, nntrainer: bool
) -> list[Contestant]:
    """List all contestants in the order of the table."""
    layouts = [
        Contestant(PYTORCH, layout, compiled, allocator)
        for compiled in (False, True)
        for layout in LAYOUTS
        for allocator in (None, *allocators)
    ]
    return [
        *(Contestant(LAYERMEM, options) for options in ours),
        *([*layouts, Contestant(PYTORCH, CHECKPOINT)] if torch else []),
        *([Contestant(CAFFE)] if caffe else []),
        *(Contestant(NNTRAINER, mode) for mode in MODES if nntrainer),
    ]


def find_allocators(preloads: Sequence[Path], folders: Sequence[str] = LIBRARY_FOLDERS) -> list[Path]:
    """Find one library per allocator: installed ones in `folders`, each replaced by the one of its name in
    `preloads`."""
    libraries: dict[str, Path] = {}
    for name, files in ALLOCATORS.items():
        paths = [Path(folder, file) for file in files for folder in folders]
        if path := next((path for path in paths if path.is_file()), None):
            libraries[name] = path
    libraries |= {allocator_name(path): path.absolute() for path in preloads}
    return list(libraries.values())


def allocator_name(library: Path) -> str:
    """Return `tcmalloc` for libtcmalloc_minimal.so.4."""
    match = re.match(r"lib(.+?)(_minimal)?\.so", library.name)
    return match[1] if match else library.name


def command(contestant: Contestant, setting: Setting) -> list[str]:
    common = ["--steps", str(setting.steps), "--threads", str(setting.threads)]
    if contestant.framework == LAYERMEM:
        served = [setting.net, contestant.mode, str(setting.costs)]
        return [sys.executable, str(TOOLS / "bench_cpu.py"), "--serve", *served, *common]
    if contestant.framework == CAFFE:
        return [sys.executable, str(TOOLS / "caffe_peer.py"), str(setting.model), *common]
    if contestant.framework == NNTRAINER:
        mode = ["--mode", contestant.mode, "--driver", str(setting.description.with_name("nntrainer_steps"))]
        return [sys.executable, str(TOOLS / "nntrainer_peer.py"), str(setting.description), *mode, *common]
    compiled = ["--compile"] if contestant.compiled else []
    mode = ["--mode", contestant.mode.lower(), *compiled]
    return [setting.torch_python, str(TOOLS / "torch_peer.py"), str(setting.description), *mode, *common]


def environment(contestant: Contestant, setting: Setting) -> dict[str, str]:
    """The environment of this process, with the threads, the compile cache and the allocator of the contestant."""
    threads = str(setting.threads)
    values = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    values.pop("LD_PRELOAD", None)
    if contestant.allocator:
        values |= {"LD_PRELOAD": str(contestant.allocator), "MALLOC_CONF": os.environ.get("MALLOC_CONF", MALLOC_CONF)}
    if contestant.compiled:
        values["TORCHINDUCTOR_CACHE_DIR"] = str(setting.compile_cache)
        values["TORCHINDUCTOR_COMPILE_THREADS"] = str(setting.compile_threads)
    return values
