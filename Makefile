# Each target does all of its own set-up: a bare clone, make and Python 3.11 or newer are enough.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_ALL := $(VENV)/.ready-all

.DELETE_ON_ERROR:
.PHONY: help demo test test-all lint format docs pictures clean

help:
	@echo 'make demo      multiply two matrices with the tiled kernel, and see what it did'
	@echo 'make test      run the tests: minutes'
	@echo 'make test-all  run all tests, with PyTorch, matplotlib and a browser: half an hour'
	@echo 'make lint      check style and types'
	@echo 'make format    put the code into shape'
	@echo 'make docs      build the documentation site, build/site'
	@echo 'make pictures  draw the figures of docs from benchmarks/results'
	@echo 'make clean     remove $(VENV) and the caches'

demo: $(READY)
	@$(BIN)/tilewise demo

# Written bytecode spares each worker and each process of a test from compiling all modules anew.
test test-all: export PYTHONDONTWRITEBYTECODE :=

test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-all: $(READY_ALL)
	$(BIN)/python -m pytest --thorough -n $(WORKERS) --dist worksteal $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Players are written by the emulator: half a minute. What the page "Try it" offers is compiled, another
# half, and its Python comes from npm: website/in_browser.py.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/mkdocs build --quiet --strict
	$(BIN)/python website/check_site.py build/site
	@echo 'build/site: written; open build/site/index.html, or serve it:' \
	  '$(BIN)/python -m http.server --directory build/site'

pictures: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plot]'
	@mkdir -p build
	$(BIN)/tilewise watch tiled -m 12 -n 12 -k 12 --tile 4 --gif docs/tiled.gif --out build/tiled.html
	$(BIN)/python benchmarks/performance.py
	$(BIN)/python benchmarks/climb.py
	$(BIN)/python benchmarks/roofline.py --draw

# Made anew whenever pyproject.toml is newer; a half-made one has no .ready.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'tilewise needs Python 3.11 or newer; "$(PYTHON)" is' \
	    "$$($(PYTHON) --version 2>&1 || true). Name another: make PYTHON=python3.12" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# PyTorch's build for CPUs, which is small, has a version of its own (2.9.0+cpu) in PyTorch's index,
# and perhaps in pip's. Where neither has one, it is PyTorch as pip's index has it, or as TORCH says.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH_PIP := --extra-index-url $(TORCH_INDEX) --retries 1 --timeout 15 --disable-pip-version-check
TORCH ?= $(shell $(BIN)/python -m pip index versions torch $(TORCH_PIP) 2>/dev/null \
  | grep --only-matching --max-count=1 '[0-9.]*+cpu' | sed 1q | sed 's/^/torch==/')

$(READY_ALL): $(READY)
	$(BIN)/python -m pip install --quiet $(TORCH_PIP) $(or $(TORCH),torch)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]'
	command -v chromium chromium-browser || $(BIN)/python -m playwright install chromium \
	  || echo 'There is no browser: the tests of the player are skipped.' >&2
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
