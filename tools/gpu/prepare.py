"""Prepares the steps: packages from a folder of wheels, layermem._native, the driver's library.

A failure here is a row and does not end the call; steps that need the missing part fail with a reason.  Preparation
takes at most half of the call's minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

from tools.gpu.process import ROOT, last_lines, run
from tools.gpu.results import Row

BUILD_SECONDS = 300  # limit for layermem._native, on all cores: every step needs it
KERNEL_SECONDS = 240  # limit for kernels that were not brought; the rest is compiled at first use
INSTALL_SECONDS = 60
LEAST_SECONDS = 15  # for a quick query when the time for preparation is up
NEEDED = ("numpy", "google.protobuf", "h5py", "PIL", "rich", "pycuda")  # lmdb is needed only by nets that read one
DRIVERS = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu")
DRIVER = "libcuda.so.1"
CARRIED = ".carried"  # suffix of a library that is brought: git leaves out *.so


class Preparation:
    """The preparation of all steps: their `environment`, and `rows` that report the preparation."""

    def __init__(self, options: argparse.Namespace, work: Path):
        self.options, self.work = options, work
        self.deadline = time.monotonic() + 30 * options.minutes
        self.rows: list[Row] = []
        self.environment = dict(os.environ)
        self._first("PYTHONPATH", str(ROOT))
        self.environment.setdefault("LAYERMEM_CACHE", str(work / "kernels"))  # independent of $HOME
        self.environment.setdefault("LAYERMEM_CHECK", "off")  # the steps check kernels themselves
        for what, step in (
            ("wheels", self._wheels),
            ("carried", self._carried_native),
            ("native", self._native),
            ("packages", self._packages),
            ("driver", self._fake_driver if options.dry_run else self._driver),
            ("kernels", self._carried_kernels),
            ("images", self._images),
        ):
            self._attempt(what, step)

    def _attempt(self, what: str, step: Callable[[], str]) -> None:
        began = time.monotonic()
        try:
            says, passed = step(), True
        except Exception as error:
            says, passed = f"{type(error).__name__}: {error}", False
        if says:
            self.rows.append({"what": what, "passed": passed, "says": says, "seconds": time.monotonic() - began})

    def _first(self, variable: str, folder: str) -> None:
        others = [part for part in self.environment.get(variable, "").split(os.pathsep) if part]
        self.environment[variable] = os.pathsep.join([folder, *others])

    def _wheels(self) -> str:
        """Install the newest fitting wheel of every package in the folder."""
        folder = self.options.wheels
        if folder is None:
            return ""
        names = sorted({path.name.split("-")[0] for path in folder.glob("*.whl")})
        if not names:
            raise FileNotFoundError(f"there are no wheels in {folder}")
        site, log, wrong = self.work / "site", self.work / "wheels.log", []
        shutil.rmtree(site, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--find-links", str(folder)]
        for name in names:
            code = run([*pip, "--target", str(site), name], log, self._seconds(INSTALL_SECONDS), self.environment)
            if code != 0:
                wrong.append(f"{name} ({last_lines(log)})")
        self._first("PYTHONPATH", str(site))
        if wrong:
            raise ImportError(f"not for this Python, or broken: {', '.join(wrong)}")
        return " ".join(names)

    def _carried_native(self) -> str:
        """Use a layermem._native that was brought, if this Python accepts it; otherwise it is built."""
        if self.options.carried is None or self._python("import layermem._native") == 0:
            return ""
        ending = sysconfig.get_config_var("EXT_SUFFIX")
        target = ROOT / "layermem" / f"_native{ending}"
        library = self.options.carried / "native" / f"{target.name}{CARRIED}"
        if not library.exists():
            return f"there is no {library.name} among what was brought: it is built"
        shutil.copy(library, target)
        if self._python("import layermem._native") == 0:
            return f"{target.name} was brought"
        target.unlink()
        return (
            f"{target.name} was brought, and does not load here ({last_lines(self.work / 'imports.log')}): it is built"
        )

    def _carried_kernels(self) -> str:
        """Use machine code that was brought, if it belongs to these sources and this GPU; otherwise NVRTC or nvcc
        compiles."""
        if self.options.carried is None or self.options.dry_run:
            return ""
        folder, log = self.options.carried, self.work / "carried.log"
        command = [sys.executable, "-m", "tools.gpu.carry", "--into", str(folder), "--check"]
        if run(command, log, self._seconds(INSTALL_SECONDS, LEAST_SECONDS), self.environment) != 0:
            return f"{last_lines(log)}: kernels are compiled"
        self.environment["LAYERMEM_KERNELS"] = str(folder / "kernels")
        return last_lines(log)

    def _images(self) -> str:
        """Compile the kernels before the first step, whose time limit would end that."""
        if self.options.dry_run or "LAYERMEM_KERNELS" in self.environment:
            return ""
        log = self.work / "images.log"
        code = run([sys.executable, "-m", "tools.gpu.images"], log, self._seconds(KERNEL_SECONDS), self.environment)
        if code != 0:
            raise RuntimeError(
                f"not all kernels are compiled: {'it takes too long' if code is None else last_lines(log)}"
            )
        return last_lines(log)

    def _seconds(self, most: float, least: float = 0.0) -> float:
        """A time limit: the rest of the time for preparation, at most `most`."""
        return max(least, min(most, self.deadline - time.monotonic()))

    def _native(self) -> str:
        if self._python("import layermem._native") == 0:
            return "layermem._native was built before"
        log = self.work / "native.log"
        jobs = {"LAYERMEM_BUILD_JOBS": str(os.cpu_count())}
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        most = self._seconds(BUILD_SECONDS)
        code = run(command, log, most, self.environment | jobs)
        if code != 0:
            why = f"it takes more than {most:.0f} s" if code is None else last_lines(log)
            raise RuntimeError(f"layermem._native cannot be built: {why}")
        return "layermem._native is built"

    def _packages(self) -> str:
        missing = [name for name in NEEDED if self._python(f"import {name}") != 0]
        if missing:
            raise ImportError(f"bring wheels of these: {' '.join(missing)}")
        return f"{' '.join(NEEDED)} are here"

    def _driver(self) -> str:
        """Find the driver's library in the usual folders if the loader does not."""
        if self._python(f"import ctypes; ctypes.CDLL('{DRIVER}')") == 0:
            return f"{DRIVER} is found"
        for folder in DRIVERS:
            if Path(folder, DRIVER).exists():
                self._first("LD_LIBRARY_PATH", folder)
                return f"{DRIVER} is taken from {folder}"
        raise OSError(f"{DRIVER} is nowhere: is NVIDIA's driver installed?")

    def _fake_driver(self) -> str:
        sys.path[:0] = self.environment["PYTHONPATH"].split(os.pathsep)  # must find PyCUDA
        from tests.backends.cuda.on_fake_driver import kernels
        from tests.emulator import fake_driver

        settings = fake_driver.environment(streams="random")
        self.environment |= {name: value for name, value in settings.items() if name.startswith("FAKE_DRIVER_")}
        self._first("LD_LIBRARY_PATH", str(fake_driver.library()))
        self.environment["LAYERMEM_KERNELS"] = str(kernels())
        return "the fake driver of tests/emulator"

    def _python(self, text: str) -> int | None:
        seconds = self._seconds(INSTALL_SECONDS, LEAST_SECONDS)
        return run([sys.executable, "-c", text], self.work / "imports.log", seconds, self.environment)
