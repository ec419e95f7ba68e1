"""Settings for all tests, made before anything imports torch, matplotlib or the hub."""

import os

# A test must give the same answer without a network, and never open a window.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"
# One thread for each worker: `make test` runs as many workers as it may use cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
