"""Chapter 0: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "0.1": {
        "h and g swapped": ('"A": "h", "B": "g"', '"A": "g", "B": "h"'),
        "l and m swapped": ('"E": "m", "F": "l"', '"E": "l", "F": "m"'),
        "q for p": ('"C": "p"', '"C": "q"'),
        "no such letter": ('"G": "a"', '"G": "x"'),
    },
    "0.2": {
        "the prefill's token forgotten": ('"emitted": 9', '"emitted": 8'),
        "pending token cached": ('"target_cache": 28', '"target_cache": 29'),
        "the draft does not lag": ('"draft_cache": 25', '"draft_cache": 28'),
        "tau without the target's own": ("8 / 3", "5 / 3"),
        "tau with the prefill's": ("8 / 3", "9 / 3"),
        "bonus for replacement": ('["bonus", "rep', '["replacement", "rep'),
    },
}

CHAPTER = Chapter(
    "00_start_here",
    {"0.1": "answer", "0.2": "reading"},
    half={"0.1": '"p"', "0.2": "28"},
    wrong=WRONG,
    setup=("letters =", "paused ="),
)
