"""The command line: `python -m eagle3 --help`. [Ours]"""

from pathlib import Path
from typing import Annotated

import torch
import typer

from eagle3 import fetch as fetching
from eagle3.checkpoint import load_draft, save_draft
from eagle3.drafters import Eagle3Drafter, VanillaDrafter
from eagle3.drafters.eagle3 import require_chain_length
from eagle3.engine import Engine, Request, prompt_to_ids, text_pieces
from eagle3.sampling import SamplingParams
from eagle3.target import fetch_default_model, library_model, load_target

app = typer.Typer(
    help="EAGLE-3 speculative decoding: fetch, generate, generate-data, train, "
    "evaluate, bench.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Data = Annotated[Path, typer.Option(help="Folder of generate-data.")]


@app.command()
def fetch() -> None:
    """Fetch the default model once and convert it into the user's cache."""
    print(f"model ready: {fetch_default_model()}")


@app.command()
def generate(
    prompt: str,
    draft: Annotated[Path | None, typer.Option(help="Draft folder.")] = None,
    max_new_tokens: int = 128,
    chain_length: Annotated[int, typer.Option(help="0 decodes without a draft.")] = 3,
    temperature: float = 0.0,
) -> None:
    """Answer PROMPT, token by token, and say how long the accepted chains were."""
    sampling = SamplingParams(temperature)
    if chain_length != 0:
        require_chain_length(chain_length)  # before a model is loaded
    target = load_target()
    drafter = VanillaDrafter()
    if chain_length != 0:
        drafter = Eagle3Drafter(target, load_draft(draft, target), chain_length)
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
) -> None:
    """Let the target answer prompts and store the tokens. Run again to go on."""
    from eagle3.training.data import DataConfig, generate_data

    config = DataConfig(num_prompts, max_new_tokens, seed=seed, held_out=held_out)
    generate_data(config, out, workers)


@app.command()
def train(  # noqa: PLR0913  options of a command line
    data: Data,
    held_out: Annotated[Path, typer.Option(help="Folder of held-out answers.")],
    out: Annotated[Path, typer.Option(help="Where the run keeps its files.")],
    recipe: Annotated[str, typer.Option(help="The method: eagle3, ...")] = "eagle3",
    epochs: int = 3,
    learning_rate: float = 4e-4,
    seed: int = 0,
    draft_vocab_size: Annotated[int | None, typer.Option(help="For eagle3.")] = None,
    ttt_steps: Annotated[int | None, typer.Option(help="For eagle3.")] = None,
) -> None:
    """Train a draft for the default target. Run again to go on."""
    from eagle3.training.data import load_data
    from eagle3.training.recipe import Start
    from eagle3.training.recipes import new_recipe, require_options
    from eagle3.training.trainer import TrainConfig, Trainer

    options = {"draft_vocab_size": draft_vocab_size, "ttt_steps": ttt_steps}
    options = {name: value for name, value in options.items() if value is not None}
    require_options(recipe, options)
    settings = TrainConfig(epochs=epochs, learning_rate=learning_rate, seed=seed)
    sequences, evaluation = load_data(data), load_data(held_out)
    answers = sum(int(sequence.natural_mask().sum()) for sequence in sequences)
    print(f"{len(sequences)} sequences, {answers} answer tokens")
    target = load_target()
    start = Start(target, sequences, library_model().state_dict())
    method = new_recipe(recipe, start, options)
    trainer = Trainer(target, method, (sequences, evaluation), out, settings)
    trainer.train()
    method.save(out / "final", torch.float16)
    print(f"n-alpha on held-out prompts: {trainer.evaluate()}")
    print(f"draft saved in {out / 'final'}")


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


@app.command()
def bench(
    out: Annotated[Path, typer.Option(help="Folder of the results file.")] = Path(
        "figures/results"
    ),
    draft: Annotated[Path | None, typer.Option(help="Draft folder.")] = None,
    temperature: float = 0.0,
    prompts_per_kind: int = 3,
    rounds: int = 2,
) -> None:
    """Measure speedups side by side and write speedup.json (or speedup_t1.json)."""
    from eagle3.bench import speedup
    from eagle3.bench.environment import write_results

    config = speedup.SpeedupConfig(
        prompts_per_kind, rounds=rounds, temperature=temperature
    )
    target = load_target()
    runs = speedup.measure_speedup(
        target, load_draft(draft, target), library_model(), config
    )
    summary = speedup.summarise(runs)
    for name, found in summary.items():
        low, high = found["speedup_interval_95"]
        print(
            f"{name:22} {found['speedup']:.2f}x [{low:.2f}, {high:.2f}]  acceptance "
            f"length {found['acceptance_length']:.2f}  same tokens: "
            f"{found['same_tokens']}"
        )
    results = {"config": vars(config), "summary": summary, "runs": speedup.rows(runs)}
    name = "speedup" if temperature == 0 else "speedup_t1"
    print(f"written: {write_results(name, results, out, config.seed)}")


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
