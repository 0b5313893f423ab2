"""A table larger than memory, as a stream of small tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mildroute.costs.columns import ID
from mildroute.costs.parts import Opened, opened
from mildroute.costs.repairs import RepairLog
from mildroute.costs.repeats import Seen
from mildroute.costs.table import CostTable
from mildroute.costs.validation import check_rows, checked, without_repeats
from mildroute.errors import ArgumentError, TableError

__all__ = ["batches"]


def batches(source: Any, *, rows: int = 65_536, experts: Sequence[str] | None = None, missing: str = "refuse") -> Iterator[CostTable]:
    """Tables of at most so many rows, checked one by one; ids must be unique over all of them.

    Args:
        source: What ``CostTable.read`` and ``CostTable.of`` take; a long table is held in memory as a whole.
        rows: Of a batch; it may have fewer where a file or row group ends.
        experts: The experts to keep, or none for all.
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
    return _checked(opened(data, experts=experts, missing=missing, rows=rows), rows)


def _checked(source: Opened, rows: int) -> Iterator[CostTable]:
    seen = Seen()
    total = 0
    for part in source.parts:
        log = RepairLog(list(source.layout.repairs))
        whole = without_repeats(checked(part, log), log)
        again = seen.first_repeat(whole.column(ID))
        if again is not None:
            query = whole.column(ID)[again].as_py()
            raise TableError(
                f"column {ID!r}: ids must be unique, got {query[:60]!r} again after row {part.first_row}; "
                "keep one of the rows, or use CostTable.read, which drops rows that repeat in every column."
            )
        for start in range(0, whole.num_rows, rows):
            total += 1
            yield CostTable(whole.slice(start, rows), source.layout.experts, source.prices, log.sentences(), source.layout.ignored)
    if not total:
        check_rows(0, source.log)
