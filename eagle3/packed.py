"""Linear layers whose weight is laid out once in strips, for CPU inference.

Decoding multiplies a few rows (1 to 16) with large weights. The time of that goes into
reading the weights, so four rows should cost hardly more than one. PyTorch's float32
`nn.Linear` on a CPU breaks this: from a few rows on, the library below it first copies
the weight into an order of its own, from memory to memory and at every call, which
costs more than the multiplication.

Here the weight is cut once into strips of 32 outputs, transposed, and multiplied strip
by strip in one batched product. A strip fits into a core's own cache, so what is left
to rearrange is rearranged there. One row costs what a stock layer's does, four rows
about a tenth more. [Ours]
"""

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eagle3.huge_pages import in_huge_pages

STRIP = 32  # outputs per strip: 32 x 576 floats are 74 kB


class PackedLinear(nn.Module):
    """A frozen `nn.Linear` for CPU float32 whose weight is stored in strips.

    linear: the layer to compute; no reference to its weight is kept
    strip: w, outputs per strip; the last one is filled up with zeros

    It can neither be saved nor moved: checkpoints want the plain weight. [Ours]
    """

    def __init__(self, linear: nn.Linear, strip: int = STRIP):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = F.pad(linear.weight.detach(), (0, 0, 0, -linear.out_features % strip))
        # Plain attributes: a module looks its buffers up anew at every access, which
        # shows at a hundred calls per token.
        # [S * w, in] -> [S, in, w], the layout that the product reads in order
        strips = weight.unflatten(0, (-1, strip)).transpose(1, 2)
        self._packed = in_huge_pages(strips)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def strips(self, x: Tensor) -> Tensor:
        """The products of every strip, without bias: [..., in] -> [S, rows, w].

        S strips of w outputs. Raises RuntimeError where a gradient is wanted: the
        weight gets none. [Ours]
        """
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                "a packed linear layer has no gradient: train the unpacked module."
            )
        rows = x.reshape(-1, self.in_features)
        return torch.bmm(rows.expand(len(self._packed), -1, -1), self._packed)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in_features] float32 on the CPU -> [..., out_features].

        Raises RuntimeError where a gradient is wanted. [Ours]
        """
        strips = self.strips(x)
        width = strips.shape[0] * strips.shape[2]
        # [S, rows, w] -> [..., S * w], without a copy for a single row
        flat = strips.transpose(0, 1).reshape(*x.shape[:-1], width)
        if width != self.out_features:
            flat = flat[..., : self.out_features]
        return flat if self._bias is None else flat + self._bias

    def extra_repr(self) -> str:
        """The sizes, for printing the module. [Ours]"""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def can_pack() -> bool:
    """Whether packed layers pay in this build of PyTorch: it needs MKL.

    Says so with a warning where they don't, since everything runs slower there. [Ours]
    """
    if torch.backends.mkl.is_available():
        return True
    warnings.warn(
        "this build of PyTorch has no MKL, for which linear layers are packed: "
        "everything works, but short blocks may run slower.",
        stacklevel=2,
    )
    return False


def linear_from(weight: Tensor) -> nn.Linear:
    """A frozen `nn.Linear` without bias around this weight: [out, in]. [Ours]"""
    # On the meta device no random weight is drawn first.
    linear = nn.Linear(*reversed(weight.shape), bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return linear


def pack_linear_layers(module: nn.Module) -> int:
    """Replace every float32 CPU `nn.Linear` inside `module`, in place.

    Returns how many layers were replaced: 0 where packing is not to be had (another
    device or dtype, or a PyTorch without MKL, which is said with a warning), which
    leaves the module as it was. The packed module computes the same products in
    another order of summation: on the default target logits move by less than 1e-3.
    It can no longer be trained or saved. [Ours]
    """
    places = [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear and _is_packable(child.weight)
    ]
    if not places or not can_pack():
        return 0
    count = len(places)
    while places:  # one layer at a time, so that its first weight is freed at once
        parent, name, child = places.pop()
        setattr(parent, name, PackedLinear(child))
    return count


def _is_packable(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32
