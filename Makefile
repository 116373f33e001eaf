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
DEV := $(VENV)/.stamp-dev
PEER_VENV := tests/bench/.venv
PEER := $(PEER_VENV)/.stamp
SITE_VENV := build/site-venv
SITE := $(SITE_VENV)/.stamp
GRAFANA_LIBRARIES := build/pictures/node_modules/.stamp
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
REGENERATE := $(BIN)/pytest --quiet --regenerate

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
	@$(MAKE) --no-print-directory --jobs=2 test-servers $(DEV)
	@start=$$(date +%s); \
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target types lint compiled && \
	TEST_SECONDS_BEFORE="lint and types: $$(($$(date +%s) - start)) s" \
	    $(IN_PARALLEL) -m 'not full' $(PYTEST_ARGS)

# Each worker would otherwise compile all of the tests for itself.
.PHONY: compiled
compiled: $(DEV)
	@$(BIN)/pytest --collect-only --quiet -m 'not full' >/dev/null

# All recordings are made again: a stale one that was kept fails.
.PHONY: full
full: servers $(DEV) ## every test beyond `make test`, about half an hour: all scenarios and faults, stacks of servers, packages, the image
	$(IN_PARALLEL) -m full --fresh $(PYTEST_ARGS)

# Three runs of pytest, not three workers of one: each worker would collect all of the tests.
QUICKLY := $(BIN)/pytest --quiet --exitfirst -m 'not slow and not full'

.PHONY: quick
quick: $(DEV) ## before each commit, about a minute: lint, types, generated files and quick tests
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=target quick-documents quick-unit-2 quick-unit-1 quick-lint

.PHONY: quick-lint quick-unit-1 quick-unit-2 quick-documents
quick-lint: lint types
quick-unit-1: $(DEV)
	$(QUICKLY) $(wildcard tests/unit/[a-o]*/ tests/unit/se*/) $(PYTEST_ARGS)
quick-unit-2: $(DEV)
	$(QUICKLY) $(wildcard tests/unit/[p-r]*/ tests/unit/s[!e]*/ tests/unit/[t-z]*/ tests/unit/test_*.py) $(PYTEST_ARGS)
# Everything that is generated, and the rules as text.
quick-documents: $(DEV)
	$(QUICKLY) tests/golden tests/documents tests/chart/test_copies.py \
	    $(addprefix tests/dashboards/test_,files.py states_and_colors.py) \
	    $(addprefix tests/deploy/test_,alertmanager_examples.py inhibition_order.py kubernetes_manifests.py) \
	    tests/promql $(addprefix tests/rules/test_,dependencies.py static.py) $(PYTEST_ARGS)

.PHONY: lint
lint: $(DEV) ## ruff, import-linter, hadolint and codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(BIN)/codespell

.PHONY: types
types: $(DEV) ## mypy --strict on the package and the tests
	$(BIN)/mypy

.PHONY: unit
unit: $(DEV) ## the unit tests alone
	$(BIN)/pytest tests/unit tests/documents $(PYTEST_ARGS)

.PHONY: mutations
mutations: $(DEV) ## put 24 small faults into the package one by one and name those that no unit test notices, half an hour; ARGS='--list'
	$(BIN)/python -m tests.mutations $(ARGS)

.PHONY: test-pythons
test-pythons: $(DEV) ## the unit tests under every supported Python of this host; ARGS='--python 3.13' for one
	$(BIN)/python -m tests.pythons $(ARGS) $(PYTEST_ARGS)

.PHONY: long
long: servers $(DEV) ## rules through a week of every healthy scenario, and every scenario at 5 s; about 40 minutes
	$(BIN)/pytest tests/rules/test_week.py tests/rules/test_scenarios.py --long --numprocesses=logical --dist=worksteal \
	    $(PYTEST_ARGS)

# Rules come first: everything else reads them. One scenario's pages take as long as those of all others together.
.PHONY: regenerate
regenerate: rules ## everything that is generated, after any change; read the diff before committing it
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target regenerate-long regenerate-pages regenerate-texts
	@git status --short

.PHONY: regenerate-long regenerate-pages regenerate-texts
regenerate-long: $(DEV)
	$(REGENERATE) tests/golden -k bad-night
regenerate-pages: $(DEV)
	$(REGENERATE) tests/drivers tests/golden -k 'not bad-night'
# In this order: each reads what those before it write.
regenerate-texts: $(DEV)
	$(REGENERATE) tests/rules/test_notifications.py
	$(BIN)/python -m docs.build
	$(BIN)/python -m docs.man_pages
	$(BIN)/python -m dashboards
	$(BIN)/python helm/build_chart.py
	$(BIN)/python -m deploy.examples

.PHONY: golden
golden: $(DEV) ## the golden /metrics alone
	$(REGENERATE) tests/golden $(PYTEST_ARGS)

.PHONY: docs
docs: $(DEV) ## regenerate docs/METRICS.md, docs/configuration.md, docs/alerts.md, the tables of Xid codes and docs/man
	$(BIN)/python -m docs.build
	$(BIN)/python -m docs.man_pages

.PHONY: man
man: $(DEV) ## write the manual pages docs/man/*.1 from the help of the commands
	$(BIN)/python -m docs.man_pages

.PHONY: rules
rules: $(DEV) ## write rules/*.yml, and the list of the metrics that they need, from exporter/gpu_triage/alerting/source
	$(BIN)/python -m gpu_triage.alerting rules

.PHONY: chart
chart: $(DEV) ## renew the chart's rules, dashboards, schema of rules and README
	$(BIN)/python helm/build_chart.py

.PHONY: examples
examples: $(DEV) ## renew the Alertmanager examples and the plain Kubernetes manifests
	$(BIN)/python -m deploy.examples

.PHONY: site
site: $(SITE) ## build the docs site, build/site/html
	$(PYTHON) docs/site_pages.py build/site/pages
	NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/python -m mkdocs build --strict --quiet

.PHONY: dashboards
dashboards: $(DEV) ## write dashboards/*.json from their builders
	$(BIN)/python -m dashboards

.PHONY: schema
schema: ## type-check the dashboards against Grafana's schema; needs npm and the network
	tests/dashboards/typecheck.sh

.PHONY: scenes
scenes: servers $(DEV) $(GRAFANA_LIBRARIES) ## the dashboards in Grafana's own scenes and Chromium; needs chromium and npm
	$(BIN)/pytest tests/dashboards/test_scenes.py --long

.PHONY: pictures
pictures: servers $(DEV) $(GRAFANA_LIBRARIES) ## redraw docs/img/*.png; needs chromium and npm
	$(BIN)/python -m tests.dashboards.pictures
	$(BIN)/python -m tests.e2e.status_page_pictures

# About 600 MB: Grafana's libraries, which draw the pictures of the dashboards.
$(GRAFANA_LIBRARIES): tests/dashboards/drawing/package.json tests/dashboards/drawing/package-lock.json
	mkdir -p build/pictures
	cp $^ build/pictures
	cd build/pictures && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $@

.PHONY: bench
bench: $(DEV) $(PEER) ## measure what the exporter costs, beside another one
	$(BIN)/python -m tests.bench.run $(ARGS)

.PHONY: scale
scale: $(DEV) ## measure what more GPUs and processes cost
	$(BIN)/python -m tests.bench.scale

.PHONY: bench-rules
bench-rules: servers $(DEV) ## measure what the rules cost a Prometheus of 500 hosts, about 40 minutes; ARGS='--hosts 100' for fewer
	$(BIN)/python -m tests.bench.rules $(ARGS)

.PHONY: bench-fleet
bench-fleet: servers $(DEV) ## measure what a fleet costs a Prometheus, and write its sizing, about 30 minutes; ARGS='--hosts 100,250 --minutes 3' for less
	$(BIN)/python -m tests.bench.fleet_cost $(ARGS)

.PHONY: attribution
attribution: $(DEV) ## measure how soon a fault has its class, and how calm classes are, about 30 minutes
	$(BIN)/python -m tests.bench.attribution

.PHONY: soak
soak: $(DEV) ## watch the memory through an hour of virtual and an hour of real time, with churn and faults; ARGS=--quick for a tenth
	$(BIN)/python -m tests.bench.soak $(ARGS)

.PHONY: hostile
hostile: $(DEV) ## measure scrapes while others attack
	$(BIN)/python -m tests.bench.hostile

.PHONY: lock
lock: $(DEV) ## resolve requirements/*.txt again; ARGS=--upgrade takes the newest versions
	requirements/lock.sh $(BIN)/uv $(ARGS)

.PHONY: sbom
sbom: $(DEV) ## write the image's software bill of materials, dist/sbom.cdx.json
	@mkdir -p dist
	$(BIN)/python requirements/sbom.py >dist/sbom.cdx.json

.PHONY: packages
packages: $(DEV) ## build the deb and the rpm, dist/; ARGS='--python 3.12 --arch arm64' for other hosts
	$(BIN)/python -m deploy.packages $(ARGS)

.PHONY: servers test-servers
servers: ## install what all tests start from Debian: Prometheus, Alertmanager, VictoriaMetrics, Slurm, Chromium, lintian and others
	@tests/environment/install-servers.sh full
# Without what only `make full` starts.
test-servers:
	@tests/environment/install-servers.sh test

.PHONY: clean
clean: ## remove the virtual environment, caches and build output
	rm -rf $(VENV) $(PEER_VENV) build dist exporter/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
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

$(DEV): requirements/dev.txt pyproject.toml | $(BASE)
	$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	$(INSTALL_PACKAGE)
	@touch $@ $(RUNTIME)

$(PEER): tests/bench/requirements.txt | $(DEV)
	$(BIN)/python -m venv $(PEER_VENV)
	$(PEER_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r $<
	@touch $@

$(SITE): requirements/site.txt
	$(PYTHON) -m venv $(SITE_VENV)
	$(SITE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r $<
	@touch $@
