# Every target sets itself up: a virtual environment in .venv, the package and its tools, pinned by constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

PYTEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-engines check lint bench reproduction docs clean

demo: $(STAMP)  ## the three readings of the algorithm on a1a, and figures in demo/
	$(BIN)/danl compare a1a --methods danl,danl-masked,danl-paper --regions 4 --policy coverage:psi=3 \
	    --alpha 1e-3 --init fedavg:rounds=10 --rounds 100 --reference --out demo --force --gallery

test: lint  ## lint, types, documents, tests; two at a time, one thread each
	$(PYTEST) -m "not engines"

test-engines: $(STAMP)  ## the tests that start processes: Ray, Flower, kills, Ctrl-C, a browser
	$(PYTEST) -m engines

check: lint  ## lint, types, documents
	$(BIN)/python -m pytest -q -m "not engines" tests/test_docs.py

lint: $(STAMP)  ## lint, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)  ## docs/benchmarks.md with its figures; DANL_DATA_DIR names the folder with the LIBSVM files
	$(BIN)/python -m benchmarks all --docs
	-$(BIN)/python -m benchmarks fleets --docs
	-$(BIN)/python -m benchmarks senders --docs

reproduction: $(STAMP)  ## the paper's figures and claims, into reproduction/ and docs/reproduction*
	$(BIN)/python -m benchmarks reproduction --docs

docs: $(STAMP)  ## the site, into docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx -E -a -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

clean:
	rm -rf .venv demo dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "danl needs Python 3.11 or newer; this is " + sys.version.split()[0] + ": set PYTHON=python3.11 (or newer)")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,ray,flower]'
	@touch $(STAMP)
