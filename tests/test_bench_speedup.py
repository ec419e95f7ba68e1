"""The bench of methods. Times are made up here, so that every ratio is known."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import helpers
import pytest
import torch

from eagle3.bench import report, speedup
from eagle3.bench.peers import answer_with_library
from eagle3.bench.questions import Question
from eagle3.bench.run_log import RunLog
from eagle3.bench.speedup import Answer, SpeedupConfig, measure_speedup, summarise
from eagle3.drafters import VanillaDrafter
from eagle3.engine import run
from eagle3.methods import METHODS, require_methods
from eagle3.sampling import SamplingParams

QUESTIONS = [
    Question(1, "chat", ("abc",)),
    Question(2, "chat", ("hello",)),
    Question(3, "code", ("for x", "and y")),
]


@cache
def target():
    return helpers.talking_toy()


class Decoder:
    """Vanilla decoding that claims a time of its own per token."""

    def __init__(self, seconds: list[float], log: list, name: str, shift: int = 0):
        self.seconds, self.log, self.name, self.shift = seconds, log, name, shift
        self.asked = 0

    def __call__(self, request) -> Answer:
        self.log.append((self.name, request.sampling.temperature, request.prompt_ids))
        result = run(target(), VanillaDrafter(), request)
        each = self.seconds[self.asked % len(self.seconds)]
        self.asked += 1
        ids = tuple((token + self.shift) % 96 for token in result.token_ids)
        return Answer(result.text, ids, each * len(ids), result)


def config(**changes) -> SpeedupConfig:
    names = ("eagle3-chain", "prompt-lookup")
    return SpeedupConfig(**{"methods": names, "max_new_tokens": 6} | changes)


def measured(asked=None, shift=0, **seconds):
    log: list = []
    asked = asked or config()
    methods = {
        name: Decoder(each, log, name, 0 if name == "vanilla" else shift)
        for name, each in ({"vanilla": [2.0]} | seconds).items()
    }
    with TemporaryDirectory() as folder:
        kept = RunLog(Path(folder) / "runs.jsonl", asked, QUESTIONS)
        return measure_speedup(target(), methods, QUESTIONS, asked, kept), log


def test_methods_take_turns_on_every_question():
    asked = config(rounds=2, temperatures=(0.0, 1.0))
    _, log = measured(asked, **{"eagle3-chain": [1.0]})
    names = [name for name, _, _ in log]
    assert names[:2] == ["vanilla", "eagle3-chain"]  # the warm-up
    # Three questions; the third has two turns, asked one after the other.
    one = ["vanilla", "eagle3-chain"] * 4
    two = ["vanilla", "vanilla", "eagle3-chain", "eagle3-chain"] * 4
    assert names[2:] == one + one + two
    assert [t for _, t, _ in log[2:10]] == [0.0] * 4 + [1.0] * 4


def test_the_second_turn_sees_the_first_answer():
    _, log = measured(**{"eagle3-chain": [1.0]})
    first, second = (ids for name, _, ids in log[-4:] if name == "vanilla")
    assert len(second) > len(first) + len("<user>and y")
    assert second[: len(first)] == first


def test_a_speedup_is_the_mean_of_ratios_of_medians():
    """Vanilla takes 2 s a token. The other takes 1, 4 and 1.6 by question.

    It is called once to warm up, then twice per question (four times for the two
    turns of the last), and the median of two equal rounds is each.
    """
    each = [9.0, 1.0, 1.0, 4.0, 4.0, 1.6, 1.6, 1.6, 1.6]
    found, _ = measured(**{"eagle3-chain": each})
    row = summarise(found, 0.0)["EAGLE-3 chain 3"]
    assert row["speedup_by_kind"] == pytest.approx(
        {"chat": (2 + 0.5) / 2, "code": 1.25}
    )
    assert row["speedup"] == pytest.approx((2 + 0.5 + 1.25) / 3)
    low, high = row["speedup_interval_95"]
    assert 0.5 <= low < row["speedup"] < high <= 2


def test_tau_times_passes_is_what_was_emitted():
    found, _ = measured(**{"eagle3-chain": [1.0]})
    assert len(found) == 2 * 2 * 3
    for r in found:
        turns = 2 if r.question == "3" else 1
        assert r.acceptance_length * r.target_passes == r.num_tokens - turns
        assert r.num_tokens == 6 * turns
    summary = summarise(found, 0.0)
    assert summary["Vanilla"]["acceptance_length"] == 1
    # The traces of one round: five passes for each of the four turns.
    assert summary["Vanilla"]["acceptance"]["cycles"] == 5 * 4


def test_other_tokens_than_vanillas_are_told():
    found, _ = measured(shift=1, **{"eagle3-chain": [1.0]})
    summary = summarise(found, 0.0)
    assert summary["Vanilla"]["same_tokens"]
    assert not summary["EAGLE-3 chain 3"]["same_tokens"]
    assert summary["EAGLE-3 chain 3"]["differing_questions"] == ["1", "2", "3"]


def test_above_temperature_0_tokens_are_not_compared():
    found, _ = measured(config(temperatures=(1.0,)), **{"eagle3-chain": [1.0]})
    assert {r.same_tokens for r in found} == {None}
    summary = summarise(found, 1.0)
    assert {row["same_tokens"] for row in summary.values()} == {None}


def test_results_can_be_written_and_printed():
    found, _ = measured(**{"eagle3-chain": [1.0]})
    summary = summarise(found, 0.0)
    json.dumps([summary, speedup.rows(found)], allow_nan=False)
    table = report.methods_table("0", summary)
    assert [column.header for column in table.columns] == [
        "method", "chat", "code", "mean", "95% interval", "same tokens",
    ]  # fmt: skip
    assert list(table.columns[1].cells) == ["1.00x 1.00", "2.00x 1.00"]


class Killed(Exception):
    pass


class DyingDecoder(Decoder):
    """Is killed when it is asked for the third time."""

    def __call__(self, request) -> Answer:
        if self.asked == 2:
            raise Killed
        return super().__call__(request)


def logged(path, decoder=Decoder):
    """The runs of a bench that is kept at a path, and what was asked for them."""
    asked, calls = config(), []
    methods = {
        "vanilla": Decoder([2.0], calls, "vanilla"),
        "eagle3-chain": decoder([1.0], calls, "eagle3-chain"),
    }
    kept = RunLog(path, asked, QUESTIONS)
    return measure_speedup(target(), methods, QUESTIONS, asked, kept), calls


def test_a_killed_bench_goes_on_behind_its_last_whole_question(tmp_path):
    path = tmp_path / "runs.jsonl"
    at_once, _ = logged(tmp_path / "other.jsonl")
    with pytest.raises(Killed):  # the first call warms up, the next two are question 1
        logged(path, DyingDecoder)
    assert len(path.read_text("utf-8").splitlines()) == 1
    logged(path)
    whole = path.read_text("utf-8")
    lines = whole.splitlines(keepends=True)
    assert len(lines) == 1 + len(QUESTIONS)
    for cut in (lines[3][:-1], lines[3][: len(lines[3]) // 2], ""):
        path.write_text("".join(lines[:3]) + cut, encoding="utf-8")
        found, calls = logged(path)
        assert [run.num_tokens for run in found] == [r.num_tokens for r in at_once]
        assert [run.acceptance for run in found] == [r.acceptance for r in at_once]
        # Two calls warm up; a question of two turns costs eight in two rounds.
        assert len(calls) == 2 + (0 if cut == lines[3][:-1] else 8)
        assert len(path.read_text("utf-8").splitlines()) == 1 + len(QUESTIONS)


def test_the_first_part_of_another_bench_is_refused(tmp_path):
    path = tmp_path / "runs.jsonl"
    RunLog(path, config(), QUESTIONS)
    for asked, questions in (
        (config(rounds=3), QUESTIONS), (config(), QUESTIONS[:2])
    ):  # fmt: skip
        with pytest.raises(ValueError, match="another bench"):
            RunLog(path, asked, questions)
    kept = RunLog(path, config(), QUESTIONS)
    kept.close()
    assert not path.exists()


def test_the_librarys_answer_is_its_greedy_one_and_leaves_chance_alone():

    request = helpers.request((5, 17, 80), 6)
    before = torch.get_rng_state()
    ids, seconds = answer_with_library(helpers.library_toy(), {}, request)
    assert list(ids) == helpers.library_answer(
        helpers.library_toy(), (5, 17, 80), 6, []
    )
    assert seconds > 0
    drawn = helpers.request((5, 17), 6, sampling=SamplingParams(1.0, seed=4))
    one, two = (
        answer_with_library(helpers.library_toy(), {}, drawn)[0] for _ in range(2)
    )
    assert one == two
    assert torch.equal(torch.get_rng_state(), before)


def test_vanilla_is_always_run_and_first():
    assert SpeedupConfig(methods=("eagle3",)).methods == ("vanilla", "eagle3")
    assert SpeedupConfig(methods=("eagle3", "vanilla")).methods[0] == "vanilla"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": ("eagle4",)}, "no method 'eagle4'"),
        ({"methods": ("eagle3-chain-0",)}, "chain length 0"),
        ({"methods": ("eagle3-chain-x",)}, "no method 'eagle3-chain-x'"),
        ({"temperatures": ()}, "no temperature"),
        ({"temperatures": (-1.0,)}, "temperature is -1.0"),
        ({"rounds": 0}, "rounds is 0"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
    ],
)
def test_nonsense_is_refused_before_any_work(changes, words):
    with pytest.raises(ValueError, match=words):
        SpeedupConfig(**changes)


def test_every_method_has_a_name_and_a_label():
    require_methods([*METHODS, "eagle3-chain-5"])
    assert len({method.label for method in METHODS.values()}) == len(METHODS)
