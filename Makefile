# All logic is in the command line and in pytest; this file only installs and calls them.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# One thread a process: two test workers share two cores.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: setup demo test test-slow lint bases clean

setup: $(VENV)/.core

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.core
	$(BIN)/protodepth demo --out demo

test: $(VENV)/.dev lint
	$(TEST_ENV) $(BIN)/pytest -n 2 --dist worksteal

test-slow: $(VENV)/.dev
	$(TEST_ENV) $(BIN)/pytest -m slow -o addopts=""

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The bundled models, exactly as they were made (about ten minutes each on one core).
bases: $(VENV)/.core
	OMP_NUM_THREADS=1 $(BIN)/protodepth train --recipe worlds-tiny --out runs/worlds-tiny
	OMP_NUM_THREADS=1 $(BIN)/protodepth train --recipe worlds-tiny-outdoor --out runs/worlds-tiny-outdoor

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
