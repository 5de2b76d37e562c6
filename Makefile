# make test and make demo set up everything they need; see "make help".
# PYTHON=python3.12 chooses another Python (3.11 or later) for .venv.

PYTHON ?=
CATALOGUE ?= file
# POOL=bare: one site, without the daemon and the hook
POOL ?= furnished
PYTEST_ARGS ?=
# cells of make benefit, such as 'headline --minutes 60'; python -m benchmarks.benefit --help lists them
CELLS ?=
# make test-area AREA=faults: an area below, a folder of tests/, or a mark of pyproject.toml
AREA ?=
# processes of pytest in an area; 'make test-area WORKERS=1' keeps a busy machine usable
WORKERS ?= 2
UV ?= uv

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS := .venv-docs
PYTEST := $(BIN)/python -m pytest
# some images set it: then each process compiles all modules again
unexport PYTHONDONTWRITEBYTECODE
# tests that need no process, socket, thread or sleep; tests/conftest.py holds them to it
INSIDE := -m "not outside and not pool and not rucio and not slow" tests/unit tests/properties tests/contracts tests/simulation
# areas on real parts, at most a quarter of an hour each on two cores: their files, test_….py, in tests/integration
POOL_AREAS := condor rucio pacing submit rapthor toil staging daemon why neighbours
condor := authorization between_pools condor condor_c end_to_end hook older_bindings pool slot_merge two_collectors
rucio := rucio_end_to_end rucio_login storage_rucio
pacing := auto network openings pool_load start_record starving
submit := gpus job_start submit_language transform wrap
rapthor := rapthor_reader rapthor_slot submit_rapthor
toil := toil
staging := staging_end_to_end staging_rucio
daemon := clock daemon demo nginx operations playground reload secrets
why := docs_on_a_pool why
neighbours := neighbours recipes
# and in tests/deploy
DEPLOY_AREAS := packages booted container helm page service
packages := packages packages_13
booted := booted
container := container
helm := helm
page := page
service := docs metrics systemd
files = $(patsubst %,tests/integration/test_%.py,$(if $(filter $(1),$(POOL_AREAS)),$($(1)))) \
    $(patsubst %,tests/deploy/test_%.py,$(if $(filter $(1),$(DEPLOY_AREAS)),$($(1))))
IN_AREAS := $(foreach area,$(POOL_AREAS) $(DEPLOY_AREAS),$(call files,$(area)))
IN_NO_AREA := $(filter-out $(IN_AREAS),$(wildcard tests/integration/test_*.py tests/deploy/test_*.py))
$(if $(IN_NO_AREA),$(error in no area: $(IN_NO_AREA)))
$(if $(filter-out $(wildcard $(IN_AREAS)),$(IN_AREAS)),$(error not there: $(filter-out $(wildcard $(IN_AREAS)),$(IN_AREAS))))
# what make test-all runs after the gate, one after the other; their random examples are new in each run
AREAS := unit properties contracts simulation faults $(POOL_AREAS) $(DEPLOY_AREAS) older

.DEFAULT_GOAL := help
.PHONY: help setup prepare lint lint-style lint-types lint-calls lint-imports test test-area test-all wheels packages docs demo playground bench benefit lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(READY) ## .venv with everything that requirements.lock pins, and this project, editable

$(READY): requirements.lock pyproject.toml scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup $(VENV)
	@touch $@

prepare: $(READY) ## download what tests on real parts need; PARTS='Rucio nginx' chooses (default: all, half an hour)
	$(BIN)/python -m testbed.prepare $(PARTS)

lint: $(READY) ## ruff, mypy (strict; of tests, only the calls) and the import contracts
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint-types lint-calls lint-style lint-imports

lint-style: $(READY)
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .

lint-types: $(READY)
	$(BIN)/mypy

lint-calls: $(READY)
	$(BIN)/mypy --config-file tests/mypy.ini tests

lint-imports: $(READY)
	$(BIN)/lint-imports --no-logo

test: lint ## the gate: tests in one process, then a real HTCondor 25.14, a real Rucio and the wheel (under 12 minutes)
	$(BIN)/python -m testbed.prepare "HTCondor 25.14" Rucio
	$(PYTEST) --gate -n 2 --dist worksteal $(INSIDE) $(PYTEST_ARGS)
	$(PYTEST) --gate --htcondor 25.14 tests/gate $(PYTEST_ARGS)

# an area of files, a folder of tests/, or a mark; what the gate runs of unit is not run again
AREA_TESTS = $(or $(strip $(call files,$(AREA))),$(if $(filter unit,$(AREA)),-m outside tests/unit,$(if \
    $(wildcard tests/$(AREA)),tests/$(AREA),-m $(AREA))))
OTHERS = $(if $(filter $(AREA),$(AREAS)),the gate and the areas $(filter-out $(AREA),$(AREAS)),all but $(AREA_TESTS))

ifeq ($(AREA),older)
test-area: export HYDRATOR_TEST_HTCONDOR = 23.9
endif
test-area: $(READY) ## the tests of one area: AREA=condor, rucio, submit, staging, faults, helm, unit/adapters, older, …
	$(if $(AREA),,$(error name an area: make test-area AREA=faults))
	@echo "area $(AREA): not run: $(OTHERS)"
	$(if $(filter simulation,$(AREA)),$(BIN)/python -m tests.simulation --minutes 12)
	$(PYTEST) -n $(WORKERS) --dist loadfile $(AREA_TESTS) $(PYTEST_ARGS)

test-all: test ## the gate, then every area (hours)
	@failed=; for area in $(AREAS); do $(MAKE) --no-print-directory test-area AREA=$$area || failed="$$failed $$area"; done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

docs: $(READY) $(DOCS)/.ready ## dist/docs/html; warnings are errors; the reference is built from the code
	$(BIN)/python scripts/docs.py dist/docs/source
	$(DOCS)/bin/sphinx-build --fail-on-warning --keep-going --nitpicky --quiet -b html dist/docs/source dist/docs/html

$(DOCS)/.ready: docs/docs.lock | $(READY)
	$(BIN)/python -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r docs/docs.lock
	@touch $@

wheels: $(READY) ## dist/: the project's wheel and those that it needs, for deploy/container/Containerfile
	$(BIN)/python -m testbed.wheelhouse dist

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
