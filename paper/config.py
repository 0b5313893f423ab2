"""An experiment as plain data: inputs, experts, costs, method and seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from mildroute.exceptions import ArgumentError

__all__ = ["SCHEMA", "Costs", "Data", "ExperimentConfig", "Experts", "Method"]


# Raise this version if the meaning of a cell changes but its fields do not, so that old results are
# not taken for new ones.
SCHEMA = 1


@dataclass(frozen=True)
class Data:
    """The inputs of an experiment.

    Args:
        name: ``"toy"``, an image set (``"cifar10"`` and the like) or a table of answers
            (``"mmlu57"``, ``"mmlu_pro"``).
        groups: Groups of a table to keep; empty for all.
        train: Maximum number of training rows, drawn by the seed; 0 for all.
        test: Maximum number of test rows; 0 for all.
        features: ``"frozen"`` vectors, or ``"raw"`` inputs for a network that reads them itself.

    Example:
        >>> Data("cifar10", train=5000).features
        'frozen'
    """

    name: str
    groups: tuple[str, ...] = ()
    train: int = 0
    test: int = 0
    features: str = "frozen"


@dataclass(frozen=True)
class Experts:
    """The experts to choose from.

    Args:
        kind: ``"synthetic"`` (right on their own classes, a guess elsewhere), ``"real"`` (trained
            on their classes and 1% of the rest) or ``"table"`` (their answers are in the data).
        coverage: Share of the classes that each expert owns; empty for ``"table"``.
        names: Names of the experts in the table; empty for the other kinds.

    Example:
        >>> Experts("synthetic", coverage=(0.7, 0.2, 0.1)).count
        3
    """

    kind: str
    coverage: tuple[float, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse unknown kinds, and coverages that do not sum to 1."""
        if self.kind not in ("synthetic", "real", "table"):
            raise ArgumentError(f"experts must be synthetic, real or table, got {self.kind!r}.")
        if self.kind != "table" and abs(sum(self.coverage) - 1) > 1e-9:
            raise ArgumentError(
                f"coverage must sum to 1, got {self.coverage}; every class belongs to one expert."
            )

    @property
    def count(self) -> int:
        """Return the number of experts."""
        return len(self.names if self.kind == "table" else self.coverage)


@dataclass(frozen=True)
class Costs:
    """The costs of a choice: an error costs 1, and each expert has a fee.

    Args:
        beta: Fee of each expert, shape (p,); empty for none.
        noise: Standard deviation of the Gaussian noise on the training costs, as a share of the
            largest one. Noisy costs below 0 become 0.

    Example:
        >>> Costs(beta=(1.0, 0.6, 0.1)).noise
        0.0
    """

    beta: tuple[float, ...] = ()
    noise: float = 0.0


@dataclass(frozen=True)
class Method:
    """A method that chooses an expert for each row.

    Args:
        name: Name of a router in :mod:`paper.routers`.
        network: Name of a network in :mod:`paper.networks`; empty for a linear router on frozen
            vectors.

    Example:
        >>> Method("tdef").network
        ''
    """

    name: str
    network: str = ""


@dataclass(frozen=True)
class ExperimentConfig:
    """An experiment.

    Its key is a hash of all its fields, so each result is computed only once.

    Args:
        data: The inputs.
        experts: The experts to choose from.
        costs: The costs of a choice.
        method: The method that chooses.
        seed: Seed of the rows, the experts and the router.

    Example:
        >>> experts = Experts("synthetic", (0.7, 0.3))
        >>> cell = ExperimentConfig(Data("toy"), experts, Costs(), Method("tdef"), seed=3)
        >>> cell.key[:12], ExperimentConfig.from_json(cell.to_json()) == cell
        ('b1f2b275f66a', True)
    """

    data: Data
    experts: Experts
    costs: Costs = field(default_factory=Costs)
    method: Method = field(default_factory=lambda: Method("tdef"))
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse fees that do not fit the number of experts."""
        if self.costs.beta and len(self.costs.beta) != self.experts.count:
            raise ArgumentError(
                f"beta must have one fee for each of {self.experts.count} experts, got"
                f" {self.costs.beta}."
            )

    @cached_property
    def key(self) -> str:
        """Return the SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Return canonical JSON: sorted names, no spaces, and the version of the schema."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ExperimentConfig:
        """Return the cell that ``to_json`` has written."""
        fields = json.loads(text)
        if fields.pop("schema", None) != SCHEMA:
            raise ArgumentError(
                f"a cell must have schema {SCHEMA}, got {text[:80]!r}; run it again with this"
                " version."
            )
        parts = {"data": Data, "experts": Experts, "costs": Costs, "method": Method}
        return cls(
            **{name: _part(kind, fields[name]) for name, kind in parts.items()}, seed=fields["seed"]
        )


def _part(kind: type, values: Mapping[str, Any]) -> Any:
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
    )
