"""Tables of the paper: every one has cells, and what is printed fits them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from mildroute.exceptions import ArgumentError
from paper.networks import RECIPES
from paper.routers import METHODS
from paper.tables import PROFILES, TABLES, cells_of, printed_figures


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", TABLES)
def test_every_table_of_the_paper_has_cells_in_every_profile(name: str, profile: str) -> None:
    cells = cells_of([name], profile=profile)
    assert bool(cells) is (profile == "cpu" or not TABLES[name].frozen)
    assert len({cell.key for cell in cells}) == len(cells)
    assert {cell.seed for cell in cells} <= set(range(5))
    networks = (
        set(RECIPES) - {"resnet-small"}
        if profile == "paper"
        else {"resnet-small"}
        if TABLES[name].frozen
        else {""}
    )
    assert {cell.method.network for cell in cells} <= networks


def test_a_small_network_has_four_seeds_unless_fewer_are_asked_for() -> None:
    assert [len({cell.seed for cell in cells_of(["1a-e2e"], seeds=seeds)}) for seeds in (2, 5)] == [
        2,
        4,
    ]


def test_the_keys_of_cells_on_frozen_vectors_do_not_drift() -> None:
    """Thousands of results are stored under them."""
    keys = sorted(
        cell.key for cell in cells_of([name for name, table in TABLES.items() if not table.frozen])
    )
    assert len(keys) == 2370
    assert (
        hashlib.sha256("".join(keys).encode()).hexdigest()
        == "c7197863a853b6bec625b637a86f40327ce9fa7d730d4b72f928369c185c570a"
    )


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.frozen])
def test_end_to_end_lines_are_those_of_a_frozen_table_on_raw_inputs(name: str) -> None:
    linear = {line.row: line for line in TABLES[TABLES[name].frozen].lines}
    for line in TABLES[name].lines:
        assert (
            replace(line, network="", data=replace(line.data, features="frozen"))
            == linear[line.row]
        )
        assert (line.network, line.data.features) == ("resnet-small", "raw")


def test_setup_one_and_the_severe_split_are_run_end_to_end_on_two_sets() -> None:
    rows = [line.row for name in ("1a-e2e", "severe-e2e") for line in TABLES[name].lines]
    assert rows == ["I cifar10", "I svhn", "cifar10 synthetic", "svhn synthetic"]


@pytest.mark.parametrize(("name", "profile"), [("1a-e2e", "cpu"), ("3a", "paper")])
def test_who_shares_a_network_runs_after_who_trains_it(name: str, profile: str) -> None:
    order = [cell.method.name for cell in cells_of([name], profile=profile, seeds=2)]
    last = max(place for place, method in enumerate(order) if method == "mild")
    assert all(
        order.index(method) > last for method in ("mild-tuned", "mild-decoded", "mild-consistent")
    )
    # TDEF's network is one of those that our default chooses from.
    assert order.index("mildroute") > max(
        place for place, method in enumerate(order) if method == "tdef"
    )


def test_the_whole_small_profile_has_at_least_four_hundred_cells() -> None:
    assert len(cells_of(list(TABLES))) >= 400


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
                printed[table.frozen or table.name, line.printed, method].loss
                for method in ("TDEF", "MILD")
            )
            assert mild is not None
            assert tdef is not None
            assert mild < tdef


def test_the_printed_figures_are_counted() -> None:
    counts = {
        name: sum(each.table == name for each in printed_figures().values())
        for name, table in TABLES.items()
        if not table.frozen
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
