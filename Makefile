# Every target does its own set-up: a fresh machine needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The package folders and the tests: what the formatter and the linter read.
CODE := schemas pipeline workers bench frameloom tests examples deploy

.PHONY: demo test drill fuzz check fmt clean install
.DEFAULT_GOAL := test

install: $(STAMP)

# Reinstalled only when what is to be installed changes.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("frameloom needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "Installing pinned packages (torch is large: a few minutes the first time) ..."
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[backends,dali,dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/frameloom demo $(ARGS)

# Everything on two processes, which wait for brokers most of the time; chosen tests on one.
TESTS := $(if $(ARGS),$(ARGS),-n 2)

test: $(STAMP)
	$(BIN)/python -m pytest $(TESTS)

# Every scenario at full length, against real Kafka (needs java and mvn); half an hour on two cores, less with --jobs.
drill: $(STAMP)
	$(BIN)/python -m tests.scenario $(ARGS)

# Hostile records for the admission path, for so much processor time (docs/security.md).
SECONDS ?= 60
fuzz: $(STAMP)
	FUZZ_HEAP_CHECKS=1 $(BIN)/python -m tests.fuzz $(SECONDS) out/fuzz

check: $(STAMP)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(TESTS)

fmt: $(STAMP)
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

clean:
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build *.egg-info
