"""The target: what it computes, in both of its networks.

Right values: the official code's features and logits (oracle `target_taps`), and the
library's own forward over the whole text at once, without cache and padding.
"""

import gc
import weakref

import oracles
import pytest
import torch
from tiny import ROPES, library_says, tiny_model, tokens

import eagle3.target
from eagle3 import library_network
from eagle3.target import Target, tap_layers, toy_target

NETWORKS = pytest.mark.parametrize("lean", [True, False], ids=["lean", "library"])


def close(found, right, atol=1e-4):
    torch.testing.assert_close(found, right, atol=atol, rtol=0)


def both_close(output, right, rows=slice(None)):
    """Outputs are of order 1 and rounding moves them by 6e-6 here."""
    for found, whole in zip(vars(output).values(), right, strict=True):
        close(found, whole[:, rows])


# ---- official values


@NETWORKS
def test_features_and_logits_are_the_official_ones(lean):
    data = oracles.tensors("target_taps")
    target = Target(oracles.target_model(), lean=lean)
    assert target.is_lean == lean
    assert target.taps == tuple(oracles.meta("target_taps")["taps"])
    output = target.forward(data["input_ids"])
    close(output.features, data["features"])
    close(output.logits, data["logits"])


def test_the_official_values_tell_neighbouring_taps_apart():
    data = oracles.tensors("target_taps")
    target = Target(oracles.target_model(), taps=(3, 5, 6))
    difference = target.forward(data["input_ids"]).features - data["features"]
    assert difference.abs().amax((0, 1)).view(3, -1).amax(-1).min() > 0.01


# ---- taps


@pytest.mark.parametrize("num_layers", [7, 8, 9, 12])
def test_taps_are_bit_equal_to_the_librarys_hidden_states(num_layers):
    model = tiny_model(num_hidden_layers=num_layers)
    target = Target(model, lean=False)
    assert target.taps == (2, num_layers // 2, num_layers - 3)
    ids = tokens(2, 9)
    _, features, hidden = library_says(model, ids, target.taps)
    output = target.forward(ids)
    assert torch.equal(output.features, features)
    assert torch.equal(output.hidden, hidden)


@NETWORKS
def test_a_probe_reads_any_layers_and_the_target_stays_as_it_was(lean):
    model = tiny_model(num_hidden_layers=7)
    target = Target(model, lean=lean)
    ids = tokens(2, 9)
    before = target.forward(ids)
    for layers in (range(7), [0], [1, 2, 4, 6]):
        both_close(
            target.tapping(layers).forward(ids), library_says(model, ids, tuple(layers))
        )
    assert target.taps == (2, 3, 4)
    assert torch.equal(target.forward(ids).features, before.features)
    for wrong in ([], [3, 2], [1, 1], [-1, 2], [0, 7]):
        with pytest.raises(ValueError, match="ascending numbers from 0 to 6"):
            target.tapping(wrong)


@NETWORKS
def test_hidden_is_what_enters_the_head(lean):
    model = tiny_model()
    target = Target(model, lean=lean)
    output = target.forward(tokens(1, 6))
    close(output.hidden @ model.lm_head.weight.T, output.logits)
    assert torch.equal(target.head, model.lm_head.weight)


@pytest.mark.parametrize("num_layers", range(1, 7))
def test_a_target_too_shallow_for_the_taps_is_refused(num_layers):
    with pytest.raises(ValueError, match=rf"{num_layers} layers .*L >= 7"):
        tap_layers(num_layers)
    with pytest.raises(ValueError, match="L >= 7; name three taps"):
        Target(tiny_model(num_hidden_layers=num_layers))


@NETWORKS
def test_a_shallow_target_works_with_taps_that_the_caller_names(lean):
    model = tiny_model(num_hidden_layers=3)
    target = Target(model, taps=[0, 1, 2], lean=lean)
    ids = tokens(1, 5)
    both_close(target.forward(ids), library_says(model, ids, (0, 1, 2)))


@NETWORKS
def test_without_taps_there_are_no_features_and_the_rest_is_the_same(lean):
    model = tiny_model(num_hidden_layers=2)
    target = Target(model, taps=(), lean=lean)
    assert target.taps == ()
    ids = tokens(2, 20)
    logits, _, hidden = library_says(model, ids, (0,))
    output, cache = target.forward(ids), target.new_cache(ids.shape[1])
    assert output.features.shape == (*ids.shape, 0)
    close(output.logits, logits)
    close(output.hidden, hidden)
    for row in range(3):
        output = target.forward(ids[:, row : row + 1], cache)
        assert output.features.shape == (2, 1, 0)
        close(output.hidden, hidden[:, row : row + 1])


@pytest.mark.parametrize(
    "taps", [(2, 4), (2, 4, 5, 6), (4, 2, 5), (2, 2, 5), (-1, 2, 5), (2, 4, 8)]
)
def test_bad_taps_are_refused(taps):
    with pytest.raises(ValueError, match="three ascending layer numbers from 0 to 7"):
        Target(tiny_model(), taps=taps)


# ---- both networks against the library's own forward


@NETWORKS
@pytest.mark.parametrize("tied", [False, True], ids=["own head", "tied head"])
@pytest.mark.parametrize(
    "kv_heads", [4, 2, 1], ids=["groups 1", "groups 2", "groups 4"]
)
@pytest.mark.parametrize("rope", ROPES)
def test_prefill_steps_and_blocks_equal_one_pass(rope, kv_heads, tied, lean):
    model = tiny_model(
        rope_parameters=ROPES[rope],
        num_key_value_heads=kv_heads,
        head_dim=24,  # not hidden_size / heads, which is 16
        tie_word_embeddings=tied,
    )
    target = Target(model, lean=lean)
    assert target.is_lean == lean
    ids = tokens(2, 60)
    right = library_says(model, ids, target.taps)
    cache, start = target.new_cache(60), 0
    for rows in (40, 1, 1, 7, 2, 1, 8):
        block = slice(start, start + rows)
        both_close(target.forward(ids[:, block], cache), right, block)
        start += rows
    assert cache.length == 60


@NETWORKS
def test_the_librarys_plain_attention_gives_the_same(lean):
    model = tiny_model(attn_implementation="eager")
    assert model.config._attn_implementation == "eager"
    target, ids = Target(model, lean=lean), tokens(2, 12)
    right, cache = library_says(model, ids, target.taps), target.new_cache(12)
    both_close(target.forward(ids[:, :7], cache), right, slice(0, 7))
    both_close(target.forward(ids[:, 7:], cache), right, slice(7, 12))


@NETWORKS
def test_left_padding_changes_nothing(lean):
    """Each row of a padded batch equals the same text alone, through all steps."""
    model = tiny_model()
    target = Target(model, lean=lean)
    lengths, longest, extra = (3, 9, 1, 6), 9, 5
    texts = [tokens(1, n + extra, seed=n) for n in lengths]
    ids = tokens(4, longest + extra, seed=99)  # pads hold any token
    mask = torch.zeros(4, longest + extra, dtype=torch.bool)
    for row, (n, text) in enumerate(zip(lengths, texts, strict=True)):
        ids[row, longest - n :] = text
        mask[row, longest - n :] = True
    cache, seen = target.new_cache(longest + extra), 0
    for rows in (longest, 1, 3, 1):
        output = target.forward(
            ids[:, seen : seen + rows], cache, attention_mask=mask[:, : seen + rows]
        )
        assert all(torch.isfinite(tensor).all() for tensor in vars(output).values())
        for row, (n, text) in enumerate(zip(lengths, texts, strict=True)):
            right = library_says(model, text, target.taps)
            skip = max(0, longest - n - seen)  # padding in this block
            first = seen + skip - (longest - n)
            for found, whole in zip(vars(output).values(), right, strict=True):
                part = whole[0, first : seen + rows - (longest - n)]
                close(found[row, skip:], part)
        seen += rows


@NETWORKS
def test_right_padding_changes_nothing(lean):
    model = tiny_model()
    target, ids = Target(model, lean=lean), tokens(2, 10)
    mask = torch.ones(2, 10, dtype=torch.bool)
    mask[1, 6:] = False
    output = target.forward(ids, attention_mask=mask)
    short = library_says(model, ids[1:, :6], target.taps)
    for found, right in zip(vars(output).values(), short, strict=True):
        close(found[1:, :6], right)


@NETWORKS
def test_last_only_is_the_last_row_and_all_features(lean):
    target, ids = Target(tiny_model(), lean=lean), tokens(2, 7)
    whole, last = target.forward(ids), target.forward(ids, last_only=True)
    assert last.logits.shape == (2, 1, 120)
    close(last.logits, whole.logits[:, -1:])
    close(last.features, whole.features)
    close(last.hidden, whole.hidden)


def test_the_librarys_head_gets_a_row_that_is_no_slice():
    """A slice of a batch would make PyTorch copy the head once for every text."""
    model, given = tiny_model(), []
    target = Target(model, lean=False)
    model.lm_head.register_forward_hook(
        lambda _module, inputs, _output: given.append(inputs[0].is_contiguous())
    )
    target.forward(tokens(3, 7), last_only=True)
    assert given == [True]


def test_half_precision_runs_through_the_library():
    model = tiny_model().to(torch.bfloat16)
    target, ids = Target(model), tokens(1, 8)
    assert not target.is_lean
    assert target.dtype == torch.bfloat16
    right = library_says(model, ids, target.taps)
    for found, whole in zip(vars(target.forward(ids)).values(), right, strict=True):
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, whole)


@pytest.mark.parametrize("seen", [0, 2])
def test_positions_and_mask_of_a_padded_batch(monkeypatch, seen):
    """Written by hand: row 0 has two pads in front, row 1 none."""
    target, given = Target(tiny_model()), []
    network = target._network.forward

    def spy(ids, cache, positions, mask, last_only):
        given[:] = positions, mask
        return network(ids, cache, positions, mask, last_only)

    monkeypatch.setattr(target._network, "forward", spy)
    real = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    cache = target.new_cache(4)
    for block in [slice(0, seen), slice(seen, 4)] if seen else [slice(0, 4)]:
        target.forward(
            tokens(2, 4)[:, block], cache, attention_mask=real[:, : block.stop]
        )
    positions, mask = given
    assert positions.tolist() == [[0, 0, 0, 1][seen:], [0, 1, 2, 3][seen:]]
    # A pad sees itself, since some attention kernels give NaN to a row without keys.
    row_0 = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    row_1 = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert mask.dtype == torch.bool
    assert mask.long().tolist() == [row_0[seen:], row_1[seen:]]


# ---- long prompts in pieces


@NETWORKS
@pytest.mark.parametrize("last_only", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_pieces_equal_one_piece(monkeypatch, lean, last_only, padded):
    target, ids = Target(tiny_model(), lean=lean), tokens(2, 23)
    mask = torch.ones(2, 27, dtype=torch.bool) if padded else None
    if padded:
        mask[0, :6] = False
    outputs, lengths = [], []
    for limit in (100, 5):
        monkeypatch.setattr(eagle3.target, "PREFILL_ROWS", limit)
        cache = target.new_cache(27)
        start = mask[:, :4] if padded else None
        target.forward(tokens(2, 4), cache, attention_mask=start)
        outputs.append(
            target.forward(ids, cache, attention_mask=mask, last_only=last_only)
        )
        lengths.append(cache.length)
    assert lengths == [27, 27]
    for one, pieces in zip(*(vars(o).values() for o in outputs), strict=True):
        close(pieces, one)


def test_no_pass_is_longer_than_a_piece(monkeypatch):
    target, rows = Target(tiny_model()), []
    network = target._network.forward
    monkeypatch.setattr(eagle3.target, "PREFILL_ROWS", 5)
    monkeypatch.setattr(
        target._network,
        "forward",
        lambda ids, *a: rows.append(ids.shape[1]) or network(ids, *a),
    )
    target.forward(tokens(1, 12))
    assert rows == [5, 5, 2]


# ---- the cache under the target


@NETWORKS
def test_rollback_then_continue_equals_a_cold_prefill(lean):
    """Random blocks with random rejections, as the engine makes them."""
    model = tiny_model()
    target = Target(model, lean=lean)
    generator = torch.Generator().manual_seed(5)
    cache, text = target.new_cache(100), tokens(1, 0)
    for _ in range(12):
        rows = int(torch.randint(1, 9, (), generator=generator))
        block = torch.randint(120, (1, rows), generator=generator)
        output = target.forward(block, cache)
        tried = torch.cat([text, block], dim=1)
        right = library_says(model, tried, target.taps)
        both_close(output, right, slice(text.shape[1], None))
        rejected = int(torch.randint(0, rows + 1, (), generator=generator))
        cache.rollback(rejected)
        text = tried[:, : tried.shape[1] - rejected]
        assert cache.length == text.shape[1]


@NETWORKS
@pytest.mark.parametrize("piece", [100, 2], ids=["in one", "in pieces"])
def test_a_block_that_does_not_fit_is_refused_before_anything_is_written(
    monkeypatch, lean, piece
):
    monkeypatch.setattr(eagle3.target, "PREFILL_ROWS", piece)
    target, cache = Target(tiny_model(), lean=lean), None
    cache = target.new_cache(10)
    target.forward(tokens(1, 7), cache)
    before = [tensor.clone() for tensor in (*cache.keys, *cache.values)]
    with pytest.raises(ValueError, match="holds 10 positions and was asked for 11"):
        target.forward(tokens(1, 4), cache)
    assert cache.length == 7
    for old, new in zip(before, (*cache.keys, *cache.values), strict=True):
        assert torch.equal(old.nan_to_num(), new.nan_to_num())


@NETWORKS
def test_select_keeps_rows_of_a_batch(lean):
    model = tiny_model()
    target, ids = Target(model, lean=lean), tokens(3, 12)
    cache = target.new_cache(12)
    target.forward(ids[:, :8], cache)
    rows = torch.tensor([2, 0])
    cache.select(rows)
    right = library_says(model, ids[rows], target.taps)
    both_close(target.forward(ids[rows, 8:], cache), right, slice(8, 12))


def test_a_cache_has_one_batch_size():
    target = Target(tiny_model())
    cache = target.new_cache(10)
    target.forward(tokens(3, 4), cache)
    with pytest.raises(ValueError, match="batch of 3 and was given 1: use a new cache"):
        target.forward(tokens(1, 1), cache)


@pytest.mark.parametrize("length", [0, -1, 257])
def test_a_cache_outside_the_context_is_refused(length):
    with pytest.raises(ValueError, match="context is 1 to 256 tokens"):
        Target(tiny_model()).new_cache(length)


def test_a_cache_is_as_long_as_the_context_by_default():
    assert Target(tiny_model()).new_cache().max_length == 256


@NETWORKS
def test_the_whole_context_can_be_used_and_no_more(lean):
    model = tiny_model(max_position_embeddings=20)
    target, ids = Target(model, lean=lean), tokens(1, 21)
    both_close(target.forward(ids[:, :20]), library_says(model, ids[:, :20], (2, 4, 5)))
    with pytest.raises(ValueError, match="context is 1 to 20 tokens: shorten"):
        target.forward(ids)


# ---- bad blocks


@pytest.mark.parametrize("shape", [(5,), (1, 0), (0, 3), (1, 2, 3)])
def test_ids_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"must be \[B, n\] with at least one token"):
        Target(tiny_model()).forward(torch.zeros(shape, dtype=torch.long), None)


@pytest.mark.parametrize("shape", [(1, 5), (2, 4), (2, 6), (5,)])
def test_a_mask_of_a_wrong_shape_is_refused(shape):
    target = Target(tiny_model())
    with pytest.raises(ValueError, match=r"must cover cached and new tokens, \(2, 5\)"):
        target.forward(tokens(2, 5), attention_mask=torch.ones(shape))


# ---- what a target leaves alone


@pytest.mark.parametrize("fails", [False, True])
def test_the_librarys_model_keeps_no_hook(fails):
    model = tiny_model()
    target = Target(model, lean=False)
    if fails:
        with pytest.raises(IndexError):
            target.forward(torch.tensor([[1, 9999]]))
    else:
        target.forward(tokens(1, 3))
    hooks = [
        hook
        for module in model.modules()
        for hook in (*module._forward_pre_hooks, *module._forward_hooks)
    ]
    assert hooks == []


def test_the_lean_network_lets_the_model_go():
    model = tiny_model()
    parts = [weakref.ref(model), *(weakref.ref(p) for p in model.parameters())]
    storages = {p.untyped_storage().data_ptr() for p in model.parameters()}
    target = Target(model)
    network = target._network
    held = {
        tensor.untyped_storage().data_ptr()
        for part in (target, network, *network.layers)
        for tensor in vars(part).values()
        if isinstance(tensor, torch.Tensor)
    }
    assert len(held) == 2 + 3  # embedding and head; cos, sin and the last norm's weight
    assert not held & storages
    del model
    gc.collect()
    assert [part() for part in parts] == [None] * len(parts)
    assert torch.isfinite(target.forward(tokens(1, 3)).logits).all()


@pytest.mark.parametrize("tied", [False, True])
def test_a_tied_head_is_held_once(tied):
    target = Target(tiny_model(tie_word_embeddings=tied))
    same = target.head.data_ptr() == target.embedding.data_ptr()
    assert same == tied


def test_loading_and_running_draw_no_random_number():
    model = tiny_model()
    before = torch.get_rng_state()
    for lean in (True, False):
        Target(model, lean=lean).forward(tokens(1, 3))
    toy_target(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_is_off_even_in_a_model_that_was_being_trained():
    model = tiny_model(attention_dropout=0.5).train()
    target, ids = Target(model, lean=False), tokens(1, 6)
    assert torch.equal(target.forward(ids).logits, target.forward(ids).logits)


@NETWORKS
def test_a_layer_can_be_trained_on_the_outputs(lean):
    """Autograd may keep them: a linear layer's gradient is the outer product."""
    output = Target(tiny_model(), lean=lean).forward(tokens(1, 6))
    for tensor in vars(output).values():
        assert not tensor.requires_grad
        layer = torch.nn.Linear(tensor.shape[-1], 2, bias=False)
        layer(tensor).sum().backward()
        close(layer.weight.grad, tensor.sum((0, 1)).expand(2, -1), atol=1e-3)


# ---- where the lean network may be used


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_bias": True},
        {"mlp_bias": True},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        {"family": "Mistral", "sliding_window": None},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_networks_than_a_plain_llama_run_through_the_library(changes):
    model = tiny_model(**changes)
    target, ids = Target(model), tokens(1, 9)
    assert not target.is_lean
    both_close(target.forward(ids), library_says(model, ids, target.taps))


def test_where_packing_does_not_pay_the_librarys_modules_run(monkeypatch):
    monkeypatch.setattr(library_network, "can_pack", lambda: False)
    model = tiny_model()
    target, ids = Target(model), tokens(1, 9)
    assert not target.is_lean
    both_close(target.forward(ids), library_says(model, ids, target.taps))


def test_attention_kernels_without_a_mask_are_refused():
    model = tiny_model()
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(
        ValueError, match=r"flash_attention_2.*attn_implementation='sdpa'"
    ):
        Target(model)


# ---- small things


@pytest.mark.parametrize(
    ("ids", "right"), [(7, (7,)), ([7, 9], (7, 9)), (None, ()), (0, (0,))]
)
def test_end_of_sequence_ids_may_be_one_several_or_none(ids, right):
    model = tiny_model()
    model.generation_config.eos_token_id = ids
    assert Target(model).eos_token_ids == right


def test_the_toy_is_what_its_description_says():
    toy = toy_target()
    sizes = (toy.num_layers, toy.hidden_size, toy.vocab_size, toy.taps)
    assert sizes == (8, 64, 96, (2, 4, 5))
    assert (toy.config.num_attention_heads, toy.config.num_key_value_heads) == (4, 2)
    assert (toy.eos_token_ids, toy.tokenizer, toy.max_positions) == ((), None, 512)
    ids = tokens(1, 30, vocab=96)
    logits = toy.forward(ids).logits
    assert torch.equal(logits, toy_target().forward(ids).logits)
    assert not torch.allclose(logits, toy_target(1).forward(ids).logits)
    assert logits.softmax(-1).amax(-1).mean() > 0.2  # uniform would be 0.01


def test_a_target_without_tokenizer_says_so():
    toy = toy_target()
    chat = [{"role": "user", "content": "Hi"}]
    for call in (
        lambda: toy.encode("Hi"),
        lambda: toy.encode_chat(chat),
        lambda: toy.decode([1]),
    ):
        with pytest.raises(ValueError, match="no tokenizer: pass token ids instead"):
            call()


def test_a_head_that_does_more_than_multiply_is_refused_when_asked_for():
    target = Target(tiny_model("Cohere"))  # scales its logits by 1/16
    assert torch.isfinite(target.forward(tokens(1, 3)).logits).all()
    with pytest.raises(ValueError, match=r"cohere.*plain head"):
        _ = target.head
