"""Training text from the target's own answers: batches, shards, reading back.

Right values: one prompt at a time without cache, padding or batch.
"""

import dataclasses

import pytest
import scipy.stats
import torch
from safetensors.torch import load_file

from eagle3.sampling import SamplingParams, next_token_distribution, sample
from eagle3.target import toy_target
from eagle3.training import data
from eagle3.training.data import (
    DataConfig,
    Sequence,
    answer_batch,
    generate_data,
    load_data,
)
from eagle3.training.prompts import KINDS

GREEDY = SamplingParams(0.0)
WARM = SamplingParams(1.0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def prompts(*lengths, seed=3):
    source = generator(seed)
    return [torch.randint(96, (n,), generator=source).tolist() for n in lengths]


def alone(target, prompt, max_new_tokens, eos=()):
    """Greedy decoding by its definition: the whole text again for every token."""
    answer = []
    while len(answer) < max_new_tokens and not set(answer) & set(eos):
        logits = target.forward(torch.tensor([prompt + answer])).logits
        answer.append(int(logits[0, -1].argmax()))
    return answer


def toy_with_eos(*ids):
    target = toy_target()
    target.eos_token_ids = ids
    return target


# ---- answers


def test_a_batch_of_any_lengths_answers_as_each_prompt_alone():
    target, batch = toy_target(), prompts(4, 1, 9, 17, 2)
    found = answer_batch(target, batch, [GREEDY] * 5, 12, generator())
    assert found == [alone(target, prompt, 12) for prompt in batch]


def test_rows_that_end_leave_and_the_others_go_on():
    """Every token that occurs is declared the end, in turn."""
    batch = prompts(4, 1, 9, 17, 2, 6)
    free = [alone(toy_target(), prompt, 10) for prompt in batch]
    for eos in sorted({token for answer in free for token in answer}):
        target = toy_with_eos(eos)
        right = [alone(target, prompt, 10, (eos,)) for prompt in batch]
        assert answer_batch(target, batch, [GREEDY] * 6, 10, generator()) == right


def test_several_ends():
    batch = prompts(4, 9)
    first = alone(toy_target(), batch[0], 3)[2]
    target = toy_with_eos(first, alone(toy_target(), batch[1], 5)[4])
    right = [alone(target, prompt, 9, target.eos_token_ids) for prompt in batch]
    assert answer_batch(target, batch, [GREEDY] * 2, 9, generator()) == right


def test_a_batch_shrinks_when_a_quarter_is_done(monkeypatch):
    batch = prompts(*range(1, 9))
    eos = alone(toy_target(), batch[0], 1)[0]
    target, sizes = toy_with_eos(eos), []
    forward = target.forward
    monkeypatch.setattr(
        target,
        "forward",
        lambda ids, *args, **options: (
            sizes.append(len(ids)) or forward(ids, *args, **options)
        ),
    )
    answers = answer_batch(target, batch, [GREEDY] * 8, 20, generator())
    steps = [len(answer) for answer in answers]
    alive = 8
    for step, size in enumerate(sizes):
        left = sum(count > step for count in steps)
        alive = left if left <= 0.75 * alive else alive
        assert size == alive
    assert sizes[-1] < 8


def test_warm_rows_follow_the_targets_distribution():
    """The first token of 4,000 equal rows against the target's own probabilities."""
    target, (prompt,) = toy_target(), prompts(5)
    answers = answer_batch(target, [prompt] * 4000, [WARM] * 4000, 1, generator())
    logits = target.forward(torch.tensor([prompt]), last_only=True).logits
    expected = 4000 * logits[0, -1].softmax(-1)
    found = torch.tensor(answers)[:, 0].bincount(minlength=96)
    common = expected >= 5  # rarer tokens are counted together
    expected = [*expected[common].tolist(), expected[~common].sum().item()]
    found = [*found[common].tolist(), found[~common].sum().item()]
    scale = 4000 / sum(expected)
    assert scipy.stats.chisquare(found, [scale * e for e in expected]).pvalue > 1e-4


def test_every_row_is_drawn_in_its_own_way():
    """Rows with top_k 1 are greedy though other rows are warm, in any order."""
    target, batch = toy_target(), prompts(3, 5, 7, 2)
    one = SamplingParams(1.0, top_k=1)
    for params in ([WARM, one, GREEDY, one], [one, GREEDY, WARM, WARM]):
        found = answer_batch(target, batch, params, 8, generator())
        for answer, prompt, way in zip(found, batch, params, strict=True):
            assert (answer == alone(target, prompt, 8)) == (way != WARM)


def test_the_generator_alone_decides():
    target, batch = toy_target(), prompts(3, 5)
    first, again, other = (
        answer_batch(target, batch, [WARM] * 2, 8, generator(seed))
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_warm_row_is_drawn_from_the_filtered_distribution():
    target, (prompt,) = toy_target(), prompts(5)
    params = SamplingParams(0.7, top_k=5, top_p=0.9)
    (found,) = answer_batch(target, [prompt], [params], 6, generator(4))
    source, right = generator(4), []
    for _ in range(6):
        logits = target.forward(torch.tensor([prompt + right])).logits[0, -1:]
        right.append(int(sample(next_token_distribution(logits, params), source)))
    assert found == right


def test_an_answer_beyond_the_context_is_refused():
    with pytest.raises(ValueError, match="context is 1 to 512 tokens"):
        answer_batch(toy_target(), prompts(500), [GREEDY], 13, generator())


# ---- configuration


@pytest.mark.parametrize("name", ["num_prompts", "max_new_tokens", "prompts_per_shard"])
@pytest.mark.parametrize("value", [0, -3])
def test_counts_below_one_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}: generate at least 1"):
        DataConfig(**{name: value})


def test_held_out_answers_are_the_exact_targets():
    assert DataConfig(dtype="bfloat16").dtype == "bfloat16"
    with pytest.raises(ValueError, match="'bfloat16': take float32 for held-out"):
        DataConfig(held_out=True, dtype="bfloat16")
    with pytest.raises(ValueError, match="'int8': take float32 or bfloat16 for train"):
        DataConfig(dtype="int8")


def test_workers_load_the_target_in_the_dtype_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(data, "load_target", lambda **options: asked.append(options))
    monkeypatch.setattr(data, "_worker", None, raising=False)
    data._start_worker(DataConfig(dtype="bfloat16"), torch.get_num_threads())
    assert asked == [{"dtype": torch.bfloat16}]


def test_shards_hold_every_prompt_once():
    config = DataConfig(num_prompts=23, prompts_per_shard=5, seed=4)
    shards = config.shards()
    assert [len(shard) for shard in shards] == [5, 5, 5, 5, 3]
    texts = [prompt.text for shard in shards for prompt in shard]
    assert len(set(texts)) == 23
    assert shards == config.shards()
    assert shards != DataConfig(num_prompts=23, prompts_per_shard=5, seed=5).shards()


def test_held_out_prompts_are_other_prompts_of_all_kinds():
    held_out = DataConfig(num_prompts=20, held_out=True).shards()[0]
    assert sorted(p.kind for p in held_out) == sorted(KINDS * 4)
    training = {p.text for shard in DataConfig(num_prompts=500).shards() for p in shard}
    assert not training & {p.text for p in held_out}
    with pytest.raises(ValueError, match="too few for all 5 kinds"):
        DataConfig(num_prompts=4, held_out=True)


# ---- shards


class Letters:
    """A tokenizer of one id per character."""

    chat_template = "letters"

    def apply_chat_template(self, messages, **_):
        return messages[0]["content"] + "\n"

    def encode(self, text, **_):
        return [ord(letter) % 96 for letter in text][:40]


@pytest.fixture
def worker(monkeypatch):
    """Answers in this process with the toy; as `generate_data` starts it."""

    def start(config):
        target = toy_with_eos(7)
        target.tokenizer = Letters()
        monkeypatch.setattr(data, "_worker", (config, target), raising=False)
        return target

    return start


CONFIG = DataConfig(num_prompts=10, max_new_tokens=6, prompts_per_shard=4)


def test_what_is_written_is_read_back(worker, tmp_path):
    target = worker(CONFIG)
    counts = [data._write_shard(shard, tmp_path) for shard in range(3)]
    sequences = load_data(tmp_path)
    assert len(sequences) == 10
    left = {prompt.text: prompt for shard in CONFIG.shards() for prompt in shard}
    for sequence in sequences:
        ids = sequence.token_ids.tolist()
        start, answer = ids[: sequence.num_prompt], ids[sequence.num_prompt :]
        texts = [
            text
            for text, prompt in left.items()
            if target.encode(text + "\n") == start and prompt.kind == sequence.kind
        ]
        assert len(texts) == 1
        del left[texts[0]]
        if sequence.temperature == 0:
            assert answer == alone(target, start, 6, (7,))
    assert left == {}
    answered = [len(s.token_ids) - s.num_prompt for s in sequences]
    assert sum(counts) == sum(answered)
    temperatures = [s.temperature for s in sequences]
    assert temperatures.count(0.0) == temperatures.count(1.0) == 5


def test_ids_are_stored_in_two_bytes(worker, tmp_path):
    worker(CONFIG)
    data._write_shard(0, tmp_path)
    (path,) = tmp_path.iterdir()  # no temporary file is left
    assert load_file(path)["token_ids"].dtype == torch.uint16


def test_ids_that_two_bytes_cannot_hold_are_refused(worker, tmp_path):
    worker(CONFIG).vocab_size = 2**16 + 1
    with pytest.raises(ValueError, match="stored in 16 bits"):
        data._write_shard(0, tmp_path)


def test_a_shard_depends_on_its_own_seed_alone(worker, tmp_path):
    worker(CONFIG)
    for folder, order in {"a": (0, 1, 2), "b": (2, 0)}.items():
        (tmp_path / folder).mkdir()
        for shard in order:
            data._write_shard(shard, tmp_path / folder)
    for shard in (0, 2):
        name = f"shard-{shard:05d}.safetensors"
        assert (tmp_path / "a" / name).read_bytes() == (
            tmp_path / "b" / name
        ).read_bytes()


def test_no_two_shards_are_drawn_with_one_seed(worker, tmp_path, monkeypatch):
    seeds = []

    def spy(target, prompts, params, max_new_tokens, generator):
        seeds.append(generator.initial_seed())
        return [[0] for _ in prompts]

    monkeypatch.setattr(data, "answer_batch", spy)
    for seed in (0, 1, 2):
        worker(dataclasses.replace(CONFIG, seed=seed))
        for shard in range(3):
            data._write_shard(shard, tmp_path)
    assert len(set(seeds)) == 9


def test_a_fault_while_writing_leaves_no_shard(worker, tmp_path, monkeypatch):
    worker(CONFIG)

    def fail(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(data, "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        data._write_shard(0, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"run .*generate-data. first"):
        load_data(tmp_path)


def test_an_empty_folder_has_no_data(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"no training data in {tmp_path}"):
        load_data(tmp_path)


class NoPool:
    """Fails when a process would be started; nothing may be left to do then."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def map(self, function, todo, folders):
        assert not todo, f"shards {todo} would be made again"
        return iter(())


def finished(worker, folder):
    worker(CONFIG)
    for shard in range(3):
        data._write_shard(shard, folder)


def test_shards_that_are_there_are_kept(worker, tmp_path, monkeypatch):
    finished(worker, tmp_path)
    monkeypatch.setattr(data, "ProcessPoolExecutor", NoPool)
    generate_data(CONFIG, tmp_path)
    (tmp_path / "shard-00001.safetensors").unlink()
    monkeypatch.setattr(data, "fetch_default_model", lambda: None)
    with pytest.raises(AssertionError, match=r"shards \[1\] would"):
        generate_data(CONFIG, tmp_path)


def test_shards_of_another_configuration_are_not_mixed_in(worker, tmp_path):
    finished(worker, tmp_path)
    other = DataConfig(num_prompts=10, max_new_tokens=7, prompts_per_shard=4)
    with pytest.raises(ValueError, match=r"another configuration .*new folder"):
        generate_data(other, tmp_path)


def test_a_target_that_cannot_be_had_is_reported_as_it_is(monkeypatch, tmp_path):
    def refuse():
        raise RuntimeError("no wheel and no network")

    monkeypatch.setattr(data, "fetch_default_model", refuse)
    monkeypatch.setattr(data, "ProcessPoolExecutor", NoPool)
    with pytest.raises(RuntimeError, match="no wheel and no network"):
        generate_data(CONFIG, tmp_path)


def test_no_workers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="0 workers can't answer"):
        generate_data(CONFIG, tmp_path / "new", workers=0)
    assert not (tmp_path / "new").exists()


def test_the_natural_mask_marks_the_answer():
    sequence = Sequence(torch.tensor([4, 5, 6, 7, 8]), 3, "chat", 0.0)
    assert sequence.natural_mask().tolist() == [False, False, False, True, True]


@pytest.mark.real
def test_the_real_target_answers_in_another_process(real_target, tmp_path):
    config = DataConfig(num_prompts=5, max_new_tokens=4, held_out=True)
    generate_data(config, tmp_path)
    sequences = load_data(tmp_path)
    texts = {prompt.text for prompt in config.shards()[0]}
    assert len(sequences) == 5
    for sequence in sequences:
        start = sequence.token_ids[: sequence.num_prompt].tolist()
        text = real_target.decode(start, keep_special=True)
        assert any(f"<|im_start|>user\n{t}<|im_end|>" in text for t in texts)
        right = alone(real_target, start, 4, real_target.eos_token_ids)
        assert sequence.token_ids[sequence.num_prompt :].tolist() == right
