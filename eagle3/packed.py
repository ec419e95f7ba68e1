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

import torch
from torch import Tensor, nn

_EXPECTED_ROWS = 64  # picks the blocked layout; any number of rows still works


class PackedLinear(nn.Module):
    """A frozen `nn.Linear` for CPU float32 whose weight is stored in oneDNN's layout.

    forward(x): x [..., in_features] -> [..., out_features], no gradient.
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
        return torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self._bias, "none", [], ""
        )

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def can_pack() -> bool:
    """Whether this build of PyTorch can run packed layers (tries one). [Ours]"""
    try:
        layer = PackedLinear(nn.Linear(8, 8, bias=False))
        with torch.no_grad():
            layer(torch.zeros(2, 8))
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return True


def pack_linear_layers(module: nn.Module) -> int:
    """Replace every float32 CPU `nn.Linear` inside `module`, in place.

    Returns how many layers were replaced: 0 where packing is not to be had (another
    device or dtype, or a PyTorch without oneDNN), which leaves the module as it was.
    The packed module computes the same products in another order of summation: on
    the default target logits move by less than 1e-3. It can no longer be trained or
    saved. [Ours]
    """
    if not can_pack():
        return 0
    count = 0
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and _is_packable(child.weight):
                setattr(parent, name, PackedLinear(child))
                count += 1
    return count


def _is_packable(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32
