"""Hidden checks of assignment 2, fusion and the draft layer. Not for students.

References work head by head and number by number in float64.
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
    rng = np.random.default_rng([2, variant])
    heads = int(rng.choice([4, 6, 8]))
    head_dim = int(rng.choice([32, 48, 64]))
    return {
        "LAYERS": int(rng.integers(10, 40)),
        "TARGET_HIDDEN": int(rng.choice([384, 640, 896])),
        "HIDDEN": heads * head_dim,
        "HEADS": heads,
        "KV_HEADS": heads // 2,
        "HEAD_DIM": head_dim,
        "DRAFT_VOCAB": int(rng.choice([2000, 3000, 5000])),
    }


def by_hand(variant):
    n = numbers(variant)
    layers, wide, k = n["LAYERS"], n["TARGET_HIDDEN"], n["HIDDEN"]
    kv = n["KV_HEADS"] * n["HEAD_DIM"]
    right = {
        "taps": [2, layers // 2, layers - 3],
        "fc": [k, 3 * wide],
        "k_weight": [kv, 2 * k],
        "head": [n["DRAFT_VOCAB"], k],
        "cache": 2 * kv,
    }
    wrong = {
        "the high tap is L - 3, not the last layer": {
            "taps": [2, layers // 2, layers - 1]
        },
        "the middle tap is L // 2": {
            "taps": [
                2,
                (layers - 1) // 2 if layers % 2 == 0 else layers // 2 + 1,
                layers - 3,
            ]
        },
        "rows and columns are exchanged: a weight is [out, in]": {
            "fc": [3 * wide, k],
            "k_weight": [2 * k, kv],
            "head": [k, n["DRAFT_VOCAB"]],
        },
        "three taps come in, side by side": {"fc": [k, wide]},
        "the taps have the target's width": {"fc": [k, 3 * k]},
        "attention reads two streams side by side, token and feature": {
            "k_weight": [kv, k]
        },
        "keys have fewer heads than queries": {
            "k_weight": [k, 2 * k],
            "cache": 2 * k,
        },
        "a position has a key and a value": {"cache": kv},
        "keys and values come from both streams, but are no wider for that": {
            "cache": 4 * kv
        },
    }
    says = {
        "taps": "the target's layers that are tapped",
        "fc": "shape of the fusion's weight",
        "k_weight": "shape of the key's weight",
        "head": "shape of the head's weight",
        "cache": "numbers that a position adds to the draft's cache",
    }
    return value_question("by_hand", says, right, wrong)


# --- fuse -----------------------------------------------------------------------------


def fuse(states, weight):
    return _fuse(states, weight)


def _fuse(states, weight, taps=lambda L: (2, L // 2, L - 3), **other):
    layers = len(states) - 1
    chosen = [states[i] for i in taps(layers)]
    if other.get("summed"):
        return sum(chosen) @ weight[:, : weight.shape[1] // 3].T
    if other.get("interleaved"):
        joined = np.stack(chosen, -1).reshape(len(chosen[0]), -1)
    else:
        joined = np.concatenate(chosen, -1)
    return joined @ weight.T


def _fuse_twin(taps=None, **other):
    if taps is None:
        return lambda states, weight: _fuse(states, weight, **other)
    return lambda states, weight: _fuse(states, weight, taps, **other)


FUSE_MISTAKES = {
    "the taps are one too high: `states[i]` goes into layer i, `states[0]` is the "
    "embedding": _fuse_twin(lambda L: (3, L // 2 + 1, L - 2)),
    "the taps are one too low": _fuse_twin(lambda L: (1, L // 2 - 1, L - 4)),
    "the number of layers is one less than that of the states": _fuse_twin(
        lambda L: (2, (L + 1) // 2, L - 2)
    ),
    "the high tap stands first; the order is low, middle, high": _fuse_twin(
        lambda L: (L - 3, L // 2, 2)
    ),
    "the last states are taken for the high tap": _fuse_twin(
        lambda L: (2, L // 2, L)
    ),
    "the taps are added; they stand side by side": _fuse_twin(summed=True),
    "the taps are interleaved number by number; they stand one behind the other": (
        _fuse_twin(interleaved=True)
    ),
}


def _states(rng, layers, tokens, width, out):
    states = np.round(rng.normal(0, 1, (layers + 1, tokens, width)), 3)
    return states, np.round(rng.normal(0, 0.5, (out, 3 * width)), 3)


def question_fuse():
    def cases(*shapes):
        return lambda rng: [_states(rng, *shape) for shape in shapes]

    return Question(
        "fuse",
        (
            Idea(
                "even",
                8,
                "a target with an even number of layers",
                cases((8, 3, 4, 5), (12, 2, 3, 3)),
            ),
            Idea(
                "odd",
                6,
                "a target with an odd number of layers",
                cases((9, 3, 4, 5), (13, 1, 3, 2)),
            ),
        ),
        fuse,
        FUSE_MISTAKES,
        tolerance=1e-5,
    )


# --- draft_step -----------------------------------------------------------------------


def norm(x, weight, eps=1e-5):
    return x / np.sqrt((x * x).mean() + eps) * weight


def turn(x, position, base):
    """Rotate the two halves of a head. x: [d]"""
    half = len(x) // 2
    out = np.zeros_like(x)
    for i in range(half):
        angle = position * base ** (-2 * i / len(x))
        c, s = np.cos(angle), np.sin(angle)
        out[i] = x[i] * c - x[i + half] * s
        out[i + half] = x[i + half] * c + x[i] * s
    return out


def draft_step(e, x, position, keys, values, w):
    return _step(e, x, position, keys, values, w)


def _step(e, x, position, keys, values, w, **other):
    """One token; `other` plants a mistake."""
    kv_heads, _, size = keys.shape
    stream = [norm(e, w["input_norm"]), norm(x, w["hidden_norm"])]
    if other.get("feature_first"):
        stream = stream[::-1]
    if other.get("not_normed"):
        stream = [norm(e, w["input_norm"]), x]
    both = np.concatenate(stream)
    base = 100.0
    q = (w["q"] @ both).reshape(-1, size)
    k = (w["k"] @ both).reshape(kv_heads, size)
    v = (w["v"] @ both).reshape(kv_heads, size)
    at = other.get("at", lambda position, cached: position)(
        position, keys.shape[1]
    )
    if not other.get("unturned"):
        q = np.array([turn(row, at, base) for row in q])
        if not other.get("query_only"):
            k = np.array([turn(row, at, base) for row in k])
    if other.get("turns_values"):
        v = np.array([turn(row, at, base) for row in v])
    out, share = [], len(q) // kv_heads
    for h, query in enumerate(q):
        g = h % kv_heads if other.get("wrong_group") else h // share
        every = np.concatenate([keys[g], k[g : g + 1]])
        content = np.concatenate([values[g], v[g : g + 1]])
        if other.get("not_itself") and len(keys[g]):
            every, content = keys[g], values[g]
        scores = every @ query / (1 if other.get("unscaled") else size**0.5)
        weights = np.exp(scores - scores.max())
        out.append(weights / weights.sum() @ content)
    r = w["o"] @ np.concatenate(out)
    if other.get("e_in_residual"):
        r = r + e
    if not other.get("no_residual"):
        r = r + x
    inside = r if other.get("mlp_not_normed") else norm(r, w["post_norm"])
    gate, up = w["gate"] @ inside, w["up"] @ inside
    if other.get("gate_for_up"):
        gate, up = up, gate
    mlp = w["down"] @ (gate / (1 + np.exp(-gate)) * up)
    a = mlp if other.get("no_second_residual") else r + mlp
    return {"a": a, "key": k, "value": v}


def _step_twin(**other):
    return lambda *case: _step(*case, **other)


STEP_MISTAKES = {
    "the feature stands before the token; the token's stream is the first half": (
        _step_twin(feature_first=True)
    ),
    "the feature is not normed": _step_twin(not_normed=True),
    "the token's embedding is in the residual; only the feature is": _step_twin(
        e_in_residual=True
    ),
    "the residual around attention is missing": _step_twin(no_residual=True),
    "the residual around the MLP is missing": _step_twin(
        no_second_residual=True
    ),
    "the MLP reads what was not normed": _step_twin(mlp_not_normed=True),
    "gate and up are exchanged: the gate goes through SiLU": _step_twin(
        gate_for_up=True
    ),
    "queries and keys are not turned by their position": _step_twin(
        unturned=True
    ),
    "queries are turned, and keys aren't": _step_twin(query_only=True),
    "values are turned; only queries and keys are": _step_twin(
        turns_values=True
    ),
    "the position is taken from the length of the cache; it is given": _step_twin(
        at=lambda position, cached: cached
    ),
    "the position is one too high": _step_twin(
        at=lambda position, cached: position + 1
    ),
    "query heads take turns with the key heads; neighbours share one": _step_twin(
        wrong_group=True
    ),
    "the scores are not divided by the square root of d": _step_twin(
        unscaled=True
    ),
    "the token doesn't see its own key": _step_twin(not_itself=True),
}


def _layer(rng, cached, position=None, size=4, heads=4, kv_heads=2):
    k = heads * size
    weights = {
        "input_norm": rng.uniform(0.5, 1.5, k),
        "hidden_norm": rng.uniform(0.5, 1.5, k),
        "post_norm": rng.uniform(0.5, 1.5, k),
        "q": rng.normal(0, 0.3, (heads * size, 2 * k)),
        "k": rng.normal(0, 0.3, (kv_heads * size, 2 * k)),
        "v": rng.normal(0, 0.3, (kv_heads * size, 2 * k)),
        "o": rng.normal(0, 0.3, (k, heads * size)),
        "gate": rng.normal(0, 0.3, (10, k)),
        "up": rng.normal(0, 0.3, (10, k)),
        "down": rng.normal(0, 0.3, (k, 10)),
    }
    weights = {name: np.round(value, 3) for name, value in weights.items()}
    e, x = np.round(rng.normal(0, 1, (2, k)), 3)
    keys, values = np.round(rng.normal(0, 1, (2, kv_heads, cached, size)), 3)
    position = cached if position is None else position
    return e, x, int(position), keys, values, weights


def question_step():
    def cases(*arguments):
        return lambda rng: [
            _layer(rng, *a) for a in arguments for _ in range(2)
        ]

    return Question(
        "draft_step",
        (
            Idea(
                "value",
                8,
                "the value of the new token",
                cases((0,), (3,)),
                part="value",
            ),
            Idea(
                "key",
                10,
                "the key of the new token, turned by its position",
                cases((0,), (4, 4), (3, 9)),
                part="key",
            ),
            Idea(
                "first",
                12,
                "the output without a cache, at position 0",
                cases((0,), (0,)),
                part="a",
            ),
            Idea(
                "cached",
                12,
                "the output on a cache, at any position",
                cases((4, 4), (3, 9), (1, 7)),
                part="a",
            ),
        ),
        draft_step,
        STEP_MISTAKES,
        tolerance=1e-4,
    )


# --- best_tokens ----------------------------------------------------------------------


def best_tokens(a, norm_weight, head, offsets, count):
    return _best(a, norm_weight, head, offsets, count)


def _best(a, norm_weight, head, offsets, count, **other):
    tokens, chances = [], []
    for row in a:
        hidden = row if other.get("not_normed") else norm(row, norm_weight)
        scores = head @ hidden
        power = np.exp(scores - scores.max())
        probs = power / power.sum()
        order = sorted(range(len(probs)), key=lambda v: (-probs[v], v))[:count]
        if other.get("ascending"):
            order = order[::-1]
        if other.get("offsets_as_ids"):
            tokens.append([int(offsets[v]) for v in order])
        elif other.get("draft_ids"):
            tokens.append(order)
        elif other.get("minus"):
            tokens.append([int(v - offsets[v]) for v in order])
        else:
            tokens.append([int(v + offsets[v]) for v in order])
        chance = probs[order]
        if other.get("among_best"):
            chance = chance / chance.sum()
        if other.get("scores"):
            chance = scores[order]
        if other.get("logs"):
            chance = np.log(chance)
        chances.append(chance)
    return {"tokens": np.array(tokens), "probs": np.array(chances)}


def _best_twin(**other):
    return lambda *case: _best(*case, **other)


BEST_MISTAKES = {
    "a is not normed before the head": _best_twin(not_normed=True),
    "these are the draft's own ids; add the offset of each": _best_twin(
        draft_ids=True
    ),
    "the offsets themselves are returned; a token is its id plus its offset": _best_twin(
        offsets_as_ids=True
    ),
    "the offsets are taken away; add them": _best_twin(minus=True),
    "the least probable stands first": _best_twin(ascending=True),
    "the probabilities are scaled up among the best; they are those of the whole row": (
        _best_twin(among_best=True)
    ),
    "these are scores, not probabilities": _best_twin(scores=True),
    "these are logarithms of the probabilities": _best_twin(logs=True),
}


def _heads(rng, rows, count, k=6, draft=9):
    ids = np.sort(rng.choice(40, draft, replace=False))
    return (
        np.round(rng.normal(0, 1, (rows, k)), 3),
        np.round(rng.uniform(0.5, 1.5, k), 3),
        np.round(rng.normal(0, 0.7, (draft, k)), 3),
        ids - np.arange(draft),
        count,
    )


def question_best():
    def cases(*shapes):
        return lambda rng: [
            _heads(rng, *shape) for shape in shapes for _ in "ab"
        ]

    return Question(
        "best_tokens",
        (
            Idea(
                "tokens",
                14,
                "the target's ids of the best tokens, best first",
                cases((1, 1), (3, 4)),
                part="tokens",
            ),
            Idea(
                "probs",
                10,
                "their probabilities in the draft's distribution",
                cases((1, 2), (3, 4)),
                part="probs",
            ),
        ),
        best_tokens,
        BEST_MISTAKES,
        tolerance=1e-5,
    )


def questions(variant):
    return (
        by_hand(variant),
        question_fuse(),
        question_step(),
        question_best(),
    )


ASSIGNMENT = Assignment(
    "a2_fusion_and_draft", "Fusion and the draft layer", questions, numbers
)
