"""Chapter 11: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "11.1": "answer",
    "11.2": "compact",
    "11.3": "most_slots",
    "11.4": "verdict",
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "11.1": {
        "mask as an index forgotten": ("[3, 4, 6, 9]", "[3, 6, 9]"),
        "where mistaken for it": ("[3, 4, 6, 9]", "[3, 4, 5, 6, 9]"),
        "shapes count as questions": ("[3, 4, 6, 9]", "[3, 4, 6, 7, 8, 9]"),
        "a sum on the device counts": ("[3, 4, 6, 9]", "[3, 4, 6, 9, 10]"),
        "a slice by a tensor forgotten": ("[3, 4, 6, 9]", "[3, 4, 9]"),
        "another order": ("[3, 4, 6, 9]", "[4, 3, 6, 9]"),
    },
    "11.2": {
        "one row too few": ("place <= count", "place < count"),
        "all of the path": (
            "torch.where(place <= count[:, None], path, place)",
            "path",
        ),
        "lengths forgotten": ("read = (lengths[:, None] + source)", "read = (source)"),
        "one length for all": (
            "write = (lengths[:, None] + place)",
            "write = (lengths[0] + place)",
        ),
        "not in place": ("return buffer.scatter_(", "return buffer.scatter("),
        "the other way": (
            "write, buffer.gather(1, read)",
            "read, buffer.gather(1, write)",
        ),
        "asks for the largest count": (
            "torch.arange(path.shape[1])",
            "torch.arange(path.shape[1] + 0 * int(count.max()))",
        ),
    },
    "11.3": {
        "weights for each slot": ("each = size(2) - size(1)", "each = size(1)"),
        "weights forgotten": ("free - spare - once", "free - spare"),
        "nothing left free": ("free - spare - once", "free - once"),
        "rounded up": ("// each)", "// each + 1)"),
        "fewer than none": ("return max(0, (free", "return min(9999, (free"),
        "length forgotten": ("Slots(count, length)", "Slots(count, 2048)"),
    },
    "11.4": {
        "compares the two": (
            "logits.max() - torch.minimum(logits[a], logits[b])",
            "(logits[a] - logits[b]).abs()",
        ),
        "one of them is enough": ("torch.minimum", "torch.maximum"),
        "first one only": ("torch.minimum(logits[a], logits[b])", "logits[a]"),
        "second one only": ("torch.minimum(logits[a], logits[b])", "logits[b]"),
        "the other word": ("behind <= bound", "behind > bound"),
    },
}

CHAPTER = Chapter(
    "11_gpu_engine",
    ANSWERS,
    half={"11.1": "[3, 4, 6, 9]"},
    wrong=WRONG,
    setup=("LLAMA_8B = {", "one = memory_ledger"),
)
