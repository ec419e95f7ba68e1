"""All diagnoses on one draft, and the cause that they point to."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from eagle3.doctor import wiring
from eagle3.doctor.evidence import ANSWER_TOKENS, Text, answers
from eagle3.doctor.files import refusal
from eagle3.doctor.finding import Diagnosis, Finding
from eagle3.doctor.wiring import Case
from eagle3.target import Target

_OF_EVERY_DRAFT = (
    wiring.norms,
    wiring.positions,
    wiring.taps,
    wiring.embedding,
    wiring.rope_base,
)
_OF_OWN_HEAD = (wiring.vocabulary_map, wiring.head)
_BROKEN = (ValueError, RuntimeError, AttributeError, TypeError)


def diagnose(
    target: Target,
    draft: Any,
    texts: Sequence[Text] | None = None,
    num_tokens: int = ANSWER_TOKENS,
) -> Diagnosis:
    """Look at every part of a draft's wiring on a target, and measure what it is worth.

    draft: an `Eagle3Draft` or `Eagle1Draft` as `EagleDrafter` takes it. It is changed
        while this runs, one part at a time, and left as it was.
    texts: of `answers(target)`, to share them between drafts; made here if not given
    num_tokens: of each answer, that the engine writes to measure acceptance length

    A draft that doesn't fit is a finding, too, not an error. [Ours]
    """
    try:
        draft.require_fit(target)
    except ValueError as error:
        return Diagnosis((refusal(error),))
    texts = answers(target) if texts is None else texts
    case = Case(target, draft, texts, num_tokens)
    with suppress(*_BROKEN):  # as it is wired, before anything is changed
        _ = case.wired
    findings = [_looked_at(case, look) for look in _OF_EVERY_DRAFT]
    if draft.reads == "features":
        findings.append(_looked_at(case, wiring.layer))
        a_map, its_head = (_looked_at(case, look) for look in _OF_OWN_HEAD)
        if a_map.verdict == "fault":  # then every other token than its own fits better
            its_head = Finding("head", its_head.found + "; see the map")
        findings += [a_map, its_head]
    else:
        findings.append(_looked_at(case, wiring.borrowed_head))
    length = _looked_at(case, wiring.acceptance_length)
    findings.append(length)
    if length.verdict != "ok" and not any(f.verdict == "fault" for f in findings):
        findings.append(_unexplained(case))
    return Diagnosis(tuple(findings))


def _looked_at(case: Case, look: Callable[[Case], Finding]) -> Finding:
    """A draft can be broken so that a diagnosis can't run: that is told, too."""
    try:
        return look(case)
    except _BROKEN as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        part = look.__name__.replace("_", " ").replace("rope", "RoPE")
        return Finding(part, f"can't be looked at: {said}", "warning")


def _unexplained(case: Case) -> Finding:
    kind = case.target.config.model_type
    found = "every part looks sound, and still the draft does not foretell this target"
    remedy = (
        f"it was made for another target than this one ({kind}, "
        f"{case.target.num_layers} layers), or hardly trained: load its own target."
    )
    return Finding("target", found, "fault", remedy, 0.0)
