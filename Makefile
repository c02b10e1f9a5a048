# make           set up a virtual environment with layermem in it: then .venv/bin/layermem, or activate it
# make train     set up, and train LeNet on the digits inside half of the memory that Caffe would take
# make test      set up, and run all tests
# make fast      the tests of one minute
# make check     what every commit passes: format, lint, types, all tests
# make sanitize  the native extension and its tests under AddressSanitizer, UBSan and ThreadSanitizer
# make native    rebuild layermem._native in place
# make format    format Python and C++
# Prerequisites: Python >= 3.10 with venv, and a C++17 compiler.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
CXX_SOURCES = $(shell git ls-files 'layermem/native/*.cpp' 'layermem/native/*.h')
.DEFAULT_GOAL := native

.PHONY: train test fast check format lint types sanitize native setup clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml setup.py
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --upgrade pip
	LAYERMEM_NATIVE=0 $(PY) -m pip install -q -e '.[dev,plot]'
	touch $@

# PyCUDA for the tests of the CUDA runtime: built once, without a toolkit or a GPU, and kept under .cache/
$(VENV)/.pycuda: $(VENV)/.ready tools/build_pycuda.py
	$(PY) tools/build_pycuda.py --install
	touch $@

native: setup
	LAYERMEM_WERROR=1 $(PY) setup.py -q build_ext --inplace

train: native
	$(BIN)/layermem train --solver prototxt/digits/solver.prototxt --budget 50%

test: native $(VENV)/.pycuda
	$(PY) -m pytest -n 2 -rs

fast: native
	$(PY) -m pytest -n 2 -m "not slow"

check: lint types test

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES)

types: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_SOURCES)

# A sanitizer's runtime has to be loaded before Python; libstdc++ with it, so that exceptions are intercepted.
runtime = $(shell $(CXX) -print-file-name=lib$(1).so):$(shell $(CXX) -print-file-name=libstdc++.so)
SANITIZED = LAYERMEM_NATIVE_DIR=build/sanitize-$(1)/layermem $(PY) -m pytest -p no:cacheprovider

sanitize: setup
	LAYERMEM_SANITIZE=address,undefined $(PY) setup.py -q build_ext
	LD_PRELOAD=$(call runtime,asan) ASAN_OPTIONS=detect_leaks=0 $(call SANITIZED,address-undefined) tests/native
	LAYERMEM_SANITIZE=thread $(PY) setup.py -q build_ext
	LD_PRELOAD=$(call runtime,tsan) $(call SANITIZED,thread) tests/native/test_cpu_threads.py tests/native/test_planning_threads.py

clean:
	rm -rf build $(VENV) layermem/*.so *.egg-info
