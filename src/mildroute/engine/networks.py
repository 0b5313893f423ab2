"""Routers that read raw inputs: the paper's networks and how it trained them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from mildroute.engine.cells import Cell
from mildroute.engine.problems import Problem
from mildroute.errors import ArgumentError, MissingExtraError

__all__ = ["RECIPES", "Recipe", "choose_by_network"]


@dataclass(frozen=True)
class Recipe:
    """How the paper trained a router.

    Args:
        model: Name of the network.
        optimiser: Name of the optimiser.
        learning_rate: Its step.
        weight_decay: Its weight decay.
        batch_size: Rows of a step.
        epochs: Passes over the training rows.
        unstated: What the paper does not say, and what is taken.

    Example:
        >>> RECIPES["resnet18"].epochs
        200
    """

    model: str
    optimiser: str
    learning_rate: float
    weight_decay: float
    batch_size: int
    epochs: int
    unstated: str = ""


RECIPES: dict[str, Recipe] = {
    "resnet18": Recipe(
        "ResNet-18 for 32 x 32 images", "Adam", 1e-3, 1e-3, 1024, 200, "stem (3 x 3, stride 1), no schedule, no augmentation"
    ),
    "deberta": Recipe(
        "microsoft/deberta-v3-xsmall", "AdamW", 5e-5, 0.01, 32, 5, "batch size, weight decay (the optimiser's), 256 tokens, no schedule"
    ),
}
"""The paper's networks by the name that a cell's method gives."""


def choose_by_network(cell: Cell, problem: Problem) -> NoReturn:
    """Train the network of a cell on raw inputs and choose an expert for each test row.

    The one place to join :mod:`mildroute.deep` to: ``problem.rows`` and ``problem.test_rows`` name the rows of the data set, the recipe
    how to train, and ``cell.method.name`` the loss, margins and decision.

    Args:
        cell: The experiment; its method names a network.
        problem: Its arrays.

    Returns:
        Chosen expert of each test row, shape (m,), and a note.

    Example:
        >>> "resnet18" in RECIPES
        True
    """
    if cell.method.network not in RECIPES:
        raise ArgumentError(f"a network must be one of {', '.join(RECIPES)}, got {cell.method.network!r}.")
    recipe = RECIPES[cell.method.network]
    raise MissingExtraError(
        f"{recipe.model} on {len(problem.rows)} raw inputs needs the trainer of mildroute.deep, which the engine does not call yet; "
        "run: mildroute reproduce --profile cpu"
    )
