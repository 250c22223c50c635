# Commands for a checkout; `make help` lists them.
#
# They work on a Debian machine with Rust, Python 3.11 and nothing else. All output stays in the
# checkout (.venv, target, dist, demo-data), except the system packages that scripts/needs installs
# if make runs as root.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The Python of .venv.
export PYTHON ?= python3
VENV := .venv
# A second environment, with PyTorch, Keras, TensorFlow, JAX and Ray, for the tests that need them.
VENV_FRAMEWORKS := .venv-frameworks
BIN := $(VENV)/bin
# maturin installs into the environment that is active, and refuses to choose between two.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH

# Environments of trainers, one for each.
VENV_TRAINERS := .venv-trainers

# `make demo DATA=folder`: your own images instead of generated ones. DEMO_ARGS: options of
# `infeed demo`. PROFILE: the build profile.
DATA ?=
DEMO_ARGS ?=
PROFILE ?= release

# `make test-trainers NAME=ultralytics`: the tests of one trainer.
NAME ?= ultralytics

# `make bench ARGS="classification --loaders bare infeed tf"`: see benchmarks/README.md.
ARGS ?= --loaders bare infeed

# `make fuzz MINUTES=60 TARGETS="decode_png wire"`; `make soak HOURS=8`; `make chaos MINUTES=60`.
MINUTES ?= 10
HOURS ?= 1
TARGETS ?=

.PHONY: help demo test test-frameworks test-trainers test-all lint docs gate gate-ratio wheel wheels platforms first-minute gpu-kit bench clean install
.PHONY: fuzz soak chaos

help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 15

demo: install ## inspect, measure and explain a dataset; DATA=folder uses your own images
	@$(BIN)/infeed demo demo-data $(if $(DATA),--data "$(DATA)") $(DEMO_ARGS)

# Installs the package in .venv, with an extension built in PROFILE.
install: $(VENV)/ready
	@$(BIN)/maturin develop --profile $(PROFILE)

test: $(VENV)/ready ## all tests, Rust and Python, except those that need a framework
	@scripts/test

# Uses the extension that `install` left in the checkout, in the profile of the tests. A process runs
# whole files, because tests of a file may share a Ray cluster. It imports all frameworks. PyTorch
# computes on one thread: the processes share the cores, and waiting threads of OpenMP use them too.
test-frameworks: PROFILE := dev
test-frameworks: install $(VENV_FRAMEWORKS)/ready ## the tests that need PyTorch, Keras, TensorFlow, JAX or Ray (16 GB of free disk)
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/python $(VENV_FRAMEWORKS)/bin/python -m pytest -m frameworks \
		--numprocesses $$(($$(nproc) + 1)) --maxprocesses 4 --dist loadfile --no-loadscope-reorder \
		-rfE --timeout 600 --junit-xml target/frameworks.xml

# In an environment with the trainer as its users install it.
test-trainers: PROFILE := dev
test-trainers: install $(VENV_TRAINERS)/$(NAME)/ready ## the tests of one trainer: NAME=ultralytics (6 GB of free disk)
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/python $(VENV_TRAINERS)/$(NAME)/bin/python -m pytest \
		python/tests/trainers/test_$(NAME).py -rfE --durations 5 --timeout 600

# Also tests that are a longer form of another one.
test-all: export INFEED_LONG_TESTS := 1
test-all: test test-frameworks ## both, with their long tests

# What needs no build comes first.
lint: $(VENV)/ready ## format, structure, clippy, features, docs, types, stubs, licences, kernels
	@scripts/needs lint
	cargo fmt --all --check
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/typos
	scripts/kernels --check
	cargo test --quiet -p tidy
	$(BIN)/pytest python/tests/test_tidy.py
	$(BIN)/mypy --strict python/infeed
	scripts/deny
	scripts/dependencies --check
	cargo clippy --workspace --all-targets -- -D warnings
	scripts/features
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --lib
	$(BIN)/maturin develop --quiet
	PYTHON=$(BIN)/python scripts/stubs

docs: $(VENV)/docs ## the documentation site, in target/site/
	@$(BIN)/python scripts/docs

gate: ## count the instructions of the benchmark jobs; fails when they grow by over 3 %
	@scripts/needs gate
	@scripts/gate counts

gate-ratio: ## compare the rates with the bare loops; fails when they fall by over 8 %
	@$(MAKE) install PROFILE=release
	@scripts/gate ratio

wheel: $(VENV)/ready ## a wheel for every Linux of this processor, in dist/
	@$(BIN)/pip install --quiet --disable-pip-version-check -r scripts/requirements-wheel.txt
	@rm -rf dist
	@scripts/wheel

wheels: wheel ## also for 64-bit Arm and Python 3.14t, and the source distribution; needs Debian's apt
	@scripts/wheel free-threaded
	@scripts/cross wheel arm
	@$(BIN)/maturin sdist --out dist

platforms: ## run the wheels in dist/ on all Pythons and processors, and write docs/reference/platforms.md
	@$(BIN)/python scripts/platforms

first-minute: ## time installing the wheel and the demo in a new Debian system; needs root
	@$(BIN)/python scripts/first-minute

gpu-kit: wheel ## what scripts/gpu-check needs on another machine, in target/gpu-kit/
	@PIP=$(BIN)/pip scripts/gpu-kit

bench: ## measure against the bare loops; ARGS picks workloads and peers
	@$(MAKE) install PROFILE=release
	$(BIN)/python benchmarks/run.py $(ARGS)

fuzz: ## fuzz all parsers and decoders for MINUTES, or those in TARGETS; needs nightly Rust
	@scripts/fuzz --minutes $(MINUTES) $(TARGETS)

soak: ## run random pipelines with kills and restarts for HOURS
	@$(MAKE) install PROFILE=dev
	@$(BIN)/python benchmarks/soak.py --hours $(HOURS)

chaos: ## disturb packers, feeders and storage for MINUTES
	@$(MAKE) install PROFILE=dev
	@$(BIN)/python benchmarks/chaos.py --minutes $(MINUTES)

clean: ## remove all output
	rm -rf $(VENV) $(VENV_FRAMEWORKS) $(VENV_TRAINERS) target dist demo-data benchmarks/bare/target
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts
	rm -rf .pytest_cache .ruff_cache .mypy_cache python/infeed/_core*.so
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/ready: scripts/requirements-dev.txt
	@scripts/needs
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/docs: scripts/requirements-docs.txt $(VENV)/ready
	@$(BIN)/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

ALONE := scripts/requirements-alone.txt
# Installs in a third of pip's time. pip runs where uv fails: uv does not read pip's settings, such as
# the address of an index. The files are compiled here because a compiler warns of the frameworks' own
# code, and tests turn warnings into errors.
install_in = $(BIN)/uv pip install --quiet --system-certs --no-cache --compile-bytecode \
	--python $(1)/bin/python $(2) \
	|| $(1)/bin/pip install --quiet --disable-pip-version-check $(2)
$(VENV_FRAMEWORKS)/ready: scripts/requirements-dev.txt scripts/requirements-frameworks.txt $(ALONE) | $(VENV)/ready
	@scripts/needs frameworks
	@$(PYTHON) -m venv $(VENV_FRAMEWORKS)
	@$(call install_in,$(VENV_FRAMEWORKS),$(addprefix -r ,$(filter-out $(ALONE),$^)))
	@$(call install_in,$(VENV_FRAMEWORKS),--no-deps -r $(ALONE))
	@touch $@

$(VENV_TRAINERS)/%/ready: scripts/trainers/%.txt | $(VENV)/ready
	@$(PYTHON) -m venv $(@D)
	@$(call install_in,$(@D),-r $<)
	@touch $@
