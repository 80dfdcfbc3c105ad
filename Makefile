# Two commands matter: `make run` and `make test`. Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
# For pip, such as: make setup PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin

BENCH ?=

.PHONY: run setup fetch fetch-model test test-fast lint bench clean

run: fetch
	@HF_HUB_OFFLINE=1 $(BIN)/gunicorn

setup: $(VENV)/.runtime

fetch: setup
	@$(BIN)/flask --app app fetch-model --if-missing

# Fetches anew: the real model where a stand-in answers so far.
fetch-model: setup
	@$(BIN)/flask --app app fetch-model

test: $(VENV)/.dev fetch
	@HF_HUB_OFFLINE=1 $(BIN)/pytest -q

test-fast: $(VENV)/.dev
	@$(BIN)/pytest -q -m "not model"

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# BENCH=--help shows what it can be told. Half an hour, and nothing else may run meanwhile.
bench: $(VENV)/.bench fetch
	@HF_HUB_OFFLINE=1 $(BIN)/flask --app app bench $(BENCH)

# The models stay: they are hours of somebody's slow line.
clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path "./models/*" -prune -exec rm -rf {} +

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed (make PYTHON=python3.12)")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.txt | $(VENV)/bin/pip
	@echo "installing requirements.txt into $(VENV) (torch is large: a few minutes on a slow line)"
	@$(BIN)/pip install --disable-pip-version-check $(PIP_ARGS) -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.runtime
	@$(BIN)/pip install --disable-pip-version-check $(PIP_ARGS) -r requirements-dev.txt
	@touch $@

# All peers are optional: those that can't be installed here are left out, and the bench says so.
$(VENV)/.bench: requirements-bench.txt $(VENV)/.runtime
	@for line in $$(grep -E "^[a-z]" requirements-bench.txt); do \
		$(BIN)/pip install --disable-pip-version-check $(PIP_ARGS) "$$line" || echo "left out: $$line"; \
	done
	@touch $@
