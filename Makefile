# The commands of the course. `make` alone lists them. Every path is relative: the folder's name may have spaces.

PYTHON ?= python3
LAB_ARGS ?=

ifeq ($(OS),Windows_NT)
BIN := Scripts
else
BIN := bin
endif
VENV := .venv/$(BIN)/python
COLAB := .venv-colab/$(BIN)/python
TPU := .venv-tpu/$(BIN)/python
NEXT := .venv-next/$(BIN)/python
CUDA := .venv-cuda/$(BIN)/python
BENCH := .venv-bench/$(BIN)/python

# Run every lesson, every code cell, and count them. LAB_STRICT: a claim that misses its bound is an error.
NBVAL := -m tests.lessons_plugin
LESSONS := $(wildcard notebooks/*.ipynb)
XLA_LESSONS := $(filter notebooks/13% notebooks/14%,$(LESSONS))
# These start many processes, a minute and a half each. `make test` runs them once, the commands below every time.
SLOW := $(foreach n,11 12 15,$(wildcard notebooks/$(n)_*.ipynb))
QUICK := $(filter-out $(SLOW),$(wildcard notebooks/*.ipynb))
# These claim nothing about time that a busy machine could spoil: counts, bytes, equalities.
UNTIMED := $(foreach n,11 12 13 14,$(wildcard notebooks/$(n)_*.ipynb))
# torch_xla exists for Linux on x86-64 only. Elsewhere the second environment is the one with a front end like Colab's.
SECOND := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),test-tpu,test-colab)
# What `make test` opens in a browser; `make test-browser` opens all lessons.
SAMPLE := there_are or must_be_seen or 00_start or 06_pinned or 13_tpu

.PHONY: help lab test untimed test-unit test-exercises test-browser test-tpu tpu-tests tpu-strict tpu-slow tpu-first tpu-second test-colab test-next test-emulator test-cuda record-emulated lab-emulated unit-processes unit-others outputs record bench format lint clean env env-test env-test-tpu env-test-colab env-test-next env-test-cuda

help:
	@echo "make lab             open the lessons in JupyterLab (installs on first use; LAB_ARGS=\"--port 8899\")"
	@echo "make lab-emulated    the same on an emulated Tesla T4 (Linux, g++): numbers and memory real, times modeled"
	@echo "make test            check everything: style, unit tests, every cell of every lesson"
	@echo "make test-unit       check utils, tools and exercises (part of make test)"
	@echo "make test-exercises  give every mutant of every solution to the checks of the exercises (EXERCISES=\"05 07.1\")"
	@echo "make test-browser    run every lesson in JupyterLab in a browser (make test: three of them)"
	@echo "make test-tpu        run every lesson with torch_xla, on XLA's own CPU device (part of make test)"
	@echo "make test-colab      run every lesson with the versions of Colab's GPU runtime"
	@echo "make test-next       run every lesson with the newest PyTorch and list what it says otherwise than announced"
	@echo "make test-emulator   build the emulated CUDA device (Linux, g++) and check that it behaves as a GPU does"
	@echo "make test-cuda       that, and run every lesson with CUDA cells on emulated GPUs"
	@echo "make outputs         run the lessons and store their outputs"
	@echo "make record          record what this machine's devices can measure (for readers without them)"
	@echo "make record-emulated record what the emulated CUDA device can tell: cells whose point is no time"
	@echo "make bench           measure train.py against Accelerate and Lightning, and what importing utils costs"
	@echo "make format          rewrite code and notebooks in the course's form"
	@echo "make lint            check code and notebooks against that form"
	@echo "make clean           remove the environments and caches"

env:
	@$(PYTHON) tools/setup_env.py

env-test:
	@$(PYTHON) tools/setup_env.py --extra test

lab: env
	@$(VENV) tools/lab.py $(LAB_ARGS)

# While the second environment installs: all that measures nothing in the first. Then, with the machine to themselves, the
# lessons with claims about time. Then the rest, side by side, to keep both cores of a small machine busy.
test:
	OMP_WAIT_POLICY=passive $(MAKE) -j4 lint env-$(SECOND) unit-processes unit-others
	LAB_STRICT=1 $(VENV) $(NBVAL) $(filter-out $(UNTIMED),$(LESSONS))
	OMP_WAIT_POLICY=passive $(MAKE) -j6 $(SECOND) untimed test-browser LESSONS="$(QUICK)" BROWSER="$(SAMPLE)"

untimed: env-test
	LAB_STRICT=1 $(VENV) $(NBVAL) $(UNTIMED)

test-unit: unit-processes unit-others

# Tests that spend their time starting processes.
PROCESSES := $(wildcard tests/test_launch*.py tests/test_train*.py tests/test_lessons_plugin.py tests/test_resharding.py)
unit-processes: env-test
	$(VENV) -m pytest $(PROCESSES)

unit-others: env-test
	$(VENV) -m pytest tests --ignore=tests/test_browser.py $(addprefix --ignore=,$(PROCESSES))

# `make test` gives the checks a sample of these. One thread a process: the answers are small.
test-exercises: env-test
	OMP_NUM_THREADS=1 $(VENV) -m tests.mutants $(EXERCISES)

test-browser: env-test
	$(VENV) -m pytest tests/test_browser.py -k "$(BROWSER)"

# PJRT_DEVICE is set here and never in a lesson: on a machine with a TPU a lesson has to find it. Strict are the lessons on
# XLA, whose claims count compilations; in the others, claims about time are information here.
ON_XLA := PYDEVD_DISABLE_FILE_VALIDATION=1 PJRT_DEVICE=CPU TF_CPP_MIN_LOG_LEVEL=2
env-test-tpu:
	@$(PYTHON) tools/setup_env.py --venv .venv-tpu --requirements requirements-tpu.txt --extra lessons --prefer 3.13

test-tpu: tpu-tests tpu-strict tpu-slow tpu-first tpu-second

tpu-tests: env-test-tpu
	$(ON_XLA) $(TPU) -m pytest tests/test_xla.py tests/test_train_xla.py
	$(ON_XLA) $(TPU) -m pytest tests/test_train.py -k xla

tpu-strict: env-test-tpu
	LAB_STRICT=1 $(ON_XLA) $(TPU) $(NBVAL) $(XLA_LESSONS)

tpu-slow: env-test-tpu
	$(if $(filter $(SLOW),$(LESSONS)),$(ON_XLA) $(TPU) $(NBVAL) $(filter $(SLOW),$(LESSONS)))

FIRST := $(foreach n,00 01 02 03 04 05 06 07,notebooks/$(n)_%)
tpu-first: env-test-tpu
	$(ON_XLA) $(TPU) $(NBVAL) $(filter $(FIRST),$(LESSONS))

tpu-second: env-test-tpu
	$(ON_XLA) $(TPU) $(NBVAL) $(filter-out $(FIRST) $(SLOW) $(XLA_LESSONS),$(LESSONS))

env-test-colab:
	@$(PYTHON) tools/setup_env.py --venv .venv-colab --requirements tests/colab-requirements.txt --extra lessons --prefer 3.13

test-colab: env-test-colab
	PYDEVD_DISABLE_FILE_VALIDATION=1 $(COLAB) $(NBVAL) $(LESSONS)

# With the newest PyTorch, as a reader: every cell ends, and what is not as announced is listed.
env-test-next:
	@mkdir -p build
	@sed 's/^torch==.*/torch/' requirements.txt > build/next-requirements.txt
	@$(PYTHON) tools/setup_env.py --venv .venv-next --requirements build/next-requirements.txt --extra lessons --prefer 3.13 --upgrade

test-next: env-test-next
	$(NEXT) $(NBVAL) --findings $(LESSONS)

# A CUDA build of PyTorch above GPUs that do not exist: tests/emulator/README.md.
env-test-cuda:
	@$(PYTHON) tools/setup_env.py --venv .venv-cuda --requirements tests/cuda-requirements.txt --extra lessons --prefer 3.13

test-emulator: env-test-cuda
	$(CUDA) -m tests.emulator.build
	$(CUDA) -m tests.emulator.run --gpus 2 $(CUDA) -m pytest tests/emulator/checks.py

test-cuda: test-emulator
	$(CUDA) -m pytest tests/emulator/bugs.py
	$(CUDA) -m tests.emulator.lessons

# What the emulated device can tell: cells that %%requires marks with --timeless.
record-emulated: env-test-cuda
	$(CUDA) -m tests.emulator.build
	$(CUDA) -m tests.emulator.lessons --record

# Few samples and no judgment about time: here times are a model. What a CPU would compute for minutes is left out.
lab-emulated: env-test-cuda
	$(CUDA) -m tests.emulator.build
	LAB_UNTIMED=1 $(CUDA) -m tests.emulator.run --gflop 20 --mib 600 $(CUDA) tools/lab.py $(LAB_ARGS)

outputs: env-test
	$(VENV) tools/notebooks.py outputs

record: env
	$(VENV) -m utils.record $(LESSONS)

# BENCH_ARGS="--batches 32 --rounds 5 --width 256": options of the comparison, and of train.py.
bench:
	@$(PYTHON) tools/setup_env.py --venv .venv-bench --requirements benchmarks/requirements.txt
	$(BENCH) benchmarks/import_cost.py
	$(BENCH) benchmarks/train_loops.py $(BENCH_ARGS)

format: env-test
	$(VENV) -m ruff format .
	$(VENV) -m ruff check --fix .
	$(VENV) tools/notebooks.py write

lint: env-test
	$(VENV) -m ruff check .
	$(VENV) -m ruff format --check .
	$(VENV) tools/notebooks.py check

clean:
	rm -rf .venv .venv-* build *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -prune -exec rm -rf {} +
