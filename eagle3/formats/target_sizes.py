"""What a checkpoint's fit depends on of a target, read from its config alone. [Ours]"""

from dataclasses import dataclass

from eagle3.formats.taps import Taps, default_taps


@dataclass(frozen=True)
class TargetSizes:
    """The sizes of a target, without its weights.

    name: folder or hub id   architectures: of its config
    hidden_size: k   vocab_size: V   num_layers: L
    taps: what it hands over by default; () if it is too shallow for that

    [Ours]
    """

    name: str
    architectures: tuple[str, ...]
    hidden_size: int
    vocab_size: int
    num_layers: int
    taps: Taps


def target_sizes(source: str) -> TargetSizes:
    """The sizes of the target in this folder or at this hub id.

    Raises ValueError when its config can't be read. [Ours]
    """
    from eagle3.pretrained import load_config  # here: it imports transformers

    config = load_config(source)
    depth = config.num_hidden_layers
    return TargetSizes(
        source,
        tuple(config.architectures or ()),
        config.hidden_size,
        config.vocab_size,
        depth,
        default_taps(depth) if depth >= 7 else (),
    )
