# Everything a new machine needs is Python 3.11+ with venv; see README.md.
PYTHON ?= python3
VENV ?= .venv
CONFIG ?= configs/tiny.py
WORKDIR ?= runs/tiny
BIN = $(VENV)/bin
READY = $(VENV)/.installed

.PHONY: train test test-slow lint clean

train: $(READY)
	$(BIN)/python -m experiments.train --config=$(CONFIG) --workdir=$(WORKDIR)

# Side by side, in at most four processes: each needs up to 2 GB.
test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4 --dist=worksteal

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The lock holds the versions that CI runs; where one of them does not exist (a
# newer Python, another platform) the ranges of setup.py decide.
$(READY): setup.py requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c requirements.lock -e '.[test]' || \
	  $(BIN)/python -m pip install --quiet -e '.[test]'
	touch $(READY)

clean:
	rm -rf $(VENV) build *.egg-info
