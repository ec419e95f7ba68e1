"""Settings for all tests, made before anything imports torch, matplotlib or the hub."""

import os

# A test must give the same answer without a network, and never open a window.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"
# One thread for each worker: `make test` runs as many workers as it may use cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest


@pytest.fixture(scope="session")
def real_target():
    """SmolLM2-135M-Instruct from the user's cache, loaded once per worker."""
    from eagle3.target import load_target

    return load_target()
