# Penstock's commands. `make` alone lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
STAMP := .venv/.up-to-date
SERVERS := build/servers/.up-to-date
INTEROP := build/interop/.up-to-date
TYPED := $(wildcard hatch_build.py src tests benchmarks docs/*.py)
JVM := hatch_build.py $(shell find jvm -name '*.java' 2>/dev/null)

.PHONY: help setup servers interop check format test reliability bench demo docs lock clean

help: ## List these commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: $(STAMP) ## Create .venv with everything pinned (at once when it is up to date)

$(STAMP): pyproject.toml requirements/bootstrap.txt requirements/dev.txt scripts/setup.sh $(JVM)
	@bash scripts/setup.sh
	@touch $@

# A Java compiler that came later makes up for the jar that could not be built.
ifneq ($(and $(wildcard src/penstock/spark/jars/missing.txt),$(shell command -v javac)),)
.PHONY: $(STAMP)
endif

servers: $(SERVERS) ## Install the servers that tests and benchmarks run against

$(SERVERS): tests/servers/pom.xml tests/servers/Launcher.java tests/servers/nessie-java.txt scripts/servers.sh
	@bash scripts/servers.sh

interop: $(INTEROP) ## Install other people's clients, which tests drive against the server

$(INTEROP): scripts/interop.sh $(wildcard requirements/interop-*.txt tests/interop/java/* tests/interop/*/pom.xml) \
		| $(STAMP) $(SERVERS)
	@bash scripts/interop.sh

check: setup ## Format, lint, types and layers; takes seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict $(TYPED)
	$(BIN)/lint-imports --no-logo

format: setup ## Format the code and apply the safe fixes
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

test: setup servers interop ## Run the whole test suite, the documents' examples included
	$(BIN)/pytest -n 2 --dist loadgroup

reliability: setup servers ## Run the long tests that hunt for rare failures
	$(BIN)/pytest -m reliability --timeout=3600

bench: setup servers ## Run every benchmark and write its numbers
	$(BIN)/python -m benchmarks

demo: setup ## See a pipeline of Spark land on main at one instant
	@$(BIN)/penstock demo

docs: setup ## Regenerate the generated reference pages
	$(BIN)/python -m docs.generate

# Hashes only: which index serves the packages is the machine's business.
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links --no-python-downloads

lock: setup ## Pin the newest versions of all tools and libraries
	echo uv | $(COMPILE) --no-annotate -o requirements/bootstrap.txt -
	$(COMPILE) --all-extras -o requirements/dev.txt pyproject.toml requirements/dev.in
	$(COMPILE) -o requirements/interop-pynessie.txt requirements/interop-pynessie.in
	$(COMPILE) -o requirements/interop-spark.txt requirements/interop-spark.in

clean: ## Remove everything that the other commands made
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist src/penstock/spark/jars
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
