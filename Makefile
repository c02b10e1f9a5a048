# make         set up a virtual environment with layermem in it: then .venv/bin/layermem, or activate it
# make train   set up a virtual environment and train LeNet on the digits inside half of what Caffe would take
# make test    set up, and run the tests
# make check   what every commit passes: ruff, mypy, pytest with warnings as errors
# make native  rebuild layermem._native in place
# Prerequisites: Python >= 3.10 with venv, and a C++17 compiler.

PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
.DEFAULT_GOAL := native

.PHONY: train test check native setup clean

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
	$(PY) setup.py -q build_ext --inplace

train: native
	$(VENV)/bin/layermem train --solver prototxt/digits/solver.prototxt --budget 50%

test: native $(VENV)/.pycuda
	$(PY) -m pytest -n 2 -rs

check: native $(VENV)/.pycuda
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(PY) -m pytest -n 2 -rs

clean:
	rm -rf build $(VENV) layermem/*.so *.egg-info
