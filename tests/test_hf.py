"""EAGLE behind transformers' `generate`.

The right answer is the same call without our argument, and what a processor, a stopping
criterion or a streamer is shown there.
"""

import inspect

import helpers
import pytest
import torch
import transformers
from helpers import PROMPT, VOCAB, RandomDrafter, library_toy, trained_draft
from test_chat_templates import talking
from tiny import tiny_model
from transformers import DynamicCache, LogitsProcessor, StoppingCriteria

import eagle3.engine
from eagle3.checkpoint import load_draft
from eagle3.engine import prompt_to_ids
from eagle3.growth import DynamicTree, chain
from eagle3.hf import eagle3_generate
from eagle3.target import Target, library_model, load_target

GROWTHS = [chain(3), DynamicTree(12, 4, 4)]


def ids(*prompt: int) -> torch.Tensor:
    return torch.tensor([prompt or PROMPT])


def call(prompt: torch.Tensor, loop=None, model=None, **options) -> list[int]:
    """The new tokens, with our loop or without."""
    model = model or library_toy()
    if loop is not None:
        options["custom_generate"] = loop
    options = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0} | options
    mask = torch.ones_like(prompt)
    output = model.generate(prompt, attention_mask=mask, **options)
    assert output[0, : prompt.shape[1]].tolist() == prompt[0].tolist()
    assert output.dtype == torch.int64
    return output[0, prompt.shape[1] :].tolist()


ANSWER = call(ids())


class NoOddAfterEven(LogitsProcessor):
    """Depends on the last token; writes into the scores, as some of them do."""

    def __call__(self, input_ids, scores):
        if int(input_ids[0, -1]) % 2 == 0:
            scores[:, 1::2] -= 3.0
        return scores


class Recorder(LogitsProcessor):
    def __init__(self):
        self.seen = []

    def __call__(self, input_ids, scores):
        assert scores.dtype == torch.float32
        self.seen.append((input_ids.tolist(), scores.clone()))
        return scores


class Counter(StoppingCriteria):
    """Ends the answer at the text with this many tokens; counts its calls."""

    def __init__(self, length: int):
        self.length, self.seen = length, []

    def __call__(self, input_ids, scores, **_):
        self.seen.append(input_ids.tolist())
        done = input_ids.shape[1] == self.length
        return torch.full((len(input_ids),), done, dtype=torch.bool)


class Pieces:
    """A streamer that writes down what it gets."""

    def __init__(self):
        self.got = []

    def put(self, value):
        self.got.append(value.tolist())

    def end(self):
        self.got.append("end")


def make(name: str, value: object) -> dict:
    """Options of a call; processors and criteria are new for each call."""
    if name == "logits_processor":
        return {name: [kind() for kind in value]}
    if name == "stopping_criteria":
        return {name: [Counter(value)]}
    return value if name == "" else {name: value}


SETTINGS = [
    ("max_new_tokens", 1),
    ("", {"max_length": 20, "max_new_tokens": None}),
    ("eos_token_id", ANSWER[9]),
    ("eos_token_id", [ANSWER[12], ANSWER[9]]),
    ("", {"eos_token_id": ANSWER[9], "min_new_tokens": 15}),
    ("repetition_penalty", 1.4),
    ("no_repeat_ngram_size", 2),
    ("bad_words_ids", [[ANSWER[3]], [ANSWER[6], ANSWER[7]]]),
    ("suppress_tokens", ANSWER[:6]),
    ("sequence_bias", {(ANSWER[5],): -4.0, (ANSWER[8], ANSWER[9]): 2.0}),
    ("forced_eos_token_id", 7),
    ("prefix_allowed_tokens_fn", lambda _batch, text: [5, 6, int(text[-1] + 1) % 96]),
    ("logits_processor", [NoOddAfterEven]),
    ("stopping_criteria", len(PROMPT) + 8),
    ("", {"guidance_scale": 1.5, "negative_prompt_ids": ids(8, 9)}),
]


@pytest.mark.parametrize(("name", "value"), SETTINGS)
@pytest.mark.parametrize("growth", GROWTHS, ids=["chain", "tree"])
def test_the_tokens_are_those_of_generate(growth, name, value):
    loop = eagle3_generate(trained_draft(), growth)
    right = call(ids(), **make(name, value))
    assert call(ids(), loop, **make(name, value)) == right
    assert loop.result.token_ids == tuple(right)
    assert loop.result.prompt_ids == PROMPT


def test_it_is_faster_in_passes_and_says_so():
    loop = eagle3_generate(trained_draft())
    assert call(ids(), loop) == ANSWER
    assert loop.result.acceptance_length > 1.5


# An answer of a processor, and a token that comes late in it for the first time.
CHANGED = call(ids(), logits_processor=[NoOddAfterEven()])
LATE = next(t for i, t in enumerate(CHANGED) if i > 6 and t not in CHANGED[:i])


@pytest.mark.parametrize("stop", [{}, {"eos_token_id": LATE}, {"criteria": 14}])
@pytest.mark.parametrize("growth", GROWTHS, ids=["chain", "tree"])
def test_processors_and_criteria_see_what_they_see_in_vanilla_decoding(growth, stop):
    """The same texts in the same order, each once, none after the end."""
    told = []
    for loop in (None, eagle3_generate(trained_draft(), growth)):
        recorder, counter = Recorder(), Counter(stop.get("criteria", 99))
        options = {"eos_token_id": stop.get("eos_token_id")}
        call(
            ids(),
            loop,
            logits_processor=[recorder, NoOddAfterEven()],
            stopping_criteria=[counter],
            **options,
        )
        told.append((recorder.seen, counter.seen))
    assert loop.result.acceptance_length > 1.2  # blocks of several tokens
    (seen, asked), (seen_here, asked_here) = told
    assert asked_here == asked
    assert [text for text, _ in seen_here] == [text for text, _ in seen]
    for (_, scores), (_, scores_here) in zip(seen, seen_here, strict=True):
        torch.testing.assert_close(scores_here, scores, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("growth", GROWTHS, ids=["chain", "tree"])
def test_sampling_draws_from_the_distribution_of_generate(growth, monkeypatch):
    """p of every text that the walk looks at, against the library's own scores."""
    options = {
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 9,
        "top_p": 0.9,
        "repetition_penalty": 1.3,
        "eos_token_id": None,
    }
    drawn = []
    row_of = eagle3.engine._Distributions.__getitem__

    def spy(rows, row):
        path = [rows.tree.tokens[node] for node in rows.tree.path(row - 1)]
        drawn.append(([*PROMPT, *rows.engine.emitted, *path], row_of(rows, row)))
        return drawn[-1][1]

    monkeypatch.setattr(eagle3.engine._Distributions, "__getitem__", spy)
    torch.manual_seed(4)
    answer = call(ids(), eagle3_generate(trained_draft(), growth), **options)
    assert len(drawn) >= 24 and answer != ANSWER
    for text, p in drawn[:12]:
        output = library_toy().generate(
            ids(*text),
            max_new_tokens=1,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
        right = output.scores[0][0].softmax(-1)
        torch.testing.assert_close(p, right, atol=1e-4, rtol=1e-3)


def test_the_draft_draws_as_the_answer_is_drawn():
    """So that its q is near p: temperature and filters reach the drafter."""
    told = []

    class Listener(RandomDrafter):
        def propose(self, pending, limit, params, generator):
            told.append((params.temperature, params.top_k, params.top_p))
            return super().propose(pending, limit, params, generator)

    options = {"do_sample": True, "temperature": 0.5, "top_k": 7, "top_p": 0.8}
    call(ids(), eagle3_generate(Listener(2)), **options)
    assert set(told) == {(0.5, 7, 0.8)}


def test_one_number_of_torchs_global_generator_seeds_an_answer():
    loop, options = eagle3_generate(trained_draft()), {"do_sample": True, "top_k": 0}
    torch.manual_seed(3)
    first, after = call(ids(), loop, **options), torch.rand(())
    second = call(ids(), loop, **options)
    transformers.set_seed(3)
    assert call(ids(), loop, **options) == first != second
    torch.manual_seed(3)
    torch.randint(2**63 - 1, ())
    assert torch.rand(()) == after
    torch.manual_seed(3)
    expected = torch.rand(())
    torch.manual_seed(3)
    call(ids(), loop)  # greedy: nothing is drawn
    assert torch.rand(()) == expected


@pytest.mark.parametrize("eos", [None, ANSWER[10]])
def test_a_streamer_gets_prompt_tokens_and_end(eos):
    theirs, ours = Pieces(), Pieces()
    right = call(ids(), streamer=theirs, eos_token_id=eos)
    call(ids(), eagle3_generate(trained_draft()), streamer=ours, eos_token_id=eos)
    assert ours.got == theirs.got
    assert len(ours.got) == len(right) + 2


def test_a_text_streamer_prints_the_same(capsys):
    target = talking(None)
    options = {"model": library_model_of(target), "max_new_tokens": 30}
    printed = []
    for loop in (None, eagle3_generate(RandomDrafter(3))):
        streamer = transformers.TextStreamer(target.tokenizer, skip_prompt=True)
        call(ids(4, 5, 6), loop, streamer=streamer, **options)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""


def library_model_of(target: Target) -> torch.nn.Module:
    return tiny_model(vocab_size=target.vocab_size)


def test_stop_strings_as_a_criterion():
    target = talking(None)
    model = library_model_of(target)
    whole = call(ids(4, 5, 6), model=model)
    stop = target.decode(whole[4:6])
    lists = []
    for loop in (None, eagle3_generate(RandomDrafter(3))):
        criterion = transformers.StopStringCriteria(target.tokenizer, [stop])
        lists.append(
            call(ids(4, 5, 6), loop, model=model, stopping_criteria=[criterion])
        )
    assert lists[0] == lists[1] and len(lists[0]) < len(whole)


def test_another_model_and_changed_weights_are_noticed():
    """It runs the model that it is called on, as that is at the time."""
    loop = eagle3_generate(RandomDrafter(3, 120))
    model = tiny_model()  # a Llama, which a target of its own would run from copies
    other = tiny_model("Gemma3Text", head_dim=16, sliding_window=5)
    for each in (model, other, model):
        right = call(ids(), model=each)
        assert call(ids(), loop, model=each) == right
    head = model.get_output_embeddings().weight.data
    head.copy_(head.roll(1, 0))
    changed = call(ids(), model=model)
    assert call(ids(), loop, model=model) == changed != right


def test_an_untrained_draft_and_no_draft_change_nothing():
    model = tiny_model("Qwen3", head_dim=32)
    draft = helpers.new_draft(Target(model), 60)
    right = call(ids(), model=model)
    assert call(ids(), eagle3_generate(draft), model=model) == right
    shallow = tiny_model(num_hidden_layers=2)  # no taps are needed
    right = call(ids(), model=shallow)
    assert call(ids(), eagle3_generate(None), model=shallow) == right


def test_the_context_ends_the_answer_with_a_warning():
    model = library_toy(max_position_embeddings=16)
    loop = eagle3_generate(trained_draft())
    with pytest.warns(UserWarning, match="context of 16 tokens"):
        found = call(ids(), loop, model=model)
    assert found == ANSWER[:12]


REFUSED = [
    ({"num_beams": 2}, "beam_search.*choose greedy search or sampling"),
    ({"do_sample": True, "num_return_sequences": 2}, "num_return_sequences=2"),
    ({"prompt_lookup_num_tokens": 3}, "assisted_generation"),
    ({"assistant_model": "model"}, "assistant_model.*leave it out"),
    ({"return_dict_in_generate": True}, "return_dict_in_generate=True"),
    (
        {"return_dict_in_generate": True, "output_scores": True},
        "output_scores=True.*leave it out",
    ),
    (
        {"return_dict_in_generate": True, "output_attentions": True},
        "output_attentions=True",
    ),
    ({"cache_implementation": "static"}, "cache_implementation='static'"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(options, words):
    if "assistant_model" in options:
        options = {"assistant_model": tiny_model(vocab_size=VOCAB)}
    loop = eagle3_generate(trained_draft())
    with pytest.raises(ValueError, match=words) as caught:
        call(ids(), loop, **options)
    assert "eagle3_generate can't honour" in str(caught.value)
    assert loop.result is None


def test_inputs_that_cannot_be_honoured_are_refused_by_name():
    loop, model = eagle3_generate(trained_draft()), library_toy()

    def run(**options):
        options = {"max_new_tokens": 4, "pad_token_id": 0} | options
        return model.generate(custom_generate=loop, **options)

    mask = torch.tensor([[0, 1, 1, 1]])
    with pytest.raises(ValueError, match="a batch of 2: call generate once for each"):
        run(inputs=torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="pass the prompt without padding"):
        run(inputs=ids(), attention_mask=mask)
    with pytest.raises(ValueError, match="position_ids of your own: leave them out"):
        run(inputs=ids(), position_ids=torch.tensor([[3, 4, 5, 6]]))
    with pytest.raises(ValueError, match="without token ids"):
        run(inputs_embeds=torch.zeros(1, 3, 64))
    names = inspect.signature(type(model).forward).parameters
    name = "cache" if "cache" in names else "past_key_values"
    with pytest.raises(ValueError, match="a cache of your own: leave it out"):
        run(inputs=ids(), **{name: DynamicCache()})
    model = tiny_model(vocab_size=VOCAB).train()
    with pytest.raises(ValueError, match=r"call model.eval\(\) first"):
        run(inputs=ids())


def test_a_draft_of_another_model_is_refused():
    with pytest.raises(ValueError, match="draft"):
        call(ids(), eagle3_generate(trained_draft()), model=tiny_model())


@pytest.mark.real
def test_the_real_model_with_the_shipped_draft():
    model, target = library_model(), load_target()
    prompt = torch.tensor([prompt_to_ids(target, "How can I cook rice?")])
    options = {"max_new_tokens": 20, "repetition_penalty": 1.1, "eos_token_id": 2}
    right = call(prompt, model=model, **options)
    loop = eagle3_generate(load_draft(target=target), DynamicTree(10, 3, 3))
    assert call(prompt, loop, model=model, **options) == right
    assert loop.result.acceptance_length > 1
