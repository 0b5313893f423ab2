"""Tables larger than memory, as streams of small tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mildroute.costs.duplicates import DuplicateDetector
from mildroute.costs.missing_scores import validate_missing
from mildroute.costs.options import ReadOptions
from mildroute.costs.repairs import RepairLog
from mildroute.costs.schema import ID
from mildroute.costs.source import Source, open_source
from mildroute.costs.table import CostTable
from mildroute.costs.validation import check_rows, drop_duplicates, validate
from mildroute.exceptions import ArgumentError, TableError

__all__ = ["batches"]


def batches(
    source: Any,
    *,
    rows: int = 65_536,
    experts: Sequence[str] | None = None,
    missing: str = "raise",
) -> Iterator[CostTable]:
    """Yield tables of limited size, checked one by one; ids must be unique across all of them.

    Args:
        source: An argument of ``CostTable.read`` or ``CostTable.from_data``; a long table is held
            in memory.
        rows: Maximum number of rows of a batch; it may have fewer at the end of a file or row
            group.
        experts: The experts to keep, or `None` for all.
        missing: As for ``CostTable.read``.

    Returns:
        The batches in the order of the rows.

    Example:
        >>> [len(batch) for batch in batches({"score:a": [1, 0, 1], "score:b": [0, 1, 1]}, rows=2)]
        [2, 1]
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise ArgumentError(f"rows must be a whole number of at least 1, got {rows!r}.")
    data = source.arrow if isinstance(source, CostTable) else source
    options = ReadOptions(experts, validate_missing(missing), rows=rows)
    return _validated_tables(open_source(data, options), rows)


def _validated_tables(source: Source, rows: int) -> Iterator[CostTable]:
    seen = DuplicateDetector()
    total = 0
    for chunk in source.chunks:
        log = RepairLog(list(source.layout.repairs))
        whole = drop_duplicates(validate(chunk, log), log)
        repeat = seen.first_repeat(whole.column(ID))
        if repeat is not None:
            query = whole.column(ID)[repeat].as_py()
            raise TableError(
                f"column {ID!r}: ids must be unique, got {query[:60]!r} again after row"
                f" {chunk.first_row}; keep one of the rows, or use CostTable.read, which drops rows"
                " that repeat in every column."
            )
        for start in range(0, whole.num_rows, rows):
            total += 1
            yield CostTable(
                whole.slice(start, rows),
                source.layout.experts,
                source.prices,
                log.sentences(),
                source.layout.ignored,
            )
    if not total:
        check_rows(0, source.log)
