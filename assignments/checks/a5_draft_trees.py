"""Hidden checks of assignment 5, draft trees. Not for students.

The tree is grown from whole paths as tuples, in no order of levels, and the walk and
the siblings go token by token.
"""

import zlib

import numpy as np
from eagle3.grading.questions import (
    Assignment,
    Idea,
    Question,
    value_question,
)

# --- by_hand --------------------------------------------------------------------------


def numbers(variant):
    rng = np.random.default_rng([5, variant])
    while True:
        parents = [-1] + [int(rng.integers(-1, node)) for node in range(1, 9)]
        depths = _depths(parents)
        node = int(np.argmax(depths))
        if (
            max(depths) >= 3
            and parents.count(-1) >= 2
            and _path(parents, node) != list(range(node + 1))
        ):
            return {
                "PARENTS": parents,
                "NODE": node,
                "CONTEXT": int(rng.integers(8, 30)),
            }


def _path(parents, node):
    path = []
    while node != -1:
        path.append(node)
        node = parents[node]
    return path[::-1]


def _depths(parents):
    return [len(_path(parents, node)) for node in range(len(parents))]


def by_hand(variant):
    n = numbers(variant)
    parents, node, context = n["PARENTS"], n["NODE"], n["CONTEXT"]
    path = _path(parents, node)
    leaves = [i for i in range(len(parents)) if i not in parents]
    right = {
        "path": path,
        "position": context + len(path),
        "kept": [0, *(i + 1 for i in path)],
        "leaves": leaves,
    }
    wrong = {
        "the path runs from the top down": {"path": path[::-1]},
        "the node itself is part of its path": {"path": path[:-1]},
        "a position is that of the row; siblings stand at the same position": {
            "position": context + node + 1
        },
        "the pending token stands at CONTEXT; its children one further": {
            "position": context + len(path) - 1
        },
        "row 0 of the block is the pending token's, which stays": {
            "kept": [i + 1 for i in path]
        },
        "those are nodes; a node's row is one further, behind the pending token": {
            "kept": path
        },
        "a leaf is a node that is nobody's parent": {
            "leaves": [i for i in range(len(parents)) if i in parents]
        },
    }
    says = {
        "path": "the nodes from the top down to NODE",
        "position": "where NODE stands in the text",
        "kept": "rows of the block that stay if the walk ends at NODE",
        "leaves": "nodes without children",
    }
    return value_question("by_hand", says, right, wrong)


# --- grow -----------------------------------------------------------------------------

VOCAB = 8


class Follow:
    """The draft: a distribution after each path, from behind the wall."""

    def __init__(self, seed):
        self.seed = seed
        self.begin()

    def begin(self):
        self.asked = []

    def seen(self):
        return {"calls": len(self.asked)}

    def __call__(self, path):
        path = [int(token) for token in np.asarray(path).reshape(-1)]
        if len(self.asked) > 300:
            raise ValueError("follow: called more than 300 times")
        self.asked.append(path)
        return follow(self.seed, tuple(path))


def follow(seed, path):
    rng = np.random.default_rng(zlib.crc32(repr((seed, path)).encode()))
    weights = rng.random(VOCAB) ** 4 + 0.003
    return weights / weights.sum()


def grow(depth, width, total, seed):
    return _grow(depth, width, total, seed)


def _grow(depth, width, total, seed, **other):
    """All candidates as (value, path); `other` plants a mistake."""
    source = Follow(seed)
    level, found = [(1.0, ())], []
    for d in range(depth):
        children = []
        for value, path in level:
            probs = source(path)
            order = sorted(range(VOCAB), key=lambda t: (-probs[t], t))[:width]
            for token in order:
                step = probs[token]
                new = step if other.get("last_step") else value * step
                new = value + step if other.get("sums") else new
                children.append((new, (*path, token)))
        found += children
        level = sorted(children, key=lambda c: -c[0])
        level = level if other.get("all_expanded") else level[:width]
        if other.get("in_order"):
            level = children[:width]
        if other.get("one_level") or (other.get("short") and d + 2 == depth):
            break
    ranked = sorted(found, key=lambda c: -c[0])[:total]
    if other.get("by_level"):
        ranked = found[:total]
    paths = sorted((path for _, path in ranked), key=lambda p: (len(p), p))
    return {"answer": _as_tree(paths), "follow": source.seen()}


def _as_tree(paths):
    """The set of paths as nested lists that depend on no order of siblings."""
    return [
        [int(t) for t in path]
        for path in sorted(paths, key=lambda p: (len(p), p))
    ]


def _grow_twin(**other):
    return lambda *case: _grow(*case, **other)


GROW_MISTAKES = {
    "nodes are ranked by their own step; the value of a node is the product of the steps "
    "down to it": _grow_twin(last_step=True),
    "probabilities are added along a path; multiply them": _grow_twin(
        sums=True
    ),
    "all nodes of a level are expanded; only the `width` best are": _grow_twin(
        all_expanded=True
    ),
    "the first `width` nodes of a level are expanded, and not the best ones": _grow_twin(
        in_order=True
    ),
    "the tree stops after one level": _grow_twin(one_level=True),
    "the last level is missing: `depth` levels of tokens are asked for": _grow_twin(
        short=True
    ),
    "nodes are kept in the order in which they came; the best of all levels stay": (
        _grow_twin(by_level=True)
    ),
}


def question_grow():
    def cases(*shapes):
        return lambda rng: [
            (d, w, m, int(rng.integers(2**31)))
            for d, w, m in shapes
            for _ in range(3)
        ]

    return Question(
        "grow",
        (
            Idea(
                "level",
                8,
                "one level: the best first tokens",
                cases((1, 3, 3), (1, 4, 2)),
                part="answer",
            ),
            Idea(
                "deep",
                12,
                "further levels, from the best nodes",
                cases((3, 2, 99), (4, 3, 99)),
                part="answer",
            ),
            Idea(
                "rerank",
                10,
                "the best of all levels stay",
                cases((3, 3, 6), (4, 3, 9)),
                part="answer",
            ),
            Idea(
                "calls",
                4,
                "the draft is asked once for each node that is expanded",
                cases((3, 3, 8), (2, 2, 4)),
                part="follow",
            ),
        ),
        grow,
        GROW_MISTAKES,
        remotes={"follow": lambda depth, width, total, seed: Follow(seed)},
        secret=1,
    )


# --- walk -----------------------------------------------------------------------------


def walk(tokens, parents, choices, start):
    return _walk(tokens, parents, choices, start)


def _walk(tokens, parents, choices, start, **other):
    node, path = -1, []
    while True:
        row = node if other.get("own_row") and node >= 0 else node + 1
        choice = choices[min(row, len(choices) - 1)]
        children = [i for i in range(len(tokens)) if parents[i] == node]
        if other.get("first_child"):
            children = children[:1]
        match = [i for i in children if tokens[i] == choice]
        if other.get("any_node"):
            match = [
                i for i in range(node + 1, len(tokens)) if tokens[i] == choice
            ]
        if not match:
            break
        node = match[0]
        path.append(node)
    shift = 0 if other.get("no_shift") else 1
    rows = [start + node + shift for node in path]
    if not other.get("no_root"):
        rows = [start, *rows]
    if other.get("packed"):
        rows = list(range(start, start + len(path) + 1))
    following = choices[0] if other.get("root_choice") else choices[node + 1]
    following = (
        tokens[node] if other.get("last_token") and node >= 0 else following
    )
    return [path, int(following), rows]


def _walk_twin(**other):
    return lambda *case: _walk(*case, **other)


WALK_MISTAKES = {
    "only the first child of a node is looked at": _walk_twin(
        first_child=True
    ),
    "a match is sought among all later nodes; it must be a child of the last one": (
        _walk_twin(any_node=True)
    ),
    "a node is judged by its own row; its parent's row says what should stand there": (
        _walk_twin(own_row=True)
    ),
    "the pending token's row is missing; it is committed too": _walk_twin(
        no_root=True
    ),
    "node i has row i + 1 of the block, since row 0 is the pending token": _walk_twin(
        no_shift=True
    ),
    "the first rows of the block are kept, whatever path was taken": _walk_twin(
        packed=True
    ),
    "the next token comes from the pending token's row; the last kept node's row says "
    "it": _walk_twin(root_choice=True),
    "the last kept token is returned as the next one; the target has one more": (
        _walk_twin(last_token=True)
    ),
}


def _tree(rng, size, hits):
    """A random tree; the target agrees with a child where it can, `hits` of the time."""
    parents = [-1] + [int(rng.integers(-1, node)) for node in range(1, size)]
    tokens, used = [], {}
    for parent in parents:
        free = [
            t for t in range(12) if t not in used.setdefault(parent, set())
        ]
        tokens.append(int(rng.choice(free)))
        used[parent].add(tokens[-1])
    choices = [int(t) for t in rng.integers(0, 12, size + 1)]
    for row in range(size + 1):
        below = [i for i in range(size) if parents[i] == row - 1]
        if below and rng.random() < hits:
            choices[row] = tokens[int(rng.choice(below))]
        elif below:
            choices[row] = 12
    return tokens, parents, choices, int(rng.integers(5, 50))


def _long_walks(rng, size, hits, least, many):
    found = []
    while len(found) < many:
        case = _tree(rng, size, hits)
        path = walk(*case)[0]
        if len(path) >= least and path != list(range(len(path))):
            found.append(case)
    return found


def question_walk():
    return Question(
        "walk",
        (
            Idea(
                "refused",
                6,
                "no child matches, or there is none",
                lambda rng: [_tree(rng, n, 0.0) for n in (1, 4, 7)],
            ),
            Idea(
                "deep",
                14,
                "a path through a tree with side branches",
                lambda rng: _long_walks(rng, 14, 1.0, 3, 12),
            ),
        ),
        walk,
        WALK_MISTAKES,
    )


# --- siblings -------------------------------------------------------------------------


def siblings(p, q, drawn, uniforms):
    return _siblings(p, q, drawn, uniforms)


def _draw(weights, u):
    total = 0.0
    for token, weight in enumerate(weights):
        total += weight
        if total > u:
            return token
    return int(max(np.flatnonzero(weights)))


def _owed(p, q):
    rest = np.maximum(0, p - q)
    return rest / rest.sum() if rest.sum() > 0 else p


def _without(row, token):
    row = row.copy()
    row[token] = 0
    return row / row.sum() if row.sum() > 0 else row


def _siblings(p, q, drawn, uniforms, **other):
    left, first = p, p
    for i, x in enumerate(drawn):
        judge = first if other.get("p_stays") else left
        if other.get("swapped"):
            keep = q[x] / judge[x] if judge[x] > 0 else 1.0
        else:
            keep = judge[x] / q[x]
        if other.get("point_mass"):
            keep = judge[x]
        if uniforms[i] < keep:
            return [int(x), i]
        if other.get("point_mass") or other.get("removes"):
            left = _without(left, x)
        elif other.get("not_scaled"):
            left = np.maximum(0, left - q)
        else:
            left = _owed(left, q)
        if not other.get("q_stays"):
            q = _without(q, x)
    last = first if other.get("last_from_p") else left
    last = q if other.get("last_from_q") else last
    return [_draw(last, uniforms[-1]), len(drawn)]


def _sibling_twin(**other):
    return lambda *case: _siblings(*case, **other)


SIBLING_MISTAKES = {
    "p stays as it was after a refusal; it becomes the residual": (
        _sibling_twin(p_stays=True),
        _sibling_twin(p_stays=True, last_from_p=True),
    ),
    # Where a token was refused nothing of p is left, so to leave it in q and not to
    # scale q up is one and the same.
    "q is as it was after a refusal; take the refused token out and scale q up": (
        _sibling_twin(q_stays=True)
    ),
    "the residual is not divided by its sum": _sibling_twin(not_scaled=True),
    "the refused token is taken out of p; for a drawn token p becomes the residual": (
        _sibling_twin(removes=True)
    ),
    "p and q are swapped in the test": _sibling_twin(swapped=True),
    "each is kept with probability p, as if it were chosen without chance": (
        _sibling_twin(point_mass=True)
    ),
    "when all are refused the token is drawn from the first p; draw from what is left": (
        _sibling_twin(last_from_p=True)
    ),
    "when all are refused the token is drawn from what is left of q": _sibling_twin(
        last_from_q=True
    ),
}


def _pair(rng, count, high=False):
    """A draft's row, tokens drawn from it without replacement, and the target's row."""
    p, q = rng.random((2, 6)) ** 2 + 0.03
    p, q = p / p.sum(), q / q.sum()
    drawn = rng.choice(6, count, replace=False, p=q)
    uniforms = rng.random(count + 1)
    if high:
        p[drawn] *= 0.2
        p /= p.sum()
        uniforms[:count] = 0.9 + 0.1 * uniforms[:count]
    return p, q, drawn, uniforms


def question_siblings():
    return Question(
        "siblings",
        (
            Idea(
                "one",
                8,
                "one sibling is the chain rule",
                lambda rng: [_pair(rng, 1) for _ in range(24)],
            ),
            Idea(
                "several",
                12,
                "several siblings, one after the other",
                lambda rng: [_pair(rng, 3) for _ in range(60)],
            ),
            Idea(
                "refused",
                10,
                "all refused: what is left of p",
                lambda rng: [_pair(rng, 2, high=True) for _ in range(30)],
            ),
        ),
        siblings,
        SIBLING_MISTAKES,
    )


def questions(variant):
    return (
        by_hand(variant),
        question_grow(),
        question_walk(),
        question_siblings(),
    )


ASSIGNMENT = Assignment("a5_draft_trees", "Draft trees", questions, numbers)
