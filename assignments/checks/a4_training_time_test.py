"""Hidden checks of assignment 4, training-time test. Not for students.

References go through every row, step and key with loops.
"""

import numpy as np
from eagle3.grading.questions import (
    Assignment,
    Idea,
    Question,
    value_question,
)

# --- by_hand --------------------------------------------------------------------------


def numbers(variant):
    rng = np.random.default_rng([4, variant])
    step = int(rng.integers(2, 5))
    return {"LENGTH": 12, "ROW": int(rng.integers(3, 7)), "STEP": step}


def by_hand(variant):
    n = numbers(variant)
    row, step = n["ROW"], n["STEP"]
    right = {
        "reads": row + 1 + step,
        "position": row + step,
        "judged": row + 2 + step,
        "keys": row + 1 + step,
    }
    wrong = {
        "the step is forgotten: at step s a row reads tokens that lie s further on": {
            "reads": row + 1,
            "judged": row + 2,
        },
        "a row reads the token after the one that its feature belongs to": {
            "reads": row + step
        },
        "positions go on with the steps, as they do while drafting": {
            "position": row
        },
        "the position is that of the feature's place, and not that of the token": {
            "position": row + 1 + step
        },
        "that is the token that the row reads; it has to say the next one": {
            "judged": row + 1 + step
        },
        "the row's own key of step 0 is one of them": {"keys": row + step},
        "the newest step's own key is one of them as well": {"keys": row + 1},
        "later keys are seen on the diagonal alone, not all that lie before": {
            "keys": (row + 1) * (step + 1)
        },
    }
    says = {
        "reads": "the token whose embedding the row reads",
        "position": "the position that turns its query and key",
        "judged": "the token that it has to say",
        "keys": "how many keys it sees",
    }
    return value_question("by_hand", says, right, wrong)


# --- visible --------------------------------------------------------------------------


def visible(length, steps):
    return _visible(length, steps, lambda t, s, u, r: r <= s and u == t)


def _visible(length, steps, later, native=lambda t, u: u <= t):
    """later: (row, step, key's row, key's step) -> seen, for keys of later steps."""
    size = length * steps
    seen = np.zeros((size, size), bool)
    for t in range(length):
        for s in range(steps):
            for u in range(length):
                for r in range(steps):
                    rule = native(t, u) if r == 0 else later(t, s, u, r)
                    seen[t * steps + s, u * steps + r] = rule
    return seen


def _blocks(length, steps):
    """The right rule, but all rows of a step side by side."""
    order = [t * steps + s for s in range(steps) for t in range(length)]
    return visible(length, steps)[np.ix_(order, order)]


VISIBLE_MISTAKES = {
    "later keys are seen causally; of each later step a row sees its own key alone": (
        lambda T, S: _visible(T, S, lambda t, s, u, r: r <= s and u <= t)
    ),
    "keys of steps that come later are seen: step s can't see step s + 1": (
        lambda T, S: _visible(T, S, lambda t, s, u, r: u == t)
    ),
    "of the later steps only the newest is seen; the whole chain is": (
        lambda T, S: _visible(T, S, lambda t, s, u, r: r == s and u == t)
    ),
    "a row doesn't see itself": (
        lambda T, S: _visible(T, S, lambda t, s, u, r: r < s and u == t),
        lambda T, S: _visible(
            T, S, lambda t, s, u, r: r <= s and u == t, lambda t, u: u < t
        ),
        lambda T, S: _visible(
            T, S, lambda t, s, u, r: r < s and u == t, lambda t, u: u < t
        ),
    ),
    "later tokens are seen at step 0": lambda T, S: _visible(
        T, S, lambda t, s, u, r: r <= s and u == t, lambda t, u: True
    ),
    "the steps stand in blocks; here all steps of a row stand side by side": _blocks,
    "from step 1 on a row sees of step 0 only itself; it sees all before it": (
        lambda T, S: np.array(
            [
                [
                    (u <= t if s == 0 else u == t)
                    if r == 0
                    else r <= s and u == t
                    for u in range(T)
                    for r in range(S)
                ]
                for t in range(T)
                for s in range(S)
            ]
        ).reshape(T * S, T * S)
    ),
    "rows and columns are exchanged: a row of the mask is a query": (
        lambda T, S: visible(T, S).T
    ),
}


def question_visible():
    def lengths(*sizes):
        return lambda rng: [(int(t + rng.integers(0, 2)), s) for t, s in sizes]

    return Question(
        "visible",
        (
            Idea(
                "one_step",
                6,
                "one step: causal",
                lengths((1, 1), (4, 1), (7, 1)),
            ),
            Idea(
                "two_steps",
                10,
                "two steps: the own key of step 1",
                lengths((3, 2), (6, 2)),
            ),
            Idea("many", 12, "many steps", lengths((3, 3), (5, 4), (2, 6))),
        ),
        visible,
        VISIBLE_MISTAKES,
    )


# --- attend ---------------------------------------------------------------------------


def attend(q, k, v):
    return _attend(q, k, v)


def _attend(q, k, v, scale=True, later="own", two=False):
    steps, length, size = q.shape
    out = np.zeros_like(q)
    for s in range(steps):
        for t in range(length):
            keys = [(0, u) for u in range(t + 1)]
            if later == "own":
                keys += [(r, t) for r in range(1, s + 1)]
            elif later == "causal":
                keys += [(r, u) for r in range(1, s + 1) for u in range(t + 1)]
            elif later == "newest" and s:
                keys += [(s, t)]
            elif later == "last":
                keys = [(s, u) for u in range(t + 1)]
            scores = np.array([q[s, t] @ k[r, u] for r, u in keys])
            weights = np.exp(
                (scores - scores.max()) / (size**0.5 if scale else 1.0)
            )
            if two:
                weights[: t + 1] /= weights[: t + 1].sum()
                if s:
                    weights[t + 1 :] /= weights[t + 1 :].sum()
            else:
                weights /= weights.sum()
            out[s, t] = sum(
                w * v[r, u] for w, (r, u) in zip(weights, keys, strict=True)
            )
    return out


def _attend_twin(**other):
    return lambda q, k, v: _attend(q, k, v, **other)


ATTEND_MISTAKES = {
    "the scores are not divided by the square root of d": _attend_twin(
        scale=False
    ),
    "keys of later steps are seen causally": _attend_twin(later="causal"),
    "the keys of later steps are not seen at all": _attend_twin(later="none"),
    "of the later steps only the newest own key is seen": _attend_twin(
        later="newest"
    ),
    "each step attends to its own keys alone; the keys of step 0 are the context": (
        _attend_twin(later="last")
    ),
    "there are two softmaxes; all keys of a row share one": _attend_twin(
        two=True
    ),
}


def question_attend():
    def inputs(*shapes):
        return lambda rng: [
            tuple(np.round(rng.normal(0, 1, (3, s, t, d)), 3))
            for s, t, d in shapes
        ]

    return Question(
        "attend",
        (
            Idea(
                "native",
                6,
                "one step: causal attention",
                inputs((1, 4, 6), (1, 6, 3)),
            ),
            Idea(
                "chain",
                14,
                "later steps see their own chain",
                inputs((3, 4, 4), (4, 5, 6)),
            ),
        ),
        attend,
        ATTEND_MISTAKES,
        tolerance=1e-5,
    )


# --- step_losses ----------------------------------------------------------------------


def step_losses(logits, teacher, answer, d2t):
    return _losses(logits, teacher, answer, d2t)


def _losses(logits, teacher, answer, d2t, **other):
    steps, length, _ = logits.shape
    shift = other.get("shift", lambda i, s: i + 1 + s)
    found = []
    for s in range(steps):
        losses = []
        for i in range(length):
            j = shift(i, s)
            said = j + 1 + other.get("mask_shift", 0)
            if not 0 <= j < length or j + 1 >= length or not answer[said]:
                continue
            if not other.get("all_best") and int(
                np.argmax(teacher[j])
            ) not in list(d2t):
                continue
            p = teacher[j][d2t]
            if not other.get("leaves_mass"):
                p = p / p.sum()
            if other.get("hard"):
                p = (np.arange(len(d2t)) == np.argmax(p)).astype(float)
            row = logits[s, i] - logits[s, i].max()
            log_q = row - np.log(np.exp(row).sum())
            if other.get("turned"):
                q = np.exp(log_q)
                losses.append(-(q * np.log(p)).sum())
            else:
                losses.append(-(p * log_q).sum())
        if other.get("summed"):
            found.append(sum(losses))
        elif other.get("over_all"):
            found.append(sum(losses) / length)
        else:
            found.append(sum(losses) / len(losses) if losses else 0.0)
    return np.array(found, float)


def _loss_twin(**other):
    return lambda *case: _losses(*case, **other)


LOSS_MISTAKES = {
    "the teacher of a row doesn't move on with the steps: at step s it is s further": (
        _loss_twin(shift=lambda i, s: i + 1)
    ),
    "row i is compared with what the target says at i + s; it is one position further, "
    "since the row has read token i + 1 + s": _loss_twin(
        shift=lambda i, s: i + s
    ),
    "the teacher is one position too far": _loss_twin(
        shift=lambda i, s: i + 2 + s
    ),
    "the mask is read one token too early: it must mark the token that is to be said": (
        _loss_twin(mask_shift=-1)
    ),
    "the teacher's probabilities of the draft's tokens don't sum to 1; scale them up": (
        _loss_twin(leaves_mass=True)
    ),
    "rows count although the target's best token is none of the draft's": _loss_twin(
        all_best=True
    ),
    "the target's best token alone is the aim; the whole distribution is": _loss_twin(
        hard=True
    ),
    "p and q are exchanged in the cross-entropy": _loss_twin(turned=True),
    "the losses are summed; take the mean over the rows that count": _loss_twin(
        summed=True
    ),
    "the sum is divided by all positions; divide by the rows that count": _loss_twin(
        over_all=True
    ),
}


def _batch(rng, steps, length, outside=False, masked=False, few=False):
    vocab, draft = 7, 4
    d2t = np.sort(rng.choice(vocab, draft, replace=False))
    teacher = rng.random((length, vocab)) + 0.05
    for j in range(length):
        best = rng.choice(
            np.setdiff1d(np.arange(vocab), d2t) if outside and j % 2 else d2t
        )
        teacher[j, best] += 1.5
    teacher /= teacher.sum(-1, keepdims=True)
    answer = rng.random(length) < 0.6 if masked else np.ones(length, bool)
    if masked:
        answer[: max(2, length // 3)] = False
        answer[-1] = True
        answer[-2] = False
    if few:
        answer[:] = False
    return (
        np.round(rng.normal(0, 1, (steps, length, draft)), 3),
        teacher,
        answer,
        d2t,
    )


def question_losses():
    def cases(**other):
        shapes = other.pop("shapes")
        return lambda rng: [
            _batch(rng, s, t, **other) for s, t in shapes for _ in "ab"
        ]

    return Question(
        "step_losses",
        (
            Idea(
                "first",
                8,
                "step 0: the teacher on the draft's tokens",
                cases(shapes=[(1, 5)]),
            ),
            Idea(
                "shift",
                10,
                "later steps move on",
                cases(shapes=[(3, 7), (4, 6)]),
            ),
            Idea(
                "mask",
                8,
                "only tokens of answers count",
                cases(shapes=[(3, 12)], masked=True),
            ),
            Idea(
                "unknown",
                6,
                "rows whose best token the draft can't say don't count",
                cases(shapes=[(2, 9)], outside=True),
            ),
            Idea(
                "nothing",
                4,
                "a step without rows has loss 0",
                cases(shapes=[(2, 5)], few=True),
            ),
        ),
        step_losses,
        LOSS_MISTAKES,
        tolerance=1e-5,
    )


def questions(variant):
    return (
        by_hand(variant),
        question_visible(),
        question_attend(),
        question_losses(),
    )


ASSIGNMENT = Assignment(
    "a4_training_time_test",
    "Training-time test: mask and loss",
    questions,
    numbers,
)
