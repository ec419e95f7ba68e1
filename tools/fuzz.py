"""Feed the readers of files with damaged ones: a clear sentence, no crash, no hang.

Checkpoints in every format, configs of targets, question files and notebooks are taken
whole, damaged at random places and read. A reader may read what it is given, or refuse
it with one sentence (a ValueError). Anything else is a fault: another error, a sentence
of several lines or none, a second that becomes ten, a program that is started, or a
connection that is opened.

    python tools/fuzz.py              10,000 cases
    python tools/fuzz.py 500 7        500 cases, others than those of seed 0

A case depends on its number and the seed alone, so one that failed can be run again.
"""

import faulthandler
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # the guard of notebooks lies there

from notebook_guard import problems  # noqa: E402

from eagle3.bench.questions import read_questions  # noqa: E402
from eagle3.draft import DraftConfig  # noqa: E402
from eagle3.formats.export import write_stored  # noqa: E402
from eagle3.formats.stored import open_stored  # noqa: E402
from eagle3.layers import layer_sizes  # noqa: E402

SECONDS = 10.0  # that one case may take on a slow machine
LONGEST = 4000  # letters of a sentence; every fault of a file is listed
ODD = (None, True, 0, -1, 1.5, 1e308, 10**400, "", "x", "\0", [], {}, [[[]]], {"a": {}})
ODD_BYTES = (b"\0", b"\xff", b"{", b"]", b'"', b"1e999", b"NaN", b"null", b"\\u0000")
_PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")
_FORBIDDEN = (*_PROGRAMS, "socket.connect", "pickle.find_class")
_heard: list[str] = []

Read = Callable[[Path], object]


@dataclass(frozen=True)
class Kind:
    """Something to damage.

    folder: with whole files       read: what is done with a copy of it
    """

    name: str
    folder: Path
    read: Read


def kinds(work: Path) -> list[Kind]:
    """Whole inputs of every kind, written under `work`."""
    found = [Kind("checkpoint, official", _OFFICIAL, _read_checkpoint)]
    for name in ("specforge", "speculators", "eagle3"):
        folder = work / name
        write_stored(open_stored(_OFFICIAL), folder, name, _target())
        found.append(Kind(f"checkpoint, {name}", folder, _read_checkpoint))
    pickled = work / "pickled"
    pickled.mkdir()
    shutil.copyfile(_OFFICIAL / "config.json", pickled / "config.json")
    torch.save(load_file(_OFFICIAL / "model.safetensors"), pickled / _PICKLE)
    found.append(Kind("checkpoint, pickled", pickled, _read_checkpoint))
    for name, text, read in (
        ("config of a target", json.dumps(_TARGET_CONFIG), _read_config),
        ("question file", _questions(), lambda f: read_questions(f / "input")),
        ("notebook", _notebook(), _read_notebook),
    ):
        folder = work / name.replace(" ", "_")
        folder.mkdir()
        (folder / "input").write_text(text, encoding="utf-8")
        found.append(Kind(name, folder, read))
    return found


_OFFICIAL = ROOT / "tests" / "data" / "oracles" / "draft_official"
_PICKLE = "pytorch_model.bin"
_TARGET_CONFIG = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 120,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


def _target() -> Any:
    from foreign import oracle_target

    return oracle_target()


def _questions() -> str:
    rows = [
        {"question_id": n, "category": "coding", "turns": ["What is n?", "And m?"]}
        for n in range(4)
    ]
    return "\n".join(map(json.dumps, rows))


def _notebook() -> str:
    cells: list[dict] = [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Title"},
        {
            "cell_type": "code",
            "id": "b",
            "metadata": {"tags": ["x"]},
            "execution_count": 1,
            "source": ["print(1)"],
            "outputs": [{"output_type": "stream", "name": "stdout", "text": "1\n"}],
        },
    ]
    head = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}}
    return json.dumps(head | {"cells": cells})


def _read_checkpoint(folder: Path) -> None:
    stored = open_stored(folder)
    stored.config(8)
    stored.read()


def _read_config(folder: Path) -> None:
    try:
        raw = json.loads((folder / "input").read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return  # whoever hands over a config has read it
    if isinstance(raw, dict):
        layer_sizes(raw)
        DraftConfig.for_target(raw, 40, (2, 4, 5))


def _read_notebook(folder: Path) -> None:
    for sentence in problems(folder / "input"):
        _require_sentence(sentence)


def damaged(data: bytes, dice: random.Random) -> bytes:
    """A file with up to four faults: bits, holes, repeats, odd values, an early end."""
    for _ in range(dice.randint(1, 4)):
        start = dice.randrange(len(data) + 1)
        # Most files begin with what says how the rest is to be read.
        start = min(start, dice.choice((start, 400)))
        end = min(len(data), start + dice.choice((1, 8, 100, 10_000)))
        way = dice.randrange(7)
        if way == 0 and data:
            place = min(start, len(data) - 1)
            flipped = bytes([data[place] ^ (1 << dice.randrange(8))])
            data = data[:place] + flipped + data[place + 1 :]
        elif way == 1:
            data = data[:start] + data[end:]
        elif way == 2:
            data = data[:start] + data[start:end] * 2 + data[end:]
        elif way == 3:
            data = data[:start] + dice.choice(ODD_BYTES) + data[start:]
        elif way == 4:
            data = data[:start]
        elif way == 5:
            data = data[:start] + b"[" * dice.choice((3, 3000)) + data[start:]
        else:
            data = _with_odd_value(data, dice)
    return data


def _with_odd_value(data: bytes, dice: random.Random) -> bytes:
    """JSON with one odd value; other files stay as they are."""
    try:
        whole = json.loads(data)
        places = list(_places(whole))
    except (ValueError, RecursionError):
        return data
    if places:
        owner, key = dice.choice(places)
        owner[key] = dice.choice(ODD)
    return json.dumps(whole).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a JSON value that can be written to."""
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield value, key
            yield from _places(value[key])


def run_case(kind: Kind, number: int, seed: int, folder: Path) -> str:
    """Damage one file of a copy and read it: "read", "refused", or what went wrong."""
    dice = random.Random(f"{seed} {number}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = sorted(path.name for path in kind.folder.iterdir())
    names = [name for name in names if name != "README.md"]
    victim = dice.choice(names)
    for name in names:
        data = (kind.folder / name).read_bytes()
        data = damaged(data, dice) if name == victim else data
        (folder / name).write_bytes(data)
    _heard.clear()
    started = time.monotonic()
    try:
        kind.read(folder)
        verdict = "read"
    except ValueError as error:
        verdict = _judged(error)
    except Exception as error:
        return f"{type(error).__name__} in place of a sentence: {error!s:.200}"
    if _heard:
        return f"a file made this happen: {_heard}"
    seconds = time.monotonic() - started
    return f"took {seconds:.0f} s" if seconds > SECONDS else verdict


def _judged(error: ValueError) -> str:
    try:
        _require_sentence(str(error))
    except AssertionError as fault:
        return f"{type(error).__name__} without a sentence: {fault}"
    return "refused"


def _require_sentence(said: str) -> None:
    if not said.strip() or "\n" in said or len(said) > LONGEST:
        raise AssertionError(f"{said!r:.200}")


def _hook(event: str, args: tuple) -> None:
    if event in _FORBIDDEN:
        _heard.append(f"{event} {args!r:.100}")


def fuzz(count: int, seed: int = 0) -> tuple[dict[str, int], list[str]]:
    """Run cases; returns how often each verdict came, and what went wrong."""
    counts: dict[str, int] = {"read": 0, "refused": 0}
    faults: list[str] = []
    sys.addaudithook(_hook)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        every = kinds(work)
        for number in range(count):
            kind = every[number % len(every)]
            faulthandler.dump_traceback_later(20 * SECONDS, exit=True)  # a hang
            verdict = run_case(kind, number, seed, work / "case")
            if verdict in counts:
                counts[verdict] += 1
            else:
                faults.append(f"case {number}, {kind.name}: {verdict}")
        faulthandler.cancel_dump_traceback_later()
    return counts, faults


def main(words: list[str]) -> int:
    """Run the command; returns its exit code."""
    count, seed = (*map(int, words), *(10_000, 0)[len(words) :])
    counts, faults = fuzz(count, seed)
    print("\n".join(faults))
    print(f"{count} cases of seed {seed}: {counts}, {len(faults)} faults.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
