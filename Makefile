# The commands of the course. `make` alone lists them. Every path is relative: the name of
# the folder may have spaces.

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
# BUILD=cpu and the like: which build of PyTorch to install.
SETUP := @$(PYTHON) tools/setup_env.py $(if $(BUILD),--build $(BUILD))

# Run lessons, every code cell, and count the cells. LAB_STRICT: a claim that misses its
# bound is an error. LAB_UNTIMED: few samples, and claims about time are not judged: so
# lessons run beside other work.
NBVAL := -m tools.lessons.plugin
N ?=
LESSONS := $(or $(wildcard notebooks/$(N)*.ipynb),$(error there is no lesson $(N)))
# Lessons that start jobs of many processes: `make test` runs them once, the commands
# below every time.
JOBS :=
# torch_xla exists for Linux on x86-64 only. Elsewhere the second environment is the one
# with a front end like Colab's.
SECOND := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),test-tpu,test-colab)
# What `make test` opens in a browser; `make test-browser` opens all lessons, or N's.
IN_BROWSER = $(N)
SAMPLE := there_are or must_be_seen or 00_start or 13_tpu

.PHONY: help env env-check env-test env-test-tpu env-test-colab env-test-next
.PHONY: env-test-cuda lab lab-emulated format check outputs lint test timed untimed
.PHONY: test-unit test-exercises test-browser test-tpu test-tpu-unit test-tpu-lessons
.PHONY: test-colab test-next test-emulator test-cuda record record-emulated site single
.PHONY: test-site test-single bench clean

help:
	@echo "For readers"
	@echo "make lab             open your copies of the lessons, in the folder work"
	@echo "                     (installs on first use; LAB_ARGS=\"--port 8899\")"
	@echo "make lab-emulated    the same on an emulated Tesla T4 (Linux, g++):"
	@echo "                     numbers and memory real, times modeled"
	@echo "After a change: N=03 names a lesson"
	@echo "make format          bring code, lessons and minutes into the course's form"
	@echo "make check N=03      that form, and every cell of the lesson (about a minute)"
	@echo "make outputs N=03    run the lesson and store its outputs"
	@echo "make lint            check the form of all code, lessons and pages"
	@echo "make test            check everything: style, unit tests, every lesson"
	@echo "More tests; N=03 goes with browser, tpu, colab, next, single"
	@echo "make test-unit       utils, tools and exercises (part of make test)"
	@echo "make test-exercises  every mutant of every solution, against the checks"
	@echo "                     (EXERCISES=\"05 07.1\")"
	@echo "make test-browser    every lesson in a browser (make test: two of them)"
	@echo "make test-tpu        every lesson with torch_xla, on XLA's own CPU device"
	@echo "                     (part of make test)"
	@echo "make test-colab      every lesson with the versions of Colab's GPU runtime"
	@echo "make test-next       every lesson with the newest PyTorch: what it says"
	@echo "                     otherwise than announced"
	@echo "make test-emulator   the emulated CUDA device (Linux, g++)"
	@echo "make test-cuda       that, and every lesson with CUDA cells on it"
	@echo "Recordings, website, files"
	@echo "make record          record what this machine's devices can measure"
	@echo "make record-emulated record what the emulated CUDA device can tell"
	@echo "make site            the website, from lessons as they are stored: dist/site"
	@echo "make single          each lesson as one file: dist/NN_name.ipynb"
	@echo "make test-site       both: every page in a browser, three such files"
	@echo "make test-single     all of them, with Colab's versions and no network"
	@echo "make bench           train.py against Accelerate and Lightning;"
	@echo "                     what importing utils costs"
	@echo "make clean           remove the environments and caches"

env:
	$(SETUP)

# What `env-test` has installed serves here, too.
env-check:
	$(SETUP) --extra check

env-test:
	$(SETUP) --extra test

lab: env
	@$(VENV) tools/lab.py $(LAB_ARGS)

format: env-check
	$(VENV) -m ruff format -q .
	$(VENV) -m ruff check -q --fix-only .
	$(VENV) -m tools.lessons.notebooks write

# LAB_UNTIMED=0: claims about time are judged, too.
LAB_UNTIMED ?= 1
check: env-check
	$(VENV) -m codespell_lib $(LESSONS)
	$(VENV) -m tools.lessons.notebooks check $(LESSONS)
	LAB_STRICT=1 LAB_UNTIMED=$(LAB_UNTIMED) $(VENV) $(NBVAL) $(LESSONS)

outputs: env-check
	$(VENV) -m tools.lessons.notebooks outputs $(LESSONS)

lint: env-check
	$(VENV) -m ruff check .
	$(VENV) -m ruff format --check .
	$(VENV) -m codespell_lib
	$(VENV) -m tools.lessons.notebooks check

# First all that measures nothing, side by side: five at a time keep both cores of a small
# machine busy. Then, with the machine to itself, what judges times.
UNTIMED := lint test-unit untimed $(SECOND) test-browser
test: env-test
	OMP_WAIT_POLICY=passive $(MAKE) -j5 $(UNTIMED) JOBS=--jobs=no IN_BROWSER="$(SAMPLE)"
	$(MAKE) timed
	@$(VENV) -c "from tests.lessons.test_browser import BROWSER; \
	BROWSER or print('NOT TESTED: in a browser (no Chromium)')"

timed: env-test
	LAB_STRICT=1 $(VENV) $(NBVAL) --timed=yes $(LESSONS)
	$(VENV) -m pytest -m timed $(shell grep -rl mark.timed --include="test_*.py" tests)

untimed: env-test
	LAB_STRICT=1 $(VENV) $(NBVAL) --timed=no $(LESSONS)

# One thread a process, here and below: what they compute is small, the cores are busy.
test-unit: env-test
	OMP_NUM_THREADS=1 $(VENV) -m pytest tests -n 2 --dist loadfile -m "not timed" \
	    --ignore=tests/lessons/test_browser.py --ignore=tests/site/built

# The listed answers, and mutants of the solutions, of which `make test` takes a sample.
SPACE := $() $()
test-exercises: env-test
	OMP_NUM_THREADS=1 $(VENV) -m pytest tests/exercises/test_exercises.py \
	    -k "$(subst $(SPACE), or ,$(strip $(EXERCISES)))"
	OMP_NUM_THREADS=1 $(VENV) -m tests.exercises.mutants $(EXERCISES)

test-browser: env-test
	LAB_UNTIMED=1 $(VENV) -m pytest -rs tests/lessons/test_browser.py -k "$(IN_BROWSER)"

# The other environments: with the newest Python that all packages have.
OTHER := --extra lessons --prefer 3.13

# PJRT_DEVICE is set here and never in a lesson: on a machine with a TPU a lesson has to
# find it.
ON_XLA := PYDEVD_DISABLE_FILE_VALIDATION=1 PJRT_DEVICE=CPU TF_CPP_MIN_LOG_LEVEL=2
env-test-tpu:
	$(SETUP) --venv .venv-tpu --requirements requirements-tpu.txt $(OTHER)

test-tpu: test-tpu-unit test-tpu-lessons

test-tpu-unit: env-test-tpu
	$(ON_XLA) $(TPU) -m pytest -k xla tests/utils/test_xla.py \
	    tests/scripts/test_train_xla.py tests/scripts/test_train.py

test-tpu-lessons: env-test-tpu
	OMP_NUM_THREADS=1 LAB_STRICT=1 LAB_UNTIMED=1 $(ON_XLA) \
	    $(TPU) $(NBVAL) $(JOBS) $(LESSONS)

env-test-colab:
	$(SETUP) --venv .venv-colab --requirements tests/colab-requirements.txt $(OTHER)

test-colab: env-test-colab
	LAB_STRICT=1 LAB_UNTIMED=1 PYDEVD_DISABLE_FILE_VALIDATION=1 \
	    $(COLAB) $(NBVAL) $(JOBS) $(LESSONS)

# With the newest PyTorch, as a reader: every cell ends, and what is not as announced is
# listed.
env-test-next:
	@mkdir -p build
	@sed 's/^torch==.*/torch/' requirements.txt > build/next-requirements.txt
	$(SETUP) --venv .venv-next --requirements build/next-requirements.txt $(OTHER) --upgrade

test-next: env-test-next
	$(NEXT) $(NBVAL) --findings $(LESSONS)

# A CUDA build of PyTorch above GPUs that do not exist: emulator/README.md.
env-test-cuda:
	$(SETUP) --venv .venv-cuda --requirements emulator/requirements.txt $(OTHER) \
	    --build plain

test-emulator: env-test-cuda
	$(CUDA) -m emulator.build
	$(CUDA) -m emulator.run --gpus 2 $(CUDA) -m pytest tests/emulator/checks.py

test-cuda: test-emulator
	$(CUDA) -m pytest tests/emulator/bugs.py
	$(CUDA) -m tools.lessons.emulated

# What the emulated device can tell: cells that %%requires marks with --timeless.
record-emulated: env-test-cuda
	$(CUDA) -m emulator.build
	$(CUDA) -m tools.lessons.emulated --record

# Few samples and no judgment about time: here times are a model. What a CPU would compute
# for minutes is left out.
lab-emulated: env-test-cuda
	$(CUDA) -m emulator.build
	LAB_UNTIMED=1 $(CUDA) -m emulator.run --gflop 20 --mib 600 \
	    $(CUDA) tools/lab.py $(LAB_ARGS)

record: env
	$(VENV) tools/record.py $(LESSONS)

site: env-test single
	$(VENV) -m tools.site.website

single: env-test
	$(VENV) -m tools.site.single

# Of the single files a sample, in the environment that is there: `make test-single`
# installs Colab's and runs all.
test-site: site
	LAB_SINGLE_IN=.venv $(VENV) -m pytest -rs tests/site/built \
	    -k "not runs_alone or 00_ or 05_ or 13_"

test-single: env-test env-test-colab
	$(VENV) -m pytest -n 2 tests/site/built/test_single.py -k "$(N)"

# BENCH_ARGS="--batches 32 --rounds 5 --width 256": options of the comparison, and of
# train.py.
bench:
	$(SETUP) --venv .venv-bench --requirements benchmarks/requirements.txt
	$(BENCH) -m benchmarks.import_cost
	$(BENCH) -m benchmarks.train_loops $(BENCH_ARGS)

clean:
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -prune -exec rm -rf {} +
