# Two commands do everything on a fresh machine with Python 3.11 or newer:
#   make demo    install, then localise memorisation in the embedded model
#   make test    install, then run the tests (those of clusters and other long ones: make test-slow)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.demo
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-slow faults lint bench docs support tables reproduction clean

demo: $(DEMO)
	$(BIN)/memloc run --limit 200

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

# Sweeps that are killed, starved of disk, damaged, doubled: tests/faults with many kills.
faults: $(INSTALLED)
	MEMLOC_KILLS=50 $(BIN)/python -m pytest -n 0 -v -m "slow or not slow" tests/faults

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The whole analysis: the authors' recipe, memloc's defaults and --exact, side by side; prints times
# and writes bench.json. On real texts: make bench BENCH="--data-dir DIR --task trec".
bench: $(INSTALLED)
	$(BIN)/python -m benchmarks $(BENCH)

# The documentation as a site; broken links are errors. Open site/index.html, or with search:
# python3 -m http.server --directory site
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# docs/reproduction.md and its figures, from the tables in docs/reproduction.
reproduction: $(INSTALLED)
	$(BIN)/python -m reproduction

# docs/support.md, from what is found in tiny models of every architecture.
support: $(INSTALLED)
	$(BIN)/python -m tests.models.support

# docs/results.md, from the schema of the result tables.
tables: $(INSTALLED)
	$(BIN)/python -m tests.docs.results_page

clean:
	rm -rf $(VENV) runs site

# The demo needs less than the tests, and the environment of the tests is enough for both.
$(DEMO): EXTRAS := demo
$(INSTALLED): EXTRAS := demo,dev,docs
$(DEMO) $(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "memloc needs Python 3.11 or newer; try: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $(DEMO) $@
