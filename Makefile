# Two commands do everything on a fresh machine with git, make and Python 3.11 (venv):
#   make up      runs the product
#   make test    runs the tests
.POSIX:
.SUFFIXES:
.PHONY: help demo up test test-unit test-sites smoke check format accuracy regression test-servers packages test-hardware mutants bench screenshots soak month docs wheel collector.pyz clean

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin
ARGUMENTS ?=
# Test files run beside each other in this many processes; each starts servers of its own.
WORKERS ?= 2
# Those that start servers mostly wait for them.
WAITING_WORKERS ?= 4
# A site and its browser have more to do.
SITE_WORKERS ?= 3
# Tests run where nothing of this machine's gpuvigil is seen and only temporary folders can be written. Programs are
# compiled before, because they cannot be there.
COMPILED = $(BIN)/python -m scripts.compiled
ISOLATED = $(BIN)/python -m scripts.isolated $(BIN)/python
SPREAD = --dist loadfile --no-loadscope-reorder

help: ## say what there is
	@sed -n 's/^\([a-z.-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

# Its state is its own, so that its nodes are not missed by another cluster that is shown later.
demo: $(VENV)/up ## run gpuvigil on a simulated cluster in which things happen
	@$(BIN)/gpuvigil up --simulate-fleet 16 --state "$${XDG_STATE_HOME:-$$HOME/.local/state}/gpuvigil-demo" $(ARGUMENTS)

up: $(VENV)/up ## run gpuvigil on this machine; ARGUMENTS="--simulate 16" and others
	@$(BIN)/gpuvigil up $(ARGUMENTS)

# What fails is run on the commit before, too, and gets a second try if it did not fail there: scripts/suite.py.
test: $(VENV)/dev ## run every test but those of test-sites (needs gcc, Chromium and others: make test-servers)
	@$(COMPILED)
	$(ISOLATED) -m scripts.suite -n $(WAITING_WORKERS) $(SPREAD) --tier test $(ARGUMENTS)

test-unit: $(VENV)/dev ## run the first tier: no servers, nothing long
	@$(COMPILED)
	$(ISOLATED) -m pytest -n $(WORKERS) --dist each --tier unit $(ARGUMENTS)

test-sites: $(VENV)/training ## run the tests that install packages, start a browser or other people's servers, or play days of a fleet
	@$(COMPILED)
	$(ISOLATED) -m scripts.suite -n $(SITE_WORKERS) $(SPREAD) --tier sites $(ARGUMENTS)
	$(ISOLATED) -m scripts.suite -n 0 --tier alone $(ARGUMENTS)

smoke: $(VENV)/up ## start the product as `make up` installs it, look whether it answers, end it (in a clean checkout)
	@$(BIN)/python -m compileall -q -x "/\." .
	$(ISOLATED) -m scripts.smoke

check: $(VENV)/dev ## lint, format and types, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-servers: ## install from Debian what the tests start; no package starts a service
	scripts/install-test-servers

mutants: $(VENV)/dev ## put 300 small faults into the code, one at a time: does a test notice? ARGUMENTS="--count 40" and others
	@$(COMPILED)
	$(ISOLATED) -m scripts.mutants --workers $(WORKERS) $(ARGUMENTS)

test-hardware: $(VENV)/dev ## the tests that need a real NVIDIA GPU
	$(BIN)/python -m pytest -s hardware $(ARGUMENTS)

soak: $(VENV)/training ## the long fault runs (SOAK_SEED=n repeats one), and every property with many examples
	$(BIN)/python -m pytest -s soak $(ARGUMENTS)
	HYPOTHESIS_PROFILE=many $(BIN)/python -m pytest -m hypothesis --timeout 1800 tests

month: $(VENV)/dev ## play a simulated fleet's month, write docs/month.md (half an hour; SOAK_SEED=n plays another)
	SOAK_SEED=$${SOAK_SEED:-9} $(BIN)/python -m pytest -s soak/test_month.py $(ARGUMENTS)
	$(BIN)/python -m scripts.docs

bench: $(VENV)/dev ## measure, write benchmarks/*.json and docs/benchmarks.md (over an hour, on a quiet machine)
	$(BIN)/python -m benchmarks.spine
	$(BIN)/python -m benchmarks.messages
	$(BIN)/python -m benchmarks.ports
	$(BIN)/python -m benchmarks.pages
	$(BIN)/python -m benchmarks.more_pages
	$(BIN)/python -m benchmarks.collector
	$(BIN)/python -m benchmarks.records
	$(BIN)/python -m benchmarks.stores
	$(BIN)/python -m benchmarks.slurm
	$(BIN)/python -m benchmarks.usage
	$(BIN)/python -m benchmarks.report
	$(BIN)/python -m benchmarks.passes
	$(BIN)/python -m benchmarks.fleet
	$(BIN)/python -m scripts.docs

# Fleets drawn from the hash of the commit, 35 of them a week of 1,000 nodes; each is played once.
RELEASE_FLEETS ?= 35
accuracy: $(VENV)/dev ## play fleets that nobody has seen with the committed code, write docs/accuracy.md (hours; goes on where it was)
	$(BIN)/python -m evaluation.run crowded --workers $(WORKERS)
	$(BIN)/python -m evaluation.run release --fleets $(RELEASE_FLEETS) --workers $(WORKERS)
	$(BIN)/python -m evaluation.run week --workers $(WORKERS)
	$(BIN)/python -m scripts.docs

regression: $(VENV)/dev ## compare the detectors with those before, on the same faults; ARGUMENTS=--keep holds the next change against them
	$(BIN)/python -m evaluation.regression $(ARGUMENTS)

screenshots: $(VENV)/dev ## photograph every page of the running product into docs/images
	$(BIN)/python -m benchmarks.screenshots

docs: $(VENV)/dev ## write the tables in docs/ from the code
	$(BIN)/python -m scripts.docs

wheel: $(VENV)/dev ## build dist/*.whl
	$(BIN)/python -m build --wheel --no-isolation

collector.pyz: $(VENV)/dev ## build dist/collector.pyz: the collector for a node, one file
	@mkdir -p dist
	$(BIN)/python -m scripts.collector_pyz dist/collector.pyz

packages: $(VENV)/dev ## build dist/*.deb and dist/*.rpm of the collector and of the services (docs/install.md)
	$(BIN)/python -m scripts.packages dist $(ARGUMENTS)

clean: ## remove the environment and what was built
	rm -rf $(VENV) build dist *.egg-info

# The product's own environment, and the one with the tools. Each is made once, and again when the
# requirements change.
$(VENV)/up: pyproject.toml constraints.txt
	@echo "Preparing gpuvigil in $(VENV) (once; about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gpuvigil needs Python 3.11 or newer: make up PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/dev: pyproject.toml constraints.txt
	@echo "Preparing gpuvigil and the tools of its tests in $(VENV) (once; about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gpuvigil needs Python 3.11 or newer: make test PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/up

$(VENV)/training: $(VENV)/dev
	@echo "Adding PyTorch, Lightning, transformers and Ansible to $(VENV) (once; over a gigabyte)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[training,provider,ansible]'
	@touch $@
