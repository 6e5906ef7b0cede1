# Everything is behind two commands: `make quickstart` and `make test`. Both install what they need (scripts/bootstrap.sh).
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help quickstart test test-all environment format format-check lint types imports docs tests unit llvm browser readme wheel lock clean

ARGS ?=
# Two more than there are processors: tests wait for compilers, searches and schedulers.
JOBS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 2)
# Each worker takes tests that follow one another, so that it makes the corpora of one LLVM major and not of both;
# tests/conftest.py puts what takes long before what is quick.
# The slowest are shown: a test that takes more than 5 s says why, or is in the slow half.
SHARE := -n $(JOBS) --dist worksteal --durations 20 --durations-min 5
# What fails beside other tests is run once more by itself, and has to pass then: compilers with deadlines share the machine.
# Exit status 1: tests failed; all others stay what they are.
AGAIN := --last-failed --last-failed-no-failures none -n 0
# Which half of the tests: `make test-all` runs the slow one too.
HALF := not slow and
# What needs no test runs beside the tests, and so do the browser's, which take one core.
BESIDE := format-check lint imports types docs browser
BIN := .venv/bin
# Images of containers often set it, and then each process that a test starts compiles the whole package anew.
unexport PYTHONDONTWRITEBYTECODE
CPP := $(shell find src scripts benchmarks -name '*.cpp' -o -name '*.h')

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

quickstart: ## from nothing to a smaller binary; ARGS="..." is passed to `mlgokit quickstart`
	@sh scripts/bootstrap.sh quickstart
	@$(BIN)/mlgokit quickstart $(ARGS)

test: environment ## everything that has to hold; ARGS="..." is passed to pytest
	@$(BIN)/python scripts/checks.py tests --beside $(BESIDE)

test-all: ## `make test` with the slow half: all LLVM majors for all tests, and the long forms
	@$(MAKE) --no-print-directory test HALF=

environment: ## system packages and .venv with everything the tests need
	@sh scripts/bootstrap.sh $(if $(HALF),test,test-all)

format: environment ## rewrite the code in the house format
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/clang-format -i $(CPP)

format-check: environment
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run -Werror $(CPP)

lint: environment ## ruff
	$(BIN)/ruff check

types: environment ## pyright
	@# By default what node throws away soon has 16 MiB, and collecting it takes a fifth of pyright's time.
	NODE_OPTIONS="$$NODE_OPTIONS --max-semi-space-size=128" $(BIN)/pyright --warnings

imports: environment ## the import ladder
	$(BIN)/lint-imports

docs: environment ## the site, in build/docs/index.html
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees docs build/docs

tests: environment ## unit and llvm, in one run
	$(BIN)/pytest $(SHARE) -m "$(HALF) not browser and not network and not wheel" $(ARGS) || { [ $$? -eq 1 ] && \
		$(BIN)/pytest $(AGAIN) -m "$(HALF) not browser and not network and not wheel" $(ARGS); }

unit: environment ## tests and doctests that need no compiler
	$(BIN)/pytest $(SHARE) -m "$(HALF) not llvm and not browser and not network and not wheel" $(ARGS) || { [ $$? -eq 1 ] && \
		$(BIN)/pytest $(AGAIN) -m "$(HALF) not llvm and not browser and not network and not wheel" $(ARGS); }

llvm: environment ## tests with real compilers
	$(BIN)/pytest $(SHARE) -m "$(HALF) llvm and not browser and not network" tests/llvm $(ARGS) || { [ $$? -eq 1 ] && \
		$(BIN)/pytest $(AGAIN) -m "$(HALF) llvm and not browser and not network" tests/llvm $(ARGS); }

browser: environment ## the report and the site in a real browser
	@# Exit status 5: no test was selected, as ARGS may want. Other tests run at the same time, with a cache of their own.
	$(BIN)/pytest -o cache_dir=.pytest_cache/browser -m "$(HALF) browser and not network" tests/browser $(ARGS) || [ $$? -eq 5 ]

readme: environment ## the commands in README.md
	$(BIN)/pytest -m "not network and not wheel" -k readme tests $(ARGS)

wheel: environment ## build/wheel/mlgokit-*.whl with prebuilt plugins, tested in an empty environment
	$(BIN)/python scripts/wheel.py
	$(BIN)/pytest -m wheel --timeout 1800 tests/wheel $(ARGS)

lock: ## rewrite requirements/*.txt with the newest versions
	@sh scripts/lock.sh

clean: ## caches and the environment; corpora and policies stay
	rm -rf .venv .pytest_cache .ruff_cache .import_linter_cache build docs/generated src/*.egg-info
	find src tests examples benchmarks docs -name __pycache__ -prune -exec rm -rf {} +
