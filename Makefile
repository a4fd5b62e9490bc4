# `make demo` and `make test` set up everything they need; only Python 3.11+, git and make are taken for granted.
PYTHON ?= python3
PIP_FLAGS := --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test campaign fuzz test-torch test-slow test-lowest lint docs dist examples pictures bench clean

demo: .venv/.user
	.venv/bin/reluscope demo

# Ends with the files that have the most lines no test ran, and the total; `make test COVERAGE=` does without, and takes
# about a third less CPU on Python 3.11.
COVERAGE ?= --cov --cov-report=
# Two test processes, one BLAS thread each: threads of OpenBLAS that wait for a core spin, and small problems take five times as long.
ALONE := OPENBLAS_NUM_THREADS=1
LEAST_COVERED = .venv/bin/python -m coverage report --sort=-miss | sed -n '1,12p;/^TOTAL/p'
test: .venv/.test
	COVERAGE_CORE=$$(.venv/bin/python -c "import sys; print('sysmon' if sys.version_info >= (3, 12) else 'ctrace')") \
		$(ALONE) .venv/bin/python -m pytest -n 2 -m "not slow" $(COVERAGE)
	$(if $(COVERAGE),$(LEAST_COVERED))

# 10,000 random problems, and 100 of each kind of question that stands on them, against references of their own; about
# half an hour on two cores, and 0 wrong is the only pass.
campaign: .venv/.test
	OMP_NUM_THREADS=1 PYTHONPATH=tests .venv/bin/python -m campaign

test-slow: .venv/.test
	$(ALONE) .venv/bin/python -m pytest -n 2 -m slow

# A minute of damaged files for each reader and the event language; `make test` spends seconds on it.
fuzz: .venv/.test
	RELUSCOPE_FUZZ_SECONDS=60 $(ALONE) .venv/bin/python -m pytest -n 2 tests/fuzz

# The lowest versions that pyproject.toml allows of what we import; their own warnings are no errors.
test-lowest: .venv-lowest/.test
	$(ALONE) .venv-lowest/bin/python -m pytest -n 2 -m "not slow" -W default

# torch stays optional: its own environment, so that `make test` shows the package works without it.
test-torch: .venv-torch/.test
	KERAS_BACKEND=torch .venv-torch/bin/python -m pytest tests/formats tests/representation -m "not slow" -k "torch or keras"
	.venv-torch/bin/python -m pytest tests/lens tests/security/test_hostile_torch.py -m "not slow"

lint: .venv/.test
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

docs: .venv/.test
	.venv/bin/pip install $(PIP_FLAGS) -e ".[docs]"
	.venv/bin/python -m sphinx -W --keep-going -b html docs docs/_build/html

# A wheel and an sdist in dist/, each installed in a clean environment and tried there.
dist: .venv/.test
	.venv/bin/python tools/dist.py

examples: .venv/.test
	.venv/bin/python tools/train_examples.py

pictures: .venv/.test
	.venv/bin/python tools/make_pictures.py
	.venv/bin/python tools/make_guide_pictures.py

bench: .venv/.test
	.venv/bin/pip install $(PIP_FLAGS) -e ".[bench]"
	for script in batch regions masses2d massesnd growth linear_models lines rare unwrap layers; do .venv/bin/python benchmarks/$$script.py; done

.venv/.user: pyproject.toml constraints.txt
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/pip install $(PIP_FLAGS) -e ".[all]"
	touch $@

.venv/.test: pyproject.toml constraints.txt
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/pip install $(PIP_FLAGS) -e ".[dev]"
	touch $@ .venv/.user

.venv-torch/.test: pyproject.toml constraints.txt
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/pip install $(PIP_FLAGS) torch==2.13.0
	.venv-torch/bin/pip install $(PIP_FLAGS) -e ".[test]" keras
	.venv-torch/bin/pip install $(PIP_FLAGS) --no-deps transformers tokenizers huggingface-hub regex tqdm  # no other torch comes along
	touch $@

.venv-lowest/.test: pyproject.toml tools/lowest_versions.py
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	$(PYTHON) tools/lowest_versions.py test > .venv-lowest/constraints.txt
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check -c .venv-lowest/constraints.txt -e ".[test]"
	touch $@

clean:
	rm -rf .venv .venv-torch .venv-lowest dist .coverage reluscope-demo docs/_build docs/api docs/auto_gallery .pytest_cache .mypy_cache .ruff_cache
