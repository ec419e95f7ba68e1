"""Where each section of the book's outline has its home, and each public question.

The outline has eighteen parts, I to XVIII, and appendices A to E. It explains first and
builds afterwards; the chapters build each idea where it is met. So a section may have
two homes. `tools/readme.py` writes the table into notebooks/README.md, and a test looks
up every heading.
"""

from dataclasses import dataclass

Home = tuple[str, str]  # number or letter of a notebook, start of a heading in it


@dataclass(frozen=True)
class Section:
    """A section of the outline and its homes."""

    number: str
    title: str
    homes: tuple[Home, ...]


def _rows(*rows: tuple) -> tuple[Section, ...]:
    return tuple(
        Section(number, title, tuple(zip(homes[::2], homes[1::2], strict=True)))
        for number, title, *homes in rows
    )


SECTIONS = _rows(
    ("I", "Introduction", "00", "The map", "01", "The problem", "02", "The problem"),
    ("II", "Where the method fits in serving", "00", "The map"),
    ("II.1", "Autoregressive inference", "01", "One pass gives a distribution"),
    ("II.2", "Prefill and decode", "01", "Prefill and decode"),
    ("II.3", "Why decode is sequential", "01", "The greedy loop"),
    ("II.4", "Speculative decoding", "03", "The loop"),
    ("II.5", "Draft model and target model", "03", "The problem"),
    ("II.6", "Parallel verification", "03", "One pass judges a whole chain"),
    ("II.7", "Where EAGLE-3 fits", "00", "The map", "04", "The problem"),
    ("III", "Vanilla speculative sampling", "03", "The problem"),
    ("III.1", "Draft generation", "03", "The loop"),
    ("III.2", "Target verification", "03", "One pass judges a whole chain"),
    ("III.3", "Causal masking", "03", "One pass judges a whole chain"),
    ("III.4", "Parallel logits", "03", "One pass judges a whole chain"),
    ("III.5", "Acceptance and rejection", "02", "Keep the guess", "02", "What to emit"),
    ("III.6", "Why it is faster", "03", "When does it pay?"),
    ("IV", "From speculative sampling to EAGLE", "04", "The problem"),
    ("IV.1", "EAGLE's architecture", "04", "The draft: one layer"),
    ("IV.2", "Reusing the target's features", "04", "The problem"),
    ("IV.3", "Feature-level autoregression", "04", "A chain by hand",
     "10", "A static tree"),
    ("IV.4", "EAGLE's limits", "04", "Drop the feature loss"),
    ("V", "EAGLE-3's architecture", "05", "The problem", "06", "The problem"),
    ("V.1", "The target", "05", "Numbering hidden states"),
    ("V.2", "Low, middle and high features", "05", "Which three"),
    ("V.3", "Fusion of several layers", "05", "Fusion"),
    ("V.4", "The fully connected layer", "05", "Fusion"),
    ("V.5", "The fused feature g", "05", "Fusion"),
    ("V.6", "Token embedding", "06", "The layer"),
    ("V.7", "The draft model", "06", "The layer"),
    ("V.8", "Direct token prediction", "06", "The head"),
    ("VI", "The inference pipeline", "07", "Five moves"),
    ("VI.1", "Target forward pass", "07", "Five moves"),
    ("VI.2", "Taking l, m, h", "05", "Tapping", "07", "Move 1"),
    ("VI.3", "Concatenation", "05", "Fusion", "07", "Move 1"),
    ("VI.4", "FC projection", "05", "Fusion", "07", "Move 1"),
    ("VI.5", "The first drafted token", "07", "Move 1"),
    ("VI.6", "Autoregressive draft steps", "07", "Move 2"),
    ("VI.7", "The drafted sequence", "07", "Move 2", "10", "Growth by path confidence"),
    ("VI.8", "Verification by the target", "07", "Moves 3 and 4"),
    ("VII", "Training-time test", "08", "The problem"),
    ("VII.1", "Training and inference", "08", "The problem"),
    ("VII.2", "The mismatch", "04", "Why the second guess", "08", "The problem"),
    ("VII.3", "Test steps during training", "08", "What is simulated"),
    ("VII.4", "Predictions fed back", "08", "What is simulated"),
    ("VII.5", "The attention mask", "08", "Who may see whom"),
    ("VII.6", "Architecture of training-time test", "08", "The diagonal form"),
    ("VIII", "Implementing the draft", "06", "The layer"),
    ("VIII.1", "Decoder layer", "06", "The layer"),
    ("VIII.2", "Self-attention", "06", "The layer", "08", "The diagonal form"),
    ("VIII.3", "The draft's inputs", "06", "The running example"),
    ("VIII.4", "Token embeddings", "06", "The running example"),
    ("VIII.5", "The draft's prediction", "06", "The head"),
    ("VIII.6", "LM head", "06", "The head", "06", "Back to the target's vocabulary"),
    ("VIII.7", "Tensor shapes", "06", "What it weighs", "B", "The draft: catch-up"),
    ("IX", "Implementing the fusion", "05", "Tapping"),
    ("IX.1", "Low features", "05", "Which three"),
    ("IX.2", "Middle features", "05", "Which three"),
    ("IX.3", "High features", "05", "Which three"),
    ("IX.4", "Concatenation in code", "05", "Fusion"),
    ("IX.5", "FC projection in code", "05", "Fusion"),
    ("IX.6", "PyTorch implementation", "05", "Tapping", "05", "The proof"),
    ("IX.7", "Shapes on the way", "05", "One run", "B", "The target: prefill"),
    ("X", "Implementing verification", "02", "A chain of guesses"),
    ("X.1", "The target's pass", "03", "One pass judges a whole chain"),
    ("X.2", "Draft probabilities", "02", "From logits to a distribution"),
    ("X.3", "Acceptance probability", "02", "Keep the guess"),
    ("X.4", "Rejection", "02", "What to emit after a rejection"),
    ("X.5", "Drawing a replacement", "02", "What to emit after a rejection"),
    ("X.6", "The accepted sequence", "02", "A chain of guesses"),
    ("XI", "The complete engine", "07", "The engine"),
    ("XI.1", "End to end", "07", "Five moves", "00", "One run, cycle by cycle"),
    ("XI.2", "Drafting loop", "07", "Move 2"),
    ("XI.3", "Verification loop", "07", "Moves 3 and 4"),
    ("XI.4", "Accepted tokens", "03", "Decide", "07", "Move 5"),
    ("XI.5", "The next cycle", "07", "Move 5"),
    ("XI.6", "Complete implementation, and what it lacks", "07", "The engine",
     "11", "The problem", "C", "The engine"),
    ("XII", "Training", "09", "The problem"),
    ("XII.1", "Training data", "09", "The text"),
    ("XII.2", "Answers of the target's own", "09", "The text"),
    ("XII.3", "Training-time test in training", "08", "What is simulated",
     "09", "The loss"),
    ("XII.4", "Objective", "09", "The loss"),
    ("XII.5", "Optimizer", "09", "One step of the optimizer"),
    ("XII.6", "Gradient clipping", "09", "One step of the optimizer"),
    ("XII.7", "Configuration", "09", "On the real model",
     "D", "The paper's configuration"),
    ("XII.8", "Training-time test in PyTorch", "08", "The diagonal form",
     "C", "Training"),
    ("XIII", "Benchmarking", "12", "The problem"),
    ("XIII.1", "Set-up", "12", "Timing", "D", "The paper's configuration"),
    ("XIII.2", "Target models", "13", "Table 1 as data"),
    ("XIII.3", "Tasks", "13", "Table 1 as data"),
    ("XIII.4", "Plain baseline", "12", "On the real model", "14", "Time per token"),
    ("XIII.5", "Speedup", "12", "One number for many questions"),
    ("XIII.6", "Acceptance length", "12", "Five metrics", "12", "Box: is the +1"),
    ("XIII.7", "Acceptance rate", "12", "Box: how is n-alpha measured"),
    ("XIV", "Results", "13", "The problem"),
    ("XIV.1", "Overall speedup", "13", "Add it up again"),
    ("XIV.2", "Acceptance length", "13", "Speedup against tau"),
    ("XIV.3", "Tasks", "13", '"The highest on every task"'),
    ("XIV.4", "Against EAGLE-2", "13", "How much faster than EAGLE-2?"),
    ("XIV.5", "More training data", "13", "Figure 1: more data"),
    ("XV", "Ablations", "13", "Table 2: which change did it?"),
    ("XV.1", "Without feature prediction", "13", "Table 2", "04", "Drop the feature"),
    ("XV.2", "Fusion of several layers", "13", "Table 2", "05", "Three together"),
    ("XV.3", "EAGLE against EAGLE-3", "13", "Figures 4 and 7"),
    ("XV.4", "What training-time test does", "13", "Figures 4 and 7",
     "09", "What is each part worth?"),
    ("XVI", "Serving frameworks", "14", "The problem"),
    ("XVI.1", "SGLang", "14", "The problem", "15", "Start an engine"),
    ("XVI.2", "vLLM", "14", "Which card was it?", "15", "Start an engine"),
    ("XVI.3", "Batch size", "14", "Break-even"),
    ("XVI.4", "Throughput", "14", "A cycle with a batch in it"),
    ("XVI.5", "Latency", "14", "Time per token"),
    ("XVII", "Trade-offs", "11", "The problem", "14", "How long should a draft be?"),
    ("XVII.1", "Cost of the draft", "06", "What it weighs", "14", "The price"),
    ("XVII.2", "Acceptance", "14", "A cycle with a batch in it"),
    ("XVII.3", "Draft length", "14", "How long should a draft be?"),
    ("XVII.4", "Batch size again", "14", "Break-even", "11", "Throughput against"),
    ("XVII.5", "GPU memory", "14", "The memory budget", "11", "Memory, before"),
    ("XVII.6", "Latency of inference", "14", "Prefill, decode"),
    ("XVII.7", "Throughput again", "14", "On the real model"),
    ("XVIII", "Conclusion", "15", "The end of the book"),
    ("A", "Mathematical notation", "A", "Signs", "00", "The notation"),
    ("B", "Tensor shapes", "B", "The target: prefill"),
    ("C", "PyTorch implementation", "C", "The draft"),
    ("D", "Configurations", "D", "The paper's configuration", "D", "The shipped"),
    ("E", "Reproduction", "D", "Commands", "D", "Measurements"),
)  # fmt: skip


@dataclass(frozen=True)
class Question:
    """What people keep asking, and the boxes that answer it.

    boxes: number of a chapter, and words of the box's first line after its mark
    """

    asks: str
    boxes: tuple[Home, ...]


# A box is a heading "Box: ..." or a quotation that begins "Asked in public: ...".
QUESTIONS = (
    Question(
        "Does training-time test feed back draft tokens or the text's?",
        (("09", "does training feed back the draft's own tokens"),),
    ),
    Question(
        "Why does the official trainer read `hidden_states[0]` to `[2]`?",
        (("05", "why does the official trainer use"),),
    ),
    Question(
        "Is a tap the input of layer X or the output of layer X?",
        (("05", "input of layer X"), ("15", "input of layer X or output")),
    ),
    Question(
        "Is the draft's head trained, and what is `a`?",
        (("06", "is the draft's head trained?"),),
    ),
    Question(
        "Why is q taken as 1 in tree sampling, and is that lossless?",
        (("10", "why is q taken as 1"),),
    ),
    Question(
        "Is the target's own token in tau? Why is my tau below the paper's?",
        (("12", "is the +1 token in tau?"), ("12", "why is my tau below")),
    ),
    Question(
        "How is n-alpha measured, and why with a chain?",
        (("12", "how is n-alpha measured"),),
    ),
    Question(
        "Outputs above temperature 0 differ from plain decoding. Is it broken?",
        (("02", "the output at temperature 1"), ("03", "at temperature 1 the text")),
    ),
    Question(
        "Greedy output differs in half precision. Defect or rounding?",
        (("07", "greedy output differs"), ("11", "greedy output differs")),
    ),
    Question(
        "Which keys map where, is `d2t` an offset, and what if one is missing?",
        (("15", "which keys map where"),),
    ),
    Question(
        "What about duplicate or negative taps on shallow models?",
        (("05", "duplicate or negative taps"),),
    ),
    Question(
        "Why is the speedup below tau, and why does it vanish at large batch?",
        (
            ("01", "why is the speedup below"),
            ("01", "why does it vanish"),
            ("12", "why is the speedup below tau?"),
            ("14", "why is the speedup below tau, and"),
        ),
    ),
)
