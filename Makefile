# Two commands set everything up on a fresh machine: `make smoke` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUT ?= runs/smoke
# bytecode is made by the first import: a third of the modules are ever imported, and making all of it took two fifths
# of pip's time
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

CHIPS ?= .venv-chips
HF ?= .venv-hf
ENGINES ?= .venv-engines
DEVICE ?= runs/test-device.json
JOBS ?= 3

# A host that forbids bytecode has every process compile its imports anew, since pip makes none either: 3 s of a
# trainer's start, and half of the collection of tests in each worker. Empty, the variable forbids nothing.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help smoke install test sentences test-slow test-device test-chips test-hf test-engines bench lint style types clean

help:
	@echo "make smoke      venv, install, the smoke sweep on the CPU, its fit and report"
	@echo "make test       venv, test extras, ruff, mypy, pytest"
	@echo "make sentences  renew the snapshots of output, after a change of words; of one room: ROOM=fit"
	@echo "make test-slow  the slow tier: coverage by simulation, many kills, Ray"
	@echo "make test-device  training on this host's devices against a CPU core, with tolerances; writes $(DEVICE)"
	@echo "make test-chips the compilers of TPUs and NVIDIA GPUs (some GB, in a venv of their own), without either"
	@echo "make test-hf    exports against transformers and lm-evaluation-harness, texts of the Hub (PyTorch, in a venv of its own)"
	@echo "make test-engines  Ray, buckets and Kubernetes' schemas on loopback; skips what is not installed"
	@echo "make bench      training side by side with plain JAX"

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than Python 3.11; set PYTHON=python3.11 or newer"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/made pyproject.toml constraints.txt
	@echo "installing dwsweep into $(VENV) (about a minute)"
	$(PIP) -e .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	@echo "installing the test extras"
	$(PIP) -e '.[test]'
	@touch $@

install: $(VENV)/installed

smoke: install
	$(BIN)/dwsweep run sweeps/smoke.yaml --out $(OUT)
	$(BIN)/dwsweep fit $(OUT)
	$(BIN)/dwsweep report $(OUT)

lint: style types

style: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

TYPES := $(BIN)/mypy dwsweep && { $(BIN)/lint-imports --no-cache >/dev/null || $(BIN)/lint-imports --no-cache; }

types: $(VENV)/installed-test
	$(TYPES)

TESTS := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# in a fresh checkout every worker would compile all packages and tests at once: one process does it before them
COMPILED := [ -d tests/__pycache__ ] || $(BIN)/python -m pytest --collect-only -n 0 >/dev/null

# of two cores: a third process works while others wait for a child; more cores take more, `make test JOBS=12`.
# mypy takes half a minute of one core without its cache: it works beside the tests, and has its say after theirs
test: style
	@echo "$(TESTS)"; { $(TYPES); } >$(VENV)/types.log 2>&1 & types=$$!; \
	$(COMPILED); $(TESTS); tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types.log; \
	[ $$types -eq 0 ] || echo "error: mypy or lint-imports found faults: see above"; \
	[ $$tests -eq 0 ] || echo "error: tests failed: see above"; \
	[ $$types -eq 0 ] && [ $$tests -eq 0 ]

# one process, for all write one file; look at the diff of tests/snapshots
sentences: $(VENV)/installed-test
	DWSWEEP_RENEW_SENTENCES=1 $(BIN)/python -m pytest -n 0 $(shell grep -rl "from sentences import" tests/$(ROOM))

test-slow: $(VENV)/installed-test
	XLA_FLAGS= $(BIN)/python -m pytest -m slow -n 2 --dist worksteal

test-device: $(VENV)/installed-test
	XLA_FLAGS= JAX_NUM_CPU_DEVICES=2 DWSWEEP_DEVICE_REPORT=$(DEVICE) $(BIN)/python -m pytest -m device tests/train

$(CHIPS)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(CHIPS)
	@echo "installing dwsweep and the compilers of TPUs and NVIDIA GPUs into $(CHIPS) (some GB)"
	$(CHIPS)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tpu,cuda,test]'
	@touch $@

test-chips: $(CHIPS)/installed
	$(CHIPS)/bin/python -m pytest -m chips

$(HF)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(HF)
	@echo "installing dwsweep, PyTorch, transformers and lm-evaluation-harness into $(HF) (some GB where PyTorch brings CUDA)"
	$(HF)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[exports,hf,test]'
	@touch $@

test-hf: $(HF)/installed
	$(HF)/bin/python -m pytest -m hf

$(ENGINES)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(ENGINES)
	@echo "installing dwsweep and the clients of buckets and clusters into $(ENGINES)"
	$(ENGINES)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[gcs,ray,engines]'
	@touch $@

test-engines: $(ENGINES)/installed
	$(ENGINES)/bin/python -m pytest -m engines -rs tests/engines

bench: $(VENV)/installed-test
	$(BIN)/python tests/benchmarks/bench_train.py

clean:
	rm -rf $(VENV) $(CHIPS) $(HF) $(ENGINES) build *.egg-info
