# All logic is in the command line and in pytest; this file only installs and calls them.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# One thread a process: two test workers share two cores.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

TOOLS := .venv-tools

.PHONY: setup demo test test-slow coverage lint bench-quick audit sbom fuzz docs bases clean

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
	$(TEST_ENV) $(BIN)/pytest -n 2 --dist worksteal --cov --cov-report=term:skip-covered

test-slow: $(VENV)/.dev
	$(TEST_ENV) $(BIN)/pytest -m slow -o addopts=""

# Branches of the whole package; slower than test, which measures what keeps files.
coverage: $(VENV)/.dev
	$(TEST_ENV) $(BIN)/pytest -n 2 --dist worksteal --cov=protodepth --cov-config=tests/coverage.toml

# Known holes of what is installed; says why where the database cannot be reached.
audit: $(VENV)/.dev $(TOOLS)/.tools
	$(BIN)/pytest -m slow -o addopts="" -rs tests/repository/test_supply_chain.py -k holes

# What a release is made of, as CycloneDX.
sbom: $(VENV)/.core $(TOOLS)/.tools
	mkdir -p dist
	$(TOOLS)/bin/cyclonedx-py environment --output-format JSON --output-file dist/sbom.json $(BIN)/python

# A fuzzer that is guided by coverage, on the parsers of binary files: a minute each.
fuzz: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check atheris
	for name in sens npy exr bag mat; do $(TEST_ENV) $(BIN)/python tests/fuzz/parsers.py $$name -max_total_time=60 || exit 1; done

$(TOOLS)/.tools:
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check pip-audit cyclonedx-bom
	touch $@

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Ratios beside their bars (docs/performance.md), before a release: two minutes on an idle core.
bench-quick: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/speed.py --quick

# The documentation site, in site/; open site/index.html.  Building fetches nothing.
docs: $(VENV)/.core
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "wrote site/index.html"

# The bundled models, exactly as they were made (about ten minutes each on one core).
bases: $(VENV)/.core
	OMP_NUM_THREADS=1 $(BIN)/protodepth train --recipe worlds-tiny --out runs/worlds-tiny
	OMP_NUM_THREADS=1 $(BIN)/protodepth train --recipe worlds-tiny-outdoor --out runs/worlds-tiny-outdoor

clean:
	rm -rf $(VENV) $(TOOLS) site build dist .pytest_cache .mypy_cache .ruff_cache
