# Every target says in one line what it does. ARGS=... is passed on to the program behind it.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
WORKERS ?= $(shell echo $$((5 * $$(nproc) / 2))) # tests often wait for something
SOAK_SECONDS ?= 600
ARGS    ?=
DEMO    := build/demo-venv
DEMO_EXTRA := $(if $(findstring --dashboard,$(ARGS)),dashboard)
DOCS    := build/docs-venv
AUDIT   := build/audit-venv
SHELL   := bash

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv lock servers demo example check test browser lint format typecheck bench bench-peers docs dist soak chaos sim fuzz \
	audit vulnerabilities clean

help: ## list the targets
	@echo "make <target> [ARGS=...]"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F '\t' '{printf "  %-12s %s\n", $$1, $$2}'

# $(call create-venv,DIRECTORY): create a virtual environment there unless there is one.
define create-venv
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Penstock needs Python 3.11 or newer, and $(PYTHON) is {v.major}.{v.minor}; run: make PYTHON=/path/to/python3.11")'
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1) || \
		{ rm -rf $(1); echo "$(PYTHON) cannot create a virtual environment (on Debian: apt-get install python3-venv)" >&2; exit 1; }
endef

# $(call install,DIRECTORY,NAME): install the packages of requirements/NAME.txt there, each checked by its hash.
install = $(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/$(2).txt

venv: $(STAMP) ## create .venv with everything in it

# Installed again whenever the requirements change, and only then.
$(STAMP): pyproject.toml requirements/dev.txt src/penstock/_version.py
	@echo "venv: installing Penstock and its development tools into $(VENV)"
	$(call create-venv,$(VENV))
	@$(call install,$(VENV),dev)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lock: ## write requirements/*.txt: the versions that make installs, with their hashes
	@bash scripts/lock.sh $(PYTHON)

servers: ## make sure that a redis-server is there for the tests
	@bash scripts/servers.sh

demo: $(DEMO)/.installed$(DEMO_EXTRA) ## run a few hundred jobs of three kinds and show what happened
	@echo "demo: working a few hundred jobs in this process"
	@$(DEMO)/bin/python -m penstock demo $(ARGS)

# Without the development tools, which take a minute.
$(DEMO)/.installed$(DEMO_EXTRA): pyproject.toml src/penstock/_version.py
	@echo "demo: installing Penstock with click, cronsim, msgspec, rich and tzdata into $(DEMO)"
	$(call create-venv,$(DEMO))
	@$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check -e $(if $(DEMO_EXTRA),'.[$(DEMO_EXTRA)]',.)
	@touch $@

example: $(STAMP) ## run one of examples/, e.g. make example NAME=webhooks
	@$(BIN)/python examples/run.py $(NAME)

check: $(STAMP) ## style, types, unit and conformance tests on memory: the check for every day
	@echo "check: ruff and pyright beside the tests of the model and the storage in memory"
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .
	@$(BIN)/pyright --warnings --pythonpath $(BIN)/python & types=$$!; \
		PENSTOCK_EXAMPLES=20 $(BIN)/python -m pytest -n 2 --storages memory tests/test_*.py tests/unit tests/conformance $(ARGS); \
		tests=$$?; wait $$types && exit $$tests

test: $(STAMP) servers ## run the whole test suite
	@echo "test: running the suite in $(WORKERS) processes, report in build/junit.xml"
	@mkdir -p build
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -rs --junitxml=build/junit.xml $(ARGS)

browser: $(STAMP) servers ## run the dashboard in a browser: scenarios on SQLite and Redis, screenshots in build/screenshots
	@echo "browser: driving chromium, or PENSTOCK_CHROMIUM"
	@bash scripts/browser.sh
	@PENSTOCK_BROWSER=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -rs --junitxml=build/browser.xml tests/browser $(ARGS)

lint: $(STAMP) ## check style, format and types
	@echo "lint: ruff check, ruff format --check, pyright"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright --warnings --pythonpath $(BIN)/python $(ARGS)

format: $(STAMP) ## rewrite the code in the house format
	@echo "format: ruff check --fix, ruff format"
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

typecheck: $(STAMP) ## check the types alone
	@echo "typecheck: pyright"
	@$(BIN)/pyright --warnings --pythonpath $(BIN)/python $(ARGS)

bench: $(STAMP) servers ## measure throughput and latency on this machine, in a minute or two
	@echo "bench: measuring on this machine, JSON lines in build/bench/ours.jsonl"
	@$(BIN)/python -m bench --out build/bench/ours.jsonl $(ARGS)

bench-peers: $(STAMP) servers ## compare with other queues, each installed into an environment of its own
	@echo "bench-peers: measuring ours and theirs in one run, JSON lines in build/bench/peers.jsonl"
	@$(BIN)/python -m bench peers --out build/bench/peers.jsonl $(ARGS)

docs: $(STAMP) $(DOCS)/.installed ## build the documentation site into build/site, strictly, and check it
	@echo "docs: checking links and what is written by scripts, building build/site"
	@$(BIN)/python scripts/check_docs.py
	@$(BIN)/python scripts/api_reference.py --check
	@$(BIN)/python scripts/cli_reference.py --check
	@$(BIN)/python scripts/state_diagram.py --check
	@$(BIN)/python scripts/architecture_diagram.py --check
	@$(BIN)/python scripts/readme_figures.py --check
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict 2>&1 | grep -vE '^INFO' ; exit $${PIPESTATUS[0]}
	@$(BIN)/python scripts/check_site.py build/site

$(DOCS)/.installed: requirements/docs.txt
	@echo "docs: installing what builds the site into $(DOCS)"
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(call install,$(DOCS),docs)
	@touch $@

dist: $(STAMP) ## build the sdist, and from it the wheel, into dist, and try the wheel in an empty environment
	@echo "dist: building into dist"
	@rm -rf dist build/dist-venv
	@$(BIN)/python -m build --no-isolation --outdir dist > build/dist.log 2>&1 || { cat build/dist.log >&2; exit 1; }
	@$(BIN)/python scripts/check_dist.py dist
	@bash scripts/try_wheel.sh dist/penstock-*.whl

soak: $(STAMP) servers ## compare the storages with the model for a long time
	@echo "soak: random walks against the model for $(SOAK_SECONDS) seconds"
	@PENSTOCK_SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest --timeout=0 -rs tests/conformance/test_model.py $(ARGS)

chaos: $(STAMP) servers ## kill, freeze and starve workers and storages for half an hour, and check what they did meanwhile
	@echo "chaos: 5 runs of 20 000 jobs under 200 faults, on SQLite and on Redis, then limits and both failover scenarios"
	@$(BIN)/python -m chaos --storage sqlite --jobs 20000 --faults 200 --rounds 5 $(ARGS)
	@$(BIN)/python -m chaos --storage redis --jobs 20000 --faults 200 --rounds 5 $(ARGS)
	@$(BIN)/python -m chaos limits --storage sqlite --jobs 20000 --ticks 5000 --faults 200 $(ARGS)
	@$(BIN)/python -m chaos limits --storage redis --jobs 20000 --ticks 5000 --faults 200 $(ARGS)
	@$(BIN)/python -m chaos sentinel $(ARGS)
	@$(BIN)/python -m chaos cluster $(ARGS)

# SEEDS=1000 or SEEDS=5:9, STORAGE=redis, SEED=4711 (one run, with its timeline), SHRINK=1
sim: $(STAMP) ## simulate the whole queue under seeded faults for a minute; SEED=n shows one run, SEEDS=n runs many
	@echo "sim: workers, clients and storage in one thread, on virtual time"
	@$(BIN)/python -m sim $(SEED) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(STORAGE),--storage $(STORAGE)) $(if $(SHRINK),--shrink) $(ARGS)

fuzz: $(STAMP) ## feed the decoders with what no one of ours would write, half a minute each
	@echo "fuzz: decoders under atheris, crashes in build/fuzz"
	@PYTHONPATH=src $(BIN)/python -m fuzz $(ARGS)

audit: $(STAMP) ## check the dependencies, as far as that goes without a network
	@$(BIN)/python scripts/audit.py

vulnerabilities: $(AUDIT)/.installed ## look up known vulnerabilities of the dependencies, where the network allows it
	@$(AUDIT)/bin/python scripts/vulnerabilities.py $(ARGS)

$(AUDIT)/.installed: requirements/audit.txt
	@echo "vulnerabilities: installing pip-audit into $(AUDIT)"
	@test -x $(AUDIT)/bin/python || $(PYTHON) -m venv $(AUDIT)
	@$(call install,$(AUDIT),audit)
	@touch $@

clean: ## remove everything that make has made
	@echo "clean: removing $(VENV), build, dist and caches"
	@rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	@find src tests bench chaos sim scripts examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
