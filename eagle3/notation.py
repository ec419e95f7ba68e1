"""The book's names and symbols, each once: sizes, tensors, words, and the clashes.

Appendix A shows these tables and adds nothing of its own. `tests/test_notation.py`
holds the docstrings of the module against them: every letter in a shape is one of
`SIZES` or explained where it stands, and the names in `where` have the shape that is
written here. [Ours; the letters l, m, h, g, a and e are the paper's, section 3.1]
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """A letter that stands in shapes, as `k` in [B, T, k]. [Ours]

    letter: as in docstrings          meaning: what it counts
    field: the attribute that holds it, or "" where nothing does
    """

    letter: str
    meaning: str
    field: str = ""


@dataclass(frozen=True)
class Symbol:
    """A quantity with a sign of its own. [Ours]

    sign: as in formulas, without dollar signs     name: as in the text
    shape: as in docstrings, as "[B, T, k]"; "" for a plain number
    meaning: what it is                            tag: who says so
    where: public names whose docstrings hold this shape, or for a number this name
    """

    sign: str
    name: str
    shape: str
    meaning: str
    tag: str
    where: tuple[str, ...]


@dataclass(frozen=True)
class Word:
    """A term of the text, with the name that stands for it in the module. [Ours]"""

    word: str
    meaning: str
    where: str = ""


@dataclass(frozen=True)
class Clash:
    """One sign or word that others use for something else. [Ours]

    here: what this book means        elsewhere: what others mean, and who
    symptom: what happens to a reader who doesn't notice
    """

    what: str
    here: str
    elsewhere: str
    symptom: str


SIZES: tuple[Size, ...] = (
    Size("B", "requests or sequences in a batch"),
    Size("T", "positions of a text"),
    Size("n", "tokens of a block or chain, nodes of a tree without its root"),
    Size("k", "hidden size of draft and target", "DraftConfig.hidden_size"),
    Size(
        "kt",
        "width of a tapped feature where it isn't k",
        "DraftConfig.target_hidden_size",
    ),
    Size("V", "tokens of the target's vocabulary", "DraftConfig.vocab_size"),
    Size("Vd", "tokens of the draft's vocabulary", "DraftConfig.draft_vocab_size"),
    Size("L", "layers of the target", "Target.num_layers"),
    Size("H", "attention heads: queries", "DraftConfig.num_heads"),
    Size("Hkv", "heads of keys and values", "DraftConfig.num_kv_heads"),
    Size("d", "numbers per head", "DraftConfig.head_dim"),
    Size("s", "step of training-time test, counted from 0"),
    Size("m", "cached positions before a block, or rows of another block"),
    Size("i", "a position, counted from 0"),
)

SYMBOLS: tuple[Symbol, ...] = (
    Symbol(
        "l, m, h",
        "low, middle, high feature",
        "[B, n, taps * k]",
        "inputs of the target's tapped layers, side by side",
        "[Paper] section 3.1",
        ("eagle3.target.TargetOutput",),
    ),
    Symbol(
        "g",
        "fused feature",
        "[B, T, k]",
        "l, m, h mapped to k numbers: what the draft reads where the target has run",
        "[Paper] section 3.1",
        ("eagle3.draft.Eagle3Draft.fuse",),
    ),
    Symbol(
        "e",
        "embedding",
        "[B, n, k]",
        "row of the embedding table for the token after the feature's",
        "[Paper] section 3.1",
        ("eagle3.draft.TwoStreamLayer.side_by_side",),
    ),
    Symbol(
        "a",
        "draft output",
        "[B, n, k]",
        "what the draft's layer makes of g and e; takes the place of g where the "
        "target has not run",
        "[Paper] section 3.1",
        ("eagle3.feature_draft.FeatureDraft.forward", "eagle3.draft.Eagle3Draft.leave"),
    ),
    Symbol(
        "x",
        "the draft's feature input",
        "[B, n, k]",
        "g or a: the residual stream of the draft's layer starts from it",
        "[Code] SafeAILab/EAGLE",
        ("eagle3.draft.Eagle3Draft.enter",),
    ),
    Symbol(
        "f",
        "top-layer feature",
        "[B, n, k]",
        "after the target's final norm: what EAGLE-1 reads and predicts",
        "[Paper] section 2.2",
        ("eagle3.target.TargetOutput",),
    ),
    Symbol(
        "p",
        "target distribution",
        "[n + 1, V]",
        "the law that the output must follow; one row more than guesses",
        "[Paper] section 2.1",
        ("eagle3.sampling.verify_chain",),
    ),
    Symbol(
        "q",
        "draft distribution",
        "[n, V]",
        r"the law that each guess was really drawn from; the paper's $\hat p$",
        "[Paper] section 2.1",
        ("eagle3.sampling.verify_chain", "eagle3.tree.DraftTree"),
    ),
    Symbol(
        r"\text{norm}(\max(0, p - q))",
        "residual distribution",
        "[V]",
        "what a rejection draws from",
        "[Paper] section 2.1",
        ("eagle3.sampling.residual",),
    ),
    Symbol(
        r"\tau",
        "acceptance length",
        "",
        "tokens per target pass, the target's own included",
        "[Paper] section 4.1",
        (
            "eagle3.engine.GenerationResult.acceptance_length",
            "eagle3.bench.metrics.AcceptanceMetrics.acceptance_length",
        ),
    ),
    Symbol(
        r"n\text{-}\alpha",
        "acceptance rate",
        "",
        "share of guesses kept after n kept ones, in a chain",
        "[Paper] section 4.2",
        ("eagle3.bench.metrics.AcceptanceMetrics.n_alpha",),
    ),
    Symbol(
        "0.8^s",
        "step weights",
        "",
        "weight of step s in the loss, decay to the power of s",
        "[Code] SafeAILab/EAGLE",
        ("eagle3.training.losses.TttConfig",),
    ),
    Symbol(
        r"\text{d2t}",
        "draft vocabulary",
        "[Vd]",
        "target ids of the draft's tokens, ascending and absolute",
        "[Code] SafeAILab/EAGLE, there as offsets",
        ("eagle3.draft.Eagle3Draft",),
    ),
    Symbol(
        r"\text{mask}",
        "attention mask",
        "[T, (s + 1) * T]",
        "True = may attend; of training-time test, keys of all steps side by side",
        "[Paper] Figure 6",
        ("eagle3.masks.ttt_mask",),
    ),
    Symbol(
        r"\text{tree mask}",
        "tree mask",
        "[n + 1, n + 1]",
        "row 0 is the pending token, row i + 1 sees it, its ancestors and itself",
        "[Paper] section 2.2",
        ("eagle3.tree.DraftTree.mask",),
    ),
)

WORDS: tuple[Word, ...] = (
    Word("target", "the model whose output law is kept", "eagle3.target.Target"),
    Word("draft", "the small model that guesses", "eagle3.draft.Eagle3Draft"),
    Word(
        "drafter",
        "whatever proposes guesses to the engine",
        "eagle3.drafters.base.Drafter",
    ),
    Word("feature", "k numbers that a target's layer holds for a position"),
    Word(
        "tap", "a layer whose input is handed to the draft", "eagle3.target.tap_layers"
    ),
    Word("fusion", "one matrix from three taps to g", "eagle3.draft.Eagle3Draft.fuse"),
    Word("prefill", "the pass over the prompt; gives the first token"),
    Word("cycle", "catch up, draft, verify, decide, commit", "eagle3.engine.Cycle"),
    Word("pass", "one run of a model over a block of rows"),
    Word("chain", "guesses in a row, one branch", "eagle3.growth.chain"),
    Word("draft tree", "guesses with alternatives", "eagle3.tree.DraftTree"),
    Word("pending token", "emitted, but no pass has run on it: the tree's root"),
    Word("committed token", "in the text and in the target's cache"),
    Word("replacement", "the target's own token after a rejection"),
    Word("bonus token", "the target's own token after all guesses were kept"),
    Word(
        "acceptance rule",
        "keep with chance min(1, p / q)",
        "eagle3.sampling.verify_chain",
    ),
    Word("lossless", "equal tokens at temperature 0, equal in law above"),
    Word(
        "training-time test",
        "training on the draft's own outputs, step after step",
        "eagle3.training.losses.ttt_loss",
    ),
    Word(
        "teacher",
        "the target's row that a guess is trained towards",
        "eagle3.training.losses.Teacher",
    ),
    Word(
        "rollback",
        "forgetting cached positions that were rejected",
        "eagle3.cache.KVCache.rollback",
    ),
    Word("plain step", "a target pass with one row per request"),
)

CLASHES: tuple[Clash, ...] = (
    Clash(
        "p and q",
        "p is the target, q the draft",
        r"the EAGLE-3 paper: $p$ and $\hat p$; Chen et al. 2023: q is the target",
        "the acceptance ratio upside down",
    ),
    Clash(
        "acceptance length",
        "tokens per target pass, the target's own counted: at least 1",
        "accepted guesses alone, in vLLM's counters and in one sentence of the paper",
        "a figure that is smaller by about 1",
    ),
    Clash(
        "acceptance rate",
        "n-alpha: of the guesses that were judged at a place",
        "vLLM: of all drafted, or per position of all passes",
        "a good draft that looks bad, the more so the longer its chains",
    ),
    Clash(
        "k",
        "the hidden size; a chain has n tokens",
        "the length of a draft, in section 2.1 of the paper; K in serving engines",
        "formulas that don't fit together",
    ),
    Clash(
        "step",
        "step s of training-time test; a plain step of decoding",
        "vLLM's `num_speculative_tokens`, SGLang's `speculative_num_steps`",
        "an option set to one too many or too few",
    ),
    Clash(
        "tap i",
        "the input of decoder layer i, `hidden_states[i]`, layers counted from 0",
        "SpecForge and speculators also name the layer whose output it is: i - 1",
        "every tap off by one: an acceptance that is low, and no error",
    ),
    Clash(
        "depth",
        "levels of drafted tokens",
        "the official `depth` counts passes after the first: 7 there is 8 here",
        "trees one level too flat",
    ),
    Clash(
        "tokens of a tree",
        "n nodes, the pending token not counted",
        "the official `total_token` counts the root: 60 there is 59 here",
        "one node too many or too few",
    ),
    Clash(
        "d2t",
        "target ids",
        "in checkpoints offsets: target id minus draft id",
        "guesses that are other tokens, never accepted",
    ),
    Clash(
        "loss mask",
        "1 where the token itself belongs to an answer",
        "the official pipeline: 1 where the next token does",
        "supervision moved by one position",
    ),
    Clash(
        "final norm",
        "before the draft's head alone; what is fed back has none",
        "`norm_output` and `norm_before_residual` in other trainers' configs",
        "a draft that is right for one token and then derails",
    ),
    Clash(
        "T",
        "positions of a text",
        "temperature, in tables of the paper (T=0, T=1); we write the word",
        "none, once known",
    ),
)


def table(rows: Sequence[Size | Symbol | Word | Clash]) -> str:
    """One of the tables above in Markdown. [Ours]

    Raises ValueError for an empty one.
    """
    if not rows:
        raise ValueError("An empty table has no columns; pass SIZES or another one.")
    first = rows[0]
    titles, line = _LAYOUTS[type(first)]
    lines = [titles, "|---" * titles.count("|", 1) + "|"]
    return "\n".join(lines + [line(row) for row in rows])


def _size(row: Size) -> str:
    field = f"`{row.field}`" if row.field else ""
    return f"| `{row.letter}` | {row.meaning} | {field} |"


def _symbol(row: Symbol) -> str:
    shape = f"`{row.shape}`" if row.shape else "number"
    first = row.where[0].removeprefix("eagle3.")
    return (
        f"| ${row.sign}$ | {row.name} | {shape} | {row.meaning} | {row.tag} | "
        f"`{first}` |"
    )


def _word(row: Word) -> str:
    where = f"`{row.where.removeprefix('eagle3.')}`" if row.where else ""
    return f"| {row.word} | {row.meaning} | {where} |"


def _clash(row: Clash) -> str:
    return f"| **{row.what}** | {row.here} | {row.elsewhere} | {row.symptom} |"


_LAYOUTS = {
    Size: ("| letter | counts | in the module |", _size),
    Symbol: ("| sign | name | shape | what it is | tag | in the module |", _symbol),
    Word: ("| word | what it means | in the module |", _word),
    Clash: ("| what | in this book | elsewhere | what it costs |", _clash),
}
