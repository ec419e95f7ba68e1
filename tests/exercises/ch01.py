"""Chapter 1: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "1.1": "answer",
    "1.2": "cached_sampled",
    "1.3": "first_compute_bound_batch",
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "1.1": {
        "prefill yields no token": ('"passes": 5', '"passes": 6'),
        "the new tokens alone": ('"rows_without": 45', '"rows_without": 35'),
        "prompt forgotten": ('"rows_with": 11', '"rows_with": 5'),
        "the pending token is cached": ('"cached": 11', '"cached": 12'),
        "one guess too few": (
            '"passes_with_guesses": 3',
            '"passes_with_guesses": 4',
        ),
    },
    "1.2": {
        "whole text into the cache again": (
            "torch.tensor([block])",
            "torch.tensor([ids])",
        ),
        "no cache": ("torch.tensor([block]), cache)", "torch.tensor([ids]))"),
        "first row instead of the last": ("logits[0, -1]", "logits[0, 0]"),
        "greedy": (
            "int(sampling.sample(probs, generator))",
            "int(probs.argmax())",
        ),
        "generator starts again at each token": (
            "    for _ in range(num_tokens):",
            "    for _ in range(num_tokens):\n"
            "        generator = torch.Generator().manual_seed(params.seed)",
        ),
        "another seed": ("manual_seed(params.seed)", "manual_seed(0)"),
        "filters forgotten": (
            "sampling.next_token_distribution(logits, params)",
            "logits.softmax(-1)",
        ),
        "one token short": ("range(num_tokens)", "range(num_tokens - 1)"),
        "the prompt is left out": ("return ids", "return ids[-num_tokens:]"),
        "a position is forgotten after each pass": (
            "        logits = output",
            "        cache.rollback(1)\n        logits = output",
        ),
        "the last token is run too": (
            "    return ids",
            "    target.forward(torch.tensor([block]), cache)\n    return ids",
        ),
    },
    "1.3": {
        "context forgotten": ("Pass(rows, batch, context)", "Pass(rows, batch)"),
        "rows forgotten": ("Pass(rows, batch, context)", "Pass(1, batch, context)"),
        "rows and batch mixed up": (
            "Pass(rows, batch, context)",
            "Pass(batch, rows, context)",
        ),
        "the last memory-bound one": ("return batch", "return batch - 1"),
        "the limit instead of None": ("return None", "return 4096"),
        "bfloat16": (
            "Pass(rows, batch, context))",
            "Pass(rows, batch, context), number_bytes=2)",
        ),
        "turned round": ("if not work", "if work"),
    },
}

CHAPTER = Chapter(
    "01_why_decoding_is_slow",
    ANSWERS,
    half={"1.1": "45"},
    wrong=WRONG,
    errors=(AssertionError, ValueError),  # a cache that overflows says as much
)
