"""Chapter 15: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "15.1": "answer",
    "15.2": "convert",
    "15.3": "target_ids",
    "15.4": "diagnose",
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "15.1": {
        "outputs for inputs": ('"inputs": [2, 16, 29]', '"inputs": [1, 15, 28]'),
        "outputs one higher": ('"outputs": [1, 15, 28]', '"outputs": [3, 17, 30]'),
        "index of the output": ('"hf_index": 16', '"hf_index": 15'),
        "copied ids repaired": ('"copied": [1, 15, 28]', '"copied": [2, 16, 29]'),
        "nothing added": ("[3, 17, 30]", "[2, 16, 29]"),
    },
    "15.2": {
        "unknown ones skipped": (
            'faults.append(f"{name} is unknown")',
            "pass",
        ),
        "missing ones skipped": (
            "for name in wanted if name not in tensors]",
            "for name in ()]; wanted = {n: wanted[n] for n in wanted if n in tensors}",
        ),
        "one prefix only": ("max(PREFIXES, key=count)", "PREFIXES[0]"),
        "shapes not looked at": (
            "if tuple(tensor.shape) != needed",
            "if tensor.dim() != len(needed)",
        ),
        "sizes in any order": (
            "if tuple(tensor.shape) != needed",
            "if sorted(tensor.shape) != sorted(needed)",
        ),
        "NaN passes": ("torch.isfinite(tensor)", "(~torch.isinf(tensor))"),
        "infinity passes": ("torch.isfinite(tensor)", "(~torch.isnan(tensor))"),
        "stops at the first": ('"; ".join(faults)', "faults[0]"),
        "another error": ("raise ValueError", "raise KeyError"),
        "their names": ("{ours: tensors[theirs]", "{theirs: tensors[theirs]"),
        "all numbers made floats": ("tensors[theirs] for", "tensors[theirs] + 0. for"),
    },
    "15.3": {
        "offsets only": ("len(d2t)), d2t)", "len(d2t)),)"),
        "ids only": ("(d2t + torch.arange(len(d2t)), d2t)", "(d2t,)"),
        "mask alone": (
            "if torch.equal(reading, marked)",
            "if len(reading) == len(marked)",
        ),
        "order not looked at": (
            "torch.equal(reading, marked)",
            "set(reading.tolist()) == set(marked.tolist())",
        ),
        "marked ones among others": (
            "torch.equal(reading, marked)",
            "set(reading.tolist()) <= set(marked.tolist())",
        ),
        "never refuses": (
            'raise ValueError("d2t agrees with t2d neither as offsets nor as ids")',
            "return marked",
        ),
    },
    "15.4": {
        "stops after one": ("while left:", "for _ in range(1):"),
        "takes what helps least": ("max(values, key", "min(values, key"),
        "margin forgotten": ("<= reached + margin", "<= reached"),
        "margin on the total": ("<= reached + margin", "<= margin"),
        "patient never treated": ("draft, reached = tried[best],", "reached ="),
        "cause not taken out of the list": (
            "causes.append(best)",
            "causes[:] = [best]",
        ),
        "acceptance of the start": ("return causes, reached", "return causes, 0.65"),
    },
}

CHAPTER = Chapter(
    "15_real_checkpoints",
    ANSWERS,
    half={"15.1": "[2, 16, 29]"},
    wrong=WRONG,
    setup=("PREFIXES = ", "\n\n"),
    errors=(AssertionError, ValueError, KeyError),  # what `convert` should not do
)
