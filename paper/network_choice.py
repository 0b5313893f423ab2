"""From a cell whose method names a network to choices: train, take the best network, decide."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mildroute.deep.config import DeferralConfig
from mildroute.deep.router import fit_temperature
from mildroute.deep.selection import Objective, objectives_of, select
from mildroute.routers._decision import break_ties, log_posterior
from mildroute.routers._order import argmax_last
from mildroute.routers._rewards import scaled_rewards
from mildroute.routers.training_rows import Matrix
from paper.config import ExperimentConfig
from paper.data import raw_inputs
from paper.folders import Folders
from paper.networks import recipe_of
from paper.objectives import NetworkMethod, TrainingObjective, method_of_network, target_for
from paper.problems import Problem
from paper.train import Training, TrainingData, network_scores

__all__ = ["choose_by_network", "material_of"]


# Share of the training rows that no method trains on, so that all methods train on the same rows.
_HELD_OUT = 0.1


def choose_by_network(
    cell: ExperimentConfig, problem: Problem, folders: Folders
) -> tuple[NDArray[np.intp], str]:
    """Train the network of a cell on raw inputs and choose an expert for each test row.

    Args:
        cell: The experiment; its method names a network.
        problem: Its arrays.
        folders: Where data and cache lie.

    Returns:
        Chosen expert of each test row, shape (m,), and a note on what was taken.

    Example:
        >>> choose_by_network.__name__  # needs images or texts, see the tests
        'choose_by_network'
    """
    recipe, method = recipe_of(cell.method.network), method_of_network(cell.method.name)
    material = material_of(cell, problem, folders)
    if method.selected:
        return _choose_as_deep_router(cell, method, material, folders)
    heads = [_head(cell, method, aim, material, folders) for aim in method.aims(recipe.offsets)]
    # The first of equals: the smallest offset.
    best = min(heads, key=lambda head: head.paid)
    return best.choice, best.note


def material_of(cell: ExperimentConfig, problem: Problem, folders: Folders) -> TrainingData:
    """Return raw inputs and costs of a cell, with the rows that are held out.

    Args:
        cell: The experiment.
        problem: Its arrays.
        folders: Where the data lies.

    Returns:
        Training and test inputs of a network.

    Example:
        >>> material_of.__name__  # needs images or texts, see the tests
        'material_of'
    """
    from mildroute.deep.fine_tune import held_out_rows

    inputs, test_inputs = (
        raw_inputs(cell.data.name, rows, folders) for rows in (problem.rows, problem.test_rows)
    )
    return TrainingData(
        inputs, problem.costs, held_out_rows(len(inputs), _HELD_OUT, None, cell.seed), test_inputs
    )


def _choose_as_deep_router(
    cell: ExperimentConfig, method: NetworkMethod, material: TrainingData, folders: Folders
) -> tuple[NDArray[np.intp], str]:
    """Choose reward and size of the margins as ``DeepRouter`` does by default."""

    def train(objective: Objective) -> tuple[Matrix, NDArray[np.intp]]:
        aim = replace(method.aim, reward=objective.reward, scale=objective.margin or 1.0)
        held_out, test = network_scores(
            Training(cell.method.network, aim, cell.seed), material, folders
        )
        # Margins are equal, so the largest posterior is the largest score.
        return held_out, argmax_last(test)

    found = select(objectives_of(material.costs), train, material.costs[material.held_out])
    return (
        found.trained,
        f"{cell.method.network}, {recipe_of(cell.method.network).epochs} epochs; {found.reason}",
    )


@dataclass(frozen=True)
class _Head:
    """One trained network: its cost on held-out rows and its choices on test rows."""

    paid: float
    choice: NDArray[np.intp]
    note: str


def _head(
    cell: ExperimentConfig,
    method: NetworkMethod,
    aim: TrainingObjective,
    material: TrainingData,
    folders: Folders,
) -> _Head:
    held_out, test = network_scores(
        Training(cell.method.network, aim, cell.seed), material, folders
    )
    deferral, costs = target_for(aim, material.costs).deferral, material.costs[material.held_out]
    temperature = (
        _temperature(held_out, costs, deferral) if method.calibrated and len(costs) else 1.0
    )
    choices = [
        _choice(scores / temperature, np.asarray(deferral.margins), method.decision)
        for scores in (held_out, test)
    ]
    words = [
        f"offset {aim.offset:g}" if method.tuned else "",
        f"temperature {temperature:.3g}" if method.calibrated else "",
    ]
    note = "; ".join(
        filter(
            None, [f"{cell.method.network}, {recipe_of(cell.method.network).epochs} epochs", *words]
        )
    )
    return _Head(float(costs[np.arange(len(costs)), choices[0]].sum()), choices[1], note)


def _temperature(scores: Matrix, costs: Matrix, deferral: DeferralConfig) -> float:
    return fit_temperature(scores, scaled_rewards(costs, deferral.reward, None), deferral)


def _choice(scores: Matrix, margins: NDArray[np.float64], decision: str) -> NDArray[np.intp]:
    return argmax_last(
        scores if decision == "argmax" else break_ties(log_posterior(scores, margins), scores)
    )
