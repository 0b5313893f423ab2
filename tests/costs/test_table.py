from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mildroute.costs.table import CostTable
from mildroute.exceptions import ArgumentError, TableError

COLUMNS = {
    "query_id": ["p", "q"],
    "text": ["one", "two"],
    "group": ["g", "h"],
    "score:a": [1.0, 0.25],
    "score:b": [0.5, 1.0],
    "cost:a": [0.01, 0.02],
    "cost:b": [0.1, 0.2],
    "latency:a": [1.0, 2.0],
    "latency:b": [3.0, 4.0],
    "comment": ["", ""],
}


def test_arrays_have_one_column_an_expert() -> None:
    table = CostTable.from_data(COLUMNS)
    assert (table.rows, len(table), table.experts) == (2, 2, ("a", "b"))
    assert table.inputs == ["one", "two"]
    assert table.groups is not None
    assert table.groups.tolist() == ["g", "h"]
    assert table.scores.tolist() == [[1.0, 0.5], [0.25, 1.0]]
    assert table.dollars is not None
    assert table.dollars.tolist() == [[0.01, 0.1], [0.02, 0.2]]
    assert table.latencies is not None
    assert table.latencies.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert table.ignored == ("comment",)
    assert table.repairs == ()


def test_a_table_without_optional_columns_says_so_with_none() -> None:
    table = CostTable.from_data({"query_id": ["q"], "score:a": [1], "score:b": [0]})
    assert table.inputs is table.groups is table.dollars is table.latencies is table.prices is None


def test_costs_add_up_by_their_weights() -> None:
    costs = CostTable.from_data(COLUMNS).costs(price_weight=10, latency_weight=0.1, error_weight=2)
    np.testing.assert_allclose(costs, [[0.1 + 0.1, 1.0 + 1.0 + 0.3], [1.5 + 0.2 + 0.2, 2.0 + 0.4]])
    assert costs.flags.writeable


def test_arrays_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        CostTable.from_data(COLUMNS).scores[0, 0] = 0.0


@pytest.mark.parametrize(
    "weights",
    [{"price_weight": -1}, {"latency_weight": float("nan")}, {"error_weight": float("inf")}],
)
def test_weights_are_finite_and_not_negative(weights: dict[str, float]) -> None:
    with pytest.raises(ArgumentError):
        CostTable.from_data(COLUMNS).costs(**weights)


def test_a_price_weight_without_dollars_is_refused() -> None:
    with pytest.raises(TableError, match="with_prices"):
        CostTable.from_data({"score:a": [1], "score:b": [0]}).costs(price_weight=1)


def test_select_keeps_the_given_order_and_drops_what_belongs_to_others() -> None:
    table = CostTable.from_data(
        COLUMNS | {"score:c": [0, 0], "cost:c": [1, 1], "latency:c": [1, 1]}
    ).select(["c", "a"])
    assert table.experts == ("c", "a")
    assert table.scores.tolist() == [[0.0, 1.0], [0.0, 0.25]]
    assert not any(name.endswith(":b") for name in table.arrow.column_names)
    assert CostTable.from_data(COLUMNS, experts=["b", "a"]).experts == ("b", "a")


@pytest.mark.parametrize("experts", [["a"], ["a", "a"], ["a", "nobody"], []])
def test_at_least_two_known_experts_are_kept(experts: list[str]) -> None:
    with pytest.raises(TableError):
        CostTable.from_data(COLUMNS).select(experts)


def test_take_accepts_numbers_and_masks() -> None:
    table = CostTable.from_data(COLUMNS)
    assert table.take([1, 0]).query_ids == ["q", "p"]
    assert table.take(np.array([False, True])).query_ids == ["q"]


@pytest.mark.parametrize("rows", [[], [2], [-1], [0, 0], [0.5], [[0]], [True]])
def test_take_refuses_what_is_not_a_row(rows: list[object]) -> None:
    with pytest.raises(ArgumentError):
        CostTable.from_data(COLUMNS).take(rows)


@pytest.mark.parametrize(
    "name", ["t.parquet", "t.csv", "t.jsonl", "t.ndjson", "t.json", "deep/folder/t.pq", "shards"]
)
def test_what_is_written_reads_back_the_same(name: str, tmp_path: Path) -> None:
    table = CostTable.from_data(
        COLUMNS
        | {
            "time": ["2024-01-02", "2024-01-01T10:00:00"],
            "split": ["train", "test"],
            "outchars:a": [5, 7],
        }
    )
    back = CostTable.read(table.save(tmp_path / name))
    assert back.content_hash == table.content_hash
    assert back.arrow.equals(table.arrow)


def test_shards_are_written_into_a_new_folder_alone(tmp_path: Path) -> None:
    table = CostTable.from_data(COLUMNS)
    table.save(tmp_path / "shards", shards=2)
    assert len(list((tmp_path / "shards").iterdir())) == 2
    with pytest.raises(TableError, match="not empty"):
        table.save(tmp_path / "shards", shards=1)
    with pytest.raises(ArgumentError, match="folder"):
        table.save(tmp_path / "t.parquet", shards=2)
    with pytest.raises(ArgumentError, match="at least 1"):
        table.save(tmp_path / "other", shards=0)


ANSWERED = COLUMNS | {"answer:a": ["yes", None], "answer:b": ["no", "maybe"]}


def test_answers_are_read_only_where_they_are_asked_for() -> None:
    plain = CostTable.from_data(ANSWERED)
    assert set(plain.ignored) == {"answer:a", "answer:b", "comment"}
    with pytest.raises(TableError, match="answers of 'a' are needed, got none; read the table"):
        plain.answers("a")
    table = CostTable.from_data(ANSWERED, answers=True)
    assert table.answers("a") == ["yes", ""], "no answer is an empty text"
    assert table.answers("b") == ["no", "maybe"]
    np.testing.assert_array_equal(table.scores, plain.scores)


def test_answers_must_be_there_of_all_experts_that_are_kept() -> None:
    some = {name: values for name, values in ANSWERED.items() if name != "answer:b"}
    with pytest.raises(TableError, match=r"got no column 'answer:b'; collect with --answers"):
        CostTable.from_data(some, answers=True)
    numbers = ANSWERED | {"answer:b": [0.5, 1.5]}
    with pytest.raises(TableError, match="column 'answer:b' must hold text"):
        CostTable.from_data(numbers, answers=True)


TOLD = ANSWERED | {"logprob:b": [None, -0.25]}


@pytest.mark.parametrize("name", ["told.parquet", "told.csv", "told.jsonl"])
def test_log_probabilities_are_read_with_answers(tmp_path: Path, name: str) -> None:
    assert "logprob:b" in CostTable.from_data(TOLD).ignored
    table = CostTable.from_data(TOLD, answers=True)
    again = CostTable.read(table.save(tmp_path / name), answers=True)
    assert again.content_hash == table.content_hash
    assert table.content_hash != CostTable.from_data(ANSWERED, answers=True).content_hash
    for found in (table, again, table.select(["b", "a"])):
        assert found.logprobs("a") is None
        np.testing.assert_array_equal(found.logprobs("b"), [np.nan, -0.25])
    assert table.take([1]).logprobs("b") == [-0.25]


def test_log_probabilities_are_finite_and_not_positive() -> None:
    for value, said in ((0.5, "0.5"), (float("-inf"), "-inf")):
        rule = f"'logprob:b', row 1 .*: a log-probability must be a number of at most 0, got {said}"
        with pytest.raises(TableError, match=rule):
            CostTable.from_data(TOLD | {"logprob:b": [-1.0, value]}, answers=True)


def test_what_is_not_known_of_a_row_does_not_make_its_copy_another_row() -> None:
    twice = {name: [values[0], *values] for name, values in TOLD.items()}
    assert len(CostTable.from_data(twice, answers=True)) == 2


def test_a_log_probability_of_an_answer_that_never_came_stays_unknown() -> None:
    holes = TOLD | {"score:b": [None, 1.0], "cost:b": [None, 0.1]}
    found = CostTable.from_data(holes, answers=True, missing="zero").logprobs("b")
    np.testing.assert_array_equal(found, [np.nan, -0.25])


@pytest.mark.parametrize("name", ["table.parquet", "table.csv", "table.jsonl"])
def test_answers_are_written_selected_and_taken_with_their_rows(name: str, tmp_path: Path) -> None:
    table = CostTable.from_data(ANSWERED, answers=True)
    back = CostTable.read(table.save(tmp_path / name), answers=True)
    assert back.answers("a") == ["yes", ""]
    assert table.select(["b", "a"]).answers("b") == ["no", "maybe"]
    assert table.take([1]).answers("b") == ["maybe"]


def test_another_expert_stands_behind_the_others() -> None:
    table = CostTable.from_data(ANSWERED, answers=True)
    more = table.with_expert("c", [1, 0], dollars=[0.3, 0.4], latencies=[5, 6])
    assert more.experts == ("a", "b", "c")
    assert more.scores[:, 2].tolist() == [1.0, 0.0]
    assert more.dollars is not None
    assert more.dollars[:, 2].tolist() == [0.3, 0.4]
    assert more.latencies is not None
    assert more.latencies[:, 2].tolist() == [5.0, 6.0]
    assert more.take([1]).scores.tolist() == [[0.25, 1.0, 0.0]]
    assert table.experts == ("a", "b")
    bare = CostTable.from_data({"score:a": [1, 0], "score:b": [0, 0]}).with_expert("c", [1, 1])
    assert bare.dollars is None
