"""One training of a network, by the trainer of :mod:`mildroute.deep`; its scores are computed once and kept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mildroute.engine.folders import Folders, kept
from mildroute.engine.network_aims import Aim, lesson_of
from mildroute.engine.networks import classifier_of, recipe_of
from mildroute.routers.base import Matrix

if TYPE_CHECKING:
    from mildroute.deep.models import Classifier

__all__ = ["Material", "Training", "network_scores", "scores_of", "train_network"]

_SCORED = 256
"""Rows that are read and scored at once."""
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
        >>> Training("resnet18", Aim("gap")).steps
        0
    """

    network: str
    aim: Aim
    seed: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Material:
    """What a network learns from and is asked about.

    Args:
        inputs: Raw inputs of n training rows: bytes of images, or texts.
        costs: Shape (n, p).
        held_out: Which of the n rows teach nothing, shape (h,); they choose between states, margins and temperatures.
        test_inputs: Raw inputs of m test rows.

    Example:
        >>> Material(["a", "b"], np.zeros((2, 3)), np.array([1]), ["c"]).train
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


def network_scores(training: Training, material: Material, folders: Folders) -> tuple[Matrix, Matrix]:
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
    found = kept(folders, f"network-{_digest(training, material)}", partial(_trained_and_scored, training, material))
    return found[: len(material.held_out)], found[len(material.held_out) :]


def train_network(classifier: Classifier, training: Training, material: Material) -> float:
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
    from mildroute.deep.fitting import Plan, Rows, fine_tune

    recipe, lesson = recipe_of(training.network), lesson_of(training.aim, material.costs)
    plan = Plan(
        epochs=recipe.epochs,
        learning_rate=recipe.learning_rate,
        batch_size=recipe.batch_size,
        seed=training.seed,
        weight_decay=recipe.weight_decay,
        optimiser="adam" if recipe.optimiser == "Adam" else "adamw",
        schedule=recipe.schedule,
        steps=training.steps,
        keep="loss",
        trainer=lesson.trainer,
    )
    looked_at = material.held_out if recipe.keep == "loss" else material.held_out[:0]
    train, held_out = (Rows(_read(classifier, material.inputs, rows), lesson.costs[rows]) for rows in (material.train, looked_at))
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
    from mildroute.deep.fitting import scores_of_rows

    # Read as they are scored: thousands of prepared images at once would fill the memory.
    chunks = (np.arange(start, min(start + _SCORED, len(inputs))) for start in range(0, len(inputs), _SCORED))
    parts = [scores_of_rows(classifier, _read(classifier, inputs, rows)) for rows in chunks]
    return np.concatenate([np.empty((0, classifier.model.config.num_labels)), *parts])


def _trained_and_scored(training: Training, material: Material) -> Matrix:
    from mildroute.deep.libraries import own_randomness

    with own_randomness(training.seed):
        classifier = classifier_of(training.network, material.costs.shape[1])
        train_network(classifier, training, material)
    return np.concatenate(
        [scores_of(classifier, [material.inputs[row] for row in material.held_out]), scores_of(classifier, material.test_inputs)]
    )


def _read(classifier: Classifier, inputs: list[Any], rows: NDArray[np.intp]) -> list[dict[str, Any]]:
    from mildroute.encoders.image_inputs import as_images

    chosen = [inputs[row] for row in rows]
    return classifier.reader.rows(chosen if chosen and isinstance(chosen[0], str) else as_images(chosen)) if chosen else []


def _digest(training: Training, material: Material) -> str:
    """A name that says all that the scores depend on, versions included."""
    from mildroute.deep.libraries import need

    versions = [f"{name} {need(name).__version__}" for name in _DETERMINING]
    recipe = replace(recipe_of(training.network), model="", unstated="", offsets=())
    digest = hashlib.sha256(f"{training} {recipe} {versions}".encode())
    for array in (material.costs, material.held_out):
        digest.update(np.ascontiguousarray(array).tobytes())
    for row in (*material.inputs, *material.test_inputs):
        content = row.encode() if isinstance(row, str) else row
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:32]
