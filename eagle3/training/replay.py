"""A training run to look at again: its losses, its n-alpha, and one answer, drafted.

At every evaluation the draft drafts the beginning of one held-out answer. The text is
the target's at each of them (nothing is lost, however bad the draft), and only what is
drafted, and so the number of passes, changes. `tools/training_replay.py` writes
replays to figures/results/training_replay.json:

    texts      token id, as a string -> its text, special tokens shown
    question   what the answer replies to
    answer     [N] token ids: the beginning of the target's greedy answer
    runs       name of a run, as "eagle3_1x_seed0" -> its replay:
      arm, budget, seed, steps    which run, and its optimizer steps in all
      losses     [{step, per_step}]  every so many steps; per_step: [S] mean
                 cross-entropy of each step of training-time test, in nats
      frames     in order of training, the first one, at step 0, of the untrained draft:
        step       optimizer steps done
        n_alpha    [8]  n-alpha on held-out answers, see eagle3.training.metrics
        cycles     in order; each drafts after the tokens that are there so far:
          drafted    token ids that the draft proposes, a chain
          kept       how many of them the target keeps, from the left
          emitted    token ids that the cycle adds to the text: those that are kept, and
                     one of the target's own, cut at the end of `answer`

The first token of `answer` is the target's, from its pass over the prompt; those of
all cycles of a frame follow it. [Ours]
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Entry = Mapping[str, Any]


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a run's log, in order, without a line that a kill has cut.

    Raises ValueError where there is no log. [Ours]
    """
    if not path.exists():
        raise ValueError(f"{path} is missing: name the folder of a run that has begun.")
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            break
    return entries


def committed(cycles: Sequence[Entry]) -> list[int]:
    """The tokens that logged cycles add to a text. [Ours]"""
    return [t for c in cycles for t in (*c["drafted"][: c["kept"]], c["next"])]


def replay(entries: Sequence[Entry], answer: Sequence[int]) -> dict[str, Any]:
    """Losses and frames of one run, as the module's first lines describe them.

    entries: of `read_log`      answer: [N] token ids, the first one not by a cycle

    Raises ValueError when the cycles commit another text. [Ours]
    """
    losses, frames, alphas = [], [], None
    for entry in entries:
        if "n_alpha" in entry:
            alphas = entry["n_alpha"]
        elif "cycles" in entry:
            cycles = cut(entry["cycles"], answer)
            frames.append({"step": entry["step"], "cycles": cycles})
        elif per_step := entry.get("per_step") or entry.get("token"):
            losses.append({"step": entry["step"], "per_step": per_step})
        if alphas and frames and frames[-1]["step"] == entry["step"]:
            frames[-1]["n_alpha"] = alphas
    return {"losses": losses, "frames": frames}


def cut(cycles: Sequence[Entry], answer: Sequence[int]) -> list[dict[str, Any]]:
    """Logged cycles with what each adds to `answer`, up to its end.

    Raises ValueError when they commit another text. [Ours]
    """
    told, at = [], 1
    for cycle in cycles:
        emitted = committed([cycle])[: len(answer) - at]
        if list(answer[at : at + len(emitted)]) != emitted:
            raise ValueError(
                f"a cycle commits {emitted} where the answer has "
                f"{list(answer[at : at + len(emitted)])}: the log is of another answer."
            )
        if emitted:
            kept = {"drafted": cycle["drafted"], "kept": cycle["kept"]}
            told.append(kept | {"emitted": emitted})
        at += len(emitted)
    return told


def tokens_of(runs: Mapping[str, Entry]) -> set[int]:
    """All token ids that occur in replays, to give each its text. [Ours]"""
    return {
        token
        for run in runs.values()
        for frame in run["frames"]
        for cycle in frame["cycles"]
        for token in (*cycle["drafted"], *cycle["emitted"])
    }


def acceptance_length(frame: Entry) -> float:
    """Tokens per cycle of a frame, the target's own counted. [Paper, section 4]"""
    emitted = sum(len(cycle["emitted"]) for cycle in frame["cycles"])
    return emitted / max(1, len(frame["cycles"]))
