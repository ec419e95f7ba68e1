"""eagle3.weight_files: what real files of torch.save look like, and what they may not.

Right values: the tensors that were saved. Broken and hostile files are in
test_format_faults.
"""

import torch
from foreign import OFFICIAL, assert_same, copy, oracle_target, weights
from torch import nn

from eagle3.checkpoint import load_draft
from eagle3.weight_files import WeightFile


def test_views_of_one_buffer_are_read(tmp_path):
    """DeepSpeed keeps the half-precision weights in one flat buffer and saves views."""
    flat = torch.arange(12.0).half()
    views = {"a": flat[:6].view(2, 3), "b": flat[6:10]}  # the rest is padding
    views["c"] = views["a"].T
    torch.save(views, tmp_path / "pytorch_model.bin")
    file = WeightFile(tmp_path / "pytorch_model.bin")
    assert file.specs["a"] == ((2, 3), torch.float16)
    read = file.read(views)
    assert_same(read, views)
    assert all(tensor.is_contiguous() for tensor in read.values())  # to be saved


def test_what_is_read_does_not_change_with_the_file(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.zeros(4)}, path)
    read = WeightFile(path).read(["a"])
    size = path.stat().st_size
    path.write_bytes(b"\xff" * size)  # in place: a map of the file would show it
    assert torch.equal(read["a"], torch.zeros(4))


def test_parameters_count_as_tensors(tmp_path):
    values = {n: nn.Parameter(t, False) for n, t in weights(OFFICIAL).items()}
    folder = copy(OFFICIAL, tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save(values, folder / "pytorch_model.bin")
    want = load_draft(OFFICIAL, oracle_target()).state_dict()
    assert_same(load_draft(folder, oracle_target()).state_dict(), want)
    state = nn.ParameterDict({"w": torch.ones(2)}).state_dict()  # an OrderedDict
    torch.save(state, tmp_path / "state.bin")
    assert torch.equal(
        WeightFile(tmp_path / "state.bin").read(["w"])["w"], torch.ones(2)
    )
