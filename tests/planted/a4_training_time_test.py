"""Assignment 4: wrong answers of the kinds that learners write, and other right ones."""

from planted.plant import Planted, Wrong

LATER = ("two_steps", "many")
WRONG = {
    "by_hand": {
        "step forgotten": Wrong(
            '"reads": ROW + 1 + STEP',
            '"reads": ROW + 1',
            ("reads",),
            "step is forgotten",
        ),
        "position stands still": Wrong(
            '"position": ROW + STEP',
            '"position": ROW',
            ("position",),
            "positions go on",
        ),
        "says what it reads": Wrong(
            "ROW + 2 + STEP", "ROW + 1 + STEP", ("judged",), "has to say the next one"
        ),
        "all before in every step": Wrong(
            '"keys": ROW + 1 + STEP',
            '"keys": (ROW + 1) * (STEP + 1)',
            ("keys",),
            "diagonal alone",
        ),
        "newest key forgotten": Wrong(
            '"keys": ROW + 1 + STEP', '"keys": ROW + STEP', ("keys",), "one of them"
        ),
    },
    "visible": {
        "later keys causal": Wrong(
            "& (row == row[:, None])", "& (row <= row[:, None])", LATER, "own key alone"
        ),
        "later steps seen": Wrong(
            "(step <= step[:, None]) & ", "", LATER, "can't see step s + 1"
        ),
        "newest alone": Wrong(
            "(step <= step[:, None])",
            "(step == step[:, None])",
            ("many",),
            "whole chain is",
        ),
        "not itself": Wrong(
            "(row <= row[:, None])",
            "(row < row[:, None])",
            ("one_step", "two_steps", "many"),
            "doesn't see itself",
        ),
        "not causal": Wrong(
            "(step == 0) & (row <= row[:, None])",
            "(step == 0) & (row[:, None] > -1)",
            ("one_step", "two_steps", "many"),
            "later tokens are seen",
        ),
        "steps in blocks": Wrong(
            "index // steps, index % steps",
            "index % length, index // length",
            LATER,
            "stand in blocks",
        ),
        "transposed": Wrong(
            "return native | own",
            "return (native | own).T",
            ("one_step", "two_steps", "many"),
            "exchanged",
        ),
        "numbers for booleans": Wrong(
            "return native | own",
            "return (native | own).float()",
            ("one_step", "two_steps", "many"),
            "True and False",
        ),
    },
    "attend": {
        "not scaled": Wrong(" / d**0.5", "", ("native", "chain"), "square root of d"),
        "causal": Wrong(
            "mask = visible(T, S).view(T, S, T, S).permute(1, 0, 3, 2)",
            "mask = torch.ones(T, T).tril().bool()[None, :, None] & torch.ones(S, S).tril().bool()[:, None, :, None]",
            ("chain",),
            "seen causally",
        ),
        "own step alone": Wrong(
            "mask = visible(T, S).view(T, S, T, S).permute(1, 0, 3, 2)",
            "mask = torch.ones(T, T).tril().bool()[None, :, None] & torch.eye(S).bool()[:, None, :, None]",
            ("chain",),
            "keys of step 0 are the context",
        ),
        "two softmaxes": Wrong(
            "scores.softmax(-1).view(S, T, S, T)",
            "torch.cat([scores[..., :T].softmax(-1), scores[..., T:].softmax(-1).nan_to_num(0)], -1).view(S, T, S, T)",
            ("chain",),
            "share one",
        ),
        "later steps unseen": Wrong(
            "masked_fill(~mask, -torch.inf)",
            "masked_fill(~mask | (torch.arange(S)[:, None] > 0), -torch.inf)",
            ("chain",),
            "not seen at all",
        ),
    },
    "step_losses": {
        "teacher stands still": Wrong(
            "aim[rows + 1 + s]", "aim[rows + 1]", ("shift", "mask", "unknown"), ""
        ),
        "one position early": Wrong(
            "aim[rows + 1 + s]",
            "aim[rows + s]",
            ("first", "shift", "mask", "unknown"),
            "",
        ),
        "mass left out": Wrong(
            "    aim = aim / aim.sum(-1, keepdim=True)\n",
            "",
            ("first", "shift", "mask", "unknown"),
            "don't sum to 1",
        ),
        "best of the draft alone": Wrong(
            "known[rows + 1 + s] & ", "", ("unknown",), "none of the draft's"
        ),
        "hard labels": Wrong(
            "    aim = aim / aim.sum(-1, keepdim=True)\n",
            "    aim = (aim == aim.max(-1, keepdim=True).values).double()\n",
            ("first", "shift", "mask", "unknown"),
            "best token alone",
        ),
        "summed": Wrong(
            "loss.sum() / max(1, len(rows))",
            "loss.sum()",
            ("first", "shift", "mask", "unknown"),
            "take the mean",
        ),
        "over all positions": Wrong(
            "loss.sum() / max(1, len(rows))",
            "loss.sum() / T",
            ("first", "shift", "mask", "unknown"),
            "all positions",
        ),
        "mask early": Wrong(
            "answer[rows + 2 + s]", "answer[rows + 1 + s]", ("mask",), "too early"
        ),
        "mean of nothing": Wrong(
            "loss.sum() / max(1, len(rows))", "loss.mean()", ("nothing",), "NaN"
        ),
        "exchanged": Wrong(
            "-(aim[rows + 1 + s] * log_q).sum(-1)",
            "-(log_q.exp() * aim[rows + 1 + s].log()).sum(-1)",
            ("first", "shift", "mask", "unknown"),
            "exchanged",
        ),
    },
}

RIGHT = {
    "by_hand": (
        "by_hand = dict(reads=ROW + STEP + 1, position=STEP + ROW,\n"
        "               judged=ROW + STEP + 2, keys=len(range(ROW + 1)) + STEP)",
        'by_hand = {"keys": 1 + ROW + STEP}\nby_hand["reads"] = by_hand["keys"]\n'
        'by_hand["judged"] = torch.tensor(ROW + 2 + STEP)\nby_hand["position"] = by_hand["reads"] - 1',
    ),
    "visible": (
        "def visible(length, steps):\n"
        "    seen = torch.zeros(length * steps, length * steps, dtype=torch.bool)\n"
        "    for t in range(length):\n        for s in range(steps):\n"
        "            for u in range(t + 1):\n"
        "                seen[t * steps + s, u * steps] = True\n"
        "            for r in range(1, s + 1):\n"
        "                seen[t * steps + s, t * steps + r] = True\n"
        "    return seen",
        "def visible(length, steps):\n"
        "    first = torch.zeros(steps)\n    first[0] = 1\n"
        "    context = torch.kron(torch.ones(length, length).tril(), torch.ones(steps, 1) * first)\n"
        "    chain = torch.kron(torch.eye(length), torch.ones(steps, steps).tril())\n"
        "    return (context + chain) > 0",
    ),
    "attend": (
        "def attend(q, k, v):\n"
        "    S, T, d = q.shape\n    out = torch.zeros_like(v)\n"
        "    for s in range(S):\n        for t in range(T):\n"
        "            keys = torch.cat([k[0, : t + 1], k[1 : s + 1, t]])\n"
        "            values = torch.cat([v[0, : t + 1], v[1 : s + 1, t]])\n"
        "            out[s, t] = (keys @ q[s, t] / math.sqrt(d)).softmax(0) @ values\n"
        "    return out",
        "def attend(q, k, v):\n"
        "    S, T, d = q.shape\n    outs = []\n"
        "    for s in range(S):\n"
        "        a = (q[s] @ k[0].T / d**0.5 + torch.full((T, T), -1e30).triu(1)).exp()\n"
        "        total, out = a.sum(-1, keepdim=True), a @ v[0]\n"
        "        for r in range(1, s + 1):\n"
        "            w = ((q[s] * k[r]).sum(-1, keepdim=True) / d**0.5).exp()\n"
        "            total, out = total + w, out + w * v[r]\n"
        "        outs.append(out / total)\n"
        "    return torch.stack(outs)",
    ),
    "step_losses": (
        "def step_losses(logits, teacher, answer, d2t):\n"
        "    S, T, _ = logits.shape\n    out, known = [], set(d2t.tolist())\n"
        "    for s in range(S):\n        total, n = 0.0, 0\n"
        "        for i in range(T):\n            say = i + s + 2\n"
        "            if say >= T or not answer[say]:\n                continue\n"
        "            p = teacher[say - 1]\n"
        "            if int(p.argmax()) not in known:\n                continue\n"
        "            p = p[d2t] / p[d2t].sum()\n"
        "            total += float(-(p * logits[s, i].log_softmax(-1)).sum())\n"
        "            n += 1\n"
        "        out.append(total / n if n else 0.0)\n"
        "    return out",
        "def step_losses(logits, teacher, answer, d2t):\n"
        "    S, T, Vd = logits.shape\n"
        "    aim = torch.nn.functional.normalize(teacher[:, d2t], p=1, dim=-1)\n"
        "    best = (teacher.argmax(-1)[:, None] == d2t).any(-1)\n"
        "    good = torch.cat([best[:-1] & answer[1:], torch.zeros(1).bool()])\n"
        "    losses = torch.zeros(S).double()\n"
        "    for s in range(S):\n"
        "        n = T - 1 - s\n        if n < 1:\n            continue\n"
        "        use = good[1 + s :]\n"
        "        each = torch.nn.functional.cross_entropy(logits[s, :n].double(), aim[1 + s :], reduction='none')\n"
        "        losses[s] = each[use].mean() if use.any() else 0\n"
        "    return losses",
    ),
}

PLANTED = Planted("a4_training_time_test", WRONG, RIGHT)
