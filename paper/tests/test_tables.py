"""Tables of the paper: every one has cells, and what is printed fits them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mildroute.exceptions import ArgumentError
from paper.networks import RECIPES
from paper.results import Store
from paper.routers import METHODS
from paper.tables import TABLES, cells_of, printed_figures


@pytest.mark.parametrize(("profile", "networks"), [("cpu", {""}), ("paper", set(RECIPES))])
@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_cells_in_every_profile(
    name: str, profile: str, networks: set[str]
) -> None:
    cells = cells_of([name], profile=profile)
    assert cells
    assert len({cell.key for cell in cells}) == len(cells)
    assert {cell.seed for cell in cells} == set(range(5))
    assert {cell.method.network for cell in cells} <= networks


def test_every_stored_result_is_a_cell_of_a_table() -> None:
    """A drifting key would lose the results that are stored under it."""
    stored = Store(Path(__file__).parents[1] / "results" / "linear").keys()
    assert stored <= {cell.key for cell in cells_of(list(TABLES))}


def test_methods_that_share_a_network_run_after_the_one_that_trains_it() -> None:
    order = [cell.method.name for cell in cells_of(["3a"], profile="paper", seeds=2)]
    for first, later in (
        ("mild", "mild-tuned"),
        ("mild", "mild-decoded"),
        ("mild-mass", "mild-mass-tuned"),
    ):
        last = max(index for index, method in enumerate(order) if method == first)
        assert order.index(later) > last


def test_a_cell_of_two_tables_stands_once() -> None:
    both = cells_of(["3b", "margins"])
    assert len(both) < len(cells_of(["3b"])) + len(cells_of(["margins"]))


def test_methods_of_tables_exist_and_tdef_is_in_each() -> None:
    for table in TABLES.values():
        assert set(table.methods) <= set(METHODS)
        assert "tdef" in table.methods


def test_every_printed_figure_has_a_line_and_as_many_shares_as_experts() -> None:
    for (name, row, method), printed in printed_figures().items():
        lines = [line for line in TABLES[name].lines if line.printed == row]
        assert lines, (name, row)
        assert method in {
            "TDEF",
            "MILD",
            "CE",
            "CWCE",
            "LDAM",
            "MILD uniform",
            "MILD theory",
            "MILD tuned",
            "optimal",
        }
        if len(printed.shares) > 1:
            assert len(printed.shares) == lines[0].experts.count
            assert sum(printed.shares) == pytest.approx(100, abs=0.2)


def test_every_line_of_the_paper_has_its_printed_tdef_and_mild() -> None:
    printed = printed_figures()
    for table in TABLES.values():
        if table.name in ("3c", "margins"):
            continue
        for line in table.lines:
            tdef, mild = (
                printed[table.name, line.printed, method].loss for method in ("TDEF", "MILD")
            )
            assert mild is not None
            assert tdef is not None
            assert mild < tdef


def test_the_printed_figures_are_counted() -> None:
    counts = {
        name: sum(each.table == name for each in printed_figures().values()) for name in TABLES
    }
    assert counts == {
        "1a": 24, "1b": 24, "2a": 18, "2b": 18, "3a": 3, "3b": 6, "3c": 0,
        "severe": 6, "margins": 3, "noise": 2, "extreme": 2,
    }  # fmt: skip


def test_printed_mild_lies_below_the_oracle_that_its_own_table_implies() -> None:
    """The arithmetic of an inconsistency in the printed table."""
    printed = printed_figures()
    strong, medium, tiny = (share / 100 for share in printed["3b", "mmlu", "optimal"].shares)
    tdef, mild = (printed["3b", "mmlu", method].loss or 0 for method in ("TDEF", "MILD"))
    tiny_right = 1 - (tdef - 0.1)
    nobody = tiny - tiny_right
    oracle = tiny * 0.1 + nobody + medium * 0.6 + strong * 1.0
    assert oracle == pytest.approx(0.837, abs=5e-4)
    assert mild < oracle


@pytest.mark.parametrize(
    ("names", "profile", "seeds"), [(["9z"], "cpu", 5), (["1a"], "gpu", 5), (["1a"], "cpu", 0)]
)
def test_unknown_tables_profiles_and_seeds_are_refused(
    names: list[str], profile: str, seeds: int
) -> None:
    with pytest.raises(ArgumentError, match="tables must be of 1a"):
        cells_of(names, profile=profile, seeds=seeds)
