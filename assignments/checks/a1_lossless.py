"""Hidden checks of assignment 1, lossless sampling. Not for students.

References are written with loops over single numbers, apart from `eagle3` and from the
solutions in the source notebook.
"""

import numpy as np
from eagle3.grading.questions import (
    Assignment,
    Idea,
    Question,
    value_question,
)

# --- given numbers and what follows from them ------------------------------------------


def numbers(variant):
    """Four tokens; the draft is too sure of X, and owes some of Y."""
    rng = np.random.default_rng([1, variant])
    while True:
        p, q = (_hundredths(rng) for _ in range(2))
        over, under = np.argmax(q - p), np.argmax(p - q)
        owed = np.sum(p > q)
        if q[over] - p[over] > 0.15 and owed == 2 and p[over] > 0.05:
            return {
                "P": [float(v) for v in p],
                "Q": [float(v) for v in q],
                "X": int(over),
                "Y": int(under),
            }


def _hundredths(rng):
    cuts = np.sort(rng.choice(np.arange(3, 98), 3, replace=False))
    parts = np.diff([0, *cuts, 100])
    return np.round(parts / 100, 2)


def residual(p, q):
    owed = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
    total = sum(owed)
    return np.array([v / total for v in owed]) if total > 0 else np.asarray(p)


# --- by_hand --------------------------------------------------------------------------


def by_hand(variant):
    n = numbers(variant)
    p, q, x, y = np.array(n["P"]), np.array(n["Q"]), n["X"], n["Y"]
    right = {
        "keep": p[x] / q[x],
        "residual": residual(p, q),
        "kept": sum(min(a, b) for a, b in zip(p, q, strict=True)),
        "emitted": p[y],
    }
    wrong = {
        "the fraction is turned round: a token is kept with probability p / q, at "
        "most 1": {"keep": min(1.0, q[x] / p[x])},
        "this is p of the token, without regard to how often the draft proposes it": {
            "keep": p[x]
        },
        "p and q are swapped: the residual is what p has beyond q": {
            "residual": residual(q, p)
        },
        "the residual is not divided by its sum, so it is no distribution": {
            "residual": np.maximum(0, p - q)
        },
        "that is p: a token that was over-served would come back": {
            "residual": p
        },
        "that is the mean of p / q over the tokens; each token counts as often as the "
        "draft proposes it": {"kept": np.minimum(1, p / q).mean()},
        "larger of p and q where the smaller one is shared": {
            "kept": np.maximum(p, q).sum()
        },
        "only the case that Y itself was proposed is counted; a rejection of another "
        "token can end in Y too": {"emitted": min(p[y], q[y])},
        "this is how often the draft proposes Y": {"emitted": q[y]},
    }
    says = {
        "keep": "how often a proposed X is kept",
        "residual": "what is drawn from after a rejection",
        "kept": "the share of all guesses that is kept",
        "emitted": "how often the emitted token is Y",
    }
    return value_question("by_hand", says, right, wrong, 1e-3)


# --- filtered -------------------------------------------------------------------------


def filtered(logits, temperature, min_p):
    rows = []
    for row in np.asarray(logits, float):
        if temperature == 0:
            best = max(range(len(row)), key=lambda i: (row[i], -i))
            rows.append([float(i == best) for i in range(len(row))])
            continue
        top = max(row)
        weights = [np.exp((v - top) / temperature) for v in row]
        kept = [w if w >= min_p * max(weights) else 0.0 for w in weights]
        rows.append([w / sum(kept) for w in kept])
    return np.array(rows)


def _softmax(scores):
    scores = np.asarray(scores, float)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _cut(probs, floor):
    kept = np.where(probs >= floor, probs, 0.0)
    return kept / kept.sum(-1, keepdims=True)


def _warm(logits, temperature):
    if temperature == 0:
        return filtered(logits, 0, 0)
    return _softmax(logits / temperature)


def _all_best(logits, t, m):
    if t:
        return filtered(logits, t, m)
    best = (logits == logits.max(-1, keepdims=True)).astype(float)
    return best / best.sum(-1, keepdims=True)


FILTER_MISTAKES = {
    "the rows are not scaled up again after the cut, so they don't sum to 1": (
        lambda z, t, m: np.where(
            _warm(z, t) >= m * _warm(z, t).max(-1, keepdims=True),
            _warm(z, t),
            0.0,
        )
    ),
    "the logits are multiplied by the temperature; divide them": (
        lambda z, t, m: filtered(z * t * t, t, m) if t else filtered(z, t, m)
    ),
    "min_p is compared with the probabilities themselves; it is a share of the largest "
    "one in the row": lambda z, t, m: _cut(_warm(z, t), m),
    "min_p is taken of the largest probability in the whole block; each row has its "
    "own": lambda z, t, m: _cut(_warm(z, t), m * _warm(z, t).max()),
    "the cut is made before the temperature; the temperature comes first": (
        lambda z, t, m: _warm(
            np.where(
                _softmax(z) >= m * _softmax(z).max(-1, keepdims=True),
                z,
                -np.inf,
            ),
            t,
        )
    ),
    "the temperature is not used": lambda z, t, m: filtered(
        z, 1.0 if t else 0, m
    ),
    "at temperature 0 all tokens that share the largest logit are kept; take the first "
    "one alone": _all_best,
    "the softmax runs over the rows of the block; it runs over the tokens of a row": (
        lambda z, t, m: _softmax(np.swapaxes(z / t, -1, -2)).swapaxes(-1, -2)
    ),
}


def _logits(rng, rows, vocab):
    return np.round(rng.normal(0, 2, (rows, vocab)), 3)


def _tied(rng):
    rows = _logits(rng, 4, 6)
    for row in rows:
        first, second = sorted(rng.choice(6, 2, replace=False))
        row[[first, second]] = row.max() + 1
    return rows


def sums_to_one(got, want, arguments):
    """The first row that is no distribution."""
    rows = np.asarray(got).reshape(-1, np.asarray(got).shape[-1])
    if not np.isfinite(rows).all():
        row = int(np.argwhere(~np.isfinite(rows))[0][0])
        return f"row {row} holds NaN or an infinite number"
    for number, row in enumerate(rows):
        if abs(row.sum() - 1) > 1e-4:
            return f"probabilities don't sum to 1 at row {number}, but to {row.sum():.4f}"
        if (row < 0).any():
            return f"row {number} holds a negative probability"
    return None


def question_filtered():
    return Question(
        "filtered",
        (
            Idea(
                "temperature",
                6,
                "logits at a temperature become rows that sum to 1",
                lambda rng: [
                    (_logits(rng, 3, 6), t, 0.0) for t in (1.0, 0.5, 2.0)
                ],
                sums_to_one,
            ),
            Idea(
                "cut",
                6,
                "tokens below min_p times the row's largest probability go",
                lambda rng: [
                    (_logits(rng, 4, 8), t, m)
                    for t in (1.0, 0.6, 1.7)
                    for m in (0.05, 0.2, 0.5)
                ],
                sums_to_one,
            ),
            Idea(
                "greedy",
                6,
                "temperature 0 gives the first of the best tokens for certain",
                lambda rng: [
                    (_logits(rng, 3, 5), 0.0, 0.3),
                    (_tied(rng), 0.0, 0.0),
                ],
                sums_to_one,
            ),
        ),
        filtered,
        FILTER_MISTAKES,
        tolerance=1e-5,
    )


# --- decide ---------------------------------------------------------------------------


def draw(weights, u, beyond=None):
    """The first token whose cumulated weight is above u; `beyond` where none is."""
    total = 0.0
    for token, weight in enumerate(weights):
        total += weight
        if total > u:
            return token
    return max(np.flatnonzero(weights)) if beyond is None else beyond


def decide(tokens, q, p, uniforms):
    return _decide(tokens, q, p, uniforms)


def _decide(tokens, q, p, uniforms, **other):
    """One sequence after the other; `other` plants a mistake."""
    accept = other.get("accept", lambda p, q, x, u: u < min(1.0, p[x] / q[x]))
    owed = other.get("owed", lambda p, q, rows, i: residual(p, q))
    emitted = np.full((tokens.shape[0], tokens.shape[1] + 1), -1)
    for b in range(len(tokens)):
        out, n = [], tokens.shape[1]
        for i in range(n):
            x = int(tokens[b, i])
            if not accept(p[b, i], q[b, i], x, uniforms[b, i]):
                out += [x] * other.get("counts_rejected", False)
                row, beyond = (
                    owed(p[b, i], q[b, i], p[b], i),
                    other.get("beyond"),
                )
                out.append(draw(row, uniforms[b, n], beyond))
                break
            out.append(x)
        else:
            row = other.get("bonus", n)
            if row is not None:
                out.append(draw(p[b, row], uniforms[b, n]))
        emitted[b, : len(out[: n + 1])] = out[: n + 1]
    return emitted


def _goes_on(tokens, q, p, uniforms):
    """Every guess is judged, also those behind a rejected one."""
    emitted = np.full((tokens.shape[0], tokens.shape[1] + 1), -1)
    n = tokens.shape[1]
    for b in range(len(tokens)):
        out = []
        for i in range(n):
            x = int(tokens[b, i])
            kept = uniforms[b, i] < min(1.0, p[b, i, x] / q[b, i, x])
            owed = residual(p[b, i], q[b, i])
            out.append(x if kept else draw(owed, uniforms[b, n]))
        if all(out[i] == tokens[b, i] for i in range(n)):
            out.append(draw(p[b, n], uniforms[b, n]))
        emitted[b, : len(out)] = out
    return emitted


def _last_rejection(tokens, q, p, uniforms):
    """The loop has no end: a later rejection takes the place of an earlier one."""
    n = tokens.shape[1]
    emitted = np.full((tokens.shape[0], n + 1), -1)
    for b, chain in enumerate(tokens):
        count, row = n, p[b, n]
        for i, x in enumerate(chain):
            if uniforms[b, i] >= p[b, i, x] / q[b, i, x]:
                count, row = i, residual(p[b, i], q[b, i])
        emitted[b, :count], emitted[b, count] = (
            chain[:count],
            draw(row, uniforms[b, n]),
        )
    return emitted


def _twin(**other):
    return lambda tokens, q, p, uniforms: _decide(
        tokens, q, p, uniforms, **other
    )


DECIDE_MISTAKES = {
    "after a rejection the token is drawn from p; the over-served tokens come back. "
    "Draw from the residual": _twin(owed=lambda p, q, rows, i: p),
    "after a rejection the token is drawn from q; draw from the residual": _twin(
        owed=lambda p, q, rows, i: q
    ),
    "the residual is not divided by its sum before the draw": tuple(
        _twin(owed=lambda p, q, rows, i: np.maximum(0, p - q), beyond=beyond)
        for beyond in (None, 0, 4, 5)
    ),
    "p and q are swapped in the residual: it is what p has beyond q": _twin(
        owed=lambda p, q, rows, i: residual(q, p)
    ),
    "p and q are swapped in the test: keep with probability p / q": _twin(
        accept=lambda p, q, x, u: u < min(1.0, q[x] / p[x])
    ),
    "a guess is kept only where p is at least q; chance has no part in it": _twin(
        accept=lambda p, q, x, u: p[x] >= q[x]
    ),
    "a guess is kept with probability p, whatever the draft thought": _twin(
        accept=lambda p, q, x, u: u < p[x]
    ),
    "the residual is taken one row too late: row i of p belongs to guess i": _twin(
        owed=lambda p, q, rows, i: residual(rows[i + 1], q)
    ),
    "the bonus token is missing: when all guesses are kept, the last row of p gives "
    "one token more": _twin(bonus=None),
    "the bonus token comes from the last guess's own row; its row is the one behind": (
        lambda tokens, q, p, u: _decide(
            tokens, q, p, u, bonus=tokens.shape[1] - 1
        )
    ),
    "the rejected guess stands in the answer, before its replacement": _twin(
        counts_rejected=True
    ),
    "guesses behind a rejected one are judged too; the chain ends at the first "
    "rejection": (_goes_on, _last_rejection),
    "what is behind the end of an answer is 0, which is a token; fill up with -1": (
        lambda *a: np.where(_decide(*a) < 0, 0, _decide(*a))
    ),
}


def _rows(rng, *shape):
    rows = rng.random(shape) ** 2 + 0.02
    return rows / rows.sum(-1, keepdims=True)


def _chain(rng, batch, n, vocab=5):
    q, p = _rows(rng, batch, n, vocab), _rows(rng, batch, n + 1, vocab)
    tokens = np.array(
        [[rng.choice(vocab, p=row) for row in rows] for rows in q],
        dtype=np.int64,
    ).reshape(batch, n)
    return tokens, q, p, rng.random((batch, n + 1))


def _all_kept(rng):
    tokens, _, p, uniforms = _chain(rng, 1, 3)
    return tokens, p[:, :3].copy(), p, uniforms


def _refused(rng):
    """One guess that the target dislikes, and a uniform that refuses it."""
    tokens, q, p, uniforms = _chain(rng, 1, 1)
    x = int(tokens[0, 0])
    p[0, 0, x] *= 0.1
    p[0, 0] /= p[0, 0].sum()
    q[0, 0, x] = q[0, 0].max() + 0.3
    q[0, 0] /= q[0, 0].sum()
    uniforms[0, 0] = 0.97
    return tokens, q, p, uniforms


def question_decide():
    return Question(
        "decide",
        (
            Idea(
                "bonus",
                8,
                "all guesses kept: they stand in the answer, and the target's own token",
                lambda rng: [_all_kept(rng) for _ in range(12)],
            ),
            Idea(
                "replacement",
                8,
                "one guess, refused: the token that stands instead",
                lambda rng: [_refused(rng) for _ in range(20)],
            ),
            Idea(
                "chain",
                8,
                "three guesses: kept up to the first rejection",
                lambda rng: [_chain(rng, 1, 3) for _ in range(40)],
            ),
            Idea(
                "batch",
                6,
                "sequences side by side, filled up with -1",
                lambda rng: [
                    _chain(rng, 4, n) for n in (1, 2, 4) for _ in range(4)
                ],
            ),
        ),
        decide,
        DECIDE_MISTAKES,
    )


# --- law ------------------------------------------------------------------------------


def law(q, keep, instead):
    total = np.zeros(len(q))
    for x in range(len(q)):
        for y in range(len(q)):
            total[y] += q[x] * (
                keep[x] * (x == y) + (1 - keep[x]) * instead[x, y]
            )
    return total


LAW_MISTAKES = {
    "only kept tokens are counted; a rejection emits a token as well": (
        lambda q, keep, instead: q * keep
    ),
    "the draft's q is forgotten: a token is proposed with probability q": (
        lambda q, keep, instead: keep + (1 - keep) @ instead
    ),
    "rejections are counted with probability keep; they happen with 1 - keep": (
        lambda q, keep, instead: q * keep + (q * keep) @ instead
    ),
    "rows and columns of instead are mixed up: row x is drawn from after x was refused": (
        lambda q, keep, instead: q * keep + instead @ (q * (1 - keep))
    ),
    "the same row of instead is used whatever was refused": (
        lambda q, keep, instead: q * keep + (q * (1 - keep)).sum() * instead[0]
    ),
    "the law is divided by its sum, which hides a rule that loses probability": (
        lambda q, keep, instead: (
            law(q, keep, instead) / law(q, keep, instead).sum()
        )
    ),
}


def _rule(rng, vocab, same):
    q, keep = _rows(rng, vocab), rng.random(vocab)
    instead = _rows(rng, vocab, vocab)
    return q, keep, (np.repeat(instead[:1], vocab, 0) if same else instead)


def _leaky(rng, vocab):
    q, keep, instead = _rule(rng, vocab, same=False)
    return q, keep, instead * rng.uniform(0.5, 0.9, (vocab, 1))


def question_law():
    return Question(
        "law",
        (
            Idea(
                "one",
                8,
                "one residual for all rejections",
                lambda rng: [_rule(rng, v, same=True) for v in (2, 3, 6)],
            ),
            Idea(
                "rows",
                6,
                "a row of its own for each refused token",
                lambda rng: [_rule(rng, v, same=False) for v in (2, 4, 7)],
            ),
            Idea(
                "leak",
                6,
                "a rule that loses probability is shown to lose it",
                lambda rng: [_leaky(rng, v) for v in (3, 5)],
            ),
        ),
        law,
        LAW_MISTAKES,
    )


# --- bias -----------------------------------------------------------------------------


def rules(p, q):
    """The rules of the notebook, as (keep, instead)."""
    vocab = len(p)
    fair = np.minimum(1, p / q)
    without = np.array(
        [np.where(np.arange(vocab) == x, 0, p) for x in range(vocab)]
    )
    lowered = np.array(
        [
            np.where(np.arange(vocab) == x, np.maximum(0, p - q), p)
            for x in range(vocab)
        ]
    )
    normal = lambda rows: rows / rows.sum(-1, keepdims=True)  # noqa: E731
    return {
        "A": (fair, np.repeat(p[None], vocab, 0)),
        "B": (p, normal(without)),
        "C": (fair, normal(lowered)),
        "D": (
            (p >= q).astype(float),
            np.repeat(residual(p, q)[None], vocab, 0),
        ),
    }


def question_bias(variant):
    n = numbers(variant)
    p, q = np.array(n["P"]), np.array(n["Q"])
    gaps = {name: law(q, *rule) - p for name, rule in rules(p, q).items()}
    wrong = {
        "this is the sum of all differences; the largest one is asked for": {
            name: np.abs(gap).sum() for name, gap in gaps.items()
        },
        "this is half the sum of the differences; the largest one is asked for": {
            name: np.abs(gap).sum() / 2 for name, gap in gaps.items()
        },
        "the sign is kept: a token that comes too seldom is a bias too": {
            name: gap.max() for name, gap in gaps.items()
        },
        "the law is compared with q; lossless means that it is p": {
            name: np.abs(gap + p - q).max() for name, gap in gaps.items()
        },
    }
    says = {name: f"how far the law of rule {name} is from p" for name in gaps}
    right = {name: np.abs(gap).max() for name, gap in gaps.items()}
    return value_question("bias", says, right, wrong, 1e-4)


def questions(variant):
    return (
        by_hand(variant),
        question_filtered(),
        question_decide(),
        question_law(),
        question_bias(variant),
    )


ASSIGNMENT = Assignment("a1_lossless", "Lossless sampling", questions, numbers)
