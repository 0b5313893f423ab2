"""Train a network with the trainer of :mod:`mildroute.deep`, and cache its scores."""

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


# Number of rows that are read and scored at once.
_SCORED = 256
# Packages whose version can change the scores.
_DETERMINING = ("accelerate", "torch", "transformers")


@dataclass(frozen=True)
class Training:
    """A network, its objective and its seed.

    Args:
        network: Name of the network.
        objective: The training objective.
        seed: Seed of the weights and of the order of the rows.

    Example:
        >>> Training("resnet18", TrainingObjective("sum")).seed
        0
    """

    network: str
    objective: TrainingObjective
    seed: int = 0


@dataclass(frozen=True)
class TrainingData:
    """The training and test inputs of a network.

    Args:
        inputs: Raw inputs of n training rows: bytes of images, or texts.
        costs: Shape (n, p).
        held_out: Indices of the rows that are not trained on, shape (h,); they choose the offset
            of the margins.
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
    training: Training, data: TrainingData, folders: Folders
) -> tuple[Matrix, Matrix]:
    """Return the scores of a trained network, computed once and cached.

    Args:
        training: The network and its objective.
        data: The training and test inputs.
        folders: Folders whose cache to use.

    Returns:
        Scores of the held-out rows, shape (h, p), and of the test rows, shape (m, p).

    Example:
        >>> network_scores.__name__  # needs images or texts, see the tests
        'network_scores'
    """
    scores = cached_array(
        folders,
        f"network-{_digest(training, data)}",
        partial(_trained_and_scored, training, data),
    )
    return scores[: len(data.held_out)], scores[len(data.held_out) :]


def train_network(classifier: Classifier, training: Training, data: TrainingData) -> None:
    """Train a network in place by its recipe.

    Args:
        classifier: The network and its reader.
        training: The objective and the seed.
        data: The training inputs.

    Example:
        >>> train_network.__name__  # needs images or texts, see the tests
        'train_network'
    """
    from mildroute.deep.fine_tune import FineTuneConfig, FineTuneData, fine_tune

    recipe = recipe_of(training.network)
    target = target_for(training.objective, data.costs)
    config = FineTuneConfig(
        epochs=recipe.epochs,
        learning_rate=recipe.learning_rate,
        batch_size=recipe.batch_size,
        seed=training.seed,
        weight_decay=recipe.weight_decay,
        optimizer="adam" if recipe.optimizer == "Adam" else "adamw",
        schedule="constant",
        trainer=target.trainer,
    )
    inputs = [data.inputs[row] for row in data.train]
    train = FineTuneData(_read(classifier, inputs), target.costs[data.train])
    # Without held-out rows, training keeps its last state, as in the paper.
    fine_tune(classifier, train, FineTuneData([], target.costs[:0]), target.deferral, config)


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
    chunks = (inputs[start : start + _SCORED] for start in range(0, len(inputs), _SCORED))
    parts = [scores_of_rows(classifier, _read(classifier, chunk)) for chunk in chunks]
    return np.concatenate([np.empty((0, classifier.model.config.num_labels)), *parts])


def _trained_and_scored(training: Training, data: TrainingData) -> Matrix:
    from mildroute.deep._randomness import own_randomness

    with own_randomness(training.seed):
        classifier = classifier_of(training.network, data.costs.shape[1])
        train_network(classifier, training, data)
    return np.concatenate(
        [
            scores_of(classifier, [data.inputs[row] for row in data.held_out]),
            scores_of(classifier, data.test_inputs),
        ]
    )


def _read(classifier: Classifier, inputs: list[Any]) -> list[dict[str, Any]]:
    from mildroute.encoders.image_inputs import as_images

    is_text = bool(inputs) and isinstance(inputs[0], str)
    return classifier.reader.rows(inputs if is_text else as_images(inputs))


def _digest(training: Training, data: TrainingData) -> str:
    """Return a hash of everything that the scores depend on, package versions included."""
    from mildroute._transformers import need

    versions = [f"{name} {need(name).__version__}" for name in _DETERMINING]
    recipe = replace(recipe_of(training.network), unstated="", offsets=())
    digest = hashlib.sha256(f"{training} {recipe} {versions}".encode())
    if training.objective.margins != "equal":
        # The name of the margins does not determine their values.
        digest.update(repr(target_for(training.objective, data.costs).deferral.margins).encode())
    for array in (data.costs, data.held_out):
        digest.update(np.ascontiguousarray(array).tobytes())
    for row in (*data.inputs, *data.test_inputs):
        content = row.encode() if isinstance(row, str) else row
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:32]
