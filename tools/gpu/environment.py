"""Reports versions and the GPU."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from functools import partial

from layermem.backends.cuda.device import described
from layermem.backends.cuda.driver.context import Driver
from layermem.backends.cuda.kernel_images import build
from layermem.backends.cuda.kernel_images.toolkit import program
from layermem.errors import CudaUnavailable
from tools.gpu.results import Options, Results

PACKAGES = ("numpy", "pycuda", "torch", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cuda-nvrtc")
ABSENT = "not here"


def run(results: Results, options: Options) -> None:
    for part in (versions, gpu):
        results.attempt(partial(part, results), most=60, part=part.__name__)


def versions(results: Results) -> None:
    found = {"machine": f"{platform.platform()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}"}
    found |= {package: version(package) for package in PACKAGES}
    found |= {name: program(name) or ABSENT for name in ("nvcc", "compute-sanitizer")}
    try:
        found["compiles kernels"] = build.find_compiler().version
    except CudaUnavailable as error:
        found["compiles kernels"] = str(error)
    for what, says in found.items():
        results.add(part="versions", what=what, found=says)


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT


def gpu(results: Results) -> None:
    driver = Driver(0)
    major, minor = divmod(driver.cuda.get_driver_version(), 1000)
    free, total = driver.cuda.mem_get_info()
    results.add(part="gpu", what="gpu", found=described(driver.gpu))
    results.add(part="gpu", what="driver's CUDA", found=f"{major}.{minor // 10}")
    results.add(part="gpu", what="bytes taken beside an arena", found=total - free)
    driver.close()
