"""eagle3.bench: counts of bytes and FLOP, timing in turns, and result files.

Right values: parameter counts and torch's own FLOP counter on transformers' models,
the real size of cache buffers, a clock that the test moves by hand, and the shape of
SmolLM2-135M, whose parameter count is known. No test measures time.
"""

import json
import math
import platform
from pathlib import Path

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from eagle3.bench import cost, environment, roofline
from eagle3.bench.roofline import Machine, ModelShape, Pass, Work, work_of
from eagle3.target import Target, toy_target

SMOLLM2 = ModelShape(30, 576, 1536, 9, 3, 64, 49152)
RESULTS = Path(__file__).parents[1] / "figures" / "results"


@pytest.fixture(scope="module")
def library():
    """A small Llama of the library whose head is a matrix of its own."""
    config = transformers.LlamaConfig(
        vocab_size=90,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=7,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    config._attn_implementation = "eager"  # the FLOP counter sees its products
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config)
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def shape(library):
    return ModelShape.from_config(library.config)


# --- counting -------------------------------------------------------------------------


def test_weights_read_are_all_parameters_but_the_embedding(library, shape):
    embedding = library.get_input_embeddings().weight.numel()
    every = sum(parameter.numel() for parameter in library.parameters())
    assert shape.weights_read == every - embedding


def test_the_default_target_reads_its_134_515_008_weights_for_each_token():
    assert SMOLLM2.weights_read == 134_515_008  # tied: the embedding is the head


def test_cached_numbers_are_the_size_of_real_buffers(library, shape):
    target = Target(library)
    cache = target.new_cache(10)
    target.forward(torch.zeros(1, 3, dtype=torch.long), cache)
    buffers = [*cache.keys, *cache.values]
    assert shape.cached_per_position == sum(b.numel() for b in buffers) / 10


@pytest.mark.parametrize("context", [0, 5, 40])
def test_flops_of_one_row_are_what_torch_counts(library, shape, context):
    ids = torch.ones(3, context + 1, dtype=torch.long)
    known = {}
    if context:
        output = library(ids[:, :context], use_cache=True)
        (name,) = output.keys() - {"logits"}  # it depends on the library's version
        known = {name: output[name]}
    with FlopCounterMode(display=False) as counter:
        library(ids[:, context:], **known)
    counted = counter.get_total_flops()
    # The library also makes a product out of the RoPE angles: positions x frequencies.
    angles = 2 * shape.head_dim // 2
    work = work_of(shape, Pass(rows=1, batch=3, context=context))
    assert work.flops == pytest.approx(counted, abs=3 * angles)


def test_a_block_does_the_arithmetic_of_its_rows_and_reads_the_weights_once(shape):
    block = work_of(shape, Pass(rows=5, batch=2, context=7))
    rows = [work_of(shape, Pass(1, 2, 7 + i)) for i in range(5)]
    assert block.flops == sum(row.flops for row in rows)
    assert block.num_bytes == rows[-1].num_bytes
    fewer_bytes = work_of(shape, Pass(5, 2, 7), number_bytes=2)
    assert fewer_bytes.num_bytes == block.num_bytes / 2


def test_prefill_computes_the_head_for_one_row_of_each_request(shape):
    rows = Pass(rows=9, batch=2)
    last = Pass(rows=9, batch=2, last_only=True)
    left_out = work_of(shape, rows).flops - work_of(shape, last).flops
    assert left_out == 2 * 2 * 8 * shape.head_products


def test_a_batch_shares_the_weights_but_not_the_caches(shape):
    one, four = (work_of(shape, Pass(2, size, 30)) for size in (1, 4))
    assert four.flops == 4 * one.flops
    added = 3 * 32 * shape.cached_per_position * 4
    assert four.num_bytes - one.num_bytes == added


def test_the_slower_half_decides():
    machine = Machine(bandwidth=100.0, peak=1000.0)
    assert machine.ridge == 10
    assert [machine.attainable(i) for i in (1, 10, 50)] == [100, 1000, 1000]
    fetching, computing = Work(900.0, 100.0), Work(2000.0, 100.0)
    assert fetching.is_memory_bound(machine)
    assert not computing.is_memory_bound(machine)
    assert (fetching.seconds(machine), computing.seconds(machine)) == (1.0, 2.0)
    assert not Work(1000.0, 100.0).is_memory_bound(machine)  # on the ridge


# --- timing ---------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until the test moves it."""
    now = [100.0]
    monkeypatch.setattr(cost.time, "perf_counter", lambda: now[0])
    return now


def test_jobs_run_in_turns_after_one_call_that_does_not_count(clock):
    called = []

    def job(name, spent):
        def run():
            called.append(name)
            clock[0] += 50.0 if called.count(name) == 1 else spent

        return run

    times = cost.interleaved({"a": job("a", 1.0), "b": job("b", 2.0)}, repeats=3)
    assert "".join(called) == "ab" + "ab" * 3
    assert times == {"a": [1.0] * 3, "b": [2.0] * 3}


def test_measuring_zero_times_is_refused_before_any_work():
    with pytest.raises(ValueError, match="repeats is 0: measure at least once"):
        cost.interleaved({"a": lambda: pytest.fail("ran")}, 0)


class Recorder:
    """A target that notes what it is asked, and takes a given time for it."""

    def __init__(self, name, log, clock=None, seconds=None):
        self.target, self.name, self.log = toy_target(), name, log
        self.vocab_size = self.target.vocab_size
        self.clock, self.seconds = clock, seconds

    def new_cache(self, max_length):
        return self.target.new_cache(max_length)

    def forward(self, ids, cache, last_only=False):
        self.log.append((self.name, tuple(ids.shape), cache.length, last_only))
        if self.clock:
            self.clock[0] += self.seconds(ids.numel())
        return self.target.forward(ids, cache, last_only=last_only)


def test_blocks_of_all_networks_are_timed_in_turns_on_the_same_context(clock):
    log = []
    ours = Recorder("eagle3", log, clock, lambda rows: 10.0 + rows)
    other = Recorder("other", log, clock, lambda rows: 20.0 * rows)
    result = cost.measure_block_cost(
        ours, rows=(1, 4), context=6, repeats=3, others={"other": other}
    )
    assert result["seconds"] == {"eagle3": [11.0, 14.0], "other": [20.0, 80.0]}
    assert result["quartiles"]["other"] == [[20.0, 20.0], [80.0, 80.0]]
    assert (result["rows"], result["context"]) == ([1, 4], 6)
    prefills, timed = log[:4], log[4:]
    assert all(entry[1:] == ((1, 6), 0, True) for entry in prefills)
    one_turn = [
        ("eagle3", (1, 1), 6, False),
        ("other", (1, 1), 6, False),
        ("eagle3", (1, 4), 6, False),
        ("other", (1, 4), 6, False),
    ]
    assert timed == one_turn * 4  # the cache is back at 6 each time


def test_a_batch_is_one_pass_over_all_requests(clock):
    log = []
    target = Recorder("eagle3", log, clock, lambda rows: float(rows))
    result = cost.measure_batch_cost(
        target, batches=(1, 3), rows=(1, 2), context=4, repeats=1
    )
    assert result["seconds"] == {"1": [1.0, 3.0], "2": [2.0, 6.0]}
    assert ("eagle3", (3, 2), 4, False) in log


def test_prefill_starts_from_an_empty_cache_and_wants_the_last_logits(clock):
    log = []
    target = Recorder("eagle3", log, clock, lambda rows: float(rows))
    result = cost.measure_prefill_cost(target, lengths=(3, 8), repeats=2)
    assert result["seconds"] == {"eagle3": [3.0, 8.0]}
    assert log == [("eagle3", (1, 3), 0, True), ("eagle3", (1, 8), 0, True)] * 3


def test_quartiles_of_known_samples():
    assert cost._quartiles([4.0, 1.0, 3.0, 2.0, 5.0]) == [2.0, 4.0]
    assert cost._quartiles([7.0]) == [7.0, 7.0]


def test_vanilla_rates_come_from_equal_work(library):
    target = Target(library)
    prompts = [[1, 2, 3], [50, 4]]
    result = cost.vanilla_rate(target, library, prompts, 6, repeats=1)
    assert result["same_tokens"]
    assert result["ratio"] == pytest.approx(result["eagle3"] / result["library"])
    assert (result["max_new_tokens"], result["num_prompts"]) == (6, 2)
    other = transformers.LlamaForCausalLM(library.config).eval()
    assert not cost.vanilla_rate(target, other, prompts, 6, 1)["same_tokens"]


def test_the_vanilla_rate_is_tokens_over_median_seconds(library, clock, monkeypatch):
    def taking(seconds):
        def run(_model, _ids, count):
            clock[0] += seconds
            return [0] * count

        return run

    monkeypatch.setattr(cost, "_engine_greedy", taking(2.0))
    monkeypatch.setattr(cost, "library_greedy", taking(5.0))
    result = cost.vanilla_rate(None, library, [[1], [2]], 10, repeats=2)
    assert (result["eagle3"], result["library"]) == (5.0, 2.0)
    assert result["ratio"] == 2.5


def test_library_greedy_goes_on_past_the_end_of_sequence(library):
    ids = cost.library_greedy(library, [1, 2], 5)
    assert len(ids) == 5
    library.generation_config.eos_token_id = ids[0]
    try:
        assert cost.library_greedy(library, [1, 2], 5) == ids
    finally:
        library.generation_config.eos_token_id = None


def test_packed_library_layers_compute_the_same(library):
    networks = cost.library_networks(library)
    ids = torch.tensor([[1, 2, 3]])
    stock, packed = (network.forward(ids).logits for network in networks.values())
    assert list(networks) == ["library", "library_packed"]
    assert torch.allclose(stock, packed, atol=1e-4)
    kinds = [
        type(m).__name__ for m in networks["library_packed"]._network.model.modules()
    ]
    assert "PackedLinear" in kinds
    assert "Linear" not in kinds
    assert type(library.lm_head) is torch.nn.Linear  # the original is untouched


def test_machine_speeds_are_work_over_time(clock, monkeypatch):
    monkeypatch.setattr(cost, "_STREAM_BYTES", 4096)
    monkeypatch.setattr(cost, "_MATMUL_SIZE", 8)
    ticking = iter(range(1000))
    monkeypatch.setattr(cost.time, "perf_counter", lambda: float(next(ticking)))
    speeds = cost.measure_machine(repeats=2)  # every job takes one tick
    assert speeds == {
        "copy_bandwidth": 4096.0,
        "read_bandwidth": 4096.0,
        "matmul_rate": 2 * 8**3,
    }
    faster = cost.machine_from({**speeds, "read_bandwidth": 5000.0})
    assert faster == Machine(bandwidth=5000.0, peak=1024.0)


# --- result files ---------------------------------------------------------------------


def test_results_come_back_with_their_circumstances(tmp_path):
    results = {"seconds": {"a": [0.123456789, 2]}, "good": True, "none": None}
    path = environment.write_results("some_cost", results, tmp_path / "new", seed=7)
    assert path == tmp_path / "new" / "some_cost.json"
    read = environment.read_results("some_cost", path.parent)
    assert read.pop("environment")["seed"] == 7
    assert read == {"seconds": {"a": [0.12346, 2]}, "good": True, "none": None}
    assert [p.name for p in path.parent.iterdir()] == ["some_cost.json"]


def test_lists_of_numbers_stand_on_one_line(tmp_path):
    results = {"x": [1, 2.5e-07, -3], "deep": [[1, 2], [3, 4]], "words": ["a", "b"]}
    path = environment.write_results("lists", results, tmp_path)
    text = path.read_text(encoding="utf-8")
    assert '"x": [1, 2.5e-07, -3]' in text
    assert json.loads(text)["deep"] == [[1, 2], [3, 4]]
    assert json.loads(text)["words"] == ["a", "b"]


@pytest.mark.parametrize("name", ["../up", "a/b", "a.json", "", "Big", "a b"])
def test_a_result_has_a_plain_name(name, tmp_path):
    with pytest.raises(ValueError, match="choose a plain one"):
        environment.write_results(name, {}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        environment.write_results("bad", {"x": math.nan}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_missing_results_are_named(tmp_path):
    with pytest.raises(ValueError, match="no results called 'nothing'"):
        environment.read_results("nothing", tmp_path)


def test_the_environment_tells_the_kind_of_machine_and_not_which_one():
    described = environment.describe_environment(seed=3)
    assert described["torch"] == torch.__version__
    assert described["threads"] == torch.get_num_threads()
    assert described["seed"] == 3
    text = json.dumps(described)
    assert platform.node() not in text.split('"')
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text


def test_the_shipped_measurements_are_complete():
    shipped = environment.read_results("block_cost", RESULTS)
    assert shipped["model"]["weight_bytes"] == 4 * SMOLLM2.weights_read
    assert shipped["block"]["rows"] == list(cost.ROWS)
    assert set(shipped["block"]["seconds"]) == {"eagle3", "library", "library_packed"}
    assert cost.VERIFY_ROWS in shipped["block"]["rows"]
    assert shipped["batch"]["batches"] == list(cost.BATCHES)
    assert shipped["vanilla"]["same_tokens"]
    machine = cost.machine_from(shipped["machine"])
    # No pass can be faster than reading its weights once, within what noise allows.
    least = roofline.work_of(SMOLLM2, Pass(1, context=128)).seconds(machine)
    assert min(shipped["block"]["seconds"]["eagle3"]) > 0.7 * least
