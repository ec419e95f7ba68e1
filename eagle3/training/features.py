"""The target's view of every training sequence, computed once and kept on disk.

Training passes over the data several times and the target is frozen, so what it says
is stored: the tapped features that the draft reads, and the hidden state before the
head, from which its distribution is rebuilt over any draft vocabulary. Whole logits
would take twenty times the space. A file is named after everything that it depends
on, so a stale one is never read. [Ours]
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm

from eagle3.target import Target
from eagle3.training import processes
from eagle3.training.data import Sequence

SEQUENCES_PER_FILE = 64


@dataclass(frozen=True)
class TargetView:
    """What the target computed on one sequence of T tokens.

    features: [T, 3k] bfloat16       hidden: [T, k] float16, before the head
    argmax: [T] int32, its best next token
    log_normaliser: [T] float32, log of the sum of exp(logits) over all V tokens

    [Ours; features: Paper, section 3.1]
    """

    features: Tensor
    hidden: Tensor
    argmax: Tensor
    log_normaliser: Tensor


class FeatureStore:
    """The target's views of a list of sequences, in files under `folder`.

    Missing files are computed on construction with a progress bar; a killed run goes
    on where it stopped. Several processes share the work and then read all files.
    Raises what `look` raises, and ValueError when their folder isn't a common one.
    [Ours]
    """

    def __init__(self, target: Target, sequences: list[Sequence], folder: Path):
        self.target = target
        self.groups = [
            sequences[i : i + SEQUENCES_PER_FILE]
            for i in range(0, len(sequences), SEQUENCES_PER_FILE)
        ]
        folder.mkdir(parents=True, exist_ok=True)
        identity = _target_identity(target)
        self.paths = [folder / _file_name(identity, group) for group in self.groups]
        own = range(processes.rank(), len(self.paths), processes.world_size())
        todo = [i for i in own if not self.paths[i].exists()]
        quiet = not todo or processes.rank() != 0
        for i in tqdm(todo, desc="target features", disable=quiet):
            self._write(i)
        processes.wait()
        for path in self.paths:
            if not path.exists():
                raise ValueError(
                    f"{path} was left to another process and isn't here: give all "
                    "processes the same folder, on a disk that their machines share."
                )
        self._open: dict[int, object] = {}

    def __getitem__(self, index: int) -> TargetView:
        """Read the view of sequence `index` from disk. [Ours]"""
        number, within = divmod(index, SEQUENCES_PER_FILE)
        if number not in self._open:
            self._open[number] = safe_open(self.paths[number], framework="pt")
        file = self._open[number]
        names = ("features", "hidden", "argmax", "log_normaliser")
        return TargetView(*(file.get_tensor(f"{within}.{name}") for name in names))

    def _write(self, number: int) -> None:
        tensors = {}
        for within, sequence in enumerate(self.groups[number]):
            view = look(self.target, sequence.token_ids)
            tensors |= {f"{within}.{name}": value for name, value in vars(view).items()}
        path = self.paths[number]
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        save_file(tensors, temporary)
        temporary.replace(path)


def look(target: Target, token_ids: Tensor) -> TargetView:
    """Run the target over one sequence: token_ids [T] -> its TargetView, on the CPU.

    Raises ValueError for a sequence beyond the target's context, FloatingPointError
    when its hidden states don't fit into float16. [Ours]
    """
    output = target.forward(token_ids[None].to(target.device))
    hidden = output.hidden[0].to(torch.float16)
    if not torch.isfinite(hidden).all():
        raise FloatingPointError(
            "the target's hidden states overflow half precision: this target needs "
            "its features stored in another format."
        )
    return TargetView(
        output.features[0].to(torch.bfloat16).cpu().contiguous(),
        hidden.cpu().contiguous(),
        output.logits[0].argmax(-1).to(torch.int32).cpu(),
        output.logits[0].float().logsumexp(-1).cpu(),
    )


def _target_identity(target: Target) -> str:
    """Tells targets apart: what they are, and what they compute on a fixed text.

    Fine-tuned weights can hide anywhere, so the weights are judged by their result,
    rounded so that another number of threads makes no other target.
    """
    ids = torch.randint(
        target.vocab_size, (1, 32), generator=torch.Generator().manual_seed(0)
    )
    output = target.forward(ids.to(target.device))
    facts = [
        target.config.to_dict(),
        target.taps,
        str(target.dtype),
        [f"{x:.2f}" for x in output.logits[0].float().logsumexp(-1).tolist()],
    ]
    return json.dumps(facts, sort_keys=True, default=str)


def _file_name(identity: str, group: list[Sequence]) -> str:
    digest = hashlib.sha256(identity.encode("utf-8"))
    for sequence in group:
        digest.update(sequence.token_ids.to(torch.int32).numpy().tobytes() + b"|")
    return f"features-{digest.hexdigest()[:20]}.safetensors"
