"""From what was collected to a cost table."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mildroute._files import atomic_write
from mildroute.collection.queries import QueryFile, query_digest, sample_experts
from mildroute.collection.store import ANSWERS, VERDICTS, AnswerStore, cell_reasons
from mildroute.costs.prices import PriceList, metadata_of
from mildroute.costs.validation import COLLECTED
from mildroute.experts.base import Expert, Query
from mildroute.judges.base import Judge

__all__ = ["TABLE", "Gaps", "write_costs"]


TABLE = "costs.parquet"
_KEPT = ("group", "split", "time")
# Columns of an expert; tokens only where all of them were counted.
_KINDS = ("score", "cost", "latency", "intokens", "outtokens")
# Columns of an expert that are written on request.
_ANSWER, _LOGPROB = "answer", "logprob"
_RUN = 8192


@dataclass
class Gaps:
    """Cells without a score, and queries that are complete.

    Args:
        empty: Cells that were wanted: no answer, no verdict, or not called yet.
        unwanted: Cells of experts that were not to get that query.
        complete: Queries without a cell of the first kind.
        left_out: Queries that the cap left incomplete, which are not in the table.
        left_out_cells: Cells of the first kind in those queries.
    """

    empty: int = 0
    unwanted: int = 0
    complete: int = 0
    left_out: int = 0
    left_out_cells: int = 0


def write_costs(
    folder: Path,
    archive: AnswerStore,
    queries: QueryFile,
    experts: Sequence[Expert],
    judge: Judge,
    prices: PriceList | None,
    experts_per_query: int | None = None,
    *,
    answers: bool = False,
    stopped: Collection[str] = (),
) -> Gaps:
    """Write the table of the experts, scored by the judge, each in its present version.

    Cells without a verdict are empty: the reader of the table says how to count them. A query for
    which an expert was not called because the cap stopped it is left out, so that the cell
    does not count as a failure.

    Args:
        folder: Where; the file is replaced as a whole.
        archive: What was collected.
        queries: The rows of the table, in this order.
        experts: Its columns.
        judge: Whose scores.
        prices: List prices to keep beside the table, or none.
        experts_per_query: How many experts each query is given to, or none for all; the table says
            so.
        answers: Whether the texts of the answers are written, too, as a cascade needs them, and
            their log-probabilities where they are known.
        stopped: Names of experts that the cap stopped.
    """
    found = _cells(archive, experts, judge, answers=answers)
    kinds = _KINDS if all(None not in cell[:5] for cell in found.values()) else _KINDS[:3]
    kinds = (*kinds, _ANSWER, _LOGPROB) if answers else kinds
    told = {name for (name, _), cell in found.items() if cell[6] is not None}
    schema = _schema([name for name in _KEPT if name in queries.others], kinds, experts, told)
    schema = schema.with_metadata(_about(experts, judge, prices, experts_per_query))
    wanted = sample_experts([expert.name for expert in experts], experts_per_query)
    versions = {expert.name: expert.version for expert in experts}
    called = {*found, *cell_reasons(archive, versions, (judge.name, judge.version))}
    gaps = Gaps()
    with (
        atomic_write(folder / TABLE) as beside,
        pq.ParquetWriter(beside, schema, write_page_checksum=True) as writer,
    ):
        for run in _runs(queries):
            rows = []
            for query in run:
                digest = query_digest(query)
                holes = [name for name in versions if (name, digest) not in found]
                empty = [name for name in holes if wanted(name, query.query_id)]
                gaps.empty += len(empty)
                gaps.unwanted += len(holes) - len(empty)
                gaps.complete += not empty
                if any(name in stopped and (name, digest) not in called for name in empty):
                    gaps.left_out += 1
                    gaps.left_out_cells += len(empty)
                else:
                    rows.append(_row(query, digest, experts, found))
            # Columns that the schema does not have are left out.
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return gaps


def _cells(
    archive: AnswerStore, experts: Sequence[Expert], judge: Judge, *, answers: bool
) -> dict[tuple[str, str], list[Any]]:
    """Score, dollars, latency, tokens, text and log-probability by expert and digest of the query.

    The last answer counts, its dollars alone.
    """
    versions = {expert.name: expert.version for expert in experts}
    who = (judge.name, judge.version)
    cells: dict[tuple[str, str], list[Any]] = {}
    for row in archive.entries(VERDICTS):
        is_wanted = (
            versions.get(row["expert"]) == row["version"]
            and (row["judge"], row["judge_version"]) == who
        )
        if is_wanted and row["score"] is not None:
            cells[row["expert"], row["query"]] = [row["score"], *[None] * 6]
    for row in archive.entries(
        ANSWERS,
        [
            "expert",
            "version",
            "query",
            "error",
            "dollars",
            "latency",
            "tokens_in",
            "tokens_out",
            *(["text", "logprob"] if answers else []),
        ],
    ):
        cell = cells.get((row["expert"], row["query"]))
        if cell is not None and versions.get(row["expert"]) == row["version"] and not row["error"]:
            cell[1:5] = [row["dollars"], row["latency"], row["tokens_in"], row["tokens_out"]]
            cell[5:] = [row.get("text"), row.get("logprob")]
    return cells


def _schema(
    kept: Sequence[str], kinds: Sequence[str], experts: Sequence[Expert], told: set[str]
) -> pa.Schema:
    """Columns of the table; log-probabilities only of experts that told any."""
    texts = dict.fromkeys(("query_id", "input", *kept), pa.string())
    types = {"intokens": pa.int64(), "outtokens": pa.int64(), _ANSWER: pa.string()}
    numbers = {
        f"{kind}:{expert.name}": types.get(kind, pa.float64())
        for expert in experts
        for kind in kinds
        if kind != _LOGPROB or expert.name in told
    }
    return pa.schema({**texts, **numbers})


def _about(
    experts: Sequence[Expert], judge: Judge, prices: PriceList | None, per_query: int | None
) -> dict[bytes, bytes]:
    about: dict[str, Any] = {
        "judge": [judge.name, judge.version],
        "experts": {expert.name: expert.version for expert in experts},
    }
    if per_query is not None and per_query < len(experts):
        about["experts_per_query"] = per_query
    return {**metadata_of(prices), COLLECTED: json.dumps(about, sort_keys=True).encode()}


def _row(
    query: Query, digest: str, experts: Sequence[Expert], cells: dict[tuple[str, str], list[Any]]
) -> dict[str, Any]:
    row: dict[str, Any] = {"query_id": query.query_id, "input": query.input}
    row |= {
        name: None if query.fields.get(name) is None else str(query.fields[name]) for name in _KEPT
    }
    for expert in experts:
        values = cells.get((expert.name, digest), [None] * 7)
        row |= {
            f"{kind}:{expert.name}": value
            for kind, value in zip((*_KINDS, _ANSWER, _LOGPROB), values, strict=True)
        }
    return row


def _runs(queries: Iterable[Query]) -> Iterator[list[Query]]:
    run: list[Query] = []
    for query in queries:
        run.append(query)
        if len(run) == _RUN:
            yield run
            run = []
    if run:
        yield run
