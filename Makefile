# Needs make and Python 3.11 or newer with its venv module; everything else is installed into $(VENV).
# Another interpreter: make test PYTHON=python3.13. It gets an environment of its own.

PYTHON ?= python3
VENV ?= $(if $(filter python3,$(PYTHON)),.venv,.venv-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
SOURCES := sender receiver shared tests examples benchmarks
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check bench clean

help:
	@echo 'make demo    publish a few hundred events, lose a worker, count what arrived'
	@echo 'make test    the whole suite, with branch coverage'
	@echo 'make check   formatting, lint, types, import contracts, then the suite'
	@echo 'make bench   the benchmark tables, as Markdown'
	@echo 'make clean   remove environments, caches and build results'

demo: $(VENV)/.base
	$(BIN)/hookline demo

# Most tests wait for sockets and fsync, so four workers pay also on two cores; more only fight for the disk.
test: $(VENV)/.test
	$(BIN)/python -m pytest -n 4 --dist worksteal --cov --cov-report=term $(PYTEST_ARGS)

check: $(VENV)/.check
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(MAKE) test

bench: $(VENV)/.test
	set -e; for table in publish delivery isolation transports memory registry; do $(BIN)/python -m benchmarks.$$table; done

clean:
	rm -rf .venv .venv-* build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp is what one kind of work needs, and the stamps before it.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"hookline needs Python 3.11 or newer, this is {sys.version.split()[0]}: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.base: $(VENV)/.made pyproject.toml
	$(PIP) install --editable '.[sender,receiver,dev]'
	@touch $@

$(VENV)/.test: $(VENV)/.base
	$(PIP) install --editable '.[sql,fast,otel]' --group test
	@touch $@

$(VENV)/.check: $(VENV)/.test
	$(PIP) install --group check
	@touch $@
