"""The facts of a checkpoint as a table to read. [Ours]"""

from rich.table import Table

from eagle3.formats.facts import FORMATS, DraftFacts

_SIZES = (
    ("hidden_size", "width"),
    ("target_hidden_size", "width of a tapped feature"),
    ("intermediate_size", "width of the MLP"),
    ("num_heads", "heads"),
    ("num_kv_heads", "key-value heads"),
    ("head_dim", "width of a head"),
    ("vocab_size", "target's vocabulary"),
    ("draft_vocab_size", "draft vocabulary"),
    ("max_positions", "longest context in training"),
    ("rms_norm_eps", "epsilon of the norms"),
)


def facts_table(facts: DraftFacts) -> Table:
    """One row per fact, notes and misfits last. [Ours]"""
    table = Table(show_header=False, title=str(facts.folder), title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows(facts):
        table.add_row(name, value)
    return table


def rows(facts: DraftFacts) -> list[tuple[str, str]]:
    """Name and value of every fact, as text. [Ours]"""
    method = {"eagle3": "EAGLE-3 draft", "eagle1": "EAGLE-1 draft"}[facts.method]
    lines = [
        ("what", f"{method} in {FORMATS[facts.format]}"),
        ("files", ", ".join(facts.files)),
        ("tensors", _dtypes(facts)),
        ("parameters", f"{facts.num_parameters:,}"),
    ]
    lines += [
        (words, f"{facts.sizes[key]:,}" if key != "rms_norm_eps" else _eps(facts))
        for key, words in _SIZES
        if key in facts.sizes
    ]
    if facts.method == "eagle3":
        lines += _eagle3_rows(facts)
    lines += [("RoPE", _rope(facts)), ("embedding", _embedding(facts))]
    lines += [("note", note) for note in facts.notes]
    return lines + [("does not fit", misfit) for misfit in facts.misfits]


def _dtypes(facts: DraftFacts) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in facts.dtypes.items())


def _eps(facts: DraftFacts) -> str:
    return f"{facts.sizes['rms_norm_eps']:g}"


def _eagle3_rows(facts: DraftFacts) -> list[tuple[str, str]]:
    sizes = facts.sizes
    if facts.taps is None:
        taps = f"the file {facts.stored_taps.said}; they depend on the target"
    else:
        taps = (
            f"inputs of layers {facts.taps}, which are outputs of layers "
            f"{facts.taps_as_outputs}; the file {facts.stored_taps.said}"
        )
    fed = "after the final norm (EAGLE-3.1)" if sizes["feed_normed"] else "before it"
    return [
        ("taps", taps),
        ("norm of each tap", "yes (EAGLE-3.1)" if sizes["fc_norm"] else "no"),
        ("final norm", f"before the head; the next step is fed the output {fed}"),
    ]


def _rope(facts: DraftFacts) -> str:
    rope = facts.rope
    scaling = "" if rope.scaling == "none" else f", {rope.scaling} by {rope.factor:g}"
    return f"base {rope.theta:,.0f}{scaling} ({facts.rope_source})"


def _embedding(facts: DraftFacts) -> str:
    if facts.method == "eagle1" and facts.own_embedding:
        return "in the file; must be the target's"
    return "its own, in the file" if facts.own_embedding else "the target's"
