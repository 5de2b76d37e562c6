# make test and make demo set up everything they need; see "make help".
# PYTHON=python3.12 chooses another Python (3.11 or later) for .venv.

PYTHON ?=
CATALOGUE ?= file
# POOL=bare: one site, without the daemon and the hook
POOL ?= furnished
PYTEST_ARGS ?=
# cells of make benefit, such as 'headline --minutes 60'; python -m benchmarks.benefit --help lists them
CELLS ?=
# an OCI archive of the image, for make provenance
IMAGE ?=
# number of test files that run at the same time, each in one process: tests on pools mostly wait
WORKERS ?= 4
UV ?= uv

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS := .venv-docs
PYTEST := $(BIN)/python -m pytest
# some images set it: then each process compiles all modules again
unexport PYTHONDONTWRITEBYTECODE
# tests/order.py says which files begin first
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup prepare lint test test-fast test-slow test-faults test-deploy wheels provenance packages docs demo playground bench benefit lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(READY) ## .venv with everything that requirements.lock pins, and this project, editable

$(READY): requirements.lock pyproject.toml scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup $(VENV)
	@touch $@

prepare: $(READY) ## download once what tests on real parts need: HTCondor, Rucio, a Debian with systemd, Helm, a browser…
	$(BIN)/python -m testbed.prepare

lint: $(READY) ## ruff, mypy (strict; of tests, only the calls) and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini tests
	$(BIN)/lint-imports

test: lint ## all tests except the slow ones, with a real HTCondor pool, Rucio, systemd, Helm, Prometheus and Chromium
	$(PYTEST) $(PARALLEL) -m "not slow" $(PYTEST_ARGS)

test-fast: $(READY) ## unit, property and contract tests: no HTCondor pool, no Rucio (about ten minutes on two cores)
	$(PYTEST) -n 2 --dist loadfile -m "not slow and not pool and not rucio" tests/unit tests/properties tests/contracts $(PYTEST_ARGS)

test-slow: $(READY) ## tests that take minutes
	$(PYTEST) $(PARALLEL) -m slow $(PYTEST_ARGS)

test-faults: $(READY) ## all fault tests in full, and kill -9 some hundreds of times (half an hour)
	HYDRATOR_FAULTS=long $(PYTEST) tests/faults tests/properties/test_laws.py tests/unit/staging/test_kills.py $(PYTEST_ARGS)

test-deploy: $(READY) ## tests of the deployment only: the systemd unit (booted), metrics, alerts, dashboard, chart, image, page
	$(PYTEST) $(PARALLEL) tests/deploy $(PYTEST_ARGS)

docs: $(READY) $(DOCS)/.ready ## dist/docs/html; warnings are errors; the reference is built from the code
	$(BIN)/python scripts/docs.py dist/docs/source
	$(DOCS)/bin/sphinx-build --fail-on-warning --keep-going --nitpicky --quiet -b html dist/docs/source dist/docs/html

$(DOCS)/.ready: docs/docs.lock | $(READY)
	$(BIN)/python -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r docs/docs.lock
	@touch $@

wheels: $(READY) ## dist/: the project's wheel and those that it needs, for deploy/container/Containerfile
	$(BIN)/python -m testbed.wheelhouse dist

provenance: wheels ## dist/: in-toto statements (SLSA) about the wheel, and about an image with IMAGE=archive.tar
	$(BIN)/python -m testbed.provenance dist $(if $(IMAGE),--image $(IMAGE))

packages: $(READY) ## dist/packages: .deb for Debian 12 and 13, .rpm for Enterprise Linux 9 and 10, from the lock, reproducibly
	$(BIN)/python -m scripts.packages dist/packages

demo: $(READY) ## three sites, jobs that follow their data; CATALOGUE=file (default), rucio or dmapi (a stand-in)
	$(BIN)/python -m testbed.demo --catalogue $(CATALOGUE)

playground: $(READY) ## a shell on a pool of three sites with the daemon; POOL=bare for one site without it
	@$(BIN)/python -m testbed.playground $(if $(filter bare,$(POOL)),--bare)

bench: $(READY) ## the measurements in benchmarks/
	$(BIN)/python -m benchmarks

benefit: $(READY) ## what data locality gains, on real pools (hours; resumable); CELLS='headline --minutes 60' chooses a part
	$(BIN)/python -m benchmarks.benefit $(CELLS)

lock: ## write requirements.lock from pyproject.toml (needs uv)
	{ head -n 2 requirements.lock; $(UV) pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-header --quiet $(LOCK_ARGS); } > requirements.lock.new
	mv requirements.lock.new requirements.lock
	{ head -n 1 docs/docs.lock; $(UV) pip compile docs/docs.in --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-header --quiet $(LOCK_ARGS); } > docs/docs.lock.new
	mv docs/docs.lock.new docs/docs.lock

clean: ## remove what was built here; the cache folder stays
	rm -rf $(VENV) $(DOCS) dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov
