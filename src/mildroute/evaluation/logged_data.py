"""Decisions made at random with known probabilities, each with one observed answer.

They are the input of off-policy estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.arrays import Choice, Matrix, as_choice, as_matrix
from mildroute.exceptions import ArgumentError, ShapeError, TableError

__all__ = ["LoggedDecisions", "read_logged_decisions"]

_ROUNDING = 1e-6
_PROPENSITY = "propensity:"
_POSTERIOR = "posterior:"


@dataclass(frozen=True)
class LoggedDecisions:
    """The logged decisions with their probabilities and the cost of each observed answer.

    Args:
        experts: Names of the p experts.
        chosen: Expert that was drawn, shape (n,); -1 if it is not one of these experts.
        costs: Cost of the chosen expert's answer, shape (n,); NaN if it gave no answer and another
            expert had to.
        chances: Probability of choosing each expert, shape (n, p); all above 0, with a sum of at
            most 1.
        groups: Group of each row, such as its conversation, shape (n,), or `None`.
        features: Facts about each request known before it is answered, shape (n, d), or `None`;
            doubly robust estimates learn from them.
        query_ids: Ids of the rows, or `None`.
        inputs: Texts of the rows, or `None`.
        notes: Sentences on what was left out.

    Example:
        >>> LoggedDecisions(("a", "b"), [0, 1], [0.2, 0.7], [[0.9, 0.1], [0.9, 0.1]]).rows
        2
    """

    experts: tuple[str, ...]
    chosen: Choice
    costs: NDArray[np.float64]
    chances: Matrix
    groups: NDArray[np.object_] | None = None
    features: Matrix | None = None
    query_ids: NDArray[np.object_] | None = None
    inputs: NDArray[np.object_] | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Check shapes and probabilities once."""
        chances = as_matrix(self.chances, "chances")
        if chances.shape[1] != len(self.experts):
            raise ShapeError(
                f"chances must have one column for each of {len(self.experts)} experts, got"
                f" {chances.shape[1]}."
            )
        if chances.min() <= 0 or chances.sum(axis=1).max() > 1 + _ROUNDING:
            raise ArgumentError(
                f"chances must be above 0 and at most 1 together, got {chances.min():g} and a sum"
                f" of {chances.sum(axis=1).max():g}; leave out rows on which an expert could not be"
                " chosen: nothing can be said of it there."
            )
        costs = np.asarray(self.costs, dtype=np.float64)
        if costs.shape != (len(chances),) or np.isinf(costs).any():
            raise ShapeError(
                f"costs must be ({len(chances)},), finite or NaN, got shape {costs.shape}."
            )
        object.__setattr__(self, "chances", chances)
        chosen = np.asarray(self.chosen)
        as_choice(np.where(chosen == -1, 0, chosen), *chances.shape)
        object.__setattr__(self, "chosen", chosen.astype(np.intp))
        object.__setattr__(self, "costs", np.where(chosen == -1, np.nan, costs))
        if self.features is not None:
            features = np.asarray(self.features, dtype=np.float64)
            object.__setattr__(
                self,
                "features",
                as_matrix(features, "features", (len(chances), *features.shape[1:])),
            )

    @property
    def rows(self) -> int:
        """Return the number of decisions n."""
        return len(self.chances)

    @property
    def has_answer(self) -> NDArray[np.bool_]:
        """Return whether each row's chosen expert is one of these and answered, shape (n,)."""
        return ~np.isnan(self.costs)

    @property
    def has_failed(self) -> NDArray[np.bool_]:
        """Return whether each row's chosen expert is one of these and failed, shape (n,)."""
        return np.isnan(self.costs) & (self.chosen >= 0)

    def weights(self, target: Matrix) -> NDArray[np.float64]:
        """Return the chosen expert's probability under a router over its logged probability.

        The router has probabilities of shape (n, p); the result has shape (n,).
        """
        rows, columns = np.arange(self.rows), np.maximum(self.chosen, 0)
        return np.where(self.chosen >= 0, target[rows, columns] / self.chances[rows, columns], 0.0)

    def take(self, rows: Any) -> LoggedDecisions:
        """Return some of the decisions, by a boolean mask of length n or by number."""
        chosen = np.asarray(rows)
        parts = {item.name: getattr(self, item.name) for item in fields(self)}
        return replace(
            self,
            **{name: part[chosen] for name, part in parts.items() if isinstance(part, np.ndarray)},
        )


def _expert_names(table: Any) -> list[str]:
    return [
        name.removeprefix(_PROPENSITY)
        for name in table.column_names
        if name.startswith(_PROPENSITY)
    ]


def read_logged_decisions(
    source: Any,
    *,
    price_weight: float = 0.0,
    latency_weight: float = 0.0,
    error_weight: float = 1.0,
    experts: Sequence[str] | None = None,
) -> LoggedDecisions:
    """Read decisions from a table that ``mildroute costs from-log`` has written.

    Rows on which one of the experts had probability zero are left out for all experts:
    conversations that keep their expert, inputs far from the training data, experts that were down.
    All experts are thus estimated on the same requests. An expert that always had probability zero
    is itself left out.

    Args:
        source: The Parquet file, or the Arrow table.
        price_weight: Value of a dollar in errors.
        latency_weight: Value of a second in errors.
        error_weight: Weight of the error.
        experts: Experts to read, or `None` for all.

    Returns:
        The decisions.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"query_id": ["q", "r"], "selected": ["a", "b"],
        ...                   "score:a": [0.5, None], "score:b": [None, 1.0],
        ...                   "propensity:a": [0.9, 0.9], "propensity:b": [0.1, 0.1]})
        >>> read_logged_decisions(table).costs
        array([0.5, 0. ])
    """
    table, notes = _without_samples(_table(source))
    names = _expert_names(table) if experts is None else list(experts)
    if len(names) < 2 or "selected" not in table.column_names:
        raise TableError(
            "off-policy estimates need the columns 'selected' and 'propensity:<expert>' of at least"
            " two experts; make the table with 'mildroute costs from-log'."
        )
    chances = np.nan_to_num(_matrix(table, _PROPENSITY, names))
    names, had_chance, more = _with_chance(names, chances)
    notes += more
    chances = chances[:, had_chance]
    rows = np.asarray((chances > 0).all(axis=1))
    if not names or not rows.any():
        raise TableError(
            "no decision gave every expert a chance, so that nothing can be estimated; let the"
            " gateway explore (routing: {exploration: 0.05}), or name fewer experts."
        )
    if not rows.all():
        notes += (
            (
                f"{(~rows).sum():,} of {len(rows):,} decisions are left out: not every expert had a"
                " chance in them"
            ),
        )
    index_of = {name: index for index, name in enumerate(names)}
    chosen = np.array(
        [index_of.get(name, -1) for name in table.column("selected").to_pylist()], dtype=np.intp
    )
    costs = _costs(table, names, chosen, (error_weight, price_weight, latency_weight))
    group, query_id, text = (_texts(table, name, rows) for name in ("group", "query_id", "input"))
    features = _features(table, names, rows)
    return LoggedDecisions(
        tuple(names),
        chosen[rows],
        costs[rows],
        chances[rows],
        group,
        features,
        query_id,
        text,
        notes,
    )


def _without_samples(table: Any) -> tuple[Any, tuple[str, ...]]:
    """Drop sampled rows, on which several experts were certain to be called."""
    names = _expert_names(table)
    sums = np.nan_to_num(_matrix(table, _PROPENSITY, names)).sum(axis=1) if names else np.zeros(0)
    is_sampled = sums > 1 + _ROUNDING
    if not is_sampled.any():
        return table, ()
    count = f"{is_sampled.sum():,} of {len(is_sampled):,}"
    note = f"{count} rows are samples, which need no estimate and are left out"
    return table.filter(~is_sampled), (note,)


def _table(source: Any) -> Any:
    import pyarrow as pa

    if isinstance(source, pa.Table):
        return source
    import pyarrow.parquet as pq

    try:
        return pq.read_table(Path(source))
    except (OSError, pa.ArrowException) as error:
        raise TableError(
            f"{str(source)!r} cannot be read as Parquet: {' '.join(str(error).split())[:200]};"
            " check the path."
        ) from error


def _matrix(table: Any, prefix: str, names: Sequence[str]) -> Matrix:
    missing = [name for name in names if prefix + name not in table.column_names]
    if missing:
        raise TableError(
            f"the table has no column {prefix + missing[0]!r}; make it with 'mildroute costs"
            " from-log'."
        )
    return np.column_stack(
        [table.column(prefix + name).cast("float64").to_numpy() for name in names]
    )


def _with_chance(
    names: Sequence[str], chances: Matrix
) -> tuple[list[str], list[bool], tuple[str, ...]]:
    ever = [bool((column > 0).any()) for column in chances.T]
    never = [name for name, had in zip(names, ever, strict=True) if not had]
    notes = (
        (f"nothing can be said of {', '.join(map(repr, never))}, which never had a chance",)
        if never
        else ()
    )
    return [name for name, had in zip(names, ever, strict=True) if had], ever, notes


def _costs(
    table: Any, names: Sequence[str], chosen: Choice, weights: tuple[float, float, float]
) -> NDArray[np.float64]:
    for name, weight in zip(
        ("error_weight", "price_weight", "latency_weight"), weights, strict=True
    ):
        if not np.isfinite(weight) or weight < 0:
            raise ArgumentError(f"{name} must be finite and not negative, got {weight}.")
    rows, column = np.arange(len(chosen)), np.maximum(chosen, 0)
    total = weights[0] * (1.0 - _matrix(table, "score:", names)[rows, column])
    for prefix, weight in (("cost:", weights[1]), ("latency:", weights[2])):
        if weight:
            total = total + weight * _matrix(table, prefix, names)[rows, column]
    return np.asarray(total, dtype=np.float64)


def _texts(table: Any, name: str, rows: NDArray[np.bool_]) -> NDArray[np.object_] | None:
    return (
        np.array(table.column(name).to_pylist(), dtype=object)[rows]
        if name in table.column_names
        else None
    )


def _features(table: Any, names: Sequence[str], rows: NDArray[np.bool_]) -> Matrix | None:
    """Return the router's posterior of each expert; 0 for an expert that it did not know."""
    if any(_POSTERIOR + name not in table.column_names for name in names):
        return None
    return np.nan_to_num(_matrix(table, _POSTERIOR, names))[rows]
