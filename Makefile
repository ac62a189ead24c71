# Each target does all of its own set-up: a bare clone, make and Python 3.11 or newer are enough.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DELETE_ON_ERROR:
.PHONY: help demo test lint format pictures clean

help:
	@echo 'make demo      multiply two matrices with the tiled kernel, and see what it did'
	@echo 'make test      run the tests'
	@echo 'make lint      check style and types'
	@echo 'make format    put the code into shape'
	@echo 'make pictures  draw docs/tiled.gif'
	@echo 'make clean     remove $(VENV) and the caches'

demo: $(READY)
	@$(BIN)/tilewise demo

test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pictures: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plot]'
	@mkdir -p build
	$(BIN)/tilewise watch tiled --gif docs/tiled.gif --out build/tiled.html

# Made anew whenever pyproject.toml is newer; a half-made one has no .ready.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'tilewise needs Python 3.11 or newer; "$(PYTHON)" is' \
	    "$$($(PYTHON) --version 2>&1 || true). Name another: make PYTHON=python3.12" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
