# Everything a person or a continuous-integration job runs, from a fresh clone on. `make` lists the targets.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# A distribution's Python is compiled for speed; one that pyenv compiled takes a sixth more for everything here.
SYSTEM_PYTHON := /usr/bin/python3
FITS := 'import ensurepip, sys; sys.exit(sys.version_info < (3, 10))'
PYTHON ?= $(if $(shell $(SYSTEM_PYTHON) -c $(FITS) 2>/dev/null && echo yes),$(SYSTEM_PYTHON),python3)
ARGS ?=
PYTEST_ARGS ?=
DEMO_SCENARIO := h100-8-bad-night
# When one GPU overheats and another has lost lanes; a GPU falls off the bus five minutes later.
DEMO_START := --simulate-at 30m --simulate-pace 4

VENV := .venv
BIN := $(VENV)/bin
# Stamps: one per state of the virtual environment, newer than the locks it was made from.
BASE := $(VENV)/.stamp-base
RUNTIME := $(VENV)/.stamp-runtime
PACKAGES := $(VENV)/.stamp-packages
DEV := $(VENV)/.stamp-dev
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input

# Tests start hundreds of processes: without compiled modules, each would recompile the package.
unexport PYTHONDONTWRITEBYTECODE
INSTALL_PACKAGE := $(PIP_INSTALL) --no-deps --no-build-isolation --editable .

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: $(RUNTIME) ## serve on 127.0.0.1:9836, a simulated host where no NVIDIA driver answers; ARGS='...' adds flags
	@export GPU_TRIAGE_WEB_LISTEN_ADDRESS="$${GPU_TRIAGE_WEB_LISTEN_ADDRESS:-127.0.0.1:9836}"; if $(BIN)/python -c 'import pynvml; pynvml.nvmlInit(); pynvml.nvmlShutdown()' 2>/dev/null; then \
	    exec $(BIN)/gpu-triage serve $(ARGS); \
	else \
	    set -- $(ARGS); \
	    case " $$* " in *' --simulate '*|*' --simulate='*|*' --replay'*) ;; \
	        *) set -- --simulate $(DEMO_SCENARIO) $(if $(findstring --simulate-,$(ARGS)),,$(DEMO_START)) "$$@";; \
	    esac; \
	    echo 'make run: no NVIDIA driver answers on this host, so this serves a simulated one: every reading is made up' \
	        'and gpu_exporter_simulated is 1. The status page says what happens next.' >&2; \
	    exec $(BIN)/gpu-triage serve "$$@"; \
	fi

.PHONY: demo
demo: ## play a simulated bad night through Prometheus, Alertmanager and a pager; ARGS='...' names another, INSTALL=1 installs both
	@INSTALL='$(INSTALL)' tests/environment/install-servers.sh demo
	@echo 'make demo: setting up $(VENV); the first time this takes a minute' >&2
	@$(MAKE) --no-print-directory --silent $(RUNTIME)
	@$(BIN)/python -m deploy.demo $(ARGS)

# Two more than there are cores: the tests of real servers wait most of the time, and nobody else would use it.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)

IN_PARALLEL := $(BIN)/pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder

# Lint and types come first: beside them, servers that are played faster than real time would miss their times.
.PHONY: test
test: ## before each push, eight minutes: lint, types, and every test but for those of `make full`; sets up what is missing
	@tests/environment/install-servers.sh test & $(MAKE) --no-print-directory $(DEV); status=$$?; wait; exit $$status
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target types lint compiled
	$(IN_PARALLEL) -m 'not full' $(PYTEST_ARGS)

# Each worker would otherwise compile all of the tests for itself.
.PHONY: compiled
compiled: $(DEV)
	@$(BIN)/pytest --collect-only --quiet -m 'not full' >/dev/null

.PHONY: full
full: $(DEV) ## every test beyond `make test`, about half an hour: all scenarios and faults, stacks of servers, packages, the image
	@tests/environment/install-servers.sh full
	$(IN_PARALLEL) -m full $(PYTEST_ARGS)

.PHONY: long
long: $(DEV) ## a month of twenty healthy hosts, two and a half hours of two cores: no page, one ticket at most; ARGS='--days 3' for less
	@tests/environment/install-servers.sh test
	$(BIN)/python -m tests.rules.month $(ARGS)

# Three runs of pytest, not three workers of one: each worker would collect all of the tests.
QUICKLY := $(BIN)/pytest --quiet --exitfirst -m 'not slow and not full'

.PHONY: quick
quick: $(DEV) ## before each commit, about a minute: lint, types, generated files and quick tests
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=target quick-documents quick-unit-2 quick-unit-1 lint types

.PHONY: quick-unit-1 quick-unit-2 quick-documents
quick-unit-1: $(DEV)
	$(QUICKLY) $(wildcard tests/unit/[a-o]*/ tests/unit/se*/) $(PYTEST_ARGS)
quick-unit-2: $(DEV)
	$(QUICKLY) $(wildcard tests/unit/[p-r]*/ tests/unit/s[!e]*/ tests/unit/[t-z]*/ tests/unit/test_*.py) $(PYTEST_ARGS)
# Everything that is generated, and the rules as text.
quick-documents: $(DEV)
	$(QUICKLY) tests/golden tests/documents tests/dashboards/test_files.py \
	    $(addprefix tests/deploy/test_,alertmanager_examples.py kubernetes_recipes.py) \
	    tests/promql $(addprefix tests/rules/test_,dependencies.py static.py) $(PYTEST_ARGS)

.PHONY: lint
lint: $(DEV) ## ruff, import-linter, names in docstrings, tests that look at nothing, hadolint and codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.docstring_names
	$(BIN)/python -m tests.empty_collections
	$(BIN)/hadolint Dockerfile
	$(BIN)/codespell

.PHONY: types
types: $(DEV)
	$(BIN)/mypy

.PHONY: regenerate
regenerate: $(DEV) ## everything that is generated, after any change, about a minute; ARGS='docs chart' for single steps
	$(BIN)/python -m deploy.generate $(ARGS)

.PHONY: lock
lock: $(DEV) ## resolve requirements/*.txt again; ARGS=--upgrade takes the newest versions
	requirements/lock.sh $(BIN)/uv $(ARGS)

.PHONY: release
release: $(PACKAGES) ## build the files of a release, dist/; ARGS=wheel, 'packages --python 3.12 --arch arm64' for some
	$(BIN)/python -m deploy.release $(ARGS)

.PHONY: clean
clean: ## remove the virtual environment, caches and build output
	rm -rf $(VENV) build dist exporter/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BASE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	    || { echo 'Python 3.10 or later is needed; name one with: make PYTHON=python3.11 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(RUNTIME): requirements/build.txt requirements/runtime.txt pyproject.toml | $(BASE)
	$(PIP_INSTALL) --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	$(INSTALL_PACKAGE)
	@touch $@

$(PACKAGES): requirements/packages.txt $(RUNTIME)
	$(PIP_INSTALL) --require-hashes -r requirements/packages.txt
	@touch $@

$(DEV): requirements/dev.txt pyproject.toml | $(BASE)
	$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	$(INSTALL_PACKAGE)
	@touch $@ $(RUNTIME) $(PACKAGES)
