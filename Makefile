# Ringside. `make` or `make help` lists what there is; ARGS passes arguments on.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed
ARGS   ?=
BENCH  ?= limits
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install run run-cgroup doctor eval play test check lint stress bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv and install what requirements.lock names

# torch comes first and alone, so that nothing else decides which build of it is taken. pip would compile on one core,
# and tests of packages, too; some files of packages are templates, which are not Python.
$(STAMP): requirements.lock setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
	    sys.exit(0 if (3, 11) <= v < (3, 14) else "Ringside needs Python 3.11 to 3.13; this is %d.%d. \
	Name another: make PYTHON=python3.12 ..." % v)'
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --no-compile --constraint requirements.lock "$$(grep ^torch== requirements.lock)"
	$(PIP) install --quiet --no-compile -r requirements.lock
	$(PIP) install --quiet --no-compile --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -qq -x '/tests?/' --workers 0 $(VENV)/lib || true
	@touch $(STAMP)

run: ARGS := $(if $(ARGS),$(ARGS),--game breakout)
run: install ## train; ARGS="--game breakout" unless given
	$(BIN)/python launch.py $(ARGS)

run-cgroup: ARGS := $(if $(ARGS),$(ARGS),--game breakout)
run-cgroup: install ## train as one systemd unit; ARGS="--cpus 8 --memory 16G --actors 6"
	$(BIN)/python launch.py --cgroup $(ARGS)

doctor: install ## examine the machine; ARGS="--game breakout" for a run
	$(BIN)/python launch.py doctor $(ARGS)

eval: install ## evaluate; ARGS="--load RUN_OR_CHECKPOINT --episodes 30"
	$(BIN)/python launch.py eval $(ARGS)

play: ARGS := $(if $(ARGS),$(ARGS),--load pong)
play: install ## watch the Pong agent of the zoo; ARGS="--load RUN --video FILE.mp4" for another, or a video
	$(BIN)/python launch.py play $(ARGS)

# Three files at a time, in the order of their names: a run that a test starts leaves a part of two cores idle. The
# order puts files that start runs first, so that the workers end together. More threads would wait for one another.
test: install ## all tests but the long ones
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not stress" --numprocesses 3 --dist loadfile --no-loadscope-reorder \
		--max-worker-restart 0 $(ARGS)

check: install ## lint, types, tests
	$(MAKE) --jobs 2 lint test

lint: install ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

stress: install ## the long tests
	$(BIN)/python -m pytest -m stress $(ARGS)

bench: install ## measure this machine; BENCH=throughput ARGS="--json FILE" for another benchmark
	$(BIN)/python -m benchmarks $(BENCH) $(ARGS)

clean: ## remove caches, build products, .venv and .venv-peers; runs/ stays
	rm -rf $(VENV) .venv-peers build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
