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
# What `make test-all` takes of the lessons, of which each week runs all: those with cells
# for XLA, and those with ten claims about time and more.
XLA := $(wildcard $(addsuffix _*,$(addprefix notebooks/,01 04 13 16)))
TIMED := $(wildcard $(addsuffix _*,$(addprefix notebooks/,04 06 09)))
# Of tests: pytest's -m.
MARK ?=

.PHONY: help help-all env env-check env-test env-test-tpu env-test-colab env-test-next
.PHONY: env-test-cuda env-test-torchtpu lab lab-emulated format check outputs lint minutes
.PHONY: test test-all test-torchtpu
.PHONY: test-unit test-slow test-lessons test-timed test-exercises test-browser
.PHONY: test-tpu test-tpu-unit test-tpu-lessons test-colab test-emulated test-cuda
.PHONY: test-next test-next-unit test-next-lessons record record-emulated site test-site
.PHONY: bench capstone clean release sheet slides test-package

help:
	@echo "make lab             open your copies of the lessons, in the folder work"
	@echo "                     (installs on first use; LAB_ARGS=\"--port 8899\")"
	@echo "make capstone        after the lessons: judge your mended work/capstone.py"
	@echo "make format          after a change: bring code and lessons into their form"
	@echo "make check N=03      that form, and every cell of lesson 03 (about a minute)"
	@echo "make test            every lesson once, the unit tests, the form of all"
	@echo "make help-all        all commands"

help-all: help
	@echo "Lessons"
	@echo "make outputs N=03    run the lesson and store its outputs"
	@echo "                     (CELL=\"id id\": those of these cells alone)"
	@echo "make lint            check the form of all code, lessons and pages"
	@echo "make minutes N=03    how long the lesson takes a reader, section by section"
	@echo "make lab-emulated    make lab on an emulated Tesla T4 (Linux, g++):"
	@echo "                     numbers and memory real, times modeled"
	@echo "Parts of make test"
	@echo "make test-unit       the unit tests but for those marked slow"
	@echo "make test-lessons    every lesson; times are not judged"
	@echo "make test-package P=torch_messages   the tests of one package"
	@echo "All that CI tests (Linux on x86-64)"
	@echo "make test-all        make test, and what follows"
	@echo "make test-timed      the lessons and tests that judge times"
	@echo "make test-slow       the unit tests that start processes or kernels"
	@echo "make test-tpu        lessons with torch_xla, on XLA's own CPU device"
	@echo "make test-cuda       the emulated CUDA device, and lessons on it (g++)"
	@echo "make test-emulated   the emulated CUDA device alone"
	@echo "make test-browser    lessons in a browser"
	@echo "make test-site       the website, every page in a browser"
	@echo "More, each week; N=03 goes with tpu, browser, colab, next, too"
	@echo "make test-colab      every lesson with the versions of Colab's GPU runtime"
	@echo "make test-next       with the newest PyTorch: the tests of kit and exercises, and"
	@echo "                     what lessons say otherwise than announced"
	@echo "make test-torchtpu   lessons 13, 03 and 08 under TorchTPU, on XLA's CPU device"
	@echo "                     (Linux on x86-64, cc)"
	@echo "make test-exercises  every mutant of every solution, against the checks"
	@echo "                     (EXERCISES=\"05 07.1\")"
	@echo "Recordings, website, files"
	@echo "make record          record what this machine's devices can measure"
	@echo "make record-emulated record what the emulated CUDA device can tell"
	@echo "make site            the website, from lessons as they are stored: dist/site"
	@echo "make release         wheels, PDF, website and notes: dist/release"
	@echo "make sheet           the cheat sheet for a wall, A4: dist/sheet.pdf (Chromium)"
	@echo "make slides          slides for two hours, as HTML and PDF: dist/slides"
	@echo "make bench           train.py against Accelerate and Lightning;"
	@echo "                     what importing utils, what a look-up costs"
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

# FILE=other.py: that one. Threads that wait leave the cores to those that work.
capstone: env
	@OMP_WAIT_POLICY=passive $(VENV) -m tools.capstone $(FILE)

format: env-check
	$(VENV) -m ruff format -q .
	$(VENV) -m ruff check -q --fix-only .
	$(VENV) -m tools.lessons.notebooks write
	$(VENV) -m tools.lessons.places write

# LAB_UNTIMED=0: claims about time are judged, too.
LAB_UNTIMED ?= 1
check: env-check
	$(VENV) -m codespell_lib $(LESSONS)
	$(VENV) -m tools.lessons.notebooks check $(LESSONS)
	LAB_STRICT=1 LAB_UNTIMED=$(LAB_UNTIMED) $(VENV) $(NBVAL) $(LESSONS)

# CELL="exercise-6 recipe": of these cells alone.
outputs: env-check
	$(VENV) -m tools.lessons.outputs $(LESSONS) $(if $(CELL),--cells $(CELL))

ON_PATH := packages/device_lab:packages/torch_messages:packages/emulated_cuda
lint: env-check
	$(VENV) -m ruff check .
	$(VENV) -m ruff format --check .
	PYTHONPATH=$(ON_PATH) .venv/$(BIN)/lint-imports --no-cache --no-logo
	$(VENV) -m codespell_lib
	$(VENV) -m tools.lessons.notebooks check
	$(VENV) -m tools.lessons.places check

minutes: env-check
	$(VENV) -m tools.lessons.minutes $(LESSONS)

# Five processes keep both cores of a small machine busy; the last line says what ran.
test: env-test
	OMP_WAIT_POLICY=passive $(MAKE) -j3 lint test-unit test-lessons
	@$(VENV) -m tools.tally

# Here and below one thread a process: what they compute is small, the cores are busy.
PACKAGES := $(wildcard packages/*/tests)
UNIT := -m pytest tests $(PACKAGES) --ignore=tests/lessons/test_browser.py \
    --ignore=tests/site/built
TWO := -n 2 --dist worksteal
test-unit: env-test
	OMP_NUM_THREADS=1 $(VENV) $(UNIT) $(TWO) -m "not slow and not timed and not weekly" \
	    --junitxml=build/unit-tests.xml

# P=torch_messages: one of packages/, its own tests.
test-package: env-test
	$(VENV) -m pytest packages/$(P) -m "not timed"

test-slow: env-test
	OMP_NUM_THREADS=1 $(VENV) $(UNIT) $(TWO) -m "slow and not timed"

test-lessons: env-test
	LAB_STRICT=1 LAB_UNTIMED=1 $(VENV) $(NBVAL) -n 2 --dist loadfile $(LESSONS)

# First what judges times, with the machine to itself. Last the website, whose explorers
# the slow tests have drawn. MARK, LESSONS, EMULATED: what every week runs whole runs in
# part.
IN_PART := MARK="not weekly" LESSONS="$(XLA)" EMULATED=--once
test-all: test
	$(MAKE) test-timed LESSONS="$(TIMED)"
	OMP_WAIT_POLICY=passive $(MAKE) -j2 test-slow test-cuda test-tpu test-browser \
	    $(IN_PART)
	$(MAKE) test-site $(IN_PART)

test-timed: env-test
	LAB_STRICT=1 $(VENV) $(NBVAL) --timed $(LESSONS)
	$(VENV) $(UNIT) -m timed

# The listed answers, and mutants of the solutions.
SPACE := $() $()
test-exercises: env-test
	OMP_NUM_THREADS=1 $(VENV) -m tests.exercises.mutants $(EXERCISES)
	OMP_NUM_THREADS=1 $(VENV) -m pytest tests/exercises/test_exercises.py \
	    -k "$(subst $(SPACE), or ,$(strip $(EXERCISES)))"

test-browser: env-test
	LAB_UNTIMED=1 $(VENV) -m pytest -rs tests/lessons/test_browser.py -k "$(N)" \
	    -m "$(MARK)"

# The other environments: with the newest Python that all packages have.
OTHER := --extra lessons --prefer 3.13

# PJRT_DEVICE is set here and never in a lesson: on a machine with a TPU a lesson has to
# find it.
ON_XLA := PYDEVD_DISABLE_FILE_VALIDATION=1 PJRT_DEVICE=CPU TF_CPP_MIN_LOG_LEVEL=2
env-test-tpu:
	$(SETUP) --venv .venv-tpu --requirements requirements-tpu.txt $(OTHER)

test-tpu: test-tpu-unit test-tpu-lessons

test-tpu-unit: env-test-tpu
	$(ON_XLA) $(TPU) -m pytest -m xla tests/utils packages/device_lab/tests \
	    tests/scripts/test_train_xla.py tests/scripts/test_train.py

test-tpu-lessons: env-test-tpu
	OMP_NUM_THREADS=1 LAB_STRICT=1 LAB_UNTIMED=1 $(ON_XLA) \
	    $(TPU) $(NBVAL) $(LESSONS)

env-test-colab:
	$(SETUP) --venv .venv-colab --requirements tests/colab-requirements.txt $(OTHER)

# TorchTPU on XLA's CPU device, by a shim: tests/torchtpu/. No TPU takes part.
env-test-torchtpu:
	$(SETUP) --venv .venv-torchtpu --requirements requirements-torchtpu.txt $(OTHER)

test-torchtpu: env-test env-test-torchtpu
	$(VENV) -m pytest -rs tests/torchtpu

test-colab: env-test-colab
	LAB_STRICT=1 LAB_UNTIMED=1 PYDEVD_DISABLE_FILE_VALIDATION=1 \
	    $(COLAB) $(NBVAL) $(LESSONS)

# With the newest PyTorch, as a reader: every cell ends, and what is not as announced is
# listed.
env-test-next:
	@mkdir -p build
	@sed 's/^torch==.*/torch/' requirements.txt > build/next-requirements.txt
	$(SETUP) --venv .venv-next --requirements build/next-requirements.txt $(OTHER) --upgrade

# The tests of the kit, of what lessons share, and of the exercises. -k: what one finds
# does not hide what the other does.
ON_NEXT := tests/utils tests/simulate tests/exercises packages/device_lab/tests
test-next: env-test-next
	$(MAKE) -k test-next-unit test-next-lessons

test-next-unit: env-test-next
	OMP_NUM_THREADS=1 $(NEXT) -m pytest $(ON_NEXT) -m "not timed"

test-next-lessons: env-test-next
	$(NEXT) $(NBVAL) --findings $(LESSONS)

# A CUDA build of PyTorch above GPUs that do not exist: packages/emulated_cuda.
env-test-cuda:
	$(SETUP) --venv .venv-cuda --requirements tests/cuda-requirements.txt $(OTHER) \
	    --build plain

test-emulated: env-test-cuda
	$(CUDA) -m emulated_cuda.run --gpus 2 $(CUDA) -m pytest \
	    packages/emulated_cuda/tests/checks.py
	$(CUDA) -m emulated_cuda.run $(CUDA) -m pytest \
	    packages/device_lab/tests/cuda_*.py -m "not timed$(if $(MARK), and $(MARK))"

# Each lesson twice in one kernel on a T4, and once on an H200 that asks which GPU it has;
# EMULATED=--once: each once, on a T4.
test-cuda: test-emulated
	$(CUDA) -m pytest tests/lessons/bugs_on_cuda.py tests/tools/capstone_on_cuda.py \
	    -m "$(MARK)"
	$(CUDA) -m tools.lessons.emulated $(EMULATED)

# What the emulated device can tell: cells that are marked timeless.
record-emulated: env-test-cuda
	$(CUDA) -m tools.lessons.emulated --record

# Few samples and no judgment about time: here times are a model. What a CPU would compute
# for minutes is left out.
lab-emulated: env-test-cuda
	LAB_UNTIMED=1 $(CUDA) -m emulated_cuda.run --gflop 20 --mib 600 \
	    $(CUDA) tools/lab.py $(LAB_ARGS)

record: env
	$(VENV) tools/record.py $(LESSONS)

site: env-test
	$(VENV) -m tools.site.website

# TAG=v0.2.0: that release; without, a rehearsal.
release: env-test
	$(VENV) -m tools.release $(TAG)

sheet: env-test
	@mkdir -p dist
	$(VENV) -m tools.site.sheet dist/sheet.pdf

slides: env-test
	$(VENV) -m tools.site.slides

test-site: site
	$(VENV) -m pytest -rs tests/site/built $(TWO) -m "$(MARK)"

# BENCH_ARGS="--batches 32 --rounds 5 --width 256": options of the comparison, and of
# train.py.
bench:
	$(SETUP) --venv .venv-bench --requirements benchmarks/requirements.txt
	$(BENCH) -m benchmarks.import_cost
	$(BENCH) -m benchmarks.look_up
	$(BENCH) -m benchmarks.train_loops $(BENCH_ARGS)

clean:
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -prune -exec rm -rf {} +
