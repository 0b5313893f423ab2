"""One training of a network, by the trainer of :mod:`mildroute.deep`.

Its scores are computed once and kept.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mildroute.deep.config import DeferralConfig
from mildroute.deep.router import fit_temperature
from mildroute.deep.selection import Objective, objectives_of, select
from mildroute.routers._decision import argmax_last, break_ties, log_posterior, scaled_rewards
from mildroute.routers.training_rows import Matrix
from paper.config import ExperimentConfig
from paper.data import Folders, kept, raw_inputs
from paper.networks import (
    NetworkMethod,
    TrainingObjective,
    classifier_of,
    lesson_of,
    method_of_network,
    recipe_of,
)
from paper.problems import Problem

if TYPE_CHECKING:
    from mildroute.deep.models import Classifier

__all__ = [
    "Training",
    "TrainingData",
    "choose_by_network",
    "material_of",
    "network_scores",
    "scores_of",
    "train_network",
]


# One training of a network, by the trainer of :mod:`mildroute.deep`; its scores are computed once
# and kept.


# Rows that are read and scored at once.
_SCORED = 256
_DETERMINING = ("accelerate", "torch", "transformers")


@dataclass(frozen=True)
class Training:
    """Which network is trained, what for, and from which seed.

    Args:
        network: Name of the network.
        aim: What it is trained for.
        seed: Seed of its weights and of the order of the rows.
        steps: End after so many steps; 0 for all epochs of the recipe.

    Example:
        >>> Training("resnet18", TrainingObjective("gap")).steps
        0
    """

    network: str
    aim: TrainingObjective
    seed: int = 0
    steps: int = 0


@dataclass(frozen=True)
class TrainingData:
    """What a network learns from and is asked about.

    Args:
        inputs: Raw inputs of n training rows: bytes of images, or texts.
        costs: Shape (n, p).
        held_out: Which of the n rows teach nothing, shape (h,); they choose between states, margins
            and temperatures.
        test_inputs: Raw inputs of m test rows.

    Example:
        >>> TrainingData(["a", "b"], np.zeros((2, 3)), np.array([1]), ["c"]).train
        array([0])
    """

    inputs: list[Any]
    costs: Matrix
    held_out: NDArray[np.intp]
    test_inputs: list[Any]

    @property
    def train(self) -> NDArray[np.intp]:
        """Rows that teach."""
        return np.setdiff1d(np.arange(len(self.costs)), self.held_out)


def network_scores(
    training: Training, material: TrainingData, folders: Folders
) -> tuple[Matrix, Matrix]:
    """Scores of a trained network, computed once and kept.

    Args:
        training: Which network, and what for.
        material: What it learns from and is asked about.
        folders: Whose cache to use.

    Returns:
        Scores of the held-out rows, shape (h, p), and of the test rows, shape (m, p).

    Example:
        >>> network_scores.__name__  # needs images or texts, see the tests
        'network_scores'
    """
    found = kept(
        folders,
        f"network-{_digest(training, material)}",
        partial(_trained_and_scored, training, material),
    )
    return found[: len(material.held_out)], found[len(material.held_out) :]


def train_network(classifier: Classifier, training: Training, material: TrainingData) -> float:
    """Train a network in place, as its recipe says.

    Args:
        classifier: The network and what it reads.
        training: How, what for, and how far.
        material: What it learns from.

    Returns:
        Epochs behind the state that is kept.

    Example:
        >>> train_network.__name__  # needs images or texts, see the tests
        'train_network'
    """
    from mildroute.deep.fine_tune import FineTuneConfig, FineTuneData, fine_tune

    recipe, lesson = recipe_of(training.network), lesson_of(training.aim, material.costs)
    plan = FineTuneConfig(
        epochs=recipe.epochs,
        learning_rate=recipe.learning_rate,
        batch_size=recipe.batch_size,
        seed=training.seed,
        weight_decay=recipe.weight_decay,
        optimizer="adam" if recipe.optimizer == "Adam" else "adamw",
        schedule=recipe.schedule,
        steps=training.steps,
        keep="loss",
        trainer=lesson.trainer,
    )
    looked_at = material.held_out if recipe.keep == "loss" else material.held_out[:0]
    train, held_out = (
        FineTuneData(_read(classifier, material.inputs, rows), lesson.costs[rows])
        for rows in (material.train, looked_at)
    )
    return fine_tune(classifier, train, held_out, lesson.deferral, plan)


def scores_of(classifier: Classifier, inputs: list[Any]) -> Matrix:
    """Scores of a network, on a graphics processor where there is one.

    Args:
        classifier: The network and what it reads.
        inputs: Raw inputs of n rows.

    Returns:
        Shape (n, p).

    Example:
        >>> scores_of.__name__  # needs images or texts, see the tests
        'scores_of'
    """
    from mildroute.deep.fine_tune import scores_of_rows

    # Read as they are scored: thousands of prepared images at once would fill the memory.
    chunks = (
        np.arange(start, min(start + _SCORED, len(inputs)))
        for start in range(0, len(inputs), _SCORED)
    )
    parts = [scores_of_rows(classifier, _read(classifier, inputs, rows)) for rows in chunks]
    return np.concatenate([np.empty((0, classifier.model.config.num_labels)), *parts])


def _trained_and_scored(training: Training, material: TrainingData) -> Matrix:
    from mildroute._optional import own_randomness

    with own_randomness(training.seed):
        classifier = classifier_of(training.network, material.costs.shape[1])
        train_network(classifier, training, material)
    return np.concatenate(
        [
            scores_of(classifier, [material.inputs[row] for row in material.held_out]),
            scores_of(classifier, material.test_inputs),
        ]
    )


def _read(
    classifier: Classifier, inputs: list[Any], rows: NDArray[np.intp]
) -> list[dict[str, Any]]:
    from mildroute.encoders.image import as_images

    chosen = [inputs[row] for row in rows]
    return (
        classifier.reader.rows(
            chosen if chosen and isinstance(chosen[0], str) else as_images(chosen)
        )
        if chosen
        else []
    )


def _digest(training: Training, material: TrainingData) -> str:
    """Hash all that the scores depend on, versions included."""
    from mildroute._optional import need

    versions = [f"{name} {need(name).__version__}" for name in _DETERMINING]
    recipe = replace(recipe_of(training.network), model="", unstated="", offsets=())
    digest = hashlib.sha256(f"{training} {recipe} {versions}".encode())
    if training.aim.margins != "equal":
        # The name of margins says less than their values.
        digest.update(repr(lesson_of(training.aim, material.costs).deferral.margins).encode())
    for array in (material.costs, material.held_out):
        digest.update(np.ascontiguousarray(array).tobytes())
    for row in (*material.inputs, *material.test_inputs):
        content = row.encode() if isinstance(row, str) else row
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:32]


# From a cell whose method names a network to choices: train what the method asks for, take the
# best, decide.


# Share of the training rows that teaches no method, whether the method asks them anything or not:
# all learn from the same rows.
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
    """Raw inputs and costs of a cell, with the rows that are held out.

    Args:
        cell: The experiment.
        problem: Its arrays.
        folders: Where the data lies.

    Returns:
        What a network learns from and is asked about.

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
    """Reward and size of the margins by the selection that is the default of ``DeepRouter``."""

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
    """One trained network with its decision.

    What it paid on held-out rows and what it chooses on test rows.
    """

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
    deferral, costs = lesson_of(aim, material.costs).deferral, material.costs[material.held_out]
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
