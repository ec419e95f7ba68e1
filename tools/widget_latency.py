"""From key press to changed picture: figures/results/widget_latency.json.

    python tools/widget_latency.py

Shows every widget in JupyterLab and Chromium (see tools/browser_lab.py), presses keys,
and measures in the page how long it takes until the picture has changed and is drawn.
The way is: page, server, kernel, the widget's renderer, server, page.
"""

import os
import statistics
from pathlib import Path
from typing import Any

import browser_lab
from shown_widgets import WIDGETS, Widget

from eagle3.bench.environment import write_results

RESULTS = Path(__file__).parents[1] / "figures" / "results"
PRESSES = 60
GOAL = {"median_ms": 100, "p95_ms": 250}


def measure(lab: browser_lab.Lab, name: str, widget: Widget) -> dict[str, float]:
    """Press the widget's keys in turn, sixty times."""
    notebook = lab.open(name, widget.code)
    notebook.slider(widget.handle).focus()
    notebook.page.keyboard.press("Home")
    notebook.hammer(widget.keys * 5)  # caches fill
    notebook.page.keyboard.press("Home")
    notebook.ask("")
    found = notebook.latencies(widget.keys, PRESSES)
    lab.close()
    return summary(found)


def summary(milliseconds: list[float]) -> dict[str, float]:
    """Median and 95th percentile: the smallest that 95 of 100 don't exceed."""
    ordered = sorted(milliseconds)
    last = -(-95 * len(ordered) // 100) - 1
    return {
        "presses": len(ordered),
        "median_ms": round(statistics.median(ordered), 1),
        "p95_ms": round(ordered[last], 1),
    }


def main() -> None:
    """Measure all widgets and write the file."""
    before = os.getloadavg()[0]
    with browser_lab.lab() as lab:
        widgets = {}
        for name, widget in WIDGETS.items():
            widgets[name] = measure(lab, name, widget)
            print(name, widgets[name], flush=True)
        version = lab.browser.version
    content: dict[str, Any] = {
        "what": "milliseconds from key press to changed picture, measured in the page",
        "browser": f"Chromium {version}, headless",
        "goal": GOAL,
        # Processes that wanted a core, in the mean of a minute: more than cores means
        # that the times are upper bounds.
        "load_average": {
            "before": round(before, 2),
            "after": round(os.getloadavg()[0], 2),
        },
        "widgets": widgets,
    }
    print(write_results("widget_latency", content, RESULTS))


if __name__ == "__main__":
    main()
