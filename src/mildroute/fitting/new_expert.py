"""Addition of an expert to a table from some scored queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.costs.table import CostTable
from mildroute.exceptions import TableError
from mildroute.fitting.imputation import _vectors, complete_table
from mildroute.routers.known_experts import KnownExperts


def known_experts(
    table: CostTable, encoder: Any, further: Sequence[str] = (), *, seed: int = 0
) -> KnownExperts:
    """Learn the reference for a new expert from a table's rows and further inputs."""
    return _known(table, 1 - table.scores, _vectors(table, encoder, further), seed)


def with_new_expert(
    table: CostTable, scored: CostTable, encoder: Any, *, seed: int = 0
) -> tuple[CostTable, str]:
    """Return the table with a column for a new expert, estimated from some scored queries.

    Args:
        table: Table with inputs, without the new expert.
        scored: Scored queries as ``CostTable.read_new_expert`` returns them; rows whose ids are in
            the table are more informative.
        encoder: Transformer of inputs, to be fitted on the table.
        seed: Seed of clusters and folds.

    Returns:
        The table, and a description of what is known about the new expert.
    """
    name = scored.experts[0]
    scored = scored.take(~np.isnan(scored.scores[:, 0])).without_latencies()
    table = complete_table(table, encoder, seed)[0].without_latencies()
    if table.dollars is not None and (
        scored.dollars is None or np.isnan(scored.dollars[:, 0]).any()
    ):
        raise TableError(
            f"the table has dollars, got scores of {name!r} without 'cost:{name}'; add what each of"
            " its answers cost."
        )
    rows, fresh = _placed(table, scored)
    vectors = _vectors(table, encoder, fresh)
    columns = []
    for known, new, caution in (
        (1 - table.scores, 1 - scored.scores[:, 0], None),
        (table.dollars, None if scored.dollars is None else scored.dollars[:, 0], 0.0),
    ):
        if known is None or new is None:
            continue
        seen = np.full(len(table) + len(fresh), np.nan)
        seen[rows] = new
        experts = _known(table, known, vectors, seed)
        expected = (
            experts.costs_of_new(seen)
            if caution is None
            else np.maximum(experts.costs_of_new(seen, caution=caution), new.min())
        )
        columns.append(expected[: len(table)])
    return table.with_expert(name, 1 - columns[0], *columns[1:]), (
        f"the scores of {name} are estimates from {len(rows)} scored queries,"
        f" {len(rows) - len(fresh)} of them rows of the table, and a little lower than expected, so"
        " that it is chosen little while little is known of it; intervals do not know this:"
        " evaluate on held-out rows"
    )


def _placed(table: CostTable, scored: CostTable) -> tuple[list[int], list[str]]:
    """Return each scored query's row in the table or, after it, among new inputs; and those."""
    places = {query: row for row, query in enumerate(table.query_ids)}
    fresh = [row for row, query in enumerate(scored.query_ids) if query not in places]
    if fresh and scored.inputs is None:
        raise TableError(
            f"queries that are not in the table need the column 'input', got {len(fresh)} of them"
            " without it; add it, or give the ids of the table."
        )
    places |= {scored.query_ids[row]: len(table) + index for index, row in enumerate(fresh)}
    inputs = scored.inputs or []
    return [places[query] for query in scored.query_ids], [inputs[row] for row in fresh]


def _known(
    table: CostTable, costs: NDArray[np.float64], vectors: tuple[Any, Any], seed: int
) -> KnownExperts:
    return KnownExperts.learn(vectors[0], costs, vectors[1], table.groups, random_state=seed)
