"""Assignment 3: wrong answers of the kinds that learners write, and other right ones."""

from planted.plant import Planted, Wrong

ALL = ("text", "passes", "full", "stop")
WRONG = {
    "by_hand": {
        "pending forgotten": Wrong(
            "DRAFTED + 1", "DRAFTED", ("rows",), "the pending token is in the block"
        ),
        "forgets the pending row": Wrong(
            "DRAFTED - KEPT",
            "DRAFTED - KEPT + 1",
            ("forget",),
            "pending token's row stays",
        ),
        "replacement cached": Wrong(
            "CACHED + 1 + KEPT",
            "CACHED + 2 + KEPT",
            ("target_cache",),
            "replacement has not been",
        ),
        "before the rollback": Wrong(
            "CACHED + 1 + KEPT",
            "CACHED + 1 + DRAFTED",
            ("target_cache",),
            "before the rollback",
        ),
        "replacement has a feature": Wrong(
            '"unseen": 1 + KEPT',
            '"unseen": 2 + KEPT',
            ("unseen",),
            "replacement has not been",
        ),
        "accepted guesses stay": Wrong(
            '"draft_cache": CACHED',
            '"draft_cache": CACHED + KEPT',
            ("draft_cache",),
            "even where the guess was right",
        ),
    },
    "generate": {
        "own row": Wrong(
            "drafted[kept] == choices[kept]",
            "drafted[kept] == choices[kept + 1]",
            ("text", "passes", "full"),
            "judged by its own row",
        ),
        "keeps all rejected": Wrong(
            "cached += 1 + kept",
            "cached += 1 + len(drafted)",
            ("text", "passes", "stop"),
            "keeps all rejected",
        ),
        "keeps one rejected": Wrong(
            "cached += 1 + kept",
            "cached += 1 + min(len(drafted), kept + 1)",
            ("text", "passes", "stop"),
            "keeps a rejected guess",
        ),
        "no bonus": Wrong(
            "new += [*drafted[:kept], choices[kept]]\n        cached += 1 + kept",
            "new += drafted if 0 < kept == len(drafted) else [*drafted[:kept], choices[kept]]\n"
            "        cached += kept if 0 < kept == len(drafted) else 1 + kept",
            ("passes", "full"),
            "bonus token is thrown away",
        ),
        "prompt in the answer": Wrong(
            "    return new",
            "    return prompt + new",
            ALL,
            "begins with the prompt",
        ),
        "first token lost": Wrong(
            "    return new",
            "    return new[1:]",
            ALL,
            "first new token is missing",
        ),
        "stop shown late": Wrong(
            "    if stop in new:\n        new = new[: new.index(stop) + 1]\n",
            "",
            ("stop",),
            "is emitted",
        ),
        "guesses unused": Wrong(
            "while kept < len(drafted) and drafted[kept] == choices[kept]:",
            "while False:",
            ("passes", "full"),
            "guesses are not used",
        ),
        "no cache": Wrong(
            "choices = target(cached, [new[-1], *drafted])",
            "choices = target(0, [*prompt, *new, *drafted])[len(prompt + new) - 1 :]",
            ("passes", "full"),
            "whole text is run in every pass",
        ),
        "no room": Wrong(
            "min(length, count - len(new) - 1)",
            "min(length, count - len(new))",
            ALL[:3],
            "",
        ),
    },
    "hunt": {
        "all own row": Wrong(
            "seems(name) for",
            '"own row" for',
            ("B", "C", "D", "E"),
            "would show elsewhere",
        ),
        "rejected for guesses": Wrong(
            'return "keeps guesses"',
            'return "keeps rejected"',
            ("E",),
            "would show elsewhere",
        ),
        "bonus for row": Wrong(
            'return "no bonus"', 'return "own row"', ("B",), "would show elsewhere"
        ),
        "half": Wrong(
            'for name in "ABCDE"}', 'for name in "ABC"}', ("D", "E"), "not answered yet"
        ),
    },
    "diagnose": {
        "always the same": Wrong(
            "",
            'def diagnose(prompt, trace):\n    return "own row"',
            ("own_row", "keeps_rejected", "keeps_guesses", "unshifted", "no_bonus"),
            "a sound engine is called broken",
        ),
        "blind for the target's cache": Wrong(
            'return "keeps rejected"',
            "pass",
            ("keeps_rejected",),
            "'keeps rejected' is called sound",
        ),
        "blind for the draft's cache": Wrong(
            'return "keeps guesses"',
            "pass",
            ("keeps_guesses",),
            "'keeps guesses' is called sound",
        ),
        "bonus and row mixed": Wrong(
            '"no bonus" if cycle["emitted"] == drafted else "own row"',
            '"own row" if cycle["emitted"] == drafted else "no bonus"',
            ("own_row", "no_bonus"),
            "mixed up",
        ),
        "pending forgotten": Wrong(
            "target_cache += 1 + kept",
            "target_cache += kept",
            ("own_row", "keeps_rejected", "keeps_guesses", "no_bonus", "unshifted"),
            "",
        ),
        "caches mixed": Wrong(
            '            return "keeps rejected"\n        if cycle["draft_cache"] != draft_cache:\n            return "keeps guesses"',
            '            return "keeps guesses"\n        if cycle["draft_cache"] != draft_cache:\n            return "keeps rejected"',
            ("keeps_rejected", "keeps_guesses"),
            "two caches are mixed up",
        ),
    },
}

RIGHT = {
    "by_hand": (
        "block = 1 + DRAFTED\nstays = 1 + KEPT\n"
        "by_hand = dict(rows=block, forget=block - stays, target_cache=CACHED + stays,\n"
        "               unseen=stays, draft_cache=CACHED)",
        'by_hand = {}\nby_hand["rows"] = len(["pending"] + ["guess"] * DRAFTED)\n'
        'by_hand["forget"] = len(range(KEPT, DRAFTED))\n'
        'by_hand["target_cache"] = torch.tensor(CACHED + KEPT + 1)\n'
        'by_hand["unseen"], by_hand["draft_cache"] = KEPT + 1, CACHED',
    ),
    "generate": (
        "def matches(a, b):\n    n = 0\n    for x, y in zip(a, b):\n"
        "        if x != y:\n            break\n        n += 1\n    return n\n\n\n"
        "def generate(prompt, length, count, stop, target, draft):\n"
        "    text = [int(t) for t in prompt]\n    start = len(text)\n"
        "    text.append(target(0, text)[-1])\n"
        "    while True:\n"
        "        if stop in text[start:]:\n"
        "            return text[start : text.index(stop, start) + 1]\n"
        "        room = start + count - len(text)\n"
        "        if room <= 0:\n            return text[start : start + count]\n"
        "        guess = draft(text, min(length, room - 1)) if room > 1 else []\n"
        "        said = target(len(text) - 1, text[-1:] + list(guess))\n"
        "        text += said[: matches(guess, said) + 1]",
        "def generate(prompt, length, count, stop, target, draft):\n"
        "    pending = target(0, torch.tensor(prompt))[-1]\n"
        "    new, cached = [], len(prompt)\n"
        "    while True:\n"
        "        new.append(pending)\n"
        "        if pending == stop or len(new) == count:\n            return new\n"
        "        n = min(length, count - len(new) - 1)\n"
        "        block = torch.tensor([pending] + (draft(prompt + new, n) if n else []))\n"
        "        best = torch.tensor(target(cached, block))\n"
        "        good = int((block[1:] == best[:-1]).int().cumprod(0).sum())\n"
        "        for token in best[:good].tolist():\n"
        "            new.append(token)\n"
        "            if token == stop:\n                return new\n"
        "        cached, pending = cached + good + 1, int(best[good])",
    ),
    "hunt": (
        "def told(name):\n    return diagnose(SUSPECTS[name]['prompt'], SUSPECTS[name]['trace'])\n\n\n"
        "class Later(dict):\n    pass\n\n\n"
        "def sure(prompt, trace):\n"
        "    last = {'target': len(prompt), 'draft': 0}\n"
        "    for c in trace:\n"
        "        if len(c['draft_read']) == len(prompt) and c['draft_read'] == prompt:\n"
        "            return 'unshifted'\n"
        "        if c['draft_cache'] - last['draft'] > len(c['draft_read']):\n"
        "            return 'keeps guesses'\n"
        "        n = sum(torch.tensor([a == b for a, b in zip(c['drafted'], c['choices'])]).int().cumprod(0).tolist())\n"
        "        if c['emitted'] == c['drafted']:\n            return 'no bonus'\n"
        "        if len(c['emitted']) != n + 1:\n            return 'own row'\n"
        "        if c['target_cache'] != last['target'] + n + 1:\n            return 'keeps rejected'\n"
        "        last = {'target': c['target_cache'], 'draft': c['draft_cache']}\n\n\n"
        "hunt = {name: sure(**SUSPECTS[name]) for name in 'ABCDE'}",
        "reads = {n: s['trace'][0]['draft_read'] == s['prompt'] for n, s in SUSPECTS.items()}\n"
        "whole = {n: any(c['emitted'] == c['drafted'] for c in s['trace']) for n, s in SUSPECTS.items()}\n"
        "wide = {n: s['trace'][-1]['draft_cache'] > sum(len(c['draft_read']) for c in s['trace']) for n, s in SUSPECTS.items()}\n"
        "rows = {n: s['trace'][-1]['target_cache'] > len(s['prompt']) + sum(len(c['emitted']) for c in s['trace']) for n, s in SUSPECTS.items()}\n"
        "hunt = {n: 'unshifted' if reads[n] else 'no bonus' if whole[n] else 'keeps guesses' if wide[n] else 'keeps rejected' if rows[n] else 'own row' for n in SUSPECTS}",
    ),
    "diagnose": (
        "def emits(c):\n    out = []\n"
        "    for guess, choice in zip(c['drafted'] + [None], c['choices']):\n"
        "        out.append(choice)\n        if guess != choice:\n            break\n    return out\n\n\n"
        "def diagnose(prompt, trace):\n"
        "    t, d = len(prompt), 0\n"
        "    for i, c in enumerate(trace):\n"
        "        want = emits(c)\n"
        "        t, d = t + len(want), d + len(c['draft_read'])\n"
        "        if i == 0 and c['draft_read'][-1] != c['pending']:\n            return 'unshifted'\n"
        "        if len(want) == len(c['emitted']) + 1 and c['emitted'] == c['drafted']:\n            return 'no bonus'\n"
        "        if want != c['emitted']:\n            return 'own row'\n"
        "        if t != c['target_cache']:\n            return 'keeps rejected'\n"
        "        if d != c['draft_cache']:\n            return 'keeps guesses'\n"
        "    return 'none'",
        "def diagnose(prompt, trace):\n"
        "    found = set()\n    t, d = len(prompt), 0\n"
        "    for c in trace:\n"
        "        same_ = torch.tensor(c['drafted']) == torch.tensor(c['choices'][:-1])\n"
        "        n = int(same_.int().cumprod(0).sum())\n"
        "        t, d = t + n + 1, d + len(c['draft_read'])\n"
        "        if c['target_cache'] > t:\n            found.add('keeps rejected')\n"
        "        if c['draft_cache'] > d:\n            found.add('keeps guesses')\n"
        "        if c['emitted'] != c['choices'][: n + 1]:\n"
        "            found.add('no bonus' if n == len(c['drafted']) else 'own row')\n"
        "    if trace[0]['draft_read'] == prompt:\n        return 'unshifted'\n"
        "    for name in ('own row', 'no bonus', 'keeps rejected', 'keeps guesses'):\n"
        "        if name in found:\n            return name\n"
        "    return 'none'",
    ),
}

PLANTED = Planted("a3_chain_engine", WRONG, RIGHT)
