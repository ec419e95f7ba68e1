"""The list of widgets is whole, and the tool that measures them counts right."""

from pathlib import Path

import shown_widgets
import widget_latency

import eagle3.widgets


def test_every_widget_of_the_module_is_shown_and_has_a_class_of_tests():
    code = "\n".join(widget.code for widget in shown_widgets.WIDGETS.values())
    for name in eagle3.widgets.__all__:
        made = getattr(eagle3.widgets, name)
        if made.__annotations__.get("return") is eagle3.widgets.explorer.Explorer:
            assert f"{name}(" in code, name
    files = {path.stem for path in Path(__file__).parent.glob("test_*.py")}
    assert {f"test_{name}" for name in shown_widgets.WIDGETS} <= files


def test_the_summary_of_latencies():
    # Of 1 to 60: the median lies between 30 and 31; 57 is the first that 95% of 60
    # presses, which are 57, don't exceed.
    found = widget_latency.summary([float(x) for x in range(60, 0, -1)])
    assert found == {"presses": 60, "median_ms": 30.5, "p95_ms": 57.0}
