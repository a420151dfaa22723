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

# Run lessons, every code cell, and count the cells. LAB_STRICT: a claim that misses its bound is an error. LAB_UNTIMED:
# few samples, and claims about time are not judged: so lessons run beside other work.
NBVAL := -m tests.lessons.plugin
N ?=
LESSONS := $(wildcard notebooks/$(N)*.ipynb)
# Lessons that start jobs of many processes: `make test` runs them once, the commands below every time.
JOBS :=
# torch_xla exists for Linux on x86-64 only. Elsewhere the second environment is the one with a front end like Colab's.
SECOND := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),test-tpu,test-colab)
# What `make test` opens in a browser; `make test-browser` opens all lessons, or the one of N.
IN_BROWSER = $(N)
SAMPLE := there_are or must_be_seen or 00_start or 13_tpu

.PHONY: help lab test lesson timed untimed test-unit test-exercises test-browser test-tpu test-tpu-unit test-tpu-lessons test-colab test-next test-emulator test-cuda record-emulated lab-emulated outputs record site single test-site test-single bench format lint clean env env-test env-test-tpu env-test-colab env-test-next env-test-cuda

help:
	@echo "make lab             open your copies of the lessons, in the folder work (installs on first use; LAB_ARGS=\"--port 8899\")"
	@echo "make lab-emulated    the same on an emulated Tesla T4 (Linux, g++): numbers and memory real, times modeled"
	@echo "make test            check everything: style, unit tests, every cell of every lesson"
	@echo "make lesson N=05     run one lesson as the tests do; N=05 goes with test-browser, test-tpu, test-colab, record, too"
	@echo "make test-unit       check utils, tools and exercises (part of make test)"
	@echo "make test-exercises  give every mutant of every solution to the checks of the exercises (EXERCISES=\"05 07.1\")"
	@echo "make test-browser    run every lesson in JupyterLab in a browser (make test: two of them)"
	@echo "make test-tpu        run every lesson with torch_xla, on XLA's own CPU device (part of make test)"
	@echo "make test-colab      run every lesson with the versions of Colab's GPU runtime"
	@echo "make test-next       run every lesson with the newest PyTorch and list what it says otherwise than announced"
	@echo "make test-emulator   build the emulated CUDA device (Linux, g++) and check that it behaves as a GPU does"
	@echo "make test-cuda       that, and run every lesson with CUDA cells on emulated GPUs"
	@echo "make outputs         run the lessons and store their outputs"
	@echo "make site            build the website from the lessons as they are stored: dist/site"
	@echo "make single          write each lesson as one file that needs no course beside it: dist/NN_name.ipynb"
	@echo "make test-site       check both: every page in a browser, three such files"
	@echo "make test-single     run all of them in an empty folder, with Colab's versions and no network"
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

# First all that measures nothing, side by side: five at a time keep both cores of a small machine busy. Then, with the
# machine to itself, what judges times.
test:
	OMP_WAIT_POLICY=passive $(MAKE) -j5 lint test-unit untimed $(SECOND) test-browser JOBS=--jobs=no IN_BROWSER="$(SAMPLE)"
	$(MAKE) timed
	@$(VENV) -c "from tests.lessons.test_browser import BROWSER; BROWSER or print('NOT TESTED: in a browser (no Chromium)')"

lesson: env-test
	LAB_STRICT=1 $(VENV) $(NBVAL) $(LESSONS)

timed: env-test
	LAB_STRICT=1 $(VENV) $(NBVAL) --timed=yes $(LESSONS)
	$(VENV) -m pytest -m timed $(shell grep -rl mark.timed --include="test_*.py" tests)

untimed: env-test
	LAB_STRICT=1 $(VENV) $(NBVAL) --timed=no $(LESSONS)

# One thread a process, here and below: what they compute is small, and the cores are busy.
test-unit: env-test
	OMP_NUM_THREADS=1 $(VENV) -m pytest tests -n 2 --dist loadfile -m "not timed" --ignore=tests/lessons/test_browser.py --ignore=tests/site/built

# `make test` gives the checks a sample of these.
test-exercises: env-test
	OMP_NUM_THREADS=1 $(VENV) -m tests.exercises.mutants $(EXERCISES)

test-browser: env-test
	LAB_UNTIMED=1 $(VENV) -m pytest -rs tests/lessons/test_browser.py -k "$(IN_BROWSER)"

# PJRT_DEVICE is set here and never in a lesson: on a machine with a TPU a lesson has to find it.
ON_XLA := PYDEVD_DISABLE_FILE_VALIDATION=1 PJRT_DEVICE=CPU TF_CPP_MIN_LOG_LEVEL=2
env-test-tpu:
	@$(PYTHON) tools/setup_env.py --venv .venv-tpu --requirements requirements-tpu.txt --extra lessons --prefer 3.13

test-tpu: test-tpu-unit test-tpu-lessons

test-tpu-unit: env-test-tpu
	$(ON_XLA) $(TPU) -m pytest tests/utils/test_xla.py tests/scripts/test_train_xla.py tests/scripts/test_train.py -k xla

test-tpu-lessons: env-test-tpu
	OMP_NUM_THREADS=1 LAB_STRICT=1 LAB_UNTIMED=1 $(ON_XLA) $(TPU) $(NBVAL) $(JOBS) $(LESSONS)

env-test-colab:
	@$(PYTHON) tools/setup_env.py --venv .venv-colab --requirements tests/colab-requirements.txt --extra lessons --prefer 3.13

test-colab: env-test-colab
	LAB_STRICT=1 LAB_UNTIMED=1 PYDEVD_DISABLE_FILE_VALIDATION=1 $(COLAB) $(NBVAL) $(JOBS) $(LESSONS)

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
	$(VENV) -m tools.lessons.notebooks outputs

record: env
	$(VENV) tools/record.py $(LESSONS)

site: env-test single
	$(VENV) -m tools.site.website

single: env-test
	$(VENV) -m tools.site.single

# Of the single files a sample, in the environment that is there: `make test-single` installs Colab's and runs all.
test-site: site
	LAB_SINGLE_IN=.venv $(VENV) -m pytest -rs tests/site/built -k "not runs_alone or 00_ or 05_ or 13_"

test-single: env-test env-test-colab
	$(VENV) -m pytest -n 2 tests/site/built/test_single.py -k "$(N)"

# BENCH_ARGS="--batches 32 --rounds 5 --width 256": options of the comparison, and of train.py.
bench:
	@$(PYTHON) tools/setup_env.py --venv .venv-bench --requirements benchmarks/requirements.txt
	$(BENCH) benchmarks/import_cost.py
	$(BENCH) benchmarks/train_loops.py $(BENCH_ARGS)

format: env-test
	$(VENV) -m ruff format .
	$(VENV) -m ruff check --fix .
	$(VENV) -m tools.lessons.notebooks write

lint: env-test
	$(VENV) -m ruff check .
	$(VENV) -m ruff format --check .
	$(VENV) -m codespell_lib
	$(VENV) -m tools.lessons.notebooks check

clean:
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -prune -exec rm -rf {} +
