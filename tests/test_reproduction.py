"""The ledger in the documentation is what the stored results say, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paper.paper_tables import TABLES, cells_of
from benchmarks.paper.report import write_ledger
from benchmarks.paper.run import Store, missing_cells
from benchmarks.paper.summaries import gap_between, results_of

ROOT = Path(__file__).parents[1]
STORE = Store(ROOT / "benchmarks" / "results" / "paper")


def test_the_ledger_regenerates_to_the_byte(tmp_path: Path) -> None:
    write_ledger(STORE, tmp_path / "ledger.md")
    assert (tmp_path / "ledger.md").read_bytes() == (ROOT / "docs" / "reproduction.md").read_bytes()


def test_no_cell_is_missing() -> None:
    cells = cells_of(list(TABLES))
    assert len(cells) == 2466
    assert missing_cells(cells, STORE) == []


@pytest.mark.parametrize("table", [name for name, table in TABLES.items() if table.frozen])
@pytest.mark.parametrize("other", ["tdef", "mild-tuned"])
def test_the_deep_default_is_nowhere_significantly_worse_than_a_fixed_objective(
    table: str, other: str
) -> None:
    results = STORE.read({cell.key for cell in cells_of([table])})
    for line in TABLES[table].lines:
        ours, theirs = (results_of(line, name, results, 5) for name in ("mildroute", other))
        assert len(ours) == len(theirs) == 4
        assert gap_between(ours, theirs).verdict != "worse", line.row
