# `make help` lists the targets. Everything they need is set up on the way, once.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Many images forbid Python to keep bytecode: then each worker and each process that a test starts
# compiles all modules anew, which takes a third of the time of both.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
CODE := src tests benchmarks scripts
# More options for the command that a target runs: make serve ARGS="--port 9000"
ARGS ?=
SLOWEST := --durations 15 --durations-min
# Those that need no real process run several at once, then the others, half of whose time is waiting;
# at last, one after the other, those that measure times.
PURE = $(addprefix tests/,architecture docs doctor oracles parity properties unit)
# The scripts in benchmarks/ that can be run, as the names that bench-NAME takes.
BENCHMARKS = $(subst _,-,$(basename $(notdir $(shell grep -ls '^if __name__' benchmarks/*.py))))

.PHONY: help setup serve test test-heavy check docs bench clean distclean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
	@echo "bench-NAME    Run one benchmark: $(BENCHMARKS)"

setup: ## Make .venv with Mileage and its development tools
	@scripts/setup.sh dev

serve: ## Start the gateway with the embedded engine; ARGS="..." are mileage serve's
	@scripts/setup.sh
	@exec $(BIN)/mileage serve $(ARGS)

test: setup ## Run the tests, but for the heavy ones; ARGS="..." are pytest's, for some of them
ifeq ($(strip $(ARGS)),)
	@failed=0; \
	$(BIN)/python -m pytest $(SLOWEST) 10 -n auto --maxprocesses 4 --dist loadfile $(PURE) || failed=1; \
	processes() { scripts/test-processes.sh $(SLOWEST) 10 "$$@" tests/integration tests/e2e || failed=1; }; \
	processes -n 4 --dist loadfile -m 'not heavy and not quiet'; \
	processes -m 'quiet and not heavy'; \
	exit $$failed
else
	@exec $(BIN)/python -m pytest $(ARGS)
endif

test-heavy: setup vllm onnx-genai ## Run the tests that need a real vLLM or a browser
	@scripts/setup-debian.sh chromium chromium-driver postgresql prometheus || echo "going on: what needs them is skipped"
	@exec scripts/test-processes.sh $(SLOWEST) 20 -m heavy $(ARGS)

check: setup ## Check format, lint, types, architecture and docs
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/architecture tests/docs

docs: setup ## Write the reference pages anew from the code
	$(BIN)/python -m scripts.reference

bench: $(BENCHMARKS:%=bench-%) ## Run every benchmark

# What a benchmark needs beside .venv stands before it as a prerequisite: a target below, or
# debian-PACKAGE.
bench-gateway: debian-nginx debian-wrk vllm-router litellm
bench-metering: debian-nginx
bench-ledger-report: debian-nginx debian-wrk
bench-simulate: dynamo
bench-oracle: oracle
bench-loadgen: guidellm
bench-vllm bench-vllm-plugin: vllm

# A reference model needs torch and transformers, which vLLM's environment has.
bench-quant: vllm
	@exec .venvs/vllm/bin/python -m benchmarks.quant $(ARGS)

bench-%: setup
	@exec $(BIN)/python -m benchmarks.$(subst -,_,$*) $(ARGS)

.PHONY: vllm vllm-router litellm
vllm vllm-router litellm:
	@scripts/setup-$@.sh

.PHONY: dynamo
dynamo:
	@scripts/setup-dynamo.sh || echo "going on without Dynamo's replay"

.PHONY: guidellm
guidellm:
	@scripts/setup-guidellm.sh || echo "going on without GuideLLM"

.PHONY: onnx-genai
onnx-genai:
	@scripts/setup-onnx-genai.sh || echo "going on without ONNX Runtime GenAI"

.PHONY: oracle
oracle:
	@scripts/setup-oracle.sh || echo "going on without the oracle"

debian-%:
	@scripts/setup-debian.sh $*

clean: ## Remove caches and build outputs
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find src tests benchmarks scripts -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## Remove the virtual environments too
	rm -rf .venv .venvs .cache
