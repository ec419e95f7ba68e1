"""Several processes train one draft: torchrun starts them, and here they meet.

Every process holds the whole draft and reads its own share of each batch. A loss is a
sum over rows, divided by the number of rows that count. Here each process divides its
own sum by the number that all of them have together, so that the losses and gradients
of the processes add up to those of one process with the whole batch. A mean of their
means would be another number: it gives more weight to the rows of a process that has
few. [Ours]

`torchrun` and `accelerate launch` tell a process about the others in its environment.
Without them it is alone: rank 0 of 1, and every sum is what it was.
"""

import atexit
import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

_TOLD_BY_LAUNCHER = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


def join() -> None:
    """Meet the other processes of this run, once; does nothing for one that is alone.

    Tensors on the CPU travel by gloo, those on a GPU by NCCL, where there is one.
    [Ours]
    """
    told = os.environ.keys() >= _TOLD_BY_LAUNCHER
    if told and not dist.is_initialized():
        dist.init_process_group()
        atexit.register(dist.destroy_process_group)


def rank() -> int:
    """The number of this process, from 0; number 0 writes and tells. [Ours]"""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """How many processes there are. [Ours]"""
    return dist.get_world_size() if dist.is_initialized() else 1


def own_device(name: str) -> str:
    """The device of this process: of several on one machine each has a GPU of its own.

    name: "cuda" becomes "cuda:0", "cuda:1", ...; other devices are kept. [Ours]
    """
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if name == "cuda" else name


def total(values: Tensor) -> Tensor:
    """The sum over all processes, in each of them: values [...] -> [...].

    Every process has to call it, with the same shape. No gradient flows through it.
    [Ours]
    """
    return _reduce(values, dist.ReduceOp.SUM)


def largest(values: Tensor) -> Tensor:
    """As `total`, the largest one of all processes: values [...] -> [...]. [Ours]"""
    return _reduce(values, dist.ReduceOp.MAX)


def _reduce(values: Tensor, operation: dist.ReduceOp) -> Tensor:
    if world_size() == 1:
        return values
    values = values.detach().clone()
    dist.all_reduce(values, operation)
    return values


def tell(text: str) -> None:
    """Print a line, once for all processes. [Ours]"""
    if rank() == 0:
        print(text)


def wait() -> None:
    """Go on when every process has come here. [Ours]"""
    total(torch.zeros(1))


def copy_from_first(tensors: Iterable[Tensor]) -> None:
    """Overwrite tensors [...] with those of process 0. [Ours]"""
    if world_size() > 1:
        for tensor in tensors:
            dist.broadcast(tensor.detach(), 0)
