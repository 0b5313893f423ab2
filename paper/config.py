"""One experiment as plain data: inputs, experts, costs, method and seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from mildroute.exceptions import ArgumentError

__all__ = ["SCHEMA", "Costs", "Data", "ExperimentConfig", "Experts", "Method"]


# Version of what a cell means; a change of meaning without a change of fields must raise it, so
# that old results are not taken for new.
SCHEMA = 1


@dataclass(frozen=True)
class Data:
    """The inputs of an experiment.

    Args:
        name: ``"toy"``, an image set (``"cifar10"`` and the like) or a table of answers
            (``"mmlu57"``, ``"mmlu_pro"``).
        groups: Keep only these groups of a table; empty for all.
        train: Training rows at most, drawn by the seed; 0 for all.
        test: Test rows at most; 0 for all.
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
        coverage: Share of the classes of each, in order of the classes; empty for ``"table"``.
        names: Names in the table; empty for the others.

    Example:
        >>> Experts("synthetic", coverage=(0.7, 0.2, 0.1)).count
        3
    """

    kind: str
    coverage: tuple[float, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse kinds and coverages that mean nothing."""
        if self.kind not in ("synthetic", "real", "table"):
            raise ArgumentError(f"experts must be synthetic, real or table, got {self.kind!r}.")
        if self.kind != "table" and abs(sum(self.coverage) - 1) > 1e-9:
            raise ArgumentError(
                f"coverage must sum to 1, got {self.coverage}; every class belongs to one expert."
            )

    @property
    def count(self) -> int:
        """Number of the experts."""
        return len(self.names if self.kind == "table" else self.coverage)


@dataclass(frozen=True)
class Costs:
    """The costs of a choice: an error costs 1, and each expert has a fee.

    Args:
        beta: Fee of each expert, shape (p,); empty for none.
        noise: Standard deviation of Gaussian noise on the training costs, as a share of the largest
            of them; costs stay at least 0.

    Example:
        >>> Costs(beta=(1.0, 0.6, 0.1)).noise
        0.0
    """

    beta: tuple[float, ...] = ()
    noise: float = 0.0


@dataclass(frozen=True)
class Method:
    """A method that chooses.

    Args:
        name: Name of a router in :mod:`paper.problems`.
        network: Empty for a linear router on frozen vectors, or a network of
            :mod:`paper.networks`.

    Example:
        >>> Method("tdef").network
        ''
    """

    name: str
    network: str = ""


@dataclass(frozen=True)
class ExperimentConfig:
    """One experiment.

    Its key is a hash of all its fields, so a stored result never needs to be computed again.

    Args:
        data: The inputs.
        experts: The experts to choose from.
        costs: The costs of a choice.
        method: The method that chooses.
        seed: Seed of draws, experts and router.

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
        """Refuse fees of other experts."""
        if self.costs.beta and len(self.costs.beta) != self.experts.count:
            raise ArgumentError(
                f"beta must have one fee for each of {self.experts.count} experts, got"
                f" {self.costs.beta}."
            )

    @cached_property
    def key(self) -> str:
        """SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Canonical JSON: sorted names, no spaces, the schema's version inside."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ExperimentConfig:
        """Read a cell that ``to_json`` has written."""
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
