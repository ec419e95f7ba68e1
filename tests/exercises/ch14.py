"""Chapter 14: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "14.1": "answer",
    "14.2": "break_even",
    "14.3": ("answer", "WORKLOADS"),
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "14.1": {
        "tokens per millisecond": ('"plain_ms": 6.32', '"plain_ms": 0.158'),
        "EAGLE-2's time": ('"eagle3_ms": 2.68', '"eagle3_ms": 4.10'),
        "milliseconds": ('"saved_s": 3.64', '"saved_s": 3640'),
        "the mean taken for the gap": ('"gap_ms": 8.04', '"gap_ms": 2.68'),
        "the speedup taken for the price": ('"cycle": 1.27', '"cycle": 2.36'),
    },
    "14.2": {
        "start below 1 forgotten": ("ratios[0] < 1", "ratios[0] < 0"),
        "touching is crossing": ("if low < 1:", "if low <= 1:"),
        "no straight line": (
            "batches[i] + step * (high - 1) / (high - low)",
            "batches[i + 1]",
        ),
        "the last crossing": (
            "range(len(batches) - 1)",
            "reversed(range(len(batches) - 1))",
        ),
        "upside down": ("(high - 1) / (high - low)", "(1 - low) / (high - low)"),
    },
    "14.3": {
        "chat without drafts breaks its promise": (
            '"chat": (200, 3)',
            '"chat": (200, 0)',
        ),
        "chat with few requests": ('"chat": (200, 3)', '"chat": (37, 0)'),
        "voice with a long gap": ('"voice": (142, 2)', '"voice": (142, 4)'),
        "voice as short as possible": ('"voice": (142, 2)', '"voice": (75, 0)'),
        "archive without drafts": ('"archive": (200, 4)', '"archive": (200, 0)'),
        "archive too large": ('"archive": (200, 4)', '"archive": (250, 4)'),
    },
}

CHAPTER = Chapter(
    "14_serving",
    ANSWERS,
    half={"14.1": "8.04", "14.3": "(142, 2)"},
    wrong=WRONG,
    setup=("WORKLOADS = {", "answer = {"),
)
