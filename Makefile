# Two commands set everything up on a machine that has only Python 3.11-3.13, make and git: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
WORKERS ?= 2

.PHONY: demo test test-fast test-long spark test-spark test-spark-sample test-fresh test-slow test-oldest lint proofs hooks docs bench bench-peers mutants clean

demo: $(VENV)/.run
	$(BIN)/dperm demo

test: lint test-fast

test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow and not long and not spark"

# What takes longest: contract suites, audits, whole programs. Continuous integration runs it after `make test`.
test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "long and not slow and not spark"

# Installs Spark and Java for its tests, and starts Spark once to see that it can.
spark: $(VENV)/.spark

# Fits on Spark; installs pyspark (450 MB) and Java first. One process, because its tests share a Spark session.
test-spark: $(VENV)/.spark
	$(BIN)/python -m pytest -q -n 0 -m spark

# Two minutes of them, for continuous integration.
test-spark-sample: $(VENV)/.spark
	$(BIN)/python -m pytest -q -n 0 -m "spark and sample"

# The same with fresh noise: each statistical test may alarm by chance, so look at a failure before believing it.
test-fresh: $(VENV)/.dev
	DPERM_FRESH_NOISE=1 $(BIN)/python -m pytest -q -n $(WORKERS)

# Statistical and experiment runs with fresh entropy; minutes to hours, never part of `make test`.
test-slow: $(VENV)/.dev
	DPERM_FRESH_NOISE=1 $(BIN)/python -m pytest -q -n $(WORKERS) -m slow

# The data and estimator tests on the oldest versions that pyproject.toml allows, in an environment of its own.
test-oldest: $(OLDEST)/.dev
	$(OLDEST)/bin/python -m pytest -q -n $(WORKERS) tests/unit/estimators tests/unit/data

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Writes into proofs that they are about the present code: only after reading those whose code has changed.
# `make proofs PROOF=src/dperm/queries/targets.proof.md` confirms one file.
proofs: $(VENV)/.dev
	$(BIN)/python tools/proofs.py --confirm $(PROOF)

# Before every commit: style (mended where possible), types, import contracts, proofs, and the commit's subject.
hooks: $(VENV)/.dev
	$(BIN)/pre-commit install --hook-type pre-commit --hook-type commit-msg

# The documentation into site/, its gallery's figures drawn first (a minute; again only after the code changed). Open site/index.html.
LIBRARY := $(shell find src/dperm -name '*.py')
FIGURES := $(patsubst examples/%.py,docs/gallery/%.svg,$(filter-out examples/figures.py,$(wildcard examples/*.py)))

docs: $(VENV)/.docs $(FIGURES)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build

docs/gallery/%.svg: examples/%.py examples/figures.py $(LIBRARY) | $(VENV)/.docs
	$(BIN)/python $< $@

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/noise.py

# dperm next to its peers, each in an environment of its own under .peers/; `make bench-peers PEERS=--fast` takes minutes.
bench-peers: $(VENV)/.dev
	$(BIN)/python benchmarks/peers.py $(PEERS)
	$(BIN)/python benchmarks/fit_speed.py

# Mutation testing of the code that privacy rests on: hours, in a copy under .mutants/; a run that is stopped goes on.
# `make mutants MUTANTS="--part 0.05"` takes minutes once it is known which tests run which line.
mutants: $(VENV)/.dev
	$(BIN)/python -m tools.mutants $(MUTANTS)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "dperm needs Python 3.11, 3.12 or 3.13; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e ".[dev]"
	$(BIN)/python tests/programs.py
	@touch $@

$(VENV)/.spark: $(VENV)/.dev
	@$(PIP) install -c constraints.txt -e ".[dev,spark]" || \
	  { echo "the tests of Spark need pyspark, which pip could not install" >&2; exit 1; }
	$(BIN)/python tests/programs.py java
	@$(BIN)/python tests/spark_session.py || { echo "Spark does not start on this machine" >&2; exit 1; }
	@touch $@

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e ".[docs]"
	@touch $@

$(OLDEST)/.dev: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints-oldest.txt -e . \
	  pytest pytest-xdist hypothesis pandas polars pyarrow skops onnx onnxruntime
	@touch $@

clean:
	rm -rf $(VENV) $(OLDEST) .mutants dperm-demo site docs/gallery/*.svg .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
