# Needs make and Python 3.11 or 3.12 with venv; everything else goes into .venv.

ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for python in python3 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null \
	&& { echo $$python; break; }; done)
endif
BIN := .venv/bin
INSTALLED := .venv/installed
NODE_CLIENTS := tests/clients/node_modules/installed
# pip's progress bars on a terminal, nothing but faults elsewhere.
PIP_INSTALL = $(BIN)/python -m pip install $$(test -t 1 || echo --quiet) --disable-pip-version-check
# What follows `make serve ARGS=`, such as ARGS="--http-port 9100".
ARGS ?=
# How long `make soak` keeps the real engine under pressure.
MINUTES ?= 30

.PHONY: help serve demo install lock check test test-server test-full test-npu soak bench bench-peers clean
.DEFAULT_GOAL := help

help:
	@echo "make serve        set up and serve until Ctrl-C (ARGS=\"--help\" lists the options)"
	@echo "make demo         set up, serve, send one tool call over gRPC, HTTP and OpenAI's API, stop"
	@echo "make install      only the virtual environment .venv"
	@echo "make lock         requirements-lock.txt anew: what serve needs on Linux x86-64, each with its hashes"
	@echo "make check        format, lint, types, import directions"
	@echo "make test         the quick tests; make test-server: with the real tritonserver; make test-full: the long ones"
	@echo "make test-npu     the K7 step against torch_npu's operators, without an NPU; in .venv-npu (ARGS=-rP lists them)"
	@echo "make soak         16 clients of all kinds on a small cache for 30 minutes (MINUTES=3), then 2,000 scripted requests"
	@echo "make bench        what strict, drafts, masks and Triton cost; make bench-peers: beside other engines (ARGS=--quick)"

serve: $(INSTALLED)
	@exec $(BIN)/heptagram serve $(ARGS)

demo: $(INSTALLED)
	@exec $(BIN)/heptagram serve --demo $(ARGS)

install: $(INSTALLED)

# The stamp comes last, so an installation that was cut short is taken up again.
$(INSTALLED): pyproject.toml requirements-shipped.txt requirements-tests.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or 3.12 found: install one, or run make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@PYTHONPATH=backend:client $(PYTHON) -m heptagram_backend.server.preflight
	@echo "Installing into .venv with $$($(PYTHON) --version); about 2.5 GB, a few minutes the first time"
	@$(PYTHON) -m venv .venv || { echo "python3 -m venv failed: install it (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@$(PIP_INSTALL) --editable '.[dev]'
	@$(PIP_INSTALL) --no-deps --requirement requirements-shipped.txt --requirement requirements-tests.txt
	@touch $@

# Resolved for the older Python; the hashes are those of every file of a version, so 3.12 finds its own. torch is the
# public index's, a CUDA build: a CPU build from elsewhere has another hash and is refused.
lock: $(INSTALLED)
	$(BIN)/uv pip compile pyproject.toml requirements-shipped.txt --extra demo --extra tracing --upgrade --generate-hashes \
	--no-emit-index-url --python-version 3.11 --python-platform x86_64-manylinux_2_35 \
	--custom-compile-command 'make lock' --quiet --output-file requirements-lock.txt

# OpenAI's npm package, where there is an npm; its test is skipped where there is none or it cannot download.
$(NODE_CLIENTS): tests/clients/package.json
	@! command -v npm >/dev/null || { npm install --no-package-lock --no-audit --no-fund --loglevel=error --fetch-retries=1 \
	--prefix $(dir $<) && touch $@; } || echo "npm install failed: its client is not tested" >&2

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy backend kernels client tests docker benchmarks
	$(BIN)/lint-imports

test: $(INSTALLED)
	$(BIN)/python -m pytest

test-server: $(INSTALLED) $(NODE_CLIENTS)
	$(BIN)/python -m pytest -m "server and not full"

test-full: $(INSTALLED)
	$(BIN)/python -m pytest -m full

test-npu: $(INSTALLED)
	$(BIN)/python -m tests.npu .venv-npu $(ARGS)

soak: $(INSTALLED)
	HEPTAGRAM_SOAK_MINUTES=$(MINUTES) $(BIN)/python -m pytest -m "full or server" tests/server/test_pressure.py tests/server/test_soak.py

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(INSTALLED)
	$(BIN)/python -m benchmarks.peers $(ARGS)

clean:
	rm -rf .venv .venv-npu .venv-peers tests/clients/node_modules bench-results dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache
