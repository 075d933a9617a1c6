# `make demo` and `make test` do all the set-up they need, once: Python (3.11 or later) and make are enough.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
CORES := --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# Bytecode is kept whatever the environment says: the tests start many commands, each of which would compile the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test deep lint format docs pages clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "understudy needs Python 3.11 or later: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(READY)
	$(BIN)/understudy run two-layer --quick
	@$(BIN)/understudy run two-layer --quick --json | $(BIN)/python -c 'import json, os, pathlib, sys, webbrowser; \
	  page = pathlib.Path(json.load(sys.stdin)["report"]).resolve(); \
	  seen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"); \
	  seen and webbrowser.open(page.as_uri()); \
	  print(f"The report: {page}")'

lint: $(READY)
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -m "not deep" $(CORES)

deep: lint
	UNDERSTUDY_PROFILE=deep $(BIN)/pytest $(CORES)

# Pages that commands write; a test compares each with what its command prints.
pages: $(READY)
	$(BIN)/understudy claims --markdown > docs/results/claims.md
	$(BIN)/python -c 'from understudy.theory.page import as_markdown; print(as_markdown(), end="")' > docs/reference/theorems.md

# --strict: a broken link, an unknown name or a page outside the navigation is an error.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(READY)
	$(BIN)/ruff check --fix src tests examples
	$(BIN)/ruff format src tests examples

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis site
