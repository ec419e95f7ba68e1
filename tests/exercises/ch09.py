"""Chapter 9: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "9.1": "answer",
    "9.2": "step_loss",
    "9.3": "chat_mask",
    "9.4": "batches_from",
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "9.1": {
        "reads the token of step 0": ('"reads": "do"', '"reads": "I"'),
        "reads its own place": ('"reads": "do"', '"reads": "can"'),
        "teacher one off": ('"asked_after": "do"', '"asked_after": "I"'),
        "teacher is what it guesses": ('"asked_after": "do"', '"asked_after": "it"'),
        "guess of step 0": ('"in_the_text": "it"', '"in_the_text": "do"'),
        "weight of the next step": ('"weight": 0.8', '"weight": 0.64'),
        "weight of step 0": ('"weight": 0.8', '"weight": 1.0'),
        "the same rows at all steps": ("[4, 4, 3]", "[4, 4, 4]"),
        "one row less each step": ("[4, 4, 3]", "[4, 3, 2]"),
        "natural mask": ("[4, 4, 3]", "[3, 3, 3]"),
    },
    "9.2": {
        "mean over all rows": ("mask.sum().clamp(min=1)", "len(mask)"),
        "no mean": (" / mask.sum().clamp(min=1)", ""),
        "not a number without rows": (".clamp(min=1)", ""),
        "all rows": ("(each * mask).sum()", "each.sum()"),
        "hidden rows": ("(each * mask)", "(each * ~mask)"),
        "log of a softmax": ("logits.log_softmax(-1)", "logits.softmax(-1).log()"),
        "teacher trained": ("teacher.detach()", "teacher"),
        "student as the teacher": ("teacher.detach()", "logits.detach()"),
        "sign": ("-(p *", "(p *"),
        "one row's mean over tokens": (").sum(-1)\n", ").mean(-1)\n"),
        "softmax over rows": ("teacher.detach().softmax(-1)",
                              "teacher.detach().softmax(0)"),
    },
    "9.3": {
        "not shifted": ("[natural[1:], end]", "[natural]"),
        "shifted to the right": ("[natural[1:], end]", "[end, natural[:-1]]"),
        "last row counts": ("torch.zeros(1", "torch.ones(1"),
        "users count": ('role == "assistant"', 'role != "system"'),
        "one token a turn": ("for _ in range(count)", "for _ in range(1)"),
        "numbers": ("torch.cat([natural[1:], end])",
                    "torch.cat([natural[1:], end]).int()"),
    },
    "9.4": {
        "global generator": ("torch.Generator().manual_seed(", "torch.manual_seed("),
        "one order for all epochs": ("1000 * seed + epoch", "1000 * seed"),
        "seed and epoch mixed up": ("1000 * seed + epoch", "seed + epoch"),
        "seed forgotten": ("1000 * seed + epoch", "epoch"),
        "the epoch begins anew": ("range(first, per_epoch)", "range(per_epoch)"),
        "every epoch begins late": ("epoch + 1, 0", "epoch + 1, first"),
        "one epoch": ("while epoch < epochs", "if epoch < 1"),
        "order from the step": ("1000 * seed + epoch", "1000 * seed + step"),
        "an incomplete batch kept": (
            "num_sequences // batch_size",
            "-(-num_sequences // batch_size)",
        ),
        "batches overlap": ("order[n * batch_size :", "order[n :"),
    },
}  # fmt: skip

CHAPTER = Chapter(
    "09_training",
    ANSWERS,
    half={"9.1": "[4, 4, 3]"},
    wrong=WRONG,
    errors=(AssertionError, RuntimeError, IndexError),
)
