"""The command line: `python -m eagle3 --help`. [Ours]"""

import sys
from pathlib import Path
from typing import Annotated

import torch
import typer

from eagle3 import fetch as fetching
from eagle3.checkpoint import load_draft, save_draft
from eagle3.drafters import EagleDrafter
from eagle3.engine import Engine, Request, prompt_to_ids, text_pieces
from eagle3.formats.convert import convert, show
from eagle3.growth import chain
from eagle3.methods import drafter_for, require_methods
from eagle3.sampling import SamplingParams
from eagle3.target import fetch_default_model, library_model, load_target

app = typer.Typer(
    help="EAGLE-3 speculative decoding: fetch, generate, generate-data, merge-data, "
    "train, evaluate, convert, inspect, doctor, check-target, bench, throughput, "
    "make-assignment, grade, check-project.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Data = Annotated[
    Path, typer.Option(help="Folder of generate-data, or file of merge-data.")
]


@app.command()
def fetch() -> None:
    """Fetch the default model once and convert it into the user's cache."""
    print(f"model ready: {fetch_default_model()}")


@app.command()
def generate(  # noqa: PLR0913  options of a command line
    prompt: str,
    method: Annotated[str, typer.Option(help="How to draft, see bench.")] = (
        "eagle3-chain"
    ),
    draft: Annotated[
        Path | None, typer.Option(help="A draft folder instead of a shipped draft.")
    ] = None,
    max_new_tokens: int = 128,
    chain_length: Annotated[int, typer.Option(help="With --draft.")] = 3,
    temperature: float = 0.0,
) -> None:
    """Answer PROMPT, token by token, and say how many tokens each pass gave."""
    sampling = SamplingParams(temperature)
    growth = chain(chain_length)  # refused before a model is loaded
    require_methods([method])
    target = load_target()
    if draft is None:
        drafter = drafter_for(method, target)
    else:
        drafter = EagleDrafter(target, load_draft(draft, target), growth)
    request = Request(
        prompt_to_ids(target, prompt),
        max_new_tokens,
        sampling,
        target.eos_token_ids,
    )
    engine = Engine(target, drafter, request)
    for piece in text_pieces(engine):
        print(piece, end="", flush=True)
    result = engine.result()
    print(
        f"\n\n[{len(result.token_ids)} tokens, {result.tokens_per_second:.1f} per "
        f"second, acceptance length {result.acceptance_length:.2f} tokens per target "
        f"pass, stopped by {result.finish_reason}]"
    )


@app.command()
def generate_data(  # noqa: PLR0913  options of a command line
    out: Annotated[Path, typer.Argument(help="Folder for the answers.")],
    num_prompts: int = 3000,
    max_new_tokens: int = 192,
    held_out: Annotated[
        bool, typer.Option(help="Evaluation prompts, all at temperature 0.")
    ] = False,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
    seed: int = 0,
    dtype: Annotated[
        str, typer.Option(help="Of the target: float32, or bfloat16 to be faster.")
    ] = "float32",
) -> None:
    """Let the target answer prompts and store the tokens. Run again to go on."""
    from eagle3.training.data import DataConfig, generate_data

    config = DataConfig(
        num_prompts, max_new_tokens, seed=seed, held_out=held_out, dtype=dtype
    )
    generate_data(config, out, workers)


@app.command("merge-data")
def merge_data(
    folder: Annotated[Path, typer.Argument(help="Folder of generate-data.")],
    out: Annotated[Path, typer.Argument(help="File, ending in .safetensors.")],
) -> None:
    """Write all answers in FOLDER into one file, which train takes as --data."""
    from eagle3.training.merge import merge_shards

    print(f"{merge_shards(folder, out)} answers written to {out}")


@app.command()
def train(  # noqa: PLR0913  options of a command line
    data: Data,
    held_out: Annotated[Path, typer.Option(help="Folder of held-out answers.")],
    out: Annotated[Path, typer.Option(help="Where the run keeps its files.")],
    recipe: Annotated[
        str, typer.Option(help="The method: eagle3, eagle1, hass, medusa, draft-lm.")
    ] = "eagle3",
    epochs: int = 3,
    learning_rate: float = 4e-4,
    seed: int = 0,
    draft_vocab_size: Annotated[int | None, typer.Option(help="For eagle3.")] = None,
    ttt_steps: Annotated[int | None, typer.Option(help="For eagle3, hass.")] = None,
    feature_weight: Annotated[
        float | None, typer.Option(help="For eagle1, hass; 0 drops that loss.")
    ] = None,
    num_heads: Annotated[int | None, typer.Option(help="For medusa.")] = None,
    num_layers: Annotated[int | None, typer.Option(help="For draft-lm.")] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda for a GPU.")] = "cpu",
    look_dtype: Annotated[
        str, typer.Option(help="float32; bfloat16 looks at the data faster.")
    ] = "float32",
    rounded_products: Annotated[
        bool, typer.Option(help="Multiply matrices in bfloat16: faster.")
    ] = False,
) -> None:
    """Train a draft for the default target. Run again to go on.

    On several processes: torchrun --nproc-per-node 2 -m eagle3 train ...
    Raises ValueError for an option out of range.
    """
    from eagle3.training import processes
    from eagle3.training.data import load_data
    from eagle3.training.recipe import Start
    from eagle3.training.recipes import new_recipe, require_options
    from eagle3.training.trainer import TrainConfig, Trainer

    options = {
        "draft_vocab_size": draft_vocab_size,
        "ttt_steps": ttt_steps,
        "feature_weight": feature_weight,
        "num_heads": num_heads,
        "num_layers": num_layers,
    }
    options = {name: value for name, value in options.items() if value is not None}
    require_options(recipe, options)
    if look_dtype not in ("float32", "bfloat16"):
        raise ValueError(f"look-dtype is '{look_dtype}': take float32 or bfloat16.")
    processes.join()
    settings = TrainConfig(
        epochs=epochs,
        learning_rate=learning_rate,
        rounded_products=rounded_products,
        seed=seed,
    )
    sequences, evaluation = load_data(data), load_data(held_out)
    answers = sum(int(sequence.natural_mask().sum()) for sequence in sequences)
    processes.tell(f"{len(sequences)} sequences, {answers} answer tokens")
    target = load_target(device=processes.own_device(device))
    start = Start(target, sequences, library_model().state_dict())
    method = new_recipe(recipe, start, options)
    looking = target
    if look_dtype == "bfloat16":
        looking = load_target(device=target.device, dtype=torch.bfloat16)
    trainer = Trainer(looking, method, (sequences, evaluation), out, settings)
    trainer.train()
    if processes.rank() == 0:
        method.save(out / "final", torch.float16)
    processes.tell(f"n-alpha on held-out prompts: {trainer.evaluate()}")
    processes.tell(f"draft saved in {out / 'final'}")


@app.command()
def evaluate(
    held_out: Annotated[Path, typer.Option(help="Folder of held-out answers.")],
    draft: Annotated[Path | None, typer.Option(help="Draft folder.")] = None,
    steps: Annotated[int, typer.Option(help="n-alpha for n below this.")] = 5,
) -> None:
    """Print a draft's n-alpha on held-out greedy answers."""
    from eagle3.training.batches import feature_batch
    from eagle3.training.data import load_data
    from eagle3.training.features import look
    from eagle3.training.metrics import n_alpha

    sequences, target = load_data(held_out), load_target()
    model = load_draft(draft, target)
    batches = (
        feature_batch([s], [look(target, s.token_ids)], model.reads, target.device)
        for s in sequences
    )
    for n, alpha in enumerate(n_alpha(model, batches, steps)):
        print(f"{n}-alpha {alpha:.3f}")


@app.command("shrink-vocabulary")
def shrink(draft: Path, out: Path, data: Data, size: int = 5000) -> None:
    """Keep only the SIZE most frequent tokens of DRAFT's vocabulary, in OUT."""
    from eagle3.training.data import load_data
    from eagle3.training.vocabulary import (
        choose_draft_vocabulary,
        count_answer_tokens,
        shrink_vocabulary,
    )

    sequences, target = load_data(data), load_target()
    counts = count_answer_tokens(sequences, target.vocab_size)
    kept = choose_draft_vocabulary(counts, size)
    small = shrink_vocabulary(load_draft(draft, target), kept)
    save_draft(small, out, torch.float16)
    print(f"draft with a vocabulary of {size} tokens saved in {out}")


@app.command("convert")
def convert_draft(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A draft folder.")],
    out: Annotated[Path, typer.Argument(help="Another folder.")],
    format_name: Annotated[
        str,
        typer.Option(
            "--format", help="official, specforge, speculators, sglang or eagle3."
        ),
    ],
    target: Annotated[
        str | None, typer.Option(help="Folder or hub id, if taps depend on it.")
    ] = None,
) -> None:
    """Write the draft in IN, of any format, to OUT in another format."""
    convert(source, out, format_name, target)
    print(f"draft written to {out} in the format {format_name}")


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="A draft folder of any format.")],
    target: Annotated[str | None, typer.Option(help="Folder or hub id.")] = None,
) -> None:
    """Say what a draft checkpoint is, and what of it does not fit a target."""
    show(path, target)


@app.command()
def doctor(
    draft: Annotated[
        Path | None, typer.Argument(help="A draft folder; the shipped draft if none.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Folder or hub id.")] = None,
) -> None:
    """Say why a draft's acceptance is low, and what to do. Fails if it has a fault."""
    from eagle3.doctor.report import examine

    cause = examine(draft, target).cause
    sys.exit(int(cause is not None and cause.verdict == "fault"))


@app.command()
def bench(  # noqa: PLR0913  options of a command line
    methods: Annotated[
        str, typer.Option(help="Names with commas; all if not given.")
    ] = "",
    kinds: Annotated[str, typer.Option(help="Of prompts, with commas.")] = "",
    temperature: Annotated[str, typer.Option(help="One or more, as 0,1.")] = "0",
    prompts_per_kind: int = 2,
    questions: Annotated[
        Path | None, typer.Option(help="JSONL with question_id, category, turns.")
    ] = None,
    max_new_tokens: int = 128,
    rounds: int = 2,
    out: Annotated[Path, typer.Option(help="Folder of the results file.")] = Path(
        "figures/results"
    ),
    name: Annotated[str, typer.Option(help="Of the results file.")] = "methods",
) -> None:
    """Measure methods side by side, print a table and write a results file.

    A bench that was killed goes on when it is called again with the same options.
    Methods are vanilla, prompt-lookup, draft-lm, medusa, eagle1, eagle1-chain-N, hass,
    eagle2, eagle3-chain, eagle3-chain-N, eagle3, and the library's own transformers,
    transformers-lookup and transformers-assisted. Raises ValueError for what it
    doesn't know.
    """
    from eagle3.bench import report, speedup
    from eagle3.bench.environment import results_path, write_results
    from eagle3.bench.questions import evaluation_questions, read_questions
    from eagle3.bench.run_log import RunLog

    names = tuple(_listed(methods)) or speedup.SpeedupConfig().methods
    try:
        temperatures = tuple(float(value) for value in _listed(temperature))
    except ValueError:
        raise ValueError(
            f"temperature '{temperature}' is no number: give one or more, as 0,1."
        ) from None
    config = speedup.SpeedupConfig(names, temperatures, max_new_tokens, rounds)
    if questions is None:
        asked = evaluation_questions(prompts_per_kind, config.seed)
    else:
        asked = read_questions(questions)
    asked = _of_kinds(asked, _listed(kinds))
    partial = results_path(name, out).with_suffix(".partial.jsonl")
    log = RunLog(partial, config, asked)
    target = load_target()
    decoders = speedup.decoders(target, config.methods)
    measured = speedup.measure_speedup(target, decoders, asked, config, log)
    summaries = {
        f"{t:g}": speedup.summarise(measured, t, config.seed) for t in temperatures
    }
    report.print_tables(summaries)
    results = {
        "config": vars(config) | {"num_questions": len(asked)},
        "temperatures": summaries,
        "runs": speedup.rows(measured),
    }
    print(f"written: {write_results(name, results, out, config.seed)}")
    log.close()


@app.command("tune")
def race_drafts(
    draft: Annotated[
        Path | None, typer.Argument(help="A draft folder; the shipped draft if none.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Folder or hub id.")] = None,
    temperature: float = 0.0,
    max_new_tokens: int = 64,
) -> None:
    """Race chains and trees against each other and print what each costs and gives.

    Raises ValueError for an option out of range.
    """
    from eagle3.bench import report, tune

    config = tune.TuneConfig(temperature, max_new_tokens)
    model = load_target(target)
    ranked = tune.race(model, load_draft(draft, model), config)
    report.print_table(tune.table_of(ranked))
    vanilla, best = ranked[0], ranked[1]
    if best.speedup(vanilla) > 1:
        print(f"fastest: {best.name}, {best.speedup(vanilla):.2f} times plain decoding")
    else:
        print("nothing is faster than plain decoding here: a better draft is needed.")


@app.command()
def throughput(  # noqa: PLR0913  options of a command line
    methods: Annotated[
        str, typer.Option(help="Names with commas; EAGLE-1 and 3 if not given.")
    ] = "",
    batches: Annotated[str, typer.Option(help="Numbers of slots.")] = "1,2,4,8,16,32",
    rounds: Annotated[int, typer.Option(help="Turns of each method.")] = 3,
    cycles: Annotated[int, typer.Option(help="Of each turn.")] = 12,
    max_new_tokens: int = 64,
    out: Annotated[Path, typer.Option(help="Folder of the results file.")] = Path(
        "figures/results"
    ),
    name: Annotated[str, typer.Option(help="Of the results file.")] = "throughput",
) -> None:
    """Measure tokens per second of whole batches, and write a results file.

    A measurement that was killed goes on when it is called again with the same options.
    Raises ValueError for batches that are no whole numbers.
    """
    from eagle3.bench.throughput import METHODS, ThroughputConfig
    from eagle3.bench.throughput_report import measure_and_write

    try:
        sizes = tuple(int(value) for value in _listed(batches))
    except ValueError:
        raise ValueError(
            f"batches '{batches}' are no whole numbers: give one or more, as 1,8."
        ) from None
    names = tuple(_listed(methods)) or METHODS
    config = ThroughputConfig(names, sizes, rounds, cycles, max_new_tokens)
    print(f"written: {measure_and_write(load_target(), config, out, name)}")


@app.command("check-target")
def check_target(
    path: Annotated[str, typer.Argument(help="A model folder, or a hub id.")],
) -> None:
    """Check that the model at PATH can be a target, and say what is wrong if not.

    Raises SystemExit with code 1 when a check fails.
    """
    from eagle3 import conformance

    findings = conformance.check_target(path)
    conformance.print_findings(path, findings)
    if not all(finding.passed for finding in findings):
        raise SystemExit(1)


@app.command()
def grade(  # noqa: PLR0913  options of a command line
    submissions: Annotated[
        Path, typer.Argument(help="Folder with STUDENT/NAME/NAME.ipynb.")
    ],
    out: Annotated[Path, typer.Option(help="The table; pages go beside it.")] = Path(
        "grades.csv"
    ),
    jobs: Annotated[int, typer.Option(help="Submissions at a time.")] = 2,
    seed: Annotated[
        int | None, typer.Option(help="Of the hidden inputs; drawn if not given.")
    ] = None,
    variant: Annotated[int, typer.Option(help="That was handed out.")] = 0,
    course: Annotated[
        Path | None, typer.Option(help="Another folder than assignments/.")
    ] = None,
) -> None:
    """Grade a folder of notebooks. Run again to go on, or after a change."""
    from eagle3.grading.course import Course
    from eagle3.grading.grade import Plan, grade_folder

    where = Course() if course is None else Course(course)
    results = grade_folder(submissions, out, Plan(jobs, variant, seed, course=where))
    print(f"{len(results)} submissions graded: {out}, pages in {out.with_suffix('')}/")


@app.command("make-assignment")
def make_assignment(
    names: Annotated[
        list[str] | None, typer.Argument(help="Of assignments; all if none.")
    ] = None,
    variant: Annotated[int, typer.Option(help="Seed of the given numbers.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Instead of assignments/release.")
    ] = None,
    course: Annotated[
        Path | None, typer.Option(help="Another folder than assignments/.")
    ] = None,
) -> None:
    """Make what students get from the source notebooks."""
    from eagle3.grading.course import Course

    where = Course() if course is None else Course(course)
    for name in names or where.names:
        print(f"written: {where.write_release(name, variant, out)}")


@app.command("check-project")
def check_project(
    folder: Annotated[Path, typer.Argument(help="With evidence.json, claim.json.")],
) -> None:
    """Print the points that a project's evidence earns, with reasons."""
    from eagle3.grading.project import judge_evidence, read_evidence

    marks = judge_evidence(read_evidence(folder))
    for mark in marks:
        print(f"{mark.points:2} of {mark.of}  {mark.says}: {mark.words or 'yes'}")
    print(f"{sum(m.points for m in marks)} of {sum(m.of for m in marks)}")


def _of_kinds(questions: list, kinds: list[str]) -> list:
    """The questions of these kinds, all if none is named."""
    known = {question.category for question in questions}
    for kind in kinds:
        if kind not in known:
            raise ValueError(
                f"there is no question of the kind '{kind}': take some of "
                f"{', '.join(sorted(known))}."
            )
    return [q for q in questions if not kinds or q.category in kinds]


def _listed(text: str) -> list[str]:
    """The parts of a text between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def main() -> None:
    """Run the command line; a foreseen error is one sentence, not a traceback.

    Raises SystemExit with that sentence.
    """
    try:
        app()
    except (ValueError, OSError, fetching.FetchError, FloatingPointError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
