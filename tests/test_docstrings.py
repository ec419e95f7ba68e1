"""Every public name of eagle3 says what it is, with shapes, errors and its source.

A name is public when neither it nor its module begins with an underscore. Functions,
classes and their methods and properties are looked at where they are defined. Nothing
is passed over in silence: the list of exceptions is here, and each must still be
needed.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import typing

import torch

import eagle3

# name -> why the rule doesn't hold for it; a name that no longer needs it is an error
NO_SHAPE: dict[str, str] = {}
NO_RAISES: dict[str, str] = {}

SHAPE = re.compile(r"\[[^\]\n]*\]")
TAG = re.compile(r"\[(Paper|Code|Derived|Ours|Interpretation)\b")


def modules():
    yield eagle3
    for found in pkgutil.walk_packages(eagle3.__path__, "eagle3."):
        private = any(part.startswith("_") for part in found.name.split(".")[1:])
        if not private or found.name == "eagle3.__main__":  # the command line is public
            yield importlib.import_module(found.name)


def unwrapped(thing):
    """The function behind a property, class method, decorator or cache."""
    if isinstance(thing, property):
        thing = thing.fget
    if isinstance(thing, (classmethod, staticmethod)):
        thing = thing.__func__
    thing = getattr(thing, "func", thing)  # cached_property, partial
    return inspect.unwrap(thing)


def public_names():
    """(name, object, module, class or None) of everything public."""
    for module in modules():
        for name, thing in vars(module).items():
            if (
                name.startswith("_")
                or getattr(thing, "__module__", "") != module.__name__
            ):
                continue
            if inspect.isclass(thing):
                yield f"{module.__name__}.{name}", thing, module, None
                for part, member in vars(thing).items():
                    function = unwrapped(member)
                    if inspect.isfunction(function) and not part.startswith("_"):
                        yield (
                            f"{module.__name__}.{name}.{part}",
                            function,
                            module,
                            thing,
                        )
            elif inspect.isfunction(unwrapped(thing)):
                yield f"{module.__name__}.{name}", unwrapped(thing), module, None


NAMES = {name: rest for name, *rest in public_names()}


def doc(name):
    return NAMES[name][0].__doc__ or ""


def holds_tensor(annotation):
    """Whether a Tensor is in this annotation, at any depth."""
    if annotation is torch.Tensor:
        return True
    return any(holds_tensor(inner) for inner in typing.get_args(annotation))


def takes_or_gives_tensors(thing):
    """By a function's annotations, or a dataclass's fields."""
    if inspect.isclass(thing) and not dataclasses.is_dataclass(thing):
        return False
    try:
        hints = typing.get_type_hints(thing)
    except NameError:  # a name that only type checkers import: read the text instead
        return "Tensor" in str(getattr(thing, "__annotations__", ""))
    return any(map(holds_tensor, hints.values()))


def raises_itself(thing):
    source = inspect.getsource(thing)
    if inspect.isclass(thing):
        checks = vars(thing).get("__post_init__")
        source = inspect.getsource(checks) if checks else ""
    errors = set(re.findall(r"^\s*raise (\w+)", source, flags=re.MULTILINE))
    return errors - {"AssertionError", "NotImplementedError", "StopIteration"}


def untyped(thing):
    """What of a function, or of a class's own `__init__`, has no annotation."""
    is_class = inspect.isclass(thing)
    if is_class:
        if "__init__" not in vars(thing) or getattr(thing, "_is_protocol", False):
            return []
        thing = vars(thing)["__init__"]
    signature = inspect.signature(thing)
    missing = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.annotation is inspect.Parameter.empty
        and parameter.name not in ("self", "cls")
        and not parameter.name.startswith("_")
    ]
    if signature.return_annotation is inspect.Signature.empty and not is_class:
        missing.append("return")
    return missing


def test_the_search_finds_what_there_is():
    """One name of each sort, so that an empty search can't pass."""
    assert {
        "eagle3.target.Target",
        "eagle3.target.Target.forward",
        "eagle3.target.Target.head",  # a cached property
        "eagle3.engine.GenerationResult.acceptance_length",  # a property
        "eagle3.rope.RopeConfig.from_hf",  # a class method
        "eagle3.training.data.load_data",  # a package inside
        "eagle3.__main__.fetch",  # a command
    } <= set(NAMES)
    assert len(NAMES) > 150


def test_every_module_has_a_docstring():
    assert [module.__name__ for module in modules() if not module.__doc__] == []


def test_every_name_has_a_docstring_of_its_own():
    # A dataclass without docstring gets its signature for one.
    assert [
        name
        for name in NAMES
        if not doc(name).strip() or doc(name).startswith(name.split(".")[-1] + "(")
    ] == []


def test_tensors_have_their_shape_written_down():
    """[B, T, k] and the like; a source tag doesn't count."""
    assert {
        name
        for name in NAMES
        if takes_or_gives_tensors(NAMES[name][0])
        and not SHAPE.search(TAG.sub("", doc(name)))
    } == set(NO_SHAPE)


def test_errors_that_a_name_raises_itself_are_named():
    assert {
        name
        for name in NAMES
        if any(error not in doc(name) for error in raises_itself(NAMES[name][0]))
    } == set(NO_RAISES)


def test_sources_are_tagged():
    """By the name itself, or by its class or module."""
    untagged = []
    for name, (_, module, owner) in NAMES.items():
        texts = [doc(name), module.__doc__ or "", owner.__doc__ or "" if owner else ""]
        if not any(map(TAG.search, texts)):
            untagged.append(name)
    assert untagged == []


def test_everything_is_typed():
    assert {n: untyped(rest[0]) for n, rest in NAMES.items() if untyped(rest[0])} == {}


# ---- the rules themselves


@dataclasses.dataclass
class Undocumented:
    x: torch.Tensor


def shapeless(x: list[torch.Tensor]) -> "int":
    """Takes tensors. [Ours]"""
    raise ValueError(x)


def test_the_rules_catch_what_they_are_for():
    assert Undocumented.__doc__.startswith("Undocumented(")
    assert takes_or_gives_tensors(Undocumented)
    assert takes_or_gives_tensors(shapeless)
    assert not SHAPE.search(TAG.sub("", shapeless.__doc__))
    assert SHAPE.search("ids: [B, n]")
    assert raises_itself(shapeless) == {"ValueError"}
    assert untyped(lambda x, _y: x) == ["x", "return"]
    assert untyped(shapeless) == []
    assert TAG.search("see [Paper, section 3]")
    assert not TAG.search("see [B, T]")
