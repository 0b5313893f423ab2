"""One training of a network by the trainer of :mod:`mildroute.deep`; its scores are cached."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mildroute.routers.training_rows import Matrix
from paper.folders import Folders, cached_array
from paper.networks import classifier_of, recipe_of
from paper.objectives import TrainingObjective, target_for

if TYPE_CHECKING:
    from mildroute.deep.models import Classifier

__all__ = [
    "Training",
    "TrainingData",
    "network_scores",
    "scores_of",
    "train_network",
]


# Rows that are read and scored at once.
_SCORED = 256
_DETERMINING = ("accelerate", "torch", "transformers")


@dataclass(frozen=True)
class Training:
    """A network, its objective and its seed.

    Args:
        network: Name of the network.
        aim: The training objective.
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
    """The training and test inputs of a network.

    Args:
        inputs: Raw inputs of n training rows: bytes of images, or texts.
        costs: Shape (n, p).
        held_out: Indices of rows that are not trained on, shape (h,); they choose between states,
            margins and temperatures.
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
        """Return the indices of the rows to train on."""
        return np.setdiff1d(np.arange(len(self.costs)), self.held_out)


def network_scores(
    training: Training, material: TrainingData, folders: Folders
) -> tuple[Matrix, Matrix]:
    """Return the scores of a trained network, computed once and cached.

    Args:
        training: The network and its objective.
        material: Its training and test inputs.
        folders: Folders whose cache is used.

    Returns:
        Scores of the held-out rows, shape (h, p), and of the test rows, shape (m, p).

    Example:
        >>> network_scores.__name__  # needs images or texts, see the tests
        'network_scores'
    """
    scores = cached_array(
        folders,
        f"network-{_digest(training, material)}",
        partial(_trained_and_scored, training, material),
    )
    return scores[: len(material.held_out)], scores[len(material.held_out) :]


def train_network(classifier: Classifier, training: Training, material: TrainingData) -> float:
    """Train a network in place, as its recipe says.

    Args:
        classifier: The network and its reader.
        training: The objective, the seed and the number of steps.
        material: Its training inputs.

    Returns:
        Number of epochs behind the returned state.

    Example:
        >>> train_network.__name__  # needs images or texts, see the tests
        'train_network'
    """
    from mildroute.deep.fine_tune import FineTuneConfig, FineTuneData, fine_tune

    recipe, lesson = recipe_of(training.network), target_for(training.aim, material.costs)
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
    """Return the scores of a network, computed on a GPU if there is one.

    Args:
        classifier: The network and its reader.
        inputs: Raw inputs of n rows.

    Returns:
        Shape (n, p).

    Example:
        >>> scores_of.__name__  # needs images or texts, see the tests
        'scores_of'
    """
    from mildroute.deep.fine_tune import scores_of_rows

    # Inputs are read in chunks: thousands of prepared images at once would fill the memory.
    chunks = (
        np.arange(start, min(start + _SCORED, len(inputs)))
        for start in range(0, len(inputs), _SCORED)
    )
    parts = [scores_of_rows(classifier, _read(classifier, inputs, rows)) for rows in chunks]
    return np.concatenate([np.empty((0, classifier.model.config.num_labels)), *parts])


def _trained_and_scored(training: Training, material: TrainingData) -> Matrix:
    from mildroute.deep._randomness import own_randomness

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
    from mildroute.encoders.image_inputs import as_images

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
    from mildroute._transformers import need

    versions = [f"{name} {need(name).__version__}" for name in _DETERMINING]
    recipe = replace(recipe_of(training.network), model="", unstated="", offsets=())
    digest = hashlib.sha256(f"{training} {recipe} {versions}".encode())
    if training.aim.margins != "equal":
        # The name of margins says less than their values.
        digest.update(repr(target_for(training.aim, material.costs).deferral.margins).encode())
    for array in (material.costs, material.held_out):
        digest.update(np.ascontiguousarray(array).tobytes())
    for row in (*material.inputs, *material.test_inputs):
        content = row.encode() if isinstance(row, str) else row
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:32]
