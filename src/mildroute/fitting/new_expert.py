"""Addition of an expert to a table, based on some scored queries."""

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
    table: CostTable, encoder: Any, other_inputs: Sequence[str] = (), *, seed: int = 0
) -> KnownExperts:
    """Learn the reference for a new expert from a table's rows and further inputs."""
    return _learn_known_experts(
        table, 1 - table.scores, _vectors(table, encoder, other_inputs), seed
    )


def with_new_expert(
    table: CostTable, scored: CostTable, encoder: Any, *, seed: int = 0
) -> tuple[CostTable, str]:
    """Return the table with a column for a new expert, estimated from some scored queries.

    Args:
        table: Table with inputs, without the new expert.
        scored: Scored queries as ``CostTable.read_new_expert`` returns them; rows whose ids are in
            the table are more informative.
        encoder: Transformer from inputs to vectors, to be fitted on the table.
        seed: Seed for clusters and folds.

    Returns:
        The table, and a note on how the new expert's scores were estimated.
    """
    name = scored.experts[0]
    scored = scored.take(~np.isnan(scored.scores[:, 0])).without_latencies()
    table = complete_table(table, encoder, seed)[0].without_latencies()
    if table.dollars is not None and (
        scored.dollars is None or np.isnan(scored.dollars[:, 0]).any()
    ):
        raise TableError(
            f"the table has dollars, got scores of {name!r} without 'cost:{name}'; add the cost"
            " of each of its answers."
        )
    rows, new_inputs = _match_rows(table, scored)
    vectors = _vectors(table, encoder, new_inputs)
    columns = []
    for costs, scored_costs, caution in (
        (1 - table.scores, 1 - scored.scores[:, 0], None),
        (table.dollars, None if scored.dollars is None else scored.dollars[:, 0], 0.0),
    ):
        if costs is None or scored_costs is None:
            continue
        new_costs = np.full(len(table) + len(new_inputs), np.nan)
        new_costs[rows] = scored_costs
        experts = _learn_known_experts(table, costs, vectors, seed)
        expected = (
            experts.costs_of_new(new_costs)
            if caution is None
            else np.maximum(experts.costs_of_new(new_costs, caution=caution), scored_costs.min())
        )
        columns.append(expected[: len(table)])
    return table.with_expert(name, 1 - columns[0], *columns[1:]), (
        f"the scores of {name} are estimates from {len(rows)} scored queries,"
        f" {len(rows) - len(new_inputs)} of them rows of the table, and a little lower than"
        " expected, so that it is chosen rarely while its scores are uncertain; the intervals"
        " do not account for this, so evaluate on held-out rows"
    )


def _match_rows(table: CostTable, scored: CostTable) -> tuple[list[int], list[str]]:
    """Return each scored query's row, and the inputs that are not in the table.

    New inputs are numbered after the table's rows.
    """
    row_of = {query: row for row, query in enumerate(table.query_ids)}
    new_inputs = [row for row, query in enumerate(scored.query_ids) if query not in row_of]
    if new_inputs and scored.inputs is None:
        raise TableError(
            f"queries that are not in the table need the column 'input', got {len(new_inputs)} such"
            " queries without it; add it, or give the ids of the table."
        )
    row_of |= {scored.query_ids[row]: len(table) + index for index, row in enumerate(new_inputs)}
    inputs = scored.inputs or []
    return [row_of[query] for query in scored.query_ids], [inputs[row] for row in new_inputs]


def _learn_known_experts(
    table: CostTable, costs: NDArray[np.float64], vectors: tuple[Any, Any], seed: int
) -> KnownExperts:
    return KnownExperts.learn(vectors[0], costs, vectors[1], table.groups, random_state=seed)
