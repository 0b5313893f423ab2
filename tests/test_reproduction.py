"""The ledger in the documentation is what the stored results say, to the byte."""

from __future__ import annotations

from pathlib import Path

from mildroute.engine.ledger import write_ledger
from mildroute.engine.paper_tables import TABLES, cells_of
from mildroute.engine.run import missing_cells
from mildroute.engine.store import Store

ROOT = Path(__file__).parents[1]
STORE = Store(ROOT / "benchmarks" / "results" / "paper")


def test_the_ledger_regenerates_to_the_byte(tmp_path: Path) -> None:
    write_ledger(STORE, tmp_path / "ledger.md")
    assert (tmp_path / "ledger.md").read_bytes() == (ROOT / "docs" / "reproduction.md").read_bytes()


def test_no_cell_is_missing() -> None:
    cells = cells_of(list(TABLES))
    assert len(cells) == 2466
    assert missing_cells(cells, STORE) == []
