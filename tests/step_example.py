"""Figure 5's example as a recording made by hand: How can -> I -> do it now.

Two guesses of three are right, the third is replaced by "fast". Every vector's sketch
is one number, repeated, so that a tile tells which row of which call it shows.
"""

from eagle3.trace import TraceRow
from eagle3.watch import Call, Recording, WatchedCycle

K, V, VD = 6, 50, 20


def vectors(*numbers: int) -> tuple[tuple[int, ...], ...]:
    return tuple((number,) * 8 for number in numbers)


PREFILL = Call(
    "target", 0, (0, 1), (1, 2), (1, 2, 3 * K), vectors(-2, -2), ("I",), cached=2
)
FIRST = WatchedCycle(
    TraceRow(1, "I", ("do", "it", "now"), 2, "fast", "replacement", 3, 5, 2),
    (
        Call("fuse", 0, (), (1, 2, 3 * K), (1, 2, K), vectors(0, 1)),
        Call("layer", 0, (1, 2), (1, 2, K), (1, 2, K), vectors(-1, 2), cached=2),
        Call("head", 0, (), (1, 1, K), (1, 1, VD), choices=("do",)),
        Call("layer", 2, (3,), (1, 1, K), (1, 1, K), vectors(1), cached=3),
        Call("head", 0, (), (1, 1, K), (1, 1, VD), choices=("it",)),
        Call("layer", 3, (4,), (1, 1, K), (1, 1, K), vectors(0), cached=4),
        Call("head", 0, (), (1, 1, K), (1, 1, VD), choices=("now",)),
        Call(
            "target",
            2,
            (2, 3, 4, 5),
            (1, 4),
            (1, 4, 3 * K),
            vectors(2, 1, 0, -1),
            ("do", "it", "fast", "?"),
            cached=6,
        ),
    ),
)
SECOND = WatchedCycle(
    TraceRow(2, "fast", ("?",), 1, "No", "bonus", 2, 7, 5),
    (
        Call("fuse", 0, (), (1, 3, 3 * K), (1, 3, K), vectors(-1, 0, 2)),
        Call("layer", 2, (3, 4, 6), (1, 3, K), (1, 3, K), vectors(1, 2, 0), cached=5),
        Call("head", 0, (), (1, 1, K), (1, 1, VD), choices=("?",)),
        Call(
            "target",
            5,
            (6, 7),
            (1, 2),
            (1, 2, 3 * K),
            vectors(0, 0),
            ("?", "No"),
            cached=7,
        ),
    ),
)
RECORDING = Recording(
    ("How", "can", "I", "do", "it", "fast", "?", "No"),
    2,
    PREFILL,
    (FIRST, SECOND),
    (K, V, VD),
)
