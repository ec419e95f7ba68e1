"""Linear layers whose weight is laid out once for oneDNN, for CPU inference.

Decoding multiplies a few rows (1 to 16) with large weights. PyTorch's float32
`nn.Linear` hands oneDNN a weight in row-major order, which is rearranged into the
kernel's own blocked layout again at every call. For one row that is skipped, for a
verify block it costs more than the multiplication. Speculative decoding lives from
cheap blocks, so the weight is rearranged once here and kept that way.

The two operators are the ones that `torch.compile(..., freezing=True)` emits for a
linear layer on CPU. They have no public wrapper, so this file is the only place that
names them, and every caller works without them. [Ours]
"""

import warnings

import torch
from torch import Tensor, nn

_EXPECTED_ROWS = 64  # picks the blocked layout; any number of rows still works


class PackedLinear(nn.Module):
    """A frozen `nn.Linear` for CPU float32 whose weight is stored in oneDNN's layout.

    It keeps no reference to the linear layer's weight, which may be freed. It can
    neither be copied, saved nor moved. [Ours]
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        # Plain attributes: an opaque tensor can be neither saved nor moved.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(
            linear.weight.detach(), _EXPECTED_ROWS
        )
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in_features] float32 on the CPU -> [..., out_features].

        Raises RuntimeError where a gradient is wanted: there would be none. [Ours]
        """
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                "a packed linear layer has no gradient: train the unpacked module."
            )
        return torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self._bias, "none", [], ""
        )

    def extra_repr(self) -> str:
        """The sizes, for printing the module. [Ours]"""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def can_pack() -> bool:
    """Whether this build of PyTorch can run packed layers: tries one.

    Says so with a warning where it can't, since everything runs slower there. [Ours]
    """
    linear = linear_from(torch.arange(12.0).view(3, 4))
    x = torch.arange(8.0).view(2, 4)
    try:
        with torch.no_grad():
            right = torch.equal(PackedLinear(linear)(x), linear(x))
    except (AttributeError, RuntimeError, NotImplementedError):
        right = False
    if not right:
        warnings.warn(
            "this build of PyTorch can't prepack linear layers (it has no working "
            "oneDNN): everything works, but short blocks run slower.",
            stacklevel=2,
        )
    return right


def linear_from(weight: Tensor) -> nn.Linear:
    """A frozen `nn.Linear` without bias around this weight: [out, in]. [Ours]"""
    # On the meta device no random weight is drawn first.
    linear = nn.Linear(*reversed(weight.shape), bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return linear


def pack_linear_layers(module: nn.Module) -> int:
    """Replace every float32 CPU `nn.Linear` inside `module`, in place.

    Returns how many layers were replaced: 0 where packing is not to be had (another
    device or dtype, or a PyTorch without oneDNN, which is said with a warning), which
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
