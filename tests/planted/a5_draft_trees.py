"""Assignment 5: wrong answers of the kinds that learners write, and other right ones."""

from planted.plant import Planted, Wrong

WRONG = {
    "by_hand": {
        "from below": Wrong(
            '"path": path,', '"path": path[::-1],', ("path",), "from the top down"
        ),
        "without itself": Wrong(
            '"path": path,', '"path": path[:-1],', ("path",), "itself is part"
        ),
        "position of the row": Wrong(
            "CONTEXT + len(path)",
            "CONTEXT + NODE + 1",
            ("position",),
            "siblings stand at the same",
        ),
        "one position less": Wrong(
            "CONTEXT + len(path)",
            "CONTEXT + len(path) - 1",
            ("position",),
            "one further",
        ),
        "pending row lost": Wrong(
            "[0, *(node + 1 for node in path)]",
            "[node + 1 for node in path]",
            ("kept",),
            "which stays",
        ),
        "nodes for rows": Wrong(
            "[0, *(node + 1 for node in path)]", "path", ("kept",), "those are nodes"
        ),
        "inner nodes": Wrong(
            "if node not in PARENTS",
            "if node in PARENTS",
            ("leaves",),
            "nobody's parent",
        ),
    },
    "grow": {
        "last step alone": Wrong(
            "value * float(prob)",
            "float(prob)",
            ("deep", "rerank"),
            "product of the steps",
        ),
        "added": Wrong(
            "value * float(prob)",
            "value + float(prob)",
            ("deep", "rerank"),
            "multiply them",
        ),
        "all expanded": Wrong(
            "sorted(children, reverse=True)[:width]",
            "children",
            ("deep", "calls"),
            "only the `width` best",
        ),
        "first ones expanded": Wrong(
            "sorted(children, reverse=True)[:width]",
            "children[:width]",
            ("deep", "rerank"),
            "first `width` nodes",
        ),
        "one level": Wrong(
            "range(depth)", "range(1)", ("deep", "rerank", "calls"), "after one level"
        ),
        "not reranked": Wrong(
            "found = sorted(found, reverse=True)[:total]",
            "found = found[:total]",
            ("rerank",),
            "order in which they came",
        ),
        "asked twice": Wrong(
            "best = follow(path).topk(width)",
            "best = follow(path).topk(width)\n            follow(path)",
            ("calls",),
            "'calls'",
        ),
    },
    "walk": {
        "own row": Wrong(
            "    while (node, choices[node + 1]) in child:\n        node = child[node, choices[node + 1]]\n",
            "    row = 0\n    while (node, choices[row]) in child:\n        node = child[node, choices[row]]\n        row = node\n",
            ("deep",),
            "own row",
        ),
        "pending row lost": Wrong(
            "[start, *(start + i + 1 for i in path)]",
            "[start + i + 1 for i in path]",
            ("refused", "deep"),
            "pending token's row is missing",
        ),
        "rows not shifted": Wrong(
            "start + i + 1 for i", "start + i for i", ("deep",), "node i has row i + 1"
        ),
        "first rows": Wrong(
            "[start, *(start + i + 1 for i in path)]",
            "list(range(start, start + len(path) + 1))",
            ("deep",),
            "whatever path was taken",
        ),
        "root's choice": Wrong(
            "return path, choices[node + 1]",
            "return path, choices[0]",
            ("deep",),
            "pending token's row; the last kept",
        ),
        "last kept token": Wrong(
            "return path, choices[node + 1]",
            "return path, tokens[node] if path else choices[0]",
            ("deep",),
            "the target has one more",
        ),
    },
    "siblings": {
        "p stays": Wrong(
            "        p = owed / owed.sum()\n",
            "",
            ("one", "several", "refused"),
            "p stays as it was",
        ),
        "q stays": Wrong(
            "        q = torch.where(torch.arange(len(q)) == x, 0.0, q)\n        q = q / q.sum()\n",
            "",
            ("several",),
            "scale q up",
        ),
        "q not scaled": Wrong(
            "        q = q / q.sum()\n",
            "",
            ("several",),
            "scale q up",
        ),
        "taken out of p": Wrong(
            "owed = (p - q).clamp(min=0)",
            "owed = torch.where(torch.arange(len(p)) == x, 0.0, p)",
            ("one", "several", "refused"),
            "taken out of p",
        ),
        "swapped": Wrong(
            "p[x] / q[x]", "q[x] / p[x]", ("one", "several", "refused"), ""
        ),
        "without chance": Wrong(
            "uniforms[i] < p[x] / q[x]",
            "uniforms[i] < p[x]",
            ("one", "several", "refused"),
            "",
        ),
        "last draw from q": Wrong(
            "int((p.cumsum",
            "int((q.cumsum",
            ("one", "several", "refused"),
            "what is left of q",
        ),
        "in place": Wrong(
            "q = torch.where(torch.arange(len(q)) == x, 0.0, q)",
            "q[x] = 0",
            ("one", "several", "refused"),
            "in place",
        ),
    },
}

RIGHT = {
    "by_hand": (
        "def above(node):\n    return [] if node < 0 else [*above(PARENTS[node]), node]\n\n\n"
        "by_hand = dict(path=torch.tensor(above(NODE)), position=CONTEXT + len(above(NODE)),\n"
        "    kept=[0] + [1 + n for n in above(NODE)],\n"
        "    leaves=sorted(set(range(len(PARENTS))) - set(PARENTS)))",
        "mask = torch.eye(len(PARENTS)).bool()\nrows = [list(r) for r in mask]\n\n\n"
        "def line(n):\n    found = []\n    while n >= 0:\n        found.insert(0, n)\n        n = PARENTS[n]\n    return tuple(found)\n\n\n"
        'by_hand = {"path": line(NODE)}\nby_hand["position"] = CONTEXT + len(line(NODE))\n'
        'by_hand["kept"] = (0,) + tuple(n + 1 for n in line(NODE))\n'
        'by_hand["leaves"] = [n for n in range(len(PARENTS)) if PARENTS.count(n) == 0]',
    ),
    "grow": (
        "import heapq\n\n\n"
        "def grow(depth, width, total, follow):\n"
        "    every, level = {}, {(): 0.0}\n"
        "    for _ in range(depth):\n        new = {}\n"
        "        for path, score in level.items():\n"
        "            logs = torch.log(torch.as_tensor(follow(list(path))))\n"
        "            for token in torch.argsort(logs, descending=True)[:width].tolist():\n"
        "                new[path + (token,)] = score + float(logs[token])\n"
        "        every.update(new)\n"
        "        level = dict(heapq.nlargest(width, new.items(), key=lambda kv: kv[1]))\n"
        "    best = heapq.nlargest(total, every, key=every.get)\n"
        "    return [list(p) for p in sorted(best, key=lambda p: (len(p), p))]",
        "class Node:\n    def __init__(self, value, path):\n        self.value, self.path = value, path\n\n\n"
        "def value_of(node):\n    return -node.value\n\n\n"
        "def grow(depth, width, total, follow):\n"
        "    def expand(node):\n        probs = follow(node.path)\n"
        "        ids = sorted(range(len(probs)), key=lambda t: -probs[t])[:width]\n"
        "        return [Node(node.value * probs[t], node.path + [t]) for t in ids]\n\n"
        "    nodes, last = [], [Node(1.0, [])]\n"
        "    for level in range(depth):\n"
        "        last = sum([expand(n) for n in sorted(last, key=value_of)[:width]], [])\n"
        "        nodes.extend(last)\n"
        "    nodes = sorted(nodes, key=value_of)[:total]\n"
        "    return sorted([n.path for n in nodes], key=lambda p: (len(p), p))",
    ),
    "walk": (
        "def walk(tokens, parents, choices, start):\n"
        "    path, keep, at = [], [start], -1\n"
        "    while True:\n        want = choices[at + 1]\n"
        "        for i, (t, p) in enumerate(zip(tokens, parents)):\n"
        "            if p == at and t == want:\n"
        "                path.append(i)\n                keep.append(start + 1 + i)\n"
        "                at = i\n                break\n"
        "        else:\n            return [path, want, keep]",
        "def walk(tokens, parents, choices, start):\n"
        "    good = [False] * len(tokens)\n    last = -1\n"
        "    for i, p in enumerate(parents):\n"
        "        good[i] = tokens[i] == choices[p + 1] and (p < 0 or good[p])\n"
        "        if good[i]:\n            last = i\n"
        "    path, node = [], last\n"
        "    while node >= 0:\n        path = [node] + path\n        node = parents[node]\n"
        "    rows = torch.tensor([-1] + path) + start + 1\n"
        "    return torch.tensor(path).long(), torch.tensor(choices[last + 1]), rows",
    ),
    "siblings": (
        "def siblings(p, q, drawn, uniforms):\n"
        "    p, q = p.tolist(), q.tolist()\n"
        "    for i, x in enumerate(drawn.tolist()):\n"
        "        if float(uniforms[i]) * q[x] < p[x]:\n            return x, i\n"
        "        p = [max(a - b, 0.0) for a, b in zip(p, q)]\n"
        "        q[x] = 0.0\n"
        "        p = [a / sum(p) for a in p]\n        q = [b / sum(q) for b in q]\n"
        "    total = 0.0\n"
        "    for token, share in enumerate(p):\n        total += share\n"
        "        if total > uniforms[-1]:\n            return token, len(drawn)",
        "def siblings(p, q, drawn, uniforms):\n"
        "    def judge(p, q, i):\n"
        "        if i == len(drawn):\n"
        "            return torch.searchsorted(p.cumsum(0), uniforms[-1:], right=True)[0], i\n"
        "        x = drawn[i]\n"
        "        if uniforms[i] < min(1.0, float(p[x] / q[x])):\n            return x, i\n"
        "        rest = torch.relu(p - q)\n        other = q.clone()\n        other[x] = 0\n"
        "        return judge(rest / rest.sum(), other / other.sum(), i + 1)\n\n"
        "    return judge(p, q, 0)",
    ),
}

PLANTED = Planted("a5_draft_trees", WRONG, RIGHT)
