"""The cost table of a collection, written from its store."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from mildroute._files import atomic_write
from mildroute.collection.entries import ANSWERS, VERDICTS
from mildroute.collection.job import CollectionJob
from mildroute.collection.queries import query_digest
from mildroute.collection.reasons import cell_reasons
from mildroute.collection.store import AnswerStore
from mildroute.costs.missing_scores import COLLECTED
from mildroute.costs.prices import metadata_of
from mildroute.experts.base import Expert, Query

__all__ = ["TABLE", "Gaps", "write_costs"]


TABLE = "costs.parquet"

# Columns of the queries that are copied to the table.
_COPIED = ("group", "split", "time")
# Columns of each expert.
_KINDS = ("score", "cost", "latency")
# Columns of each expert that are written only if all tokens were counted.
_TOKEN_KINDS = ("intokens", "outtokens")
# Columns of each expert that are written on request.
_ANSWER = "answer"
_LOGPROB = "logprob"
# The columns of answers in the store, and the kind of column that each becomes.
_ENTRY_COLUMNS = {
    "dollars": "cost",
    "latency": "latency",
    "tokens_in": "intokens",
    "tokens_out": "outtokens",
}
_ENTRY_TEXT_COLUMNS = {"text": _ANSWER, "logprob": _LOGPROB}
_TYPES = {"intokens": pa.int64(), "outtokens": pa.int64(), _ANSWER: pa.string()}

# The values of cells by kind of column; the keys are expert and digest of the query.
_Cells: TypeAlias = dict[tuple[str, str], dict[str, Any]]


@dataclass
class Gaps:
    """Counts of cells without a score, and of complete queries.

    Args:
        empty: Number of assigned cells without an answer or a verdict, or not called yet.
        unwanted: Number of cells of experts that did not get the query.
        complete: Number of queries without an empty assigned cell.
        left_out: Number of queries that the cap left incomplete and that are not in the table.
        left_out_cells: Number of empty assigned cells of those queries.
    """

    empty: int = 0
    unwanted: int = 0
    complete: int = 0
    left_out: int = 0
    left_out_cells: int = 0


def write_costs(job: CollectionJob, store: AnswerStore, stopped: Collection[str] = ()) -> Gaps:
    """Write the table of a job's experts in their present versions, scored by its judge.

    Cells without a verdict are empty; the reader of the table decides how to count them. A query is
    left out if an expert was not called because the cap stopped it, so that the cell does not count
    as a failure.

    Args:
        job: The job; the table in its folder is replaced as a whole.
        store: The stored answers and verdicts.
        stopped: Names of experts that the cap stopped.
    """
    experts = job.experts
    cells = _scored_cells(job, store)
    kinds = [*_KINDS]
    if all(
        None not in (cell[kind] for kind in (*_KINDS, *_TOKEN_KINDS)) for cell in cells.values()
    ):
        kinds += _TOKEN_KINDS
    if job.answers:
        kinds.append(_ANSWER)
    experts_with_logprobs = {
        name for (name, _), cell in cells.items() if job.answers and cell[_LOGPROB] is not None
    }
    columns = [name for name in _COPIED if name in job.queries.fields]
    schema = _make_schema(columns, kinds, experts, experts_with_logprobs)
    schema = schema.with_metadata(_make_metadata(job))
    is_assigned = job.is_assigned
    versions = job.versions
    called = {*cells, *cell_reasons(store, versions, job.judge_key)}
    gaps = Gaps()
    rows = []
    for query in job.queries:
        digest = query_digest(query)
        unscored = [name for name in versions if (name, digest) not in cells]
        empty = [name for name in unscored if is_assigned(name, query.query_id)]
        gaps.empty += len(empty)
        gaps.unwanted += len(unscored) - len(empty)
        gaps.complete += not empty
        if any(name in stopped and (name, digest) not in called for name in empty):
            gaps.left_out += 1
            gaps.left_out_cells += len(empty)
        else:
            rows.append(_make_row(query, digest, experts, cells))
    # Values without a column in the schema are left out.
    table = pa.Table.from_pylist(rows, schema=schema)
    with atomic_write(job.folder / TABLE) as beside:
        pq.write_table(table, beside, write_page_checksum=True)
    return gaps


def _scored_cells(job: CollectionJob, store: AnswerStore) -> _Cells:
    """Return the values of all cells with a score.

    Only the last answer and its dollars count.
    """
    versions = job.versions
    judge_key = job.judge_key
    cells: _Cells = {}
    for row in store.entries(VERDICTS):
        is_current = (
            versions.get(row["expert"]) == row["version"]
            and (row["judge"], row["judge_version"]) == judge_key
        )
        if is_current and row["score"] is not None:
            unset = dict.fromkeys((*_KINDS, *_TOKEN_KINDS, _ANSWER, _LOGPROB))
            cells[row["expert"], row["query"]] = {**unset, "score": row["score"]}
    columns = ["expert", "version", "query", "error", *_ENTRY_COLUMNS]
    if job.answers:
        columns += _ENTRY_TEXT_COLUMNS
    for row in store.entries(ANSWERS, columns):
        cell = cells.get((row["expert"], row["query"]))
        if cell is not None and versions.get(row["expert"]) == row["version"] and not row["error"]:
            for column, kind in (_ENTRY_COLUMNS | _ENTRY_TEXT_COLUMNS).items():
                cell[kind] = row.get(column)
    return cells


def _make_schema(
    columns: Sequence[str],
    kinds: Sequence[str],
    experts: Sequence[Expert],
    experts_with_logprobs: Collection[str],
) -> pa.Schema:
    types = dict.fromkeys(("query_id", "input", *columns), pa.string())
    for expert in experts:
        for kind in kinds:
            types[f"{kind}:{expert.name}"] = _TYPES.get(kind, pa.float64())
        if expert.name in experts_with_logprobs:
            types[f"{_LOGPROB}:{expert.name}"] = pa.float64()
    return pa.schema(types)


def _make_metadata(job: CollectionJob) -> dict[bytes, bytes]:
    collected: dict[str, Any] = {"judge": list(job.judge_key), "experts": job.versions}
    if job.experts_per_query is not None and job.experts_per_query < len(job.experts):
        collected["experts_per_query"] = job.experts_per_query
    return {**metadata_of(job.prices), COLLECTED: json.dumps(collected, sort_keys=True).encode()}


def _make_row(
    query: Query, digest: str, experts: Sequence[Expert], cells: _Cells
) -> dict[str, Any]:
    row: dict[str, Any] = {"query_id": query.query_id, "input": query.input}
    for name in _COPIED:
        value = query.fields.get(name)
        row[name] = None if value is None else str(value)
    for expert in experts:
        for kind, value in cells.get((expert.name, digest), {}).items():
            row[f"{kind}:{expert.name}"] = value
    return row
