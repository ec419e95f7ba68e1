"""Every widget of the book in one cell each, for whoever drives them in a browser."""

from dataclasses import dataclass

# The models are loaded once in a kernel, however often the cell runs.
_MODELS = """\
from eagle3 import generate, load_draft, load_target
if "draft" not in globals():
    target = load_target()
    draft = load_draft(target=target)
    run = generate(target, draft, "How can I cook rice?", max_new_tokens=12)
"""
_STEPS = """\
from eagle3.watch import record
from eagle3.widgets import step_explorer, watcher
ids = target.encode("I want to do it. I don't know how. How can")
_, recording = record(target, draft, ids, 12)
step_explorer(recording, watcher(target, draft)).show()"""
_TAPS = """\
from pathlib import Path
import eagle3
from eagle3.bench.environment import read_results
from eagle3.widgets import tap_picker
results = Path(eagle3.__file__).parents[1] / "figures" / "results"
tap_picker(read_results("probes", results)).show()"""


@dataclass(frozen=True)
class Widget:
    """Code that shows a widget, and keys that move one of its handles.

    handle: its label; at its lowest value the keys, pressed in turn and over again,
        change the picture each time
    """

    code: str
    handle: str
    keys: tuple[str, ...]


_DOWN = ("ArrowDown", "End", "ArrowUp", "Home")
_RIGHT = ("ArrowRight", "End", "ArrowLeft", "Home")
WIDGETS = {
    "masks": Widget(
        "from eagle3.widgets import mask_explorer\nmask_explorer().show()",
        "query: the row of the mask",
        _DOWN,
    ),
    "steps": Widget(_MODELS + _STEPS, "moment of the cycle", _RIGHT),
    "acceptance": Widget(
        "from eagle3.widgets import acceptance_explorer\nacceptance_explorer().show()",
        "draft q of I",
        ("ArrowUp", "PageUp", "ArrowDown", "PageDown"),
    ),
    "trace": Widget(
        f"{_MODELS}from eagle3.widgets import engine_trace\n"
        "engine_trace(target, draft, 'How can I cook rice?').show()",
        "cycle of the run",
        _RIGHT,
    ),
    "tree": Widget(
        f"{_MODELS}from eagle3.widgets import plant, tree_grower\n"
        "tree_grower({'rice': plant(target, draft, run, at=2)}).show()",
        "row of the block",
        _DOWN,
    ),
    "taps": Widget(_TAPS, "middle tap", _RIGHT),
    "cost": Widget(
        "from cost_example import SERVERS\nfrom eagle3.widgets import cost_explorer\n"
        "cost_explorer(SERVERS).show()",
        "requests in the batch",
        _RIGHT,
    ),
    "replay": Widget(
        "from replay_example import STORED\n"
        "from eagle3.widgets import training_replay\n"
        "training_replay(STORED).show()",
        "moment of the training",
        _RIGHT,
    ),
}
