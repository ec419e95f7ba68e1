"""Values as plain JSON: how inputs and answers cross between the two processes.

An array is {"dtype", "shape", "values"} with its numbers in a flat list; a tuple is
sent as a list. What is none of the kinds below is refused, subclasses included, so an
object that pretends to be something never crosses.
"""

import json
import math

import numpy as np

DTYPES = ("bool", "int64", "float32", "float64")
MAX_VALUES, MAX_DEPTH, MAX_TEXT = 100_000, 6, 20_000


class NotPlain(ValueError):
    """A value that can't cross, with words for the student."""


def pack(value, depth=0):
    """A value that `json` can write."""
    if depth > MAX_DEPTH:
        raise NotPlain(f"nested more than {MAX_DEPTH} levels deep")
    kind = type(value)
    if value is None or kind in (bool, float):
        return value
    if kind is int:
        if abs(value) >= 2**63:
            raise NotPlain("a whole number of more than 64 bits")
        return value
    if kind is str:
        if len(value) > MAX_TEXT:
            raise NotPlain("a text that is too long")
        return value
    if kind in (list, tuple):
        if len(value) > MAX_VALUES:
            raise NotPlain("a list that is too long")
        return [pack(item, depth + 1) for item in value]
    if kind is dict:
        if not all(type(key) is str for key in value):
            raise NotPlain("a dict whose keys are not texts")
        return {"dict": {key: pack(item, depth + 1) for key, item in value.items()}}
    return pack_array(value)


def pack_array(value):
    array = as_array(value)
    if array is None:
        raise NotPlain(f"an object of type {type(value).__name__}")
    if array.size > MAX_VALUES:
        raise NotPlain(f"an array of {array.size} numbers")
    name = {"b": "bool", "i": "int64", "u": "int64", "f": "float64"}.get(
        array.dtype.kind
    )
    if name is None:
        raise NotPlain(f"an array of dtype {array.dtype}")
    if array.dtype == np.float32:
        name = "float32"
    shape = [int(n) for n in array.shape]
    return {"dtype": name, "shape": shape, "values": array.ravel().tolist()}


def as_array(value):
    """The numpy array of a tensor, an array or a numpy number, else None."""
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return np.asarray(value)
    if type(value).__module__.split(".")[0] == "torch":
        import torch

        if type(value) in (torch.Tensor, torch.nn.Parameter):
            value = value.detach()
            if value.dtype in (torch.bfloat16, torch.float16):
                value = value.float()
            return value.cpu().numpy()
    return None


def unpack(data, depth=0):
    """The value of what `pack` made; arrays as numpy. Raises NotPlain."""
    if depth > MAX_DEPTH:
        raise NotPlain("nested too deep")
    if type(data) is int and abs(data) >= 2**63:
        raise NotPlain("a whole number of more than 64 bits")
    if data is None or type(data) in (bool, int, float, str):
        return data
    if type(data) is list:
        return [unpack(item, depth + 1) for item in data]
    if type(data) is dict and set(data) == {"dict"} and type(data["dict"]) is dict:
        return {key: unpack(item, depth + 1) for key, item in data["dict"].items()}
    if type(data) is dict and set(data) == {"dtype", "shape", "values"}:
        return unpack_array(data)
    raise NotPlain("not a plain value")


def unpack_array(data):
    dtype, shape, values = data["dtype"], data["shape"], data["values"]
    if dtype not in DTYPES:
        raise NotPlain("an array of another dtype")
    if type(shape) is not list or not all(
        type(n) is int and 0 <= n <= MAX_VALUES for n in shape
    ):
        raise NotPlain("an array without a shape")
    if type(values) is not list or math.prod(shape) != len(values):
        raise NotPlain("an array whose shape and numbers disagree")
    kinds = {"bool": (bool,), "int64": (int,)}.get(dtype, (int, float))
    if not all(type(value) in kinds for value in values):
        raise NotPlain("an array whose numbers are none")
    if any(type(value) is int and abs(value) >= 2**63 for value in values):
        raise NotPlain("a whole number of more than 64 bits")
    return np.array(values, dtype=dtype).reshape(shape)


def write_line(stream, message):
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()
