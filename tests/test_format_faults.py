"""Broken checkpoints: each refused in one sentence that names what is broken.

The list is generated: every way to break a tensor or a file, on several tensors. A
refused checkpoint is not written in part either, runs no code and takes no memory that
its file does not hold; the last two are tried in a process of its own, with a limit.
"""

import json
import pickle
import pickletools
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from foreign import (
    OFFICIAL,
    as_format,
    copy,
    edit,
    oracle_target,
    put,
    read_config,
    weights,
)

from eagle3.checkpoint import CheckpointError, load_draft
from eagle3.formats import configs
from eagle3.formats.convert import convert
from eagle3.formats.stored import open_stored

Q, UP, DOWN = (
    "midlayer.self_attn.q_proj.weight",
    "midlayer.mlp.up_proj.weight",
    "midlayer.mlp.down_proj.weight",
)
NORM, FC, HEAD = "midlayer.hidden_norm.weight", "fc.weight", "lm_head.weight"
CODE_RAN = "code-ran"


def changed(change: Callable[[dict], object]) -> Callable[[Path], object]:
    """A breakage of the tensors; the file itself stays sound."""

    def apply(folder: Path) -> None:
        values = weights(folder)
        change(values)
        put(folder, values)

    return apply


def drop(name: str):
    return changed(lambda v: v.pop(name))


def rename(name: str, new: str):
    return changed(lambda v: v.update({new: v.pop(name)}))


def transpose(name: str):
    return changed(lambda v: v.update({name: v[name].T.contiguous()}))


def cut(name: str):
    return changed(lambda v: v.update({name: v[name][:-1].contiguous()}))


def spoil(name: str, value: float):
    return changed(lambda v: v[name].view(-1)[-1:].fill_(value))


def retype(name: str, dtype: torch.dtype):
    return changed(lambda v: v.update({name: v[name].to(dtype)}))


def offsets(change: Callable[[torch.Tensor], object]):
    return changed(lambda v: change(v["d2t"]))


def mask(change: Callable[[torch.Tensor], object]):
    return changed(lambda v: change(v["t2d"]))


def keep(count: int):
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:count])

    return apply


def header(change: Callable[[dict], object]):
    """Change the header alone, and keep every byte of the data."""

    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        parts = json.loads(data[8 : 8 + length])
        change(parts)
        text = json.dumps(parts).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    return apply


def header_length(length: int):
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])

    return apply


def huge(name: str):
    return header(lambda h: h[name].update(shape=[1 << 40, 64]))


def as_pickle(change: Callable[[dict], object] = lambda v: None):
    """The same draft as pytorch_model.bin."""

    def apply(folder: Path) -> Path:
        values = weights(folder)
        change(values)
        (folder / "model.safetensors").unlink()
        torch.save(values, folder / "pytorch_model.bin")
        return folder / "pytorch_model.bin"

    return apply


class Runs:
    """What a pickle may do: make a file, if it is let."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def with_code(folder: Path) -> None:
    as_pickle(lambda v: v.update(extra=Runs(folder / CODE_RAN)))(folder)


def bare_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    data = pickle.dumps(Runs(folder / CODE_RAN))
    (folder / "pytorch_model.bin").write_bytes(data)


def repacked(change: Callable[[str, bytes], bytes], compression: int = 0):
    """The zip of a pickle, written anew, entry by entry."""

    def apply(folder: Path) -> None:
        path = as_pickle()(folder)
        with zipfile.ZipFile(path) as archive:
            parts = {e.filename: archive.read(e) for e in archive.infolist()}
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, data in parts.items():
                archive.writestr(name, change(name, data))

    return apply


def zip_bomb(folder: Path) -> None:
    def grow(name: str, data: bytes) -> bytes:
        return bytes(1 << 26) if name.endswith("data/0") else data

    repacked(grow, zipfile.ZIP_DEFLATED)(folder)


def wide_pickle(name: str, data: bytes) -> bytes:
    # the width of fc, 192: one byte of the pickle, replaced by two that say 32,767
    return data.replace(b"K\xc0", b"M\xff\x7f") if name.endswith(".pkl") else data


def long_storage(name: str, data: bytes) -> bytes:
    # fc has 12,288 numbers, 0x3000; its storage claims 0x3040
    return data.replace(b"M\x00\x30", b"M\x40\x30") if name.endswith(".pkl") else data


def stretched(folder: Path) -> None:
    """A tensor of 2 ** 40 numbers over one: legal for torch, not for a draft."""
    as_pickle(lambda v: v.update({FC: torch.ones(1).expand(1 << 40)}))(folder)


def config(**keys: object):
    return lambda folder: edit(folder, **keys)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    **{f"{n} dropped": (drop(n), rf"lacks \['{n}'\]") for n in (Q, NORM, FC, "d2t")},
    **{
        f"{n} renamed": (rename(n, n + "_"), rf"lacks \['{n}'\] and has \['{n}_'\]")
        for n in (UP, "norm.weight", HEAD, "t2d")
    },
    **{
        f"{n} transposed": (transpose(n), f"'{n}' .* shape")
        for n in (Q, FC, DOWN, HEAD)
    },
    **{f"{n} cut": (cut(n), f"'{n}' .* shape") for n in (Q, NORM, HEAD, "d2t", "t2d")},
    **{f"{n} NaN": (spoil(n, float("nan")), f"'{n}' .* NaN") for n in (Q, NORM, HEAD)},
    **{f"{n} inf": (spoil(n, -float("inf")), f"'{n}' .* NaN") for n in (UP, FC)},
    f"{Q} double": (retype(Q, torch.float64), f"'{Q}' .* dtype torch.float64"),
    f"{UP} bytes": (retype(UP, torch.uint8), f"'{UP}' .* dtype torch.uint8"),
    f"{FC} fp8": (retype(FC, torch.float8_e4m3fn), f"'{FC}' .* dtype None"),
    "d2t float": (retype("d2t", torch.float32), "'d2t' .* must be whole numbers"),
    "d2t int32": (retype("d2t", torch.int32), "'d2t' .* must be whole numbers"),
    "t2d bytes": (retype("t2d", torch.uint8), "'t2d' .* must be whole numbers"),
    "d2t far": (offsets(lambda d: d[-1:].fill_(10**12)), "'d2t' maps 1 .* outside"),
    "d2t below": (offsets(lambda d: d[:1].fill_(-1)), "'d2t' maps 1 .* outside"),
    "d2t twice": (
        offsets(lambda d: d[5:6].copy_(d[4:5] - 1)),
        "'d2t' maps 2 draft tokens to the one target id",
    ),
    "d2t swapped": (
        offsets(lambda d: d[:2].copy_(torch.tensor([d[1] + 1, d[0] - 1]))),
        "'d2t' maps the draft tokens out of order",
    ),
    "d2t shifted": (
        mask(lambda t: t.copy_(t.roll(1))),
        "'d2t' and 't2d' disagree",
    ),
    "d2t empty": (offsets(lambda d: d.zero_()), "'d2t' is zero everywhere, so the map"),
    "d2t absolute": (
        offsets(lambda d: d.add_(torch.arange(96))),
        "'d2t' (maps|and 't2d' disagree)",
    ),
    "t2d full": (mask(lambda t: t.fill_(True)), "disagree: 't2d' marks 256"),
    "t2d empty": (mask(lambda t: t.fill_(False)), "disagree: 't2d' marks 0"),
    "both layouts": (
        changed(lambda v: v.update({"layers.0.mlp.up_proj.weight": v[UP].clone()})),
        r"has \['layers.0.mlp.up_proj.weight'\] left over",
    ),
    "a bias": (
        changed(lambda v: v.update({"fc.bias": torch.ones(64)})),
        r"has \['fc.bias'\] left over",
    ),
    "no tensor": (changed(lambda v: v.clear()), "holds no EAGLE draft"),
    "a whole model": (
        changed(lambda v: (v.clear(), v.update({"model.norm.weight": torch.ones(4)}))),
        "holds no EAGLE draft",
    ),
    **{f"first {n} bytes": (keep(n), "truncated or not a saf") for n in (0, 7, 99, -1)},
    "header of 2 ** 60 bytes": (header_length(1 << 60), f"claims {1 << 60} bytes"),
    "header of 50 MB": (header_length(50 << 20), "more than any draft needs"),
    f"{Q} huge": (huge(Q), "truncated or not a safetensors file"),
    "header past the end": (
        header(lambda h: h[HEAD].update(data_offsets=[0, 1 << 50])),
        "truncated or not a safetensors file",
    ),
    "pickle with code": (with_code, "holds something else than plain tensors"),
    "bare pickle with code": (bare_pickle, "not a file of torch.save"),
    "pickle truncated": (
        lambda f: (p := as_pickle()(f)).write_bytes(p.read_bytes()[:-900]),
        "not a file of torch.save",
    ),
    "pickle of a list": (
        lambda f: torch.save([1], as_pickle()(f)),
        "holds a list, not named tensors",
    ),
    "pickle of numbers": (as_pickle(lambda v: v.update(a=1)), "'a' in .* is a int"),
    "pickle with NaN": (as_pickle(lambda v: v[Q].fill_(float("nan"))), f"'{Q}' .* NaN"),
    "zip bomb": (zip_bomb, "is compressed at"),
    "pickle with a wide shape": (repacked(wide_pickle), "or is damaged"),
    "storage past its record": (repacked(long_storage), "records of the file from end"),
    "stretched tensor": (stretched, f"'{FC}' .* claims shape"),
    "storage cut": (
        repacked(lambda n, d: d[:16] if n.endswith("data/0") else d),
        "records of the file from end",
    ),
    "no weights": (
        lambda f: (f / "model.safetensors").unlink(),
        "lacks both model.safetensors and pytorch_model.bin",
    ),
    "hidden_size text": (config(hidden_size="64"), "'hidden_size' is '64'"),
    "no heads": (
        lambda f: edit(f, "num_attention_heads"),
        "'num_attention_heads' is mi",
    ),
    "negative eps": (config(rms_norm_eps=-1e-5), "'rms_norm_eps' is -1e-05"),
    "odd heads": (config(num_attention_heads=5), "does not divide into 5 heads"),
    "sliding window": (config(sliding_window=128), "'sliding_window' is 128"),
    "a sliding layer": (
        config(layer_types=["sliding_attention"]),
        r"'layer_types' is \['sliding_attention'\], but a draft's",
    ),
    "quantized": (config(quantization_config={"bits": 4}), "'quantization_config' is"),
    "text for a base": (config(rope_theta="1e4"), "'rope_theta' is '1e4'"),
    "text in a scaling": (
        config(rope_scaling={"type": "linear", "factor": "4"}),
        "'rope_scaling.factor' is '4', but must be a number",
    ),
    "a list for a scaling": (
        config(rope_scaling=[4]),
        "'rope_scaling' is \\[4\\], but",
    ),
    "endless eps": (config(rms_norm_eps=float("inf")), "'rms_norm_eps' is inf"),
    "nested too deep": (
        lambda f: (f / "config.json").write_text("[" * 100_000, "utf-8"),
        "is not valid JSON",
    ),
    "gelu": (config(hidden_act="gelu"), "'hidden_act' is 'gelu', .* only 'silu'"),
}


def test_there_are_fifty_ways():
    assert len(BROKEN) >= 50


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_checkpoint_is_refused_by_name(tmp_path, name):
    break_it, message = BROKEN[name]
    folder = copy(OFFICIAL, tmp_path / "draft")
    break_it(folder)
    with pytest.raises(ValueError, match=message) as caught:
        load_draft(folder, oracle_target())
    said = str(caught.value)
    assert "\n" not in said and said.endswith(".") and ". " not in said
    with pytest.raises(ValueError, match=message):
        convert(folder, tmp_path / "out", "specforge")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.rglob(CODE_RAN))


@pytest.mark.parametrize("name", ["specforge", "speculators"])
def test_other_layouts_are_as_strict(tmp_path, name):
    folder = as_format(name, tmp_path)
    whole = weights(folder)
    for missing in whole:
        put(folder, {n: t for n, t in whole.items() if n != missing})
        with pytest.raises(
            CheckpointError, match=rf"lacks \['{missing}'\] and has not"
        ):
            load_draft(folder, oracle_target())


def test_the_pickle_holds_a_call_of_code(tmp_path):
    """Or the test above proves nothing."""
    bare_pickle(copy(OFFICIAL, tmp_path))
    data = (tmp_path / "pytorch_model.bin").read_bytes()
    assert "REDUCE" in {opcode.name for opcode, _, _ in pickletools.genops(data)}
    assert CODE_RAN.encode() in data


def test_no_memory_is_taken_that_the_file_does_not_hold(tmp_path):
    """Each file is under 2 MB; the process may take 64 MB more than it has."""
    cases = (
        "zip bomb",
        f"{Q} huge",
        "header of 2 ** 60 bytes",
        "header of 50 MB",
        "header past the end",
        "pickle with a wide shape",
        "storage past its record",
        "stretched tensor",
        "storage cut",
    )
    folders = []
    for name in cases:
        folder = copy(OFFICIAL, tmp_path / str(len(folders)))
        BROKEN[name][0](folder)
        sizes = [p.stat().st_size for p in folder.iterdir()]
        assert max(sizes) < 2_000_000, name
        folders.append(str(folder))
    script = """
import resource, sys
from types import SimpleNamespace
from eagle3.formats.stored import open_stored
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    bytearray(128 << 20)
    sys.exit("the limit does not work")
except MemoryError:
    pass
for folder in sys.argv[1:]:
    try:
        open_stored(folder).read()
        sys.exit(f"{folder} was read")
    except ValueError as error:
        print(str(error)[:60])
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs Linux's /proc to know the size of the process")
    done = subprocess.run(
        [sys.executable, "-c", script, *folders],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(cases)


ODD = [None, True, -1, 0, 1.5, 10**30, "x", [], [[1]], {}, {"x": 1}, {"type": "x"}]


@pytest.mark.parametrize("name", ["official", "speculators"])
def test_any_value_in_a_config_gives_a_draft_or_a_sentence(tmp_path, name):
    folder = as_format(name, tmp_path)
    raw = read_config(folder)
    layer = raw.get("transformer_layer_config", {})
    keys = configs._READ | configs._FIXED.keys() | raw.keys()
    for key in sorted(keys):
        for value in ODD:
            edit(folder, **raw | {key: value})
            said = opened(folder)
            if layer and key in layer:
                edit(folder, **raw | {"transformer_layer_config": layer | {key: value}})
                said += opened(folder)
            assert "\n" not in said, key


def opened(folder: Path) -> str:
    """What is said against it, if anything; any other error fails the test."""
    try:
        open_stored(folder).config(8)
    except ValueError as error:
        return str(error)
    return ""
