"""What is here: versions, the card, the machine code of every kernel (compiled on all cores unless it is prebuilt)."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from layermem.runtime.cuda import build
from layermem.runtime.cuda.device import described
from layermem.runtime.cuda.driver import Driver
from layermem.runtime.cuda.sources import modules
from tools.gpu.results import Options, Results

PACKAGES = ("numpy", "pycuda", "torch", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cuda-nvrtc")


def run(results: Results, options: Options) -> None:
    results.add(what="machine", found=f"{platform.platform()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    for package in PACKAGES:
        try:
            results.add(what=package, found=importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            results.add(what=package, found="not here")
    for program in ("nvcc", "nvdisasm", "compute-sanitizer"):
        results.add(what=program, found=shutil.which(program) or "not here")
    driver = Driver(0)
    major, minor = divmod(driver.cuda.get_driver_version(), 1000)
    results.add(what="card", found=described(driver.card))
    results.add(what="driver's CUDA", found=f"{major}.{minor // 10}")
    free, total = driver.cuda.mem_get_info()
    results.add(what="bytes taken beside an arena", found=total - free)

    def compiled(module: str) -> float:
        began = time.perf_counter()
        build.image(module, driver.card.capability)
        return time.perf_counter() - began

    began = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        seconds = dict(zip(modules(), pool.map(compiled, modules())))
    slowest = max(seconds, key=lambda module: seconds[module])
    spent = f"{time.perf_counter() - began:.1f} s, the slowest {slowest} with {seconds[slowest]:.1f} s"
    results.add(what=f"images of {len(seconds)} modules", found=spent)
    driver.close()
