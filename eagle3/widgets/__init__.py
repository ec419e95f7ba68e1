"""Explorers: pictures of the book that a reader changes by hand.

Each is a state (a frozen dataclass), a renderer (state -> picture with words) and thin
controls; `explorer.py` holds what they share. [Ours]
"""

from eagle3.widgets.acceptance_explorer import acceptance_explorer
from eagle3.widgets.acceptance_state import Rows
from eagle3.widgets.cost_explorer import cost_explorer
from eagle3.widgets.cost_state import Server
from eagle3.widgets.engine_trace import engine_trace
from eagle3.widgets.forest import plant
from eagle3.widgets.mask_explorer import mask_explorer
from eagle3.widgets.step_explorer import step_explorer
from eagle3.widgets.step_state import watcher
from eagle3.widgets.tap_picker import tap_picker
from eagle3.widgets.training_replay import training_replay
from eagle3.widgets.tree_grower import tree_grower

__all__ = [
    "Rows",
    "Server",
    "acceptance_explorer",
    "cost_explorer",
    "engine_trace",
    "mask_explorer",
    "plant",
    "step_explorer",
    "tap_picker",
    "training_replay",
    "tree_grower",
    "watcher",
]
