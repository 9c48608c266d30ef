# Everything that a user or contributor runs. Needs Python 3.11 or newer with pip and venv, and make.

PYTHON ?= python3
ARGS :=

VENV := .venv
BIN := $(VENV)/bin
# Written last, so that an installation cut short is done again and a finished one is not.
INSTALLED := $(VENV)/.undertow-installed
# Three at a time, since some of them wait for servers and time limits. Threads that wait must sleep: spinning ones take the processor from the other half of the tests.
# And modules are compiled once, not in every process that a test starts, whatever the environment says of bytecode.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_WAIT_POLICY=passive $(BIN)/pytest -n 3 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help install demo test soak fast check format docs audit bench clean distclean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED)  ## prepare .venv with the `undertow` command in it

demo: install  ## fetch the default model, run the main audit, say where the report is
	$(BIN)/undertow demo

test: install  ## run every test but the longest; ARGS="-k word" narrows them
	$(BIN)/undertow pull smollm2
	$(PYTEST) -m "not soak" $(ARGS)

soak: install  ## run the longest tests; all of them write docs/soak.md: what they measured
	$(BIN)/undertow pull smollm2
	@mkdir -p build && rm -f build/soak.xml
	$(PYTEST) -m soak --junitxml=build/soak.xml $(ARGS); ended=$$?; $(if $(ARGS),,test ! -f build/soak.xml || $(BIN)/python tests/soak_page.py build/soak.xml;) exit $$ended

fast: install  ## run the tests that are quick and need no model
	$(PYTEST) -m "not slow and not model" $(ARGS)

check: install  ## format and lint rules, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: install  ## put the code into the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: install  ## make the site of the documentation, to be opened from disk
	$(BIN)/mkdocs build
	@echo "Open site/index.html"

audit: install  ## ask an advisory service whether a pinned package has a known hole
	$(BIN)/pip-audit --strict --disable-pip --no-deps -r constraints.txt

bench: install  ## measure speed beside other tools, in an environment of its own
	PYTHON="$(CURDIR)/$(BIN)/python" sh benchmarks/run.sh $(ARGS)

clean:  ## remove what building and checking left behind
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests benchmarks examples -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean  ## remove the environments too
	rm -rf $(VENV) .venv-bench

# An environment that is broken, or that was made by an older Python, is made anew.
$(INSTALLED): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	  echo "Undertow needs Python 3.11 or newer, and there is no '$(PYTHON)' here: install it, or name yours with 'make PYTHON=/path/to/python3.11 ...'." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Undertow needs Python 3.11 or newer, and '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1): name a newer one with 'make PYTHON=/path/to/python3.11 ...'." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make a virtual environment: install its venv package (on Debian and Ubuntu: python3-venv)." >&2; exit 1; }
	@rm -f $@
	@"$(BIN)/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || "$(PYTHON)" -m venv --clear $(VENV)
	@echo "Setting up $(VENV) with the packages of constraints.txt: a few minutes, the first time."
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[models,api,ray,app,docs,dev]'
	@touch $@
