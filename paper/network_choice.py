"""Train the networks of a cell, select the best one, and choose an expert for each test row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mildroute.routers._decision import break_ties, log_posterior
from mildroute.routers._order import argmax_last
from mildroute.routers.training_rows import Matrix
from paper.config import ExperimentConfig
from paper.data import raw_inputs
from paper.folders import Folders
from paper.networks import recipe_of
from paper.objectives import NetworkMethod, TrainingObjective, method_of_network, target_for
from paper.problems import Problem
from paper.train import Training, TrainingData, network_scores

__all__ = ["choose_by_network", "training_data_of"]

# Share of the training rows that no method trains on, so that all methods train on the same rows.
_HELD_OUT = 0.1


@dataclass(frozen=True)
class _TrainedMethod:
    """A trained network's total cost on held-out rows, and its choices on test rows."""

    held_out_cost: float
    choice: NDArray[np.intp]
    note: str


def choose_by_network(
    cell: ExperimentConfig, problem: Problem, folders: Folders
) -> tuple[NDArray[np.intp], str]:
    """Train the network of a cell on raw inputs and choose an expert for each test row.

    Args:
        cell: The experiment; its method names a network.
        problem: Its arrays.
        folders: Folders of data and cache.

    Returns:
        Chosen expert of each test row, shape (m,), and a note on the network that was selected.

    Example:
        >>> choose_by_network.__name__  # needs images or texts, see the tests
        'choose_by_network'
    """
    method = method_of_network(cell.method.name)
    offsets = recipe_of(cell.method.network).offsets
    data = training_data_of(cell, problem, folders)
    candidates = [
        _train_and_choose(cell, method, objective, data, folders)
        for objective in method.objectives(offsets)
    ]
    # Ties go to the first, which has the smallest offset.
    best = min(candidates, key=lambda candidate: candidate.held_out_cost)
    return best.choice, best.note


def training_data_of(cell: ExperimentConfig, problem: Problem, folders: Folders) -> TrainingData:
    """Return the raw inputs and costs of a cell, and the rows to hold out.

    Args:
        cell: The experiment.
        problem: Its arrays.
        folders: Folders of data and cache.

    Example:
        >>> training_data_of.__name__  # needs images or texts, see the tests
        'training_data_of'
    """
    from mildroute.deep.fine_tune import held_out_rows

    inputs = raw_inputs(cell.data.name, problem.rows, folders)
    test_inputs = raw_inputs(cell.data.name, problem.test_rows, folders)
    held_out = held_out_rows(len(inputs), _HELD_OUT, None, cell.seed)
    return TrainingData(inputs, problem.costs, held_out, test_inputs)


def _train_and_choose(
    cell: ExperimentConfig,
    method: NetworkMethod,
    objective: TrainingObjective,
    data: TrainingData,
    folders: Folders,
) -> _TrainedMethod:
    training = Training(cell.method.network, objective, cell.seed)
    held_out_scores, test_scores = network_scores(training, data, folders)
    margins = np.asarray(target_for(objective, data.costs).deferral.margins)
    costs = data.costs[data.held_out]
    held_out_choice = _choice(held_out_scores, margins, method.decision)
    note = f"{cell.method.network}, {recipe_of(cell.method.network).epochs} epochs"
    if method.tuned:
        note += f"; offset {objective.offset:g}"
    return _TrainedMethod(
        float(costs[np.arange(len(costs)), held_out_choice].sum()),
        _choice(test_scores, margins, method.decision),
        note,
    )


def _choice(scores: Matrix, margins: NDArray[np.float64], decision: str) -> NDArray[np.intp]:
    if decision == "argmax":
        return argmax_last(scores)
    return argmax_last(break_ties(log_posterior(scores, margins), scores))
