"""Assignment 2: wrong answers of the kinds that learners write, and other right ones."""

from planted.plant import Planted, Wrong

WRONG = {
    "by_hand": {
        "last layer": Wrong(
            "LAYERS - 3]", "LAYERS - 1]", ("taps",), "not the last layer"
        ),
        "turned round": Wrong(
            "[HIDDEN, 3 * TARGET_HIDDEN]",
            "[3 * TARGET_HIDDEN, HIDDEN]",
            ("fc",),
            "[out, in]",
        ),
        "one tap": Wrong("3 * TARGET_HIDDEN", "TARGET_HIDDEN", ("fc",), "three taps"),
        "one stream": Wrong(
            "[KV_HEADS * HEAD_DIM, 2 * HIDDEN]",
            "[KV_HEADS * HEAD_DIM, HIDDEN]",
            ("k_weight",),
            "two streams",
        ),
        "a key head for each query head": Wrong(
            "[KV_HEADS * HEAD_DIM, 2 * HIDDEN]",
            "[HIDDEN, 2 * HIDDEN]",
            ("k_weight",),
            "fewer heads",
        ),
        "values forgotten": Wrong(
            '"cache": 2 * KV_HEADS',
            '"cache": KV_HEADS',
            ("cache",),
            "a key and a value",
        ),
    },
    "fuse": {
        "one too high": Wrong(
            "states[i] for", "states[i + 1] for", ("even", "odd"), "one too high"
        ),
        "states for layers": Wrong(
            "len(states) - 1", "len(states)", ("even", "odd"), ""
        ),
        "high tap first": Wrong(
            "for i in taps", "for i in taps[::-1]", ("even", "odd"), "low, middle, high"
        ),
        "last state": Wrong(
            "layers - 3]", "layers]", ("even", "odd"), "taken for the high tap"
        ),
        "interleaved": Wrong(
            "torch.cat([states[i] for i in taps], dim=-1)",
            "torch.stack([states[i] for i in taps], dim=-1).flatten(-2)",
            ("even", "odd"),
            "interleaved",
        ),
    },
    "draft_step": {
        "feature first": Wrong(
            '[norm(e, w["input_norm"]), norm(x, w["hidden_norm"])]',
            '[norm(x, w["hidden_norm"]), norm(e, w["input_norm"])]',
            ("value", "key", "first", "cached"),
            "stands before the token",
        ),
        "feature not normed": Wrong(
            'norm(x, w["hidden_norm"])',
            "x",
            ("value", "key", "first", "cached"),
            "feature is not normed",
        ),
        "e in the residual": Wrong(
            "r = x +", "r = x + e +", ("first", "cached"), "only the feature is"
        ),
        "no residual": Wrong(
            "r = x +", "r =", ("first", "cached"), "around attention is missing"
        ),
        "no residual around the MLP": Wrong(
            "a = r +", "a =", ("first", "cached"), "around the MLP is missing"
        ),
        "MLP reads the un-normed": Wrong(
            'h = norm(r, w["post_norm"])', "h = r", ("first", "cached"), "not normed"
        ),
        "not turned": Wrong(
            ', position)\n    key = turn((w["k"] @ both).view(G, d), position)',
            ', 0)\n    key = (w["k"] @ both).view(G, d)',
            ("key", "cached"),
            "not turned",
        ),
        "position of the cache": Wrong(
            "    G, _, d = keys.shape\n",
            "    G, position, d = keys.shape\n",
            ("key", "cached"),
            "it is given",
        ),
        "values turned": Wrong(
            'value = (w["v"] @ both).view(G, d)',
            'value = turn((w["v"] @ both).view(G, d), position)',
            ("value", "cached"),
            "values are turned",
        ),
        "heads take turns": Wrong(
            'q = turn((w["q"] @ both).view(G, -1, d), position)',
            'q = turn((w["q"] @ both).view(-1, G, d).transpose(0, 1), position)',
            ("cached",),
            "",
        ),
        "not scaled": Wrong(" / d**0.5", "", ("cached",), "square root of d"),
        "gate and up": Wrong(
            'silu(w["gate"] @ h)', 'silu(w["up"] @ h)', ("first", "cached"), ""
        ),
    },
    "best_tokens": {
        "not normed": Wrong(
            "norm(a, norm_weight)", "a", ("tokens", "probs"), "not normed"
        ),
        "draft ids": Wrong(
            "best.indices + offsets[best.indices]",
            "best.indices",
            ("tokens",),
            "add the offset",
        ),
        "offsets alone": Wrong(
            "best.indices + offsets", "offsets", ("tokens",), "id plus its offset"
        ),
        "minus": Wrong(
            "best.indices + offsets",
            "best.indices - offsets",
            ("tokens",),
            "taken away",
        ),
        "scaled up": Wrong(
            '"probs": best.values',
            '"probs": best.values / best.values.sum(-1, keepdim=True)',
            ("probs",),
            "scaled up among the best",
        ),
        "scores": Wrong(".softmax(-1)", "", ("probs",), "scores, not"),
    },
}

RIGHT = {
    "by_hand": (
        "size = KV_HEADS * HEAD_DIM\n"
        "by_hand = dict(taps=(2, LAYERS // 2, LAYERS - 3), fc=(HIDDEN, TARGET_HIDDEN * 3),\n"
        "    k_weight=(size, HIDDEN + HIDDEN), head=(DRAFT_VOCAB, HIDDEN), cache=size + size)",
        "fc = torch.nn.Linear(3 * TARGET_HIDDEN, HIDDEN, bias=False, device='meta')\n"
        "k = torch.nn.Linear(2 * HIDDEN, KV_HEADS * HEAD_DIM, bias=False, device='meta')\n"
        'by_hand = {"fc": list(fc.weight.shape), "k_weight": list(k.weight.shape)}\n'
        'by_hand["taps"] = torch.tensor([2, LAYERS // 2, LAYERS - 3])\n'
        'by_hand["head"], by_hand["cache"] = [DRAFT_VOCAB, HIDDEN], 2 * k.weight.shape[0]',
    ),
    "fuse": (
        "def fuse(states, weight):\n"
        "    L, k = states.shape[0] - 1, states.shape[-1]\n"
        "    parts = weight.split(k, dim=1)\n"
        "    taps = states[2], states[L // 2], states[-4]\n"
        "    return sum(torch.einsum('tk,dk->td', s, w) for s, w in zip(taps, parts))",
        "def fuse(states, weight):\n"
        "    L = len(states) - 1\n    rows = []\n"
        "    for t in range(states.shape[1]):\n"
        "        g = torch.cat((states[2, t], states[L // 2, t], states[L - 3, t]))\n"
        "        rows.append(weight @ g)\n    return torch.stack(rows)",
    ),
    "draft_step": (
        "def draft_step(e, x, position, keys, values, w):\n"
        "    G, n, d = keys.shape\n"
        "    both = torch.cat([norm(e, w['input_norm']), norm(x, w['hidden_norm'])])\n"
        "    q = (both @ w['q'].T).reshape(-1, d)\n"
        "    k = torch.stack([turn(row, position) for row in (both @ w['k'].T).reshape(G, d)])\n"
        "    v = (both @ w['v'].T).reshape(G, d)\n    out = []\n"
        "    for h in range(len(q)):\n"
        "        g = h // (len(q) // G)\n        query = turn(q[h], position)\n"
        "        scores = [float(query @ keys[g, i]) for i in range(n)] + [float(query @ k[g])]\n"
        "        p = (torch.tensor(scores).double() / math.sqrt(d)).softmax(0)\n"
        "        out.append(p[:n] @ values[g] + p[n] * v[g])\n"
        "    r = x + torch.cat(out) @ w['o'].T\n    h = norm(r, w['post_norm'])\n"
        "    gate = h @ w['gate'].T\n"
        "    return {'key': k, 'value': v, 'a': r + (gate * gate.sigmoid() * (h @ w['up'].T)) @ w['down'].T}",
        "def draft_step(e, x, position, keys, values, w):\n"
        "    G, n, d = keys.shape\n    k_ = len(x)\n"
        "    def two(m):\n"
        "        return m[:, :k_] @ norm(e, w['input_norm']) + m[:, k_:] @ norm(x, w['hidden_norm'])\n\n"
        "    q = turn(two(w['q']).unflatten(0, (-1, d)), position)\n"
        "    key, value = turn(two(w['k']).unflatten(0, (G, d)), position), two(w['v']).unflatten(0, (G, d))\n"
        "    share = q.shape[0] // G\n"
        "    K = torch.cat([keys, key.unsqueeze(1)], 1).repeat_interleave(share, 0)\n"
        "    V = torch.cat([values, value.unsqueeze(1)], 1).repeat_interleave(share, 0)\n"
        "    p = torch.einsum('hd,hnd->hn', q, K).div(d**0.5).softmax(-1)\n"
        "    r = x + w['o'] @ torch.einsum('hn,hnd->hd', p, V).reshape(-1)\n"
        "    h = norm(r, w['post_norm'])\n"
        "    mlp = w['down'] @ (torch.nn.functional.silu(w['gate'] @ h) * (w['up'] @ h))\n"
        "    return dict(a=r + mlp, key=key, value=value)",
    ),
    "best_tokens": (
        "def best_tokens(a, norm_weight, head, offsets, count):\n"
        "    d2t = torch.arange(len(offsets)) + offsets\n    tokens, probs = [], []\n"
        "    for row in a:\n"
        "        p = torch.softmax(head @ norm(row, norm_weight), 0).tolist()\n"
        "        order = sorted(range(len(p)), key=lambda v: -p[v])[:count]\n"
        "        tokens.append([int(d2t[v]) for v in order])\n"
        "        probs.append([p[v] for v in order])\n"
        "    return {'tokens': tokens, 'probs': probs}",
        "def best_tokens(a, norm_weight, head, offsets, count):\n"
        "    logs = torch.nn.functional.log_softmax(norm(a, norm_weight) @ head.mT, -1)\n"
        "    ids = logs.argsort(-1, descending=True)[:, :count]\n"
        "    return dict(tokens=ids + offsets[ids], probs=logs.gather(-1, ids).exp())",
    ),
}

PLANTED = Planted("a2_fusion_and_draft", WRONG, RIGHT)
