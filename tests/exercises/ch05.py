"""Chapter 5: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {"5.1": "answer", "5.2": "tap", "5.3": "without_doubles"}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "5.1": {
        "last layer for the high tap": ("[2, 16, 29]", "[2, 16, 31]"),
        "middle rounded up": ("[2, 4, 5]", "[2, 5, 5]"),
        "sorted in silence": ("[2, 2, 1]", "[1, 2, 2]"),
        "doubles are fine": ('"fine_4": False', '"fine_4": True'),
        "inputs for outputs": ("[1, 15, 28]", "[2, 16, 29]"),
        "moved the other way": ("[1, 15, 28]", "[3, 17, 30]"),
        "matrix turned round": ("[2048, 12288]", "[12288, 2048]"),
        "one tap's width": ("[2048, 12288]", "[2048, 4096]"),
        "the draft's width three times": ("[2048, 12288]", "[2048, 6144]"),
    },
    "5.2": {
        "keeps outputs": (
            "        if i in wanted:\n            kept.append(x)\n        x = layer(x)",
            "        x = layer(x)\n        if i in wanted:\n            kept.append(x)",
        ),
        "asked-for order": (
            "torch.cat(kept, dim=-1)",
            "torch.cat([kept[wanted.index(t)] for t in taps], dim=-1)",
        ),
        "high tap first": ("torch.cat(kept, dim=-1)", "torch.cat(kept[::-1], dim=-1)"),
        "summed": ("torch.cat(kept, dim=-1)", "sum(kept)"),
        "under each other": ("torch.cat(kept, dim=-1)", "torch.cat(kept, dim=1)"),
        "stops at the high tap": (
            "        x = layer(x)\n",
            "        x = layer(x) if i < wanted[-1] else x\n",
        ),
        "doubles pass": ("len(wanted) != 3", "len(wanted) > 3"),
        "two taps pass": ("len(taps) != 3 or len(wanted) != 3", "len(taps) > 3"),
        "four taps pass": (
            "len(taps) != 3 or len(wanted) != 3",
            "len(wanted) != len(taps) or len(taps) < 3",
        ),
        "minus one passes": ("wanted[0] < 0 or", ""),
        "beyond the last passes": (" or wanted[-1] >= len(layers)", ""),
        "runs layers twice": (
            "        x = layer(x)\n",
            "        x = layer(x) if layer(x) is not None else x\n",
        ),
    },
    "5.3": {
        "last one wins": (
            "sum(b for b, t in zip(blocks, taps, strict=True) if t == tap)",
            "[b for b, t in zip(blocks, taps, strict=True) if t == tap][-1]",
        ),
        "mean instead of sum": (
            "sum(b for b, t in zip(blocks, taps, strict=True) if t == tap)",
            "sum(b for b, t in zip(blocks, taps, strict=True) if t == tap)"
            " / taps.count(tap)",
        ),
        "blocks in the old order": (
            "if t == tap)\n        for tap in distinct",
            "if t == tap)\n        for tap in dict.fromkeys(taps)",
        ),
        "taps in the old order": (
            "distinct = sorted(set(taps))",
            "distinct = list(dict.fromkeys(taps))",
        ),
        "rows for columns": ("torch.cat(summed, dim=1)", "torch.cat(summed, dim=0)"),
        "nothing summed": (
            "return distinct, torch.cat(summed, dim=1)",
            "return distinct, weight",
        ),
    },
}

CHAPTER = Chapter(
    "05_taps_and_fusion",
    ANSWERS,
    half={"5.1": "[1, 15, 28]"},
    wrong=WRONG,
    errors=(AssertionError, ValueError, RuntimeError),  # shapes that don't fit
)
