"""The engine with fixed shapes: many texts at once, and no question to the device.

The same algorithm as `eagle3.engine`, rebuilt so that a GPU spends its time in the
models. What changes, in the order in which it pays:

- `cache`: buffers of fixed size, in which every text has a slot and a length
- `trees`, `accept`: the tree and the decision are tensors, padded to one shape
- `draws`: random numbers are drawn before the cycle that uses them
- `graphs`: with that, a cycle can be recorded once and launched with two calls

`engine` puts them together, `memory` says beforehand what they take, and `profile`
where the time of a cycle goes, before and after each of these changes. On a CPU the
same code runs with graphs off. [Ours]
"""

from eagle3.gpu.engine import Answer, BatchEngine, Slots

__all__ = ["Answer", "BatchEngine", "Slots"]
