# Penstock's commands. `make` alone lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
STAMP := .venv/.up-to-date
INTEROP := build/interop/.up-to-date
RELEASE := build/release/.up-to-date
SITE := build/site-tools/.up-to-date
# One more than the two cores that the suite is made for: some always wait for a disk or another process. A larger
# machine: make test WORKERS=8.
WORKERS := 3
TYPED := $(wildcard hatch_build.py src tests benchmarks release docs/*.py)
JVM := hatch_build.py $(shell find jvm -type f 2>/dev/null)

.PHONY: help setup servers interop check format quick test verify verify-only lowest reliability mutants bench demo docs site lock release clean

# A command uses the cores of the machine itself.
.NOTPARALLEL:

# What is compiled is kept, whatever the machine says: every Python that a test starts would compile it anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## List these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: $(STAMP) ## Create .venv with everything pinned, and a Java compiler (at once when it is up to date)

$(STAMP): pyproject.toml requirements/bootstrap.txt requirements/dev.txt scripts/setup.sh scripts/parts.sh $(JVM)
	@bash scripts/setup.sh
	@touch $@

# A Java compiler that came later makes up for the jar that could not be built.
ifneq ($(and $(wildcard src/penstock/spark/jars/missing.txt),$(shell command -v javac)),)
.PHONY: $(STAMP)
endif

servers: ## Install PostgreSQL, which `make test` runs against (at once when it is there)
	@bash scripts/servers.sh

interop: $(INTEROP) ## Install what only `make verify` and `make bench` need: other servers and clients, wrk

$(INTEROP): scripts/interop.sh scripts/parts.sh tests/pom.xml requirements/lowest.txt \
		$(wildcard requirements/interop-*.txt tests/servers/*pom.xml tests/servers/*.java tests/servers/nessie-java.txt) \
		$(wildcard tests/interop/*/pom.xml tests/interop/java/*) | $(STAMP)
	@bash scripts/interop.sh

# Their system packages are installed while .venv is made. What cannot be installed is named; its tests are skipped.
test mutants: export PENSTOCK_PACKAGES := postgresql
verify-only lowest reliability bench: export PENSTOCK_PACKAGES := postgresql maven wrk chromium
TEST_SERVERS = bash scripts/servers.sh || true
ALL_SERVERS = $(TEST_SERVERS); $(MAKE) --no-print-directory interop || true

check: setup ## Format, lint, types, layers and how the code reads; takes seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict $(TYPED)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.tidy

format: setup ## Format the code and apply the safe fixes
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

quick: check ## Run the checks, the kernel's tests and a life of a table of each format; takes a minute at most
	$(BIN)/pytest -n 2 tests/kernel tests/model tests/smoke

test: setup ## Run the tests that prove a change, the documents' examples included
	@$(TEST_SERVERS)
	$(BIN)/pytest -n $(WORKERS)

verify: test verify-only lowest ## Run all that must pass before a change lands: `make test`, then what is slower

verify-only: setup ## Run what `make verify` adds: other people's servers and clients, clusters, every store
	@$(ALL_SERVERS)
	$(BIN)/pytest -n $(WORKERS) -m "share or not reliability and (verify or hypothesis)"

# Of every library with a lower bound, tests that use it: jobs of Spark on three formats; a life of a table of each
# format, embedded and behind a server; a server's connections; a drill of each store; metrics, queries, fsspec.
# Spark 4.1 leaves sockets to be closed by Python, which warns of it.
LOWEST_TESTS := tests/spark/test_transactions.py tests/smoke tests/kernel/test_commit.py tests/kernel/test_merge.py \
	tests/server/test_connection.py tests/storage/test_places.py tests/metrics tests/audits/test_queries.py \
	tests/lance/test_rows.py tests/files/test_files_system.py tests/cli/test_installation.py \
	$(foreach store,rocksdb postgres mongodb dynamodb,'tests/stores/test_drills.py::test_a_drill_finds_nothing_wrong[$(store)]')

lowest: setup ## Run a share of the tests with the lowest versions that pyproject.toml allows
	@$(ALL_SERVERS)
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --python build/interop/lowest/bin/python --editable .
	build/interop/lowest/bin/pytest -n 2 -m "not reliability" -W ignore::pytest.PytestUnraisableExceptionWarning \
		$(LOWEST_TESTS)

reliability: setup ## Run the long tests that hunt for rare failures
	@$(ALL_SERVERS)
	$(BIN)/pytest -n 2 -m reliability --timeout=3600

mutants: setup ## See which of a sample of mutants the suite kills (resumes where it stopped)
	@$(TEST_SERVERS)
	$(BIN)/python -m tests.mutants $(if $(SEED),--seed $(SEED))

bench: setup ## Run every benchmark and write its numbers
	@$(ALL_SERVERS)
	$(BIN)/python -m benchmarks

demo: setup ## See a pipeline of Spark land on main at one instant
	@$(BIN)/penstock demo

release: setup $(RELEASE) ## Build what is published, try it out, and write its bill of materials into dist/
	$(BIN)/python -m release

$(RELEASE): requirements/release.txt | $(STAMP)
	$(BIN)/uv venv --quiet --clear --no-python-downloads --python $(BIN)/python build/release
	$(BIN)/uv pip sync --quiet --require-hashes --python build/release/bin/python requirements/release.txt
	@touch $@

docs: setup ## Regenerate the generated reference pages
	$(BIN)/python -m docs.generate

site: setup $(SITE) ## Build the documents as a static site with a search: build/site/docs/index.html
	build/site-tools/bin/sphinx-build --quiet --fail-on-warning --builder html --conf-dir docs/site . build/site
	@echo build/site/docs/index.html

$(SITE): requirements/site.txt | $(STAMP)
	$(BIN)/uv venv --quiet --clear --no-python-downloads --python $(BIN)/python build/site-tools
	$(BIN)/uv pip sync --quiet --require-hashes --python build/site-tools/bin/python requirements/site.txt
	@touch $@

# Hashes only: which index serves the packages is the machine's business.
RESOLVE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--no-header --no-emit-index-url --no-emit-find-links --no-python-downloads
COMPILE := $(RESOLVE) --upgrade --generate-hashes
# Of the pins, those of Penstock's own libraries, and of deltalake, which the documents use: what users can install too.
CONSTRAINTS = echo deltalake | $(RESOLVE) --no-annotate --all-extras --constraints requirements/dev.txt \
	-o src/penstock/constraints.txt pyproject.toml -

lock: setup ## Pin the newest versions of all tools and libraries
	echo uv | $(COMPILE) --no-annotate -o requirements/bootstrap.txt -
	$(COMPILE) --all-extras -o requirements/dev.txt pyproject.toml requirements/dev.in
	$(CONSTRAINTS)
	$(COMPILE) --resolution lowest-direct --all-extras -o requirements/lowest.txt pyproject.toml requirements/lowest.in
	$(COMPILE) -o requirements/release.txt requirements/release.in
	$(COMPILE) -o requirements/site.txt requirements/site.in
	$(COMPILE) --no-deps -o requirements/interop-axe.txt requirements/interop-axe.in
	$(COMPILE) -o requirements/interop-airflow.txt requirements/interop-airflow.in
	$(COMPILE) -o requirements/interop-dagster.txt requirements/interop-dagster.in
	$(COMPILE) -o requirements/interop-dbt.txt requirements/interop-dbt.in
	$(COMPILE) -o requirements/interop-lance.txt requirements/interop-lance.in
	$(COMPILE) -o requirements/interop-pynessie.txt requirements/interop-pynessie.in
	$(COMPILE) -o requirements/interop-spark.txt requirements/interop-spark.in
	$(COMPILE) -o requirements/interop-duckdb-oldest.txt requirements/interop-duckdb-oldest.in
	$(COMPILE) -o requirements/interop-duckdb-newest.txt requirements/interop-duckdb-newest.in

clean: ## Remove everything that the other commands made
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist src/penstock/spark/jars
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
