"""All recipes by name: the table behind `python -m eagle3 train --recipe`. [Ours]"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from eagle3.training import draft_lm, eagle1, eagle3, hass, medusa
from eagle3.training.recipe import Recipe, Start

# name -> function (start, options of the method by name) -> recipe
RECIPES: dict[str, Callable[..., Recipe]] = {
    "eagle3": eagle3.new_recipe,
    "eagle1": eagle1.new_recipe,
    "hass": hass.new_recipe,
    "medusa": medusa.new_recipe,
    "draft-lm": draft_lm.new_recipe,
}


def new_recipe(name: str, start: Start, options: Mapping[str, Any]) -> Recipe:
    """A new model of this method with its recipe.

    options: of the method; its own defaults stand for what is left out

    Raises ValueError for an unknown name or an option that the method doesn't have.
    [Ours]
    """
    require_options(name, options)
    return RECIPES[name](start, **options)


def require_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown recipe or option, before any work.

    Raises ValueError that names it and what there is. [Ours]
    """
    if name not in RECIPES:
        raise ValueError(
            f"there is no recipe '{name}': take one of {', '.join(RECIPES)}."
        )
    known = [*inspect.signature(RECIPES[name]).parameters][1:]
    for option in options:
        if option not in known:
            raise ValueError(
                f"recipe '{name}' has no option '{option}': it has "
                f"{', '.join(known) or 'none'}."
            )
