# Two commands for readers: `make lab` opens the book, `make test` checks everything.
# Needs Python 3.11 or newer and make, nothing else. `make help` lists all targets.

PYTHON ?= python3
VENV ?= .venv
CLASS_VENV ?= .venv-class
JOBS ?= 2
OPEN ?= my_notebooks
LAB_ARGS ?=
NB ?= $(wildcard notebooks/*.ipynb)
# What `make book` shows: "fresh" runs every chapter, "saved" takes what is in the files.
OUTPUTS ?= fresh
# Where the book's badges lead, as in https://github.com/OWNER/NAME; if it is empty,
# to the origin of this clone where that is on GitHub. The only place to set it.
REPOSITORY ?=
WORK ?= reproduced
ARGS ?=

# Which build of torch. On Linux pip's default is the CUDA build of several GB, which a
# laptop doesn't need, so there uv fetches the CPU build (it knows where that lies).
# For a CUDA build: `make clean`, then `make lab TORCH_BACKEND=auto` (or cu130, ...).
# TORCH_BACKEND= (empty) leaves torch to pip, as on macOS, and also where
# PIP_FIND_LINKS names a folder of wheels, since pip then takes torch from there.
ifeq ($(shell uname -s)$(PIP_FIND_LINKS),Linux)
TORCH_BACKEND ?= cpu
endif

PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
PIP_INSTALL := $(PY) -m pip install -c constraints.txt
TORCH := $(shell grep '^torch==' constraints.txt)

# Tests run one thread for each worker: two workers then use two cores fully. They
# must not depend on the network, so the model hub is switched off.
TEST_ENV := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 MPLBACKEND=Agg

.DEFAULT_GOAL := help
.PHONY: help lab test test-browser setup fetch lint pytest nbval notebooks figures
.PHONY: figures-check gpu-check mutations versions fuzz reproduce book book-check
.PHONY: class test-class student-copy clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile

lab: setup fetch ## Open the book in JupyterLab, in your own copy of the chapters
	@$(PY) tools/copy_notebooks.py notebooks my_notebooks
	$(PY) -m jupyterlab --ServerApp.root_dir=. \
	    --LabApp.default_url=/lab/tree/$(OPEN)/00_start_here.ipynb $(LAB_ARGS)

test: setup fetch lint pytest nbval ## Check everything: style, tests, every chapter

test-browser: setup fetch ## Drive the widgets in JupyterLab and Chromium; leaves screenshots/
	$(PIP_INSTALL) -e '.[test,browser]'
	$(TEST_ENV) $(PY) -m pytest tests/browser

setup: $(STAMP) ## Install everything into .venv (skipped where done)

# The stamp is touched last: an install that stops half-way is taken up again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo \
	    "$(PYTHON) is missing or older than 3.11: install Python 3.11 or newer, or" \
	    "name one, as in 'make $(MAKECMDGOALS) PYTHON=python3.12'."; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
	    echo "$(PYTHON) cannot make a virtual environment: install its venv module" \
	    "(on Debian and Ubuntu the package python3-venv)."; exit 1; }
ifneq ($(TORCH_BACKEND),)
	@$(PY) -m pip show --quiet torch 2>/dev/null || { $(PIP_INSTALL) uv \
	    && $(PY) -m uv pip install --python $(PY) --torch-backend=$(TORCH_BACKEND) \
	    $(TORCH); } || echo "The $(TORCH_BACKEND) build of torch can't be reached;" \
	    "pip takes its default build instead, which may be large."
endif
	$(PIP_INSTALL) -e '.[test]'
	@touch $@

fetch: setup ## Put the model into your cache (skipped where done)
	$(PY) -m eagle3 fetch

lint: setup ## Check the style of modules and notebooks
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

pytest: setup fetch ## Run the tests
	$(TEST_ENV) $(PY) -m pytest -n $(JOBS) --dist worksteal tests \
	    --ignore=tests/browser --ignore=tests/book --ignore=tests/classroom \
	    -m 'not classroom'

# One pytest process for all chapters; a chapter's cells stay on one worker.
nbval: setup fetch ## Run every chapter and compare with its saved outputs
	$(TEST_ENV) $(PY) -m pytest --nbval --nbval-current-env \
	    --nbval-sanitize-with=tests/nbval_sanitize.cfg --nbval-cell-timeout=120 \
	    -n $(JOBS) --dist loadfile notebooks/

# All cores and one chapter at a time, so that saved times are a reader's times.
notebooks: setup fetch ## Run chapters again and save them (NB=... for one)
	$(PY) tools/execute_notebooks.py $(NB)

figures: setup ## Redraw every figure from figures/results, refill the README
	$(PY) -m eagle3.plots
	$(PY) tools/readme.py

figures-check: setup ## Compare the committed figures with what would be drawn now
	$(TEST_ENV) $(PY) -m pytest -q tests/test_figures.py tests/test_readme.py \
	    -k "up_to_date or without_its_function or says_in_words"

# Half an hour and more. FAULTS names some of them: part of a file's name, or a number.
mutations: setup ## Plant faults in the module, one by one: do the tests notice?
	$(TEST_ENV) $(PY) tools/mutations.py $(FAULTS)

versions: setup ## Run the core tests with the oldest and newest transformers allowed
	$(TEST_ENV) $(PY) tools/versions.py $(VERSIONS)

fuzz: setup ## Read 10,000 damaged files: a clear sentence each, no crash, no hang
	$(TEST_ENV) $(PY) tools/fuzz.py $(CASES)

# Needs npm, which brings the script that typesets formulas.
book: setup $(if $(filter fresh,$(OUTPUTS)),fetch) ## Build the site (OUTPUTS=saved: fast)
	$(PIP_INSTALL) -e '.[test,book]'
	$(PY) tools/make_book.py --outputs "$(OUTPUTS)" --repository "$(REPOSITORY)"

book-check: book ## Build the site and look at every page in Chromium
	$(PIP_INSTALL) -e '.[test,book,browser]'
	$(PY) -m pytest tests/book

# Needs a CUDA build of torch (TORCH_BACKEND above), no network and no model.
gpu-check: setup ## Check the batch engine on this machine's GPU, in under 8 minutes
	$(PY) -m eagle3.bench.gpu_check figures/results

# Days of work on a laptop; run it again to go on. With ARGS=--list it only says what it
# does, with the hours that it took us; ARGS=--short trains two drafts on a few answers.
reproduce: setup fetch ## Make all data, drafts and numbers anew (ARGS=--short: minutes)
	$(PY) tools/reproduce.py $(WORK) $(ARGS)

# nbgrader adds buttons to every JupyterLab beside it, so it gets a place of its own.
class: ## For teachers: put nbgrader into .venv-class
	$(MAKE) setup VENV=$(CLASS_VENV)
	$(CLASS_VENV)/bin/python -m pip install -c constraints.txt -e '.[test,class]'

test-class: class ## For teachers: all checks of the assignments, nbgrader, a class of thirty
	$(TEST_ENV) $(CLASS_VENV)/bin/python -m pytest -n $(JOBS) --dist loadfile \
	    tests/classroom tests/test_assignments.py tests/test_grading*.py

# .gitattributes says what students don't get.
student-copy: ## For teachers: the book without solutions and checks, as an archive
	git archive --prefix=eagle3/ -o eagle3-student.tar.gz HEAD

clean: ## Remove .venv and caches; your copies of the chapters stay
	rm -rf $(VENV) $(CLASS_VENV) .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
