# Everything a contributor runs. Each target sets up what it needs in a virtual environment inside this folder, once;
# later runs fetch nothing. Works with GNU make 3.81, which is what macOS has.

# `make test PYTHON=python3.13` chooses another interpreter, and gets an environment of its own beside .venv.
ifeq ($(origin PYTHON),undefined)
PYTHON := python3
VENV := .venv
else
VENV := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
endif

# The benchmarks stand beside other schedulers, which no other target needs.
BENCH := $(VENV)-bench
APSCHEDULER4 := $(VENV)-bench-apscheduler4
CLUSTER := $(VENV)-bench-cluster

# One of the schedulers that share a PostgreSQL needs Python 3.12, so they all get the first interpreter that is new enough.
CLUSTER_PYTHON = $(shell for each in $(PYTHON) python3.13 python3.12 $(HOME)/.pyenv/versions/3.13.*/bin/python \
    $(HOME)/.pyenv/versions/3.12.*/bin/python $(PYTHON); do $$each -c \
    'import sys; sys.exit(not (3, 12) <= sys.version_info < (3, 15))' 2>/dev/null && break; done; echo $$each)

# The site and the packages of a release are made by tools that no other target needs.
DOCS := $(VENV)-docs
DIST := $(VENV)-dist

# Where the environment says that no bytecode is written, each of a thousand processes would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

WORKERS ?= 2
MINUTES ?= 10
ARGS ?=
LIMIT ?= # a command that every run of the tests is given to, such as: timeout 20m

# The tests in stages, by the markers of pyproject.toml. What is marked twice belongs to the later stage.
DETERMINISTIC := not (system or real_time or chaos or soak)
REAL_TIME := real_time and not (chaos or soak)
SYSTEM := system and not (real_time or chaos or soak)
CHAOS := chaos and not soak

BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
PYTEST := $(LIMIT) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)
PYTEST_ALL := DULY_COUNTS=full $(LIMIT) $(BIN)/python -m pytest --dist worksteal --durations=50 $(ARGS)
OR_NONE := $(if $(ARGS),|| [ $$? -eq 5 ]) # ARGS may name tests that are not in every stage
heading = @printf '\n== %s ==\n' "$(1)"

.DEFAULT_GOAL := help
.NOTPARALLEL: # stages come one after the other, and the first that fails is the last
.PHONY: help demo demo-cluster test test-all soak mutation mutation-sample coverage reliability-report conformance bench bench-quick bench-cluster
.PHONY: shots docs pictures manual dist check check-format check-lint check-types format lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nOptions: PYTHON=python3.13  WORKERS=4  ARGS="-k cron"  (soak) MINUTES=60\n'

demo: $(VENV)/.run-ready ## run examples/hello.py, a one-minute tour
	@PYTHONPATH=src $(BIN)/python examples/hello.py

demo-cluster: $(VENV)/.dev-ready ## run examples/cluster.py: three processes, one PostgreSQL, and faults; two minutes
	@PYTHONPATH=src $(BIN)/python examples/cluster.py

test: check ## run the checks and the deterministic tests, of large counts a share: four minutes
	$(call heading,deterministic tests)
	$(PYTEST) -m "$(DETERMINISTIC) and not slow"

test-all: check ## run the checks, all tests with full counts, and 100 mutants, stage after stage: half an hour
	$(call heading,deterministic tests: full counts)
	$(PYTEST_ALL) -n $(WORKERS) -m "$(DETERMINISTIC)" $(OR_NONE)
	$(call heading,tests on real time)
	$(PYTEST_ALL) -n $(WORKERS) -m "$(REAL_TIME)" $(OR_NONE)
	$(call heading,processes and disks and load)
	$(PYTEST_ALL) -n $(WORKERS) -m "$(SYSTEM)" $(OR_NONE)
	$(call heading,kills and faults: alone)
	$(PYTEST_ALL) -n 0 -m "$(CHAOS)" $(OR_NONE)
	$(if $(ARGS),,@$(MAKE) --no-print-directory mutation-sample)

soak: $(VENV)/.dev-ready ## run the soak tests, each for MINUTES minutes (default 10)
	$(call heading,soak tests of $(MINUTES) minutes each)
	DULY_SOAK_MINUTES=$(MINUTES) $(PYTEST) -m soak --hypothesis-profile=soak
	$(call heading,mutation testing for $(MINUTES) minutes)
	$(BIN)/python -m tests.mutation --minutes $(MINUTES)

mutation: $(VENV)/.dev-ready ## change the source in one place at a time: do the tests notice? goes on where it stopped: hours
	$(call heading,mutation testing)
	$(BIN)/python -m tests.mutation $(ARGS)

mutation-sample: $(VENV)/.dev-ready ## do that for 100 places, chosen by a seed: three minutes
	$(call heading,mutation testing: a sample)
	$(LIMIT) $(BIN)/python -m tests.mutation --recorded --sample 100 --minutes 3 --jobs $(WORKERS)

reliability-report: $(VENV)/.dev-ready ## run the tests of faults, crashes and simulation; write docs/reliability.md from them
	$(call heading,faults)
	@mkdir -p build && rm -f build/reliability.jsonl build/reliability.xml
	-DULY_RELIABILITY=$(CURDIR)/build/reliability.jsonl $(PYTEST_ALL) -n $(WORKERS) --junitxml=build/reliability.xml \
	    tests/system tests/regressions tests/simulation
	$(call heading,report)
	$(BIN)/python -m tests.system.report build/reliability.jsonl build/reliability.xml docs/reliability.md

docs: $(DOCS)/.ready ## build the site into build/site, warnings as errors, and follow links and citations; fetches nothing
	$(call heading,documentation)
	@PYTHONPATH=src $(DOCS)/bin/python -m docs.site $(ARGS)

pictures: $(VENV)/.dev-ready build/mermaid/.ready ## draw the pictures of the pages for the site; needs chromium and npm
	$(call heading,pictures)
	$(BIN)/python -m tests.docs.pictures build/mermaid

shots: $(VENV)/.dev-ready ## write screenshots of the dashboard into build/shots, some for the pages (ARGS=--million: with a million tasks); needs chromium
	$(call heading,screenshots)
	$(BIN)/python -m tests.web.shots $(ARGS)
	$(BIN)/python -m tests.docs.shots

manual: $(VENV)/.dev-ready ## write man pages, completion scripts (share) and the page of options, from the commands
	$(BIN)/python -m docs.site.manual

dist: $(DIST)/.ready ## build the packages of a release into dist, and check them
	$(call heading,packages)
	@$(DIST)/bin/python -m tests.release --wheels $(DIST)/wheels $(ARGS)

coverage: $(VENV)/.dev-ready ## run every test, of large counts a share, and report covered branches; core/ must stay above 95 %
	$(call heading,tests with coverage)
	$(PYTEST) --cov --cov-report=html --cov-report=term
	$(call heading,coverage of the core)
	$(BIN)/python -m coverage report --include='*/duly/core/*' --fail-under=95

conformance: $(VENV)/.dev-ready ## hold duly and its peers against the vectors in conformance/; write docs/conformance.md
	$(call heading,conformance)
	$(BIN)/python -m conformance table

bench: $(BENCH)/.ready $(APSCHEDULER4)/.ready ## measure duly beside its peers, in less than an hour; writes benchmarks/results
	$(call heading,benchmarks)
	@PYTHONPATH=src $(BENCH)/bin/python -m benchmarks $(ARGS)

bench-quick: $(BENCH)/.ready $(APSCHEDULER4)/.ready ## measure with fewer tasks, in two minutes; writes build/bench-quick
	$(call heading,quick benchmarks)
	@PYTHONPATH=src $(BENCH)/bin/python -m benchmarks --quick --results build/bench-quick $(ARGS)

bench-cluster: $(CLUSTER)/.ready ## measure hosts that share a PostgreSQL, beside other schedulers; real minutes: half an hour
	$(call heading,benchmarks of many hosts)
	@PYTHONPATH=src $(CLUSTER)/bin/python -m benchmarks.cluster $(ARGS)

check: check-format check-lint check-types ## check format, lint and types

check-format: $(VENV)/.dev-ready
	$(call heading,format)
	$(BIN)/ruff format --check .

check-lint: $(VENV)/.dev-ready
	$(call heading,lint)
	$(BIN)/ruff check .

check-types: $(VENV)/.dev-ready
	$(call heading,types)
	$(BIN)/mypy

format: $(VENV)/.dev-ready ## format the code, and fix what ruff can fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

lock: ## pin requirements/*.in again; UPGRADE=1 moves everything to its newest release
	PYTHON=$(PYTHON) requirements/lock $(if $(UPGRADE),--upgrade)

clean: ## remove everything that was made here; the next run sets up again
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* htmlcov build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up ----------------------------------------------------------------------------------------------------------
# A stamp is touched only after its step is complete, so an interrupted set-up starts that step again.
# The lock files are complete, so pip resolves nothing (--no-deps): its resolver looks at newer releases of a package that
# another one asks for with an extra (coverage[toml]), and refuses them as not pinned from the day they appear.

$(VENV)/.created $(BENCH)/.created $(APSCHEDULER4)/.created $(CLUSTER)/.created $(DOCS)/.created $(DIST)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    found=$$($(PYTHON) --version 2>&1 | head -n 1); \
	    echo "duly needs Python 3.11 or newer, and '$(PYTHON)' says: $$found" >&2; \
	    echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.13" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "$(PYTHON) has no venv module; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Setting up $(@D) (once; needs a package index)"
	@$(if $(filter $(CLUSTER)/.created,$@),$(CLUSTER_PYTHON),$(PYTHON)) -m venv --clear $(@D)
	@touch $@

$(VENV)/.run-ready: $(VENV)/.created requirements/run.txt
	@$(PIP_INSTALL) --require-hashes --no-deps -r requirements/run.txt
	@touch $@

# Without isolation and dependencies, the editable install builds with the pinned hatchling and fetches nothing.
$(VENV)/.dev-ready: $(VENV)/.run-ready requirements/dev.txt pyproject.toml
	@$(PIP_INSTALL) --require-hashes --no-deps -r requirements/dev.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

# `any` holds pure Python, for the other interpreters of this machine: what duly itself needs, and the peer beside it.
$(BENCH)/.ready: $(BENCH)/.created requirements/bench.txt requirements/bench-any.txt
	@$(PIP_INSTALL:$(BIN)/%=$(BENCH)/bin/%) --require-hashes --no-deps -r requirements/bench.txt
	@$(PIP_INSTALL:$(BIN)/%=$(BENCH)/bin/%) --require-hashes --no-deps --upgrade --target $(BENCH)/any -r requirements/bench-any.txt
	@touch $@

$(APSCHEDULER4)/.ready: $(APSCHEDULER4)/.created requirements/bench-apscheduler4.txt
	@$(PIP_INSTALL:$(BIN)/%=$(APSCHEDULER4)/bin/%) --require-hashes --no-deps -r requirements/bench-apscheduler4.txt
	@touch $@

$(CLUSTER)/.ready: $(CLUSTER)/.created requirements/bench-cluster.txt
	@$(PIP_INSTALL:$(BIN)/%=$(CLUSTER)/bin/%) --require-hashes --no-deps -r requirements/bench-cluster.txt
	@touch $@

$(DOCS)/.ready: $(DOCS)/.created requirements/docs.txt
	@$(PIP_INSTALL:$(BIN)/%=$(DOCS)/bin/%) --require-hashes --no-deps -r requirements/docs.txt
	@touch $@

# The wheels of what duly needs are kept, for the empty environment that `make dist` installs into.
$(DIST)/.ready: $(DIST)/.created requirements/dist.txt requirements/run.txt
	@$(PIP_INSTALL:$(BIN)/%=$(DIST)/bin/%) --require-hashes --no-deps -r requirements/dist.txt
	@$(DIST)/bin/python -m pip download -qq --disable-pip-version-check --require-hashes --no-deps -d $(DIST)/wheels -r requirements/run.txt
	@touch $@

build/mermaid/.ready:
	@npm install --silent --no-audit --no-fund --prefix build/mermaid mermaid@12.3.0
	@touch $@
