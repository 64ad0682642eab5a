# Everything installs itself on a fresh machine, or says in one line what it lacks. `make help` lists the targets.
PYTHON ?=
TESTS ?= tests benchmarks/tests
ARGS ?=
BIN := .venv/bin
UV_LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
           --no-emit-index-url --no-emit-find-links --no-header -q pyproject.toml
# `make demo KEEP=1` and `make demo CLUSTER=current` reach the demo as environment variables.
export PYTHON KEEP CLUSTER

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-unit lint fmt lock crd configuration clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  Variables: PYTHON=/path/to/python (setup), KEEP=1 and CLUSTER=current (demo), TESTS=path and ARGS="-k name" (test)'

setup: ## make .venv from the lock file; done once per change of it
	@scripts/setup

demo: setup ## the whole thing on one screen; KEEP=1 leaves it running, CLUSTER=current uses your cluster
	@$(BIN)/python -m demo

test: setup ## unit and integration tests on real parts
	@$(BIN)/python -m embedded prepare
	@$(BIN)/python -m embedded versions
	@$(BIN)/python -m pytest $(TESTS) $(ARGS)

test-unit: setup ## unit tests: no servers, seconds
	@$(BIN)/python -m pytest tests/unit $(ARGS)

lint: setup ## style, format, types, and the layers between the packages
	$(BIN)/ruff check --no-cache . # its cache does not notice that a new folder has become a package of ours
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: setup ## format, and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: setup ## compile requirements/*.lock anew from pyproject.toml
	$(UV_LOCK) -o requirements/base.lock
	$(UV_LOCK) --group dev -o requirements/dev.lock

crd: setup ## generate the CRD file from the models
	@$(BIN)/tickkeeper crd > crds/.generated.yaml && mv crds/.generated.yaml crds/tickkeeper.dev_tickschedules.yaml

configuration: setup ## generate docs/configuration.md from the settings
	@$(BIN)/python scripts/configuration.py > docs/.generated && mv docs/.generated docs/configuration.md

clean: ## remove caches and build results
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .tmp dist crds/.generated.yaml
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well
	rm -rf .venv

# Image, chart and end-to-end tests.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE ?= tickkeeper:$(VERSION)
PYTHON_IMAGE ?= python:3.13-slim
LEVEL ?= smoke
export PYTHON_IMAGE LEVEL
.PHONY: image e2e chart-lint chart-docs sbom

image: ## the container image; IMAGE=name:tag, PYTHON_IMAGE=base
	docker build --network host --build-arg PYTHON_IMAGE=$(PYTHON_IMAGE) --build-arg VERSION=$(VERSION) \
	  --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) -t $(IMAGE) .

e2e: setup ## image and chart on a kind cluster; LEVEL=smoke (default) or full, KEEP=1 leaves it
	@$(BIN)/python -m e2e

chart-lint: setup ## helm lint, schema, rendering judged by an API server, alerts, docs up to date
	@$(BIN)/python -m pytest charts/tests $(ARGS)

chart-docs: setup ## write the chart's README and schema from its values, and its copy of the CRD
	@$(BIN)/python -m charts.tools.docs

sbom: setup ## CycloneDX of what the image has, from the lock file, as dist/sbom.cdx.json
	@mkdir -p dist && $(BIN)/python -m charts.tools.sbom requirements/base.lock >dist/sbom.cdx.json && echo dist/sbom.cdx.json

export ROWS QUICK RUNS RESULTS MINUTES SEED

bench-keeper: setup ## how fast it heals and what it costs; ROWS=name,name some rows, RUNS=3, QUICK=1 tries the harness
	@$(BIN)/python -m benchmarks.keeper

soak: setup ## random faults for MINUTES=15 over 200 schedules; SEED=n repeats a run; exit 1 when one no longer ticks
	@$(BIN)/python -m benchmarks.soak

bench-outbox: setup ## how fast the outbox is drained, beside others; ROWS, RUNS, QUICK as above
	@$(BIN)/python -m benchmarks.outbox

chaos-outbox: setup ## harm to workers and PostgreSQL for MINUTES=10, then an account of every row; SEED=n repeats a run
	@$(BIN)/python -m benchmarks.chaos

.PHONY: bench-keeper soak bench-outbox chaos-outbox
