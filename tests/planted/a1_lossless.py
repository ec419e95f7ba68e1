"""Assignment 1: wrong answers of the kinds that learners write, and other right ones."""

from planted.plant import Planted, Wrong

WRONG = {
    "by_hand": {
        "fraction turned round": Wrong(
            "P[X] / Q[X]", "min(1, Q[X] / P[X])", ("keep",), "turned round"
        ),
        "p alone": Wrong("P[X] / Q[X]", "P[X]", ("keep",), "p of the token"),
        "p and q swapped": Wrong(
            "max(0, a - b)", "max(0, b - a)", ("residual",), "p and q are swapped"
        ),
        "not normalised": Wrong(
            "value / sum(owed)", "value", ("residual",), "not divided by its sum"
        ),
        "larger one": Wrong(
            "sum(min(a, b)", "sum(max(a, b)", ("kept",), "smaller one is shared"
        ),
        "rejections forgotten": Wrong(
            '"emitted": P[Y]',
            '"emitted": min(P[Y], Q[Y])',
            ("emitted",),
            "rejection of another",
        ),
        "half an answer": Wrong(
            '"emitted": P[Y]', '"emitted": None', ("emitted",), "not answered yet"
        ),
    },
    "filtered": {
        "not normalised": Wrong(
            "return kept / kept.sum(-1, keepdim=True)",
            "return kept",
            ("cut",),
            "not scaled up",
        ),
        "multiplied": Wrong(
            "logits / temperature",
            "logits * temperature",
            ("temperature", "cut"),
            "multiplied by the temperature",
        ),
        "absolute floor": Wrong(
            "floor = min_p * probs.max(-1, keepdim=True).values",
            "floor = min_p",
            ("cut",),
            "share of the largest",
        ),
        "floor of the block": Wrong(
            "probs.max(-1, keepdim=True).values",
            "probs.max()",
            ("cut",),
            "each row has its own",
        ),
        "temperature forgotten": Wrong(
            "(logits / temperature)",
            "logits",
            ("temperature", "cut"),
            "temperature is not used",
        ),
        "no greedy": Wrong("if temperature == 0:", "if False:", ("greedy",), "NaN"),
        "all that are best": Wrong(
            "        best = logits.argmax(-1)\n"
            "        return torch.nn.functional.one_hot(best, logits.shape[-1]).double()",
            "        best = (logits == logits.max(-1, keepdim=True).values).double()\n"
            "        return best / best.sum(-1, keepdim=True)",
            ("greedy",),
            "take the first one",
        ),
        "in place": Wrong(
            "probs = (logits / temperature)",
            "probs = logits.div_(temperature)",
            ("temperature", "cut"),
            "in place",
        ),
    },
    "decide": {
        "resamples from p": Wrong(
            "(p[b, i] - q[b, i])",
            "p[b, i]",
            ("replacement", "chain", "batch"),
            "drawn from p",
        ),
        "resamples from q": Wrong(
            "(p[b, i] - q[b, i])",
            "q[b, i]",
            ("replacement", "chain", "batch"),
            "drawn from q",
        ),
        "not normalised": Wrong(
            "owed / owed.sum()",
            "owed",
            ("replacement", "chain", "batch"),
            "not divided by its sum",
        ),
        "residual swapped": Wrong(
            "(p[b, i] - q[b, i])",
            "(q[b, i] - p[b, i])",
            ("replacement", "chain", "batch"),
            "swapped in the residual",
        ),
        "test swapped": Wrong(
            "p[b, i, x] / q[b, i, x]",
            "q[b, i, x] / p[b, i, x]",
            ("replacement", "chain", "batch"),
            "swapped in the test",
        ),
        "no chance": Wrong(
            "uniforms[b, i] >= p[b, i, x] / q[b, i, x]",
            "p[b, i, x] < q[b, i, x]",
            ("chain", "batch"),
            "chance has no part",
        ),
        "one row too late": Wrong(
            "(p[b, i] - q[b, i])",
            "(p[b, i + 1] - q[b, i])",
            ("replacement", "chain", "batch"),
            "one row too late",
        ),
        "no bonus": Wrong(
            "        emitted[b, count] =",
            "        if count < n:\n            emitted[b, count] =",
            ("bonus", "chain", "batch"),
            "bonus token is missing",
        ),
        "bonus of the last guess": Wrong(
            "n, p[b, n]",
            "n, p[b, n - 1]",
            ("bonus", "chain", "batch"),
            "last guess's own row",
        ),
        "counts the rejected": Wrong(
            "count, row = i, owed / owed.sum()",
            "count, row = i + 1, owed / owed.sum()",
            ("replacement", "chain", "batch"),
            "rejected guess stands",
        ),
        "filled with zeros": Wrong(
            "torch.full((B, n + 1), -1)",
            "torch.zeros(B, n + 1).long()",
            ("replacement", "chain", "batch"),
            "fill up with -1",
        ),
        "goes on": Wrong("                break\n", "", ("chain", "batch"), ""),
    },
    "law": {
        "kept alone": Wrong(
            "return q * keep + (q * (1 - keep)) @ instead",
            "return q * keep",
            ("one", "rows", "leak"),
            "only kept tokens",
        ),
        "q forgotten": Wrong(
            "q * keep + (q * (1 - keep))",
            "keep + (1 - keep)",
            ("one", "rows", "leak"),
            "q is forgotten",
        ),
        "keep for 1 - keep": Wrong(
            "(1 - keep)", "keep", ("one", "rows", "leak"), "with 1 - keep"
        ),
        "transposed": Wrong(
            "(q * (1 - keep)) @ instead",
            "instead @ (q * (1 - keep))",
            ("one", "rows", "leak"),
            "rows and columns",
        ),
        "one row for all": Wrong(
            "(q * (1 - keep)) @ instead",
            "(q * (1 - keep)).sum() * instead[0]",
            ("rows", "leak"),
            "same row of instead",
        ),
        "made to sum to 1": Wrong(
            "return q * keep + (q * (1 - keep)) @ instead",
            "total = q * keep + (q * (1 - keep)) @ instead\n    return total / total.sum()",
            ("leak",),
            "hides a rule",
        ),
    },
    "bias": {
        "summed": Wrong(
            ".abs().max()", ".abs().sum()", ("A", "C", "D"), "sum of all differences"
        ),
        "half the sum": Wrong(
            ".abs().max()", ".abs().sum() / 2", ("D",), "half the sum"
        ),
        "compared with q": Wrong(
            "- p_row).abs()", "- q_row).abs()", ("A", "B", "C", "D"), "compared with q"
        ),
        "all lossless": Wrong(
            "float((law(q_row, *rule) - p_row).abs().max())",
            "0.0",
            ("A", "C", "D"),
            "not right",
        ),
    },
}

RIGHT = {
    "by_hand": (
        'by_hand = {"keep": float(torch.tensor(P)[X] / torch.tensor(Q)[X])}\n'
        "gap = (torch.tensor(P) - torch.tensor(Q)).clamp(min=0)\n"
        "by_hand = dict(by_hand, residual=gap / gap.sum(), kept=1 - gap.sum(),\n"
        "               emitted=P[Y])",
        "def over(i):\n    return max(P[i] - Q[i], 0.0)\n\n\n"
        "lost = sum(over(i) for i in range(4))\n"
        'by_hand = {"keep": 1 - (Q[X] - P[X]) / Q[X], "kept": 1 - lost,\n'
        '    "residual": tuple(over(i) / lost for i in range(4)), "emitted": P[Y]}',
    ),
    "filtered": (
        "import numpy as np\n\n\n"
        "def filtered(logits, temperature, min_p):\n"
        "    rows = []\n"
        "    for row in logits.tolist():\n"
        "        if temperature == 0:\n"
        "            best = row.index(max(row))\n"
        "            rows.append([float(i == best) for i in range(len(row))])\n"
        "            continue\n"
        "        powers = [math.exp((v - max(row)) / temperature) for v in row]\n"
        "        powers = [v if v >= min_p else 0.0 for v in powers]\n"
        "        rows.append([v / sum(powers) for v in powers])\n"
        "    return np.array(rows)",
        "def filtered(logits, temperature, min_p):\n"
        "    z = logits - logits.amax(-1, keepdim=True)\n"
        "    if temperature == 0:\n"
        "        out = torch.zeros_like(z)\n"
        "        for i, row in enumerate(z):\n"
        "            out[i, int((row == 0).nonzero()[0])] = 1\n"
        "        return out\n"
        "    z = z / temperature\n"
        "    if min_p > 0:\n"
        "        z = z.masked_fill(z < math.log(min_p), -math.inf)\n"
        "    return torch.exp(z - torch.logsumexp(z, -1, keepdim=True))",
    ),
    "decide": (
        "def one(tokens, q, p, u):\n"
        "    out = []\n"
        "    for i, x in enumerate(tokens.tolist()):\n"
        "        if u[i] * q[i, x] < p[i, x]:\n"
        "            out.append(x)\n"
        "            continue\n"
        "        owed = torch.relu(p[i] - q[i])\n"
        "        out.append(first(owed, u[-1] * owed.sum()))\n"
        "        return out + [-1] * (len(tokens) + 1 - len(out))\n"
        "    return out + [first(p[-1], u[-1])]\n\n\n"
        "def first(row, u):\n"
        "    return int(torch.searchsorted(row.cumsum(0), u, right=True))\n\n\n"
        "def decide(tokens, q, p, uniforms):\n"
        "    rows = zip(tokens, q, p, uniforms.double())\n"
        "    return torch.tensor([one(*row) for row in rows])",
        "def decide(tokens, q, p, uniforms):\n"
        "    B, n = tokens.shape\n"
        "    chosen = tokens[..., None]\n"
        "    ratio = p[:, :n].gather(-1, chosen) / q.gather(-1, chosen)\n"
        "    kept = (uniforms[:, :n] < ratio[..., 0]).long().cumprod(-1)\n"
        "    count = kept.sum(-1)\n"
        "    none = torch.zeros_like(p[:, :1])\n"
        "    owed = (p - torch.cat([q, none], 1)).clamp(min=0)\n"
        "    rows = owed[torch.arange(B), count]\n"
        "    rows = rows / rows.sum(-1, keepdim=True)\n"
        "    token = (rows.cumsum(-1) <= uniforms[:, n:]).sum(-1)\n"
        "    place = torch.arange(n + 1)\n"
        "    longer = torch.cat([tokens, tokens[:, :1]], 1)\n"
        "    out = torch.where(place < count[:, None], longer, -1)\n"
        "    return torch.where(place == count[:, None], token[:, None], out)",
    ),
    "law": (
        "def law(q, keep, instead):\n"
        "    out = [0.0] * len(q)\n"
        "    for x in range(len(q)):\n"
        "        out[x] += float(q[x] * keep[x])\n"
        "        for y in range(len(q)):\n"
        "            out[y] += float(q[x] * (1 - keep[x]) * instead[x, y])\n"
        "    return out",
        "def law(q, keep, instead):\n"
        "    refused = torch.einsum('x,xy->y', q - q * keep, instead)\n"
        "    return torch.einsum('x,x->x', q, keep) + refused",
    ),
    "bias": (
        "p_, q_ = torch.tensor(P).double(), torch.tensor(Q).double()\n"
        "bias = {}\n"
        'bias["A"], bias["B"], bias["C"], bias["D"] = [\n'
        "    max(abs(float(v)) for v in law(q_, *rule) - p_)\n"
        "    for rule in rules(p_, q_).values()\n"
        "]",
        "import numpy as np\n\n\n"
        "def distance(name):\n"
        "    p_, q_ = torch.tensor(P).double(), torch.tensor(Q).double()\n"
        "    return np.abs((law(q_, *rules(p_, q_)[name]) - p_).numpy()).max()\n\n\n"
        'bias = {name: distance(name) for name in "ABCD"}',
    ),
}

PLANTED = Planted("a1_lossless", WRONG, RIGHT)
