# Each target makes .venv when there is none; PYTHON names the interpreter that makes it (3.11 or newer).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEMO := .venv/.demo
PEERS := tests/peers/node_modules/.installed
FRAMEWORKS := .frameworks/langgraph/.installed .frameworks/pydantic-ai/.installed
PYTEST_ARGS ?= -n 2 --dist loadgroup
FAULTS_ARGS ?=

.PHONY: help .venv peers frameworks certificates demo test lanes faults faults-full cover check ruff arrows mypy pyright format bench bench-short schema reference clean

help: ## show this list
	@grep -hE '^[.a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([.a-z-]+):.*## /\1\t/' | expand -t 12

.venv: $(STAMP) ## make the virtual environment, or bring it up to date with pyproject.toml

$(STAMP): pyproject.toml
	$(call install,demo$(comma)test$(comma)lint)
	@touch $(DEMO) $@

$(DEMO): pyproject.toml
	$(call install,demo)
	@touch $@

comma := ,
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "effectd needs Python 3.11 or newer, and '$(PYTHON)' is not: make PYTHON=/path/to/python3.11 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make a virtual environment: on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 2; }
	@echo "Installing effectd[$(1)] into .venv: about a minute, once ..." >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --editable '.[$(1)]' || { \
	  echo "The dependencies could not be installed: see pip's message above." >&2; exit 2; }
endef

peers: $(PEERS) ## fetch the MCP servers from npm that tests call, where node and npm are there

$(PEERS): tests/peers/package.json tests/peers/package-lock.json
	@skipped='the tests that call them will be skipped, and fail where CI is set'; \
	if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	  echo "There is no node or no npm to run MCP servers from npm: $$skipped (Debian: apt-get install nodejs npm)" >&2; \
	elif npm ci --prefix tests/peers --ignore-scripts --no-audit --no-fund --loglevel=error >&2; then touch $@; \
	else echo "The MCP servers from npm could not be fetched, see npm's message above: $$skipped" >&2; fi

frameworks: $(FRAMEWORKS) ## install the agent frameworks that conformance judges, each in an environment of its own

.frameworks/%/.installed: tests/frameworks/%.txt
	@$(PYTHON) -m venv .frameworks/$* && .frameworks/$*/bin/python -m pip install --quiet --requirement $< && touch $@ || \
	  echo "$* could not be installed, see pip's message above: its tests will be skipped, and fail where CI is set" >&2

certificates: $(STAMP) $(FRAMEWORKS) ## examine every adapter of the conformance battery; writes docs/conformance
	$(BIN)/python -m tests.certificates

demo: $(DEMO) ## the whole story in one minute, on real processes
	$(BIN)/effectd demo

test: $(STAMP) $(PEERS) ## all tests but the long lanes, with the slowest named
	$(BIN)/python -m pytest --durations=15 --durations-min=0.5 -m "not lane" $(PYTEST_ARGS)

lanes: $(STAMP) $(PEERS) $(FRAMEWORKS) ## the long lanes: real and hostile peers, each kind of provider under kills
	$(BIN)/python -m pytest --durations=15 --durations-min=0.5 -m lane $(PYTEST_ARGS)

faults: $(STAMP) $(PEERS) ## lanes that try to break every promise, each with a seed and a time box: 8 minutes
	$(BIN)/python -m tests.faults $(FAULTS_ARGS)

faults-full: $(STAMP) $(PEERS) ## the same lanes for an hour
	$(BIN)/python -m tests.faults --full $(FAULTS_ARGS)

cover: $(STAMP) $(PEERS) ## all tests, with branch coverage
	$(BIN)/python -m pytest --cov --cov-report=term $(PYTEST_ARGS)

check: ruff arrows mypy pyright ## ruff, mypy, pyright and the architecture; side by side with -j2

ruff: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

arrows: $(STAMP)
	$(BIN)/lint-imports

mypy: $(STAMP)
	$(BIN)/mypy

pyright: $(STAMP)
	$(BIN)/pyright --warnings

format: $(STAMP) ## let ruff format, and mend what it can
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(STAMP) ## what a call costs, beside the disk, plain SQLite and other libraries; writes docs/performance.md
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m tests.bench

bench-short: $(STAMP) ## a part of it in less than 90 s, which fails where a gate is missed
	$(BIN)/python -m tests.bench --short

schema: $(STAMP) ## write docs/protocol.schema.json, and the tables of docs/protocol.md, from their definition
	$(BIN)/python -m driver.core.schema > docs/protocol.schema.json
	$(BIN)/python -m driver.core.schema page < docs/protocol.md > docs/protocol.md.new
	mv docs/protocol.md.new docs/protocol.md

reference: $(STAMP) ## write the references in docs/cli.md and docs/configuration.md, from the commands and the models
	$(BIN)/python -m tests.cli_reference
	$(BIN)/python -m tests.config_reference

clean: ## remove the virtual environment, what npm fetched, caches and build results
	rm -rf .venv .frameworks tests/peers/node_modules .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .coverage* htmlcov dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
