# make           set up a virtual environment with layermem in it: then .venv/bin/layermem, or activate it
# make train     set up for this machine alone, and train LeNet on the digits in 35 % of the memory of strategy `caffe`,
#                by recomputation and in slices of the batch
# make test      set up with the tools for development, and run all tests
# make fast      the tests of one minute
# make check     what every commit passes: format, lint, types, tests, and 10 seconds of each campaign from seed
#                CHECK_SEED, the same each time.  Of tests whose cases form a matrix it runs a part of the cases, always
#                the same (tests/thinning.py); all of them run with `make test`
# make docs      the documentation as a site, in build/site: open build/site/index.html
# make campaign  random nets, mutated files and interrupted training, side by side with `make -j3 -O`: SECONDS of each
#                (60), each time with a new seed; SEED=N repeats one
# make sanitize  all tests of the native extension under AddressSanitizer and UBSan, and those of threads under
#                ThreadSanitizer: about four minutes on two cores; `make sanitize-fast`: the quick ones under the first two
# make sanitize-nets  NETS random nets (200) with the native extension under AddressSanitizer and UBSan; ten minutes
# make native    rebuild layermem._native in place: what a change affects; GROUPED=1 takes half the time for all of it
# make format    format Python and C++
# make hooks     let git refuse commits whose subjects are not as CONTRIBUTING.md says
# Prerequisites: Python >= 3.10 with venv, and a C++17 compiler.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
SECONDS ?= 60
CHECK_SEED = 20261123
NETS   ?= 200
GROUPED ?= 0
BROWSER ?=
CAMPAIGNS    = tools/random_nets.py tools/random_ranks.py tools/fuzz.py tools/crash.py
CXX_SOURCES  = $(shell git ls-files 'layermem/native/*.cpp' 'layermem/native/*.h' 'cuda/*.cu' 'cuda/*.cuh' 'tools/*.cpp')
.DEFAULT_GOAL := native

# Images of containers often set it: then each of hundreds of processes compiles its modules again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: docs train test fast check format lint types sanitize sanitize-fast sanitize-nets native native-here \
        kernels bindings kernels-here bindings-here setup hooks prepare-tests browser campaign $(CAMPAIGNS) clean

# .build: what builds the native module.  .base: what training needs, as bytecode too, whatever the environment says of
# bytecode: a run that has to compile it takes 9 MiB more.  .docs: what makes the site.  .ready: what tests, formatters and linters need.
setup: $(VENV)/.ready

hooks:
	git config core.hooksPath .ci/hooks

IMPORTED = import lmdb, lmdb._envid, numpy.ma, numpy.random, numpy.typing, PIL.Image, rich.progress; \
           from google.protobuf import descriptor_pb2, message_factory, reflection, symbol_database, text_format; \
           from google.protobuf.internal import builder, python_message, well_known_types

PIP = LAYERMEM_NATIVE=0 $(PY) -m pip install -q --disable-pip-version-check --no-compile

$(VENV)/.build: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) 'setuptools>=77' 'pybind11>=2.13' wheel
	touch $@

$(VENV)/.base: $(VENV)/.build setup.py
	$(PIP) --no-build-isolation -e .
	$(PY) -m compileall -q layermem
	$(PY) -c '$(IMPORTED)'
	touch $@

$(VENV)/.ready: $(VENV)/.base
	$(PIP) --no-build-isolation -e '.[dev,plot,docs]'
	touch $@

$(VENV)/.docs: $(VENV)/.base
	$(PIP) --no-build-isolation -e '.[docs]'
	touch $@

# PyCUDA for the tests of the CUDA runtime: built once, without a toolkit or a GPU, and kept under .cache/.  It only
# translates calls, so the time of its compiler is all that optimisation would change here.
$(VENV)/.pycuda: $(VENV)/.ready layermem/cli/pycuda_wheel.py | native
	CXXFLAGS=-O0 $(BIN)/layermem setup-cuda --kernels none --cache .cache/pycuda
	touch $@

native: $(VENV)/.base | $(filter kernels bindings,$(MAKECMDGOALS))
	LAYERMEM_WERROR=1 LAYERMEM_GROUPED=$(GROUPED) $(PY) setup.py -q build_ext --inplace

# The objects that `native` links: kernels need nothing that pip installs, and bindings little of it.  `make check`
# compiles them from the start, beside pip.
kernels:
	LAYERMEM_WERROR=1 LAYERMEM_GROUPED=$(GROUPED) nice $(PYTHON) tools/compile_native.py
bindings: $(VENV)/.build
	LAYERMEM_WERROR=1 $(PY) tools/compile_native.py --bindings

# For this machine alone.  Kernels compile from the start, at low priority, beside pip and the bindings, which follow
# one after the other.
native-here: kernels-here bindings-here
	LAYERMEM_ISAS=native $(PY) setup.py -q build_ext --inplace
kernels-here:
	LAYERMEM_ISAS=native nice -n 10 $(PYTHON) tools/compile_native.py
bindings-here: $(VENV)/.build
	$(PY) tools/compile_native.py --bindings

train:
	$(MAKE) -j3 native-here $(VENV)/.base
	$(BIN)/layermem train --solver prototxt/digits/solver.prototxt --budget 35% --slices auto

test fast $(CAMPAIGNS) sanitize sanitize-fast sanitize-nets: setup

# BROWSER=browser, as in .ci/run, installs one for the tests of pages, where the system lets it.
browser:
	@.ci/browser

test: native $(VENV)/.pycuda $(BROWSER)
	$(PY) -m pytest -n 2 --dist worksteal -rs $(TEST_OPTIONS)

fast: native
	$(PY) -m pytest -n 2 -m "not slow"

# The bytecode of tests, which each worker would else compile, and emulated kernels, which end the stage on all cores;
# PyCUDA's build comes first.  What cannot be collected is an error of `make test`.
prepare-tests: $(VENV)/.ready | native
	-nice $(PY) -m pytest --collect-only -qq > /dev/null
	nice $(PY) -m tests.emulator.prebuild

# What runs on one core is side by side: downloads and the native build; then PyCUDA's build, mypy, the linters and what
# tests share.  Sources that passed once pass again: new seeds, and longer runs, are for `make campaign`.
check:
	$(MAKE) -j5 -O kernels bindings $(VENV)/.pycuda types lint prepare-tests $(BROWSER)
	$(MAKE) test TEST_OPTIONS=--thin
	$(MAKE) -j4 -O campaign SECONDS=10 SEED=$(CHECK_SEED)

# Broken links, and pages in no navigation, are errors.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict -f tools/site/mkdocs.yml

campaign: $(CAMPAIGNS)
$(CAMPAIGNS): native
	$(PY) $@ --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES)
	@$(PY) tools/tidy_native.py

types: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_SOURCES)

# A sanitizer's runtime has to be loaded before Python; libstdc++ with it, so that exceptions are intercepted.
# tests/native/test_sanitizers.py seeds an error of each kind and fails where none is reported.  --capture=sys leaves
# the reports, which end the process, on stderr.  $(3): further options of AddressSanitizer.
runtime   = $(shell $(CXX) -print-file-name=lib$(1).so):$(shell $(CXX) -print-file-name=libstdc++.so)
PRELOADED = env LD_PRELOAD=$(call runtime,$(2)) ASAN_OPTIONS=detect_leaks=0$(3) LAYERMEM_SANITIZE=$(1) \
            LAYERMEM_NATIVE_DIR=build/sanitize-$(subst $(comma),-,$(1))/layermem $(PY)
SANITIZED = $(call PRELOADED,$(1),$(2)) -m pytest -p no:cacheprovider --capture=sys
comma    := ,
MEMORY    = address,undefined
# Threads poll for work, which is slow under ThreadSanitizer: the tests of threads, and one family for each way of
# dividing a kernel into tasks.
RACES     = $(addprefix tests/native/test_,sanitizers.py cpu_threads.py planning_threads.py cpu_copy.py cpu_pooling.py \
              cpu_lrn.py cpu_reduction.py cpu_resize.py) \
            $(addprefix tests/distributed/test_,collectives.py loopback.py) tests/backends/test_comm_thread.py

MEMORY_TESTS = tests/native tests/schedule/test_layout.py \
               tests/planning/test_lower_sets.py $(addprefix tests/distributed/test_,collectives.py loopback.py) \
               tests/backends/test_comm_thread.py

# `native` first: bindings are compiled there for all builds.
build/.sanitize-%: native
	LAYERMEM_SANITIZE=$* $(PY) setup.py -q build_ext

sanitize: build/.sanitize-$(MEMORY) build/.sanitize-thread
	$(call SANITIZED,$(MEMORY),asan) -n 2 $(MEMORY_TESTS)
	$(call SANITIZED,thread,tsan) $(RACES)

sanitize-fast: build/.sanitize-$(MEMORY)
	$(call SANITIZED,$(MEMORY),asan) -n 2 -m "not slow" $(MEMORY_TESTS)

# Freed memory that AddressSanitizer keeps counts as resident: 8 MiB of it instead of 256.
sanitize-nets: build/.sanitize-$(MEMORY)
	$(call PRELOADED,$(MEMORY),asan,:quarantine_size_mb=8) tools/random_nets.py --count $(NETS) $(if $(SEED),--seed $(SEED))

clean:
	rm -rf build $(VENV) layermem/*.so *.egg-info
