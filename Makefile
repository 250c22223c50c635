# Everything a checkout needs; `make help` lists it.
#
# Works on a Debian machine with Rust, Python 3.11 and nothing else. What is made lies in the
# checkout (.venv, target, dist, demo-data); only the system packages that scripts/needs names are
# outside it, and they are installed by root alone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The Python that .venv is made with.
export PYTHON ?= python3
VENV := .venv
# A second environment, with PyTorch, Keras, TensorFlow, JAX and Ray, for the tests that need them.
VENV_FRAMEWORKS := .venv-frameworks
BIN := $(VENV)/bin
# maturin installs into the environment that is active, and refuses to choose between two.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH

# `make demo DATA=folder`: your own images instead of made-up ones.
DEMO := demo-data/photos
DATA ?= $(DEMO)
# How many images are made up, how long the demo measures, and what the engine is built as.
DEMO_COUNT ?= 1000
DEMO_SECONDS ?= 10
PROFILE ?= release

# `make bench ARGS="classification --loaders bare infeed tf"`: see benchmarks/README.md.
ARGS ?= --loaders bare infeed

# `make fuzz MINUTES=60 TARGETS="decode_png wire"`; `make soak HOURS=8`; `make chaos MINUTES=60`.
MINUTES ?= 10
HOURS ?= 1
TARGETS ?=

.PHONY: help demo test test-frameworks test-all lint docs gate gate-ratio wheel gpu-kit bench clean install
.PHONY: fuzz soak chaos

help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 15

demo: install ## look at a dataset, feed from it, explain it; DATA=folder takes your own
ifeq ($(DATA),$(DEMO))
	@$(MAKE) $(DEMO)
endif
	@mkdir -p demo-data
	@echo; echo "== What is in $(DATA): infeed inspect"
	@$(BIN)/infeed inspect "$(DATA)" --sheet demo-data/sheet.png
	@echo; echo "== How fast this machine feeds from it: infeed bench"
	@$(BIN)/infeed bench "$(DATA)" --seconds $(DEMO_SECONDS)
	@echo; echo "== What limits it, and what would help: infeed explain"
	@$(BIN)/infeed explain "$(DATA)" --seconds $(DEMO_SECONDS) --html demo-data/report.html
	@echo; echo "What a training loop would get is shown in demo-data/sheet.png,"
	@echo "who worked and who waited in demo-data/report.html."

# Under another name until it is whole: a dataset that exists is kept and used again.
$(DEMO):
	@rm -rf $(DEMO).unfinished
	@$(BIN)/infeed sample classification $(DEMO).unfinished --count $(DEMO_COUNT)
	@mv $(DEMO).unfinished $(DEMO)

# The package in .venv, its extension built as PROFILE says.
install: $(VENV)/ready
	@$(BIN)/maturin develop --profile $(PROFILE)

test: $(VENV)/ready ## all tests, Rust and Python, except those that need a framework
	@scripts/test

# Uses the extension that `install` left in the checkout, built as the tests build it.
test-frameworks: PROFILE := dev
test-frameworks: install $(VENV_FRAMEWORKS)/ready ## the tests that need PyTorch, Keras, TensorFlow, JAX or Ray (8 GB)
	PYTHONPATH=$(CURDIR)/python $(VENV_FRAMEWORKS)/bin/python -m pytest -m frameworks

test-all: test test-frameworks ## both

lint: $(VENV)/ready ## format, clippy, docs, ruff, types, stubs, licences, kernels, typos
	@scripts/needs lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --lib
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict python/infeed
	$(BIN)/maturin develop --quiet
	PYTHON=$(BIN)/python scripts/stubs
	scripts/deny
	scripts/dependencies --check
	scripts/kernels --check
	$(BIN)/typos

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

clean: ## remove everything that was made
	rm -rf $(VENV) $(VENV_FRAMEWORKS) target dist demo-data benchmarks/bare/target
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
$(VENV_FRAMEWORKS)/ready: scripts/requirements-dev.txt scripts/requirements-frameworks.txt $(ALONE)
	@scripts/needs frameworks
	@$(PYTHON) -m venv $(VENV_FRAMEWORKS)
	@$(VENV_FRAMEWORKS)/bin/pip install --quiet --disable-pip-version-check \
		$(addprefix -r ,$(filter-out $(ALONE),$^))
	@$(VENV_FRAMEWORKS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r $(ALONE)
	@touch $@
