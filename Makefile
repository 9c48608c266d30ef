# Everything that a user or contributor runs. Needs Python 3.11 or newer with pip and venv, and make.

PYTHON ?= python3
ARGS :=
# Tests run in one order; `make test ORDER=` shuffles them, and prints the seed that repeats the shuffle.
ORDER := -p no:randomly

BIN := .venv/bin
# Each target installs what it needs into .venv, once.
INSTALL := @command -v "$(PYTHON)" >/dev/null || { echo "Undertow needs Python 3.11 or newer, and there is no '$(PYTHON)' here: name yours with make PYTHON=..." >&2; exit 1; }; \
  "$(PYTHON)" tools/install.py
ALL := models api ray app docs dev
# tests/conftest.py says how many workers `auto` is. Their threads sleep while they wait, instead of spinning, and small matrices are
# multiplied in one thread. Modules are compiled once, not in every process that a test starts.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help install demo test gpu golden soak fast check format validity docs audit bench clean distclean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install:  ## prepare .venv with the `undertow` command and everything for working on it
	$(INSTALL) $(ALL)

demo:  ## fetch the default model, run the main audit, say where the report is
	$(INSTALL) models
	@$(BIN)/undertow demo

test:  ## run every test but the longest; ARGS="-k word" narrows them
	$(INSTALL) $(ALL)
	@$(BIN)/undertow pull smollm2
	$(PYTEST) $(ORDER) -m "not soak" $(ARGS)

gpu:  ## run the goldens and the tests of the GPU on the GPU of this machine
	$(INSTALL) $(ALL)
	@$(BIN)/undertow pull smollm2
	$(BIN)/pytest --gpu tests/golden tests/models/test_gpu.py $(ARGS)

golden:  ## keep the results of today in tests/golden/tables; `git diff` shows what changed
	$(INSTALL) $(ALL)
	$(BIN)/pytest tests/golden --update-goldens
	@git --no-pager diff --stat -- tests/golden

fast:  ## run the tests that are quick and need no model
	$(INSTALL) $(ALL)
	$(PYTEST) $(ORDER) -m "not soak and not slow and not model" $(ARGS)

soak:  ## run the longest tests, in a random order and with random examples
	$(INSTALL) $(ALL)
	@$(BIN)/undertow pull smollm2
	$(PYTEST) -m soak --hypothesis-profile=random $(ARGS)

check:  ## format and lint rules, types, import contracts
	$(INSTALL) $(ALL)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format:  ## put the code into the project's format
	$(INSTALL) dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

validity:  ## simulate audits whose truth is known, and write docs/development/validity-tables.md
	$(INSTALL) models
	$(BIN)/python -m tools.validity

docs:  ## make the site of the documentation, to be opened from disk
	$(INSTALL) docs
	$(BIN)/mkdocs build
	@echo "Open site/index.html"

audit:  ## ask an advisory service whether a pinned package has a known hole
	$(INSTALL) dev
	$(BIN)/pip-audit --strict --disable-pip --no-deps -r constraints.txt

bench:  ## measure speed beside other tools, in an environment of its own
	PYTHON="$(PYTHON)" sh benchmarks/run.sh $(ARGS)

clean:  ## remove what building and checking left behind
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests benchmarks examples -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean  ## remove the environments too
	rm -rf .venv .venv-bench
