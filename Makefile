# Needs only make and Python 3.11 to 3.14: each target installs what it uses, `make train` the package alone.
# ARGS is passed on: make train ARGS="--config.seed=1", make test ARGS="tests/config/test_config.py -x".

VENV := .venv
BIN := $(VENV)/bin
# Further extras of the package, such as cuda12; .ci/run adds tpu, to compile for TPUs.
EXTRAS :=
ARGS :=

# The first Python that really runs (version managers leave shims that do not) and can make a venv.
PYTHON ?= $(or $(shell for python in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$python .ci/check_python.py >/dev/null 2>&1 && { echo $$python; break; }; done),python3)

# Takes uv if there is one, else pip; returns at once if the environment has these extras already.
INSTALL = @command -v $(PYTHON) >/dev/null || \
	{ echo "error: $(PYTHON) is not installed; jaxrl needs Python 3.11 to 3.14" >&2; exit 1; }; \
	$(PYTHON) .ci/check_python.py && $(PYTHON) .ci/install.py $(VENV) $(EXTRAS)

# Each says what it finds, also after another has found something.
LINT = failed=; for linter in 'ruff check .' 'ruff format --check .' 'mypy $(MYPY)'; do \
	echo "$$linter"; $(BIN)/python -m $$linter || failed=yes; done; [ -z "$$failed" ]

# Of the timed targets, in hours; and the run folders of `make compare` and `make evaluate`: the newest.
DURATION := 1
SEQUENTIAL = $(lastword $(sort $(wildcard runs/ppo_sequential/*)))
PARALLEL = $(lastword $(sort $(wildcard runs/ppo_parallel/*)))
RUN = $(patsubst %/config.json,%,$(shell ls -t runs/*/config.json runs/*/*/config.json 2>/dev/null | head -n 1))

.PHONY: setup tools procgen train train-sequential train-parallel train-timed train-parallel-timed compare evaluate \
	test test-slow test-long test-faults test-mutants smoke lint docs dist lock clean

setup:
	$(INSTALL)

# What tests and linters need.
tools:
	$(INSTALL) dev

procgen:
	$(INSTALL) procgen

train: setup
	$(BIN)/python -m jaxrl.main --config=configs/ppo.py $(ARGS)

# docs/how_to/modes.md; a short form: ARGS=--quick.
train-sequential train-parallel: procgen
	$(BIN)/jaxrl train ppo_$(@:train-%=%) $(ARGS)

train-timed: procgen
	$(BIN)/jaxrl train ppo_sequential --duration=$(DURATION) $(ARGS)

train-parallel-timed: procgen
	$(BIN)/jaxrl train ppo_parallel --duration=$(DURATION) $(ARGS)

compare:
	$(INSTALL) compare
	$(BIN)/jaxrl compare --sequential=$(SEQUENTIAL) --parallel=$(PARALLEL) --output=runs/comparison $(ARGS)

evaluate: procgen
	$(BIN)/jaxrl evaluate $(RUN) $(ARGS)

# The linters run beside the tests, and what they found comes last; either fails it. mypy in one process: its
# workers wait ten seconds for one another, and on busy cores they need longer.
test: MYPY := --num-workers=0
test: tools
	@{ $(LINT); } >$(VENV)/lint.log 2>&1 & linters=$$!; \
	$(BIN)/python -m pytest $(ARGS); tests=$$?; \
	wait $$linters; linted=$$?; cat $(VENV)/lint.log; \
	[ $$tests = 0 ] && [ $$linted = 0 ]

test-slow: tools
	$(BIN)/python -m pytest -m "slow and not long" $(ARGS)

test-long: tools
	$(BIN)/python -m pytest -m long $(ARGS)

# Bugs put in on purpose, one after the other; some of them: make test-mutants ARGS="envs/native her_k".
test-mutants: tools
	$(BIN)/python .ci/mutants.py $(ARGS)

# One process at a time: what is measured there are seconds.
test-faults: tools
	$(BIN)/python -m pytest -m faults -n 0 tests/faults $(ARGS)

lint: tools
	@$(LINT)

# The site, in site/; a broken link fails.
docs:
	$(INSTALL) docs
	PYTHONPATH=. NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)

# Builds wheel and sdist into dist/, and tries the wheel in an environment of its own.
dist:
	$(INSTALL) dev release
	$(BIN)/python .ci/dist.py

# Tries the wheel with another Python and the newest versions, four minutes; .ci/run does so at its end.
smoke: setup
	$(BIN)/python .ci/smoke.py $(ARGS)

# Resolves the newest versions that pyproject.toml admits and pins them, for Python 3.11 and for later ones.
lock:
	$(PYTHON) .ci/lock.py

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
