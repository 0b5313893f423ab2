from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mildroute.costs.prices import Price, PriceList
from mildroute.costs.table import CostTable
from mildroute.exceptions import ArgumentError, MissingExtraError, TableError

PRICES = PriceList.of(
    {"a": (1, 10), "b": {"input": 2, "output": 20}}, date="2024-06-01", source="list"
)
COLUMNS: dict[str, Any] = {"input": ["x" * 40, "y" * 80], "score:a": [1, 0], "score:b": [0, 1]}


def test_token_counts_come_before_characters_and_lengths() -> None:
    counts = {
        "intokens:a": [100, 200],
        "outtokens:a": [1, 2],
        "inchars:a": [9, 9],
        "outchars:a": [9, 9],
        "inchars:b": [400, 800],
        "outchars:b": [40, 80],
    }
    dollars = CostTable.from_data(COLUMNS | counts).with_prices(PRICES).dollars
    np.testing.assert_allclose(
        dollars, [[110e-6, (2 * 100 + 20 * 10) * 1e-6], [220e-6, (2 * 200 + 20 * 20) * 1e-6]]
    )


def test_lengths_of_inputs_and_given_answers_do_where_nothing_is_counted() -> None:
    dollars = (
        CostTable.from_data(COLUMNS).with_prices(PRICES, output_tokens={"a": 5, "b": 50}).dollars
    )
    np.testing.assert_allclose(dollars, [[60e-6, 1020e-6], [70e-6, 1040e-6]])


def test_new_prices_replace_old_dollars_and_keep_everything_else() -> None:
    table = CostTable.from_data(
        COLUMNS | {"cost:a": [9, 9], "cost:b": [9, 9], "latency:a": [1, 1], "latency:b": [1, 1]}
    )
    priced = table.with_prices(PRICES, output_tokens=0)
    np.testing.assert_allclose(priced.dollars, [[10e-6, 20e-6], [20e-6, 40e-6]])
    assert priced.latencies is not None
    assert priced.prices == PRICES
    assert table.prices is None


def test_prices_stay_with_the_parquet_file(tmp_path: Path) -> None:
    priced = CostTable.from_data(COLUMNS).with_prices(PRICES, output_tokens=10)
    assert CostTable.read(priced.save(tmp_path / "t.parquet")).prices == PRICES
    assert CostTable.read(priced.save(tmp_path / "shards", shards=2)).prices == PRICES
    assert CostTable.read(priced.save(tmp_path / "t.csv")).prices is None


def test_broken_prices_in_a_file_are_refused(tmp_path: Path) -> None:
    for kept in (b"no json", b"{}", b'{"prices": 7}', b'{"prices": {"a": -1}}', b"\xff"):
        pq.write_table(
            CostTable.from_data(COLUMNS).arrow.replace_schema_metadata({b"mildroute": kept}),
            tmp_path / "t.parquet",
        )
        with pytest.raises(TableError):
            CostTable.read(tmp_path / "t.parquet")


def test_what_is_unknown_is_refused_by_name() -> None:
    with pytest.raises(TableError, match="no price for 'b'"):
        CostTable.from_data(COLUMNS).with_prices(PriceList.of({"a": 1}), output_tokens=1)
    with pytest.raises(TableError, match="length of the answers of 'a'"):
        CostTable.from_data(COLUMNS).with_prices(PRICES)
    with pytest.raises(TableError, match="length of the input to 'a'"):
        CostTable.from_data({"score:a": [1], "score:b": [0]}).with_prices(PRICES, output_tokens=1)
    with pytest.raises(ArgumentError, match="output_tokens"):
        CostTable.from_data(COLUMNS).with_prices(PRICES, output_tokens=-1)


@pytest.mark.parametrize(
    "value",
    [
        -1,
        float("nan"),
        float("inf"),
        "dear",
        None,
        (1, 2, 3),
        {"input": 1},
        [1],
        {"input": None, "output": 1},
    ],
)
def test_a_price_is_a_finite_number_that_is_not_negative(value: Any) -> None:
    with pytest.raises(TableError, match="'a'"):
        PriceList.of({"a": value})


def test_files_of_prices_are_read(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(PRICES.as_dict()))
    (tmp_path / "p.csv").write_text(
        "expert,input,output,date,source\na,1,10,2024-06-01,list\nb,2,20,,\n"
    )
    (tmp_path / "bare.json").write_text('{"a": 3}')
    assert PriceList.read(tmp_path / "p.json") == PriceList.read(tmp_path / "p.csv") == PRICES
    assert PriceList.read(tmp_path / "bare.json").prices == {"a": Price(3.0, 3.0)}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.json", "{"), ("p.json", "[1]"), ("p.json", "{}"), ("p.csv", ""),
        ("p.csv", "expert,input\na,1\n"), ("p.txt", "a"),
        ("p.csv", "expert,input,output\na,1,1\na,2,2\n"),
        ("p.csv", "expert,input,output\na,cheap,2\n"), ("p.csv", "expert,input,output\na,1\n"),
    ],
)  # fmt: skip
def test_broken_files_of_prices_are_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TableError):
        PriceList.read(tmp_path / name)
    with pytest.raises(TableError):
        PriceList.read(tmp_path / "none.json")


def test_litellm_prices_are_per_million_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {
        "gpt": {"input_cost_per_token": 2e-6, "output_cost_per_token": 8e-6},
        "embed": {"input_cost_per_token": 1e-7},
        "image": {},
    }
    monkeypatch.setitem(
        sys.modules, "litellm", SimpleNamespace(model_cost=costs, __version__="1.2")
    )
    prices = PriceList.from_litellm({"ours": "gpt", "embed": "embed"})
    assert prices.source == "litellm 1.2"
    assert prices.prices["ours"].output == pytest.approx(8.0)
    assert prices.prices["embed"].output == 0.0
    with pytest.raises(TableError, match="'image', 'unknown'"):
        PriceList.from_litellm(["gpt", "image", "unknown"])


def test_without_litellm_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(MissingExtraError, match="litellm"):
        PriceList.from_litellm(["gpt"])
