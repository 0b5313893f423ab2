from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mildroute.distributed.shards import open_shards, vector_column
from mildroute.embedding.shards import encode_float16
from mildroute.persistence import load_router


def test_people_see_an_estimate_and_where_the_vectors_are(
    fitted: Any, mildroute: Callable[..., Any], tmp_path: Path
) -> None:
    router, held_out, _ = fitted
    arguments = (
        "embed",
        held_out,
        "--encoder-of",
        router,
        "--out",
        tmp_path / "vectors",
        "--rows-per-shard",
        20,
    )
    first = mildroute(*arguments)
    assert first.exit_code == 0, first.output
    for words in (
        "48 rows in 3 shards, 48 of them still to encode",
        "rows/s: about 0 s",
        f"vectors in {tmp_path / 'vectors'}: 48 rows",
    ):
        assert words in first.output
    again = mildroute(*arguments)
    assert "0 of them still to encode" in again.output
    assert "48 rows, all of them there already" in again.output


def test_programs_get_counts_and_vectors_of_the_routers_own_encoder(
    fitted: Any, mildroute: Callable[..., Any], tmp_path: Path
) -> None:
    router, held_out, _ = fitted
    result = mildroute(
        "embed", held_out, "--encoder-of", router, "--out", tmp_path / "vectors", "--json"
    )
    found = json.loads(result.stdout)
    assert (found["rows"], found["encoded"], found["shards"], found["estimate"]["missing"]) == (
        48,
        48,
        1,
        48,
    )
    assert found["encoder"]["class"] == "ReducedEncoder"
    assert open_shards(str(tmp_path / "vectors")).width == found["dimension"]
    (shard,) = (tmp_path / "vectors").glob("*.parquet")
    rows = pq.read_table(shard)
    texts = rows.column("input").to_pylist()
    assert rows.column("vector").combine_chunks() == vector_column(
        encode_float16(load_router(router).encoder_, texts)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--encoder", "tfidf"],
            (
                "an encoder must need no fitting, got 'tfidf', which learns from data; fit a router"
                " with it first"
            ),
        ),
        (["--encoder", "auto"], "must need no fitting, got 'auto'"),
        (["--encoder", "minilm+numbers"], "must need no fitting, got 'minilm+numbers'"),
        (["--encoder", "word2vec"], "encoder must be auto, tfidf"),
        (
            ["--encoder", "minilm", "--encoder-of", "router"],
            "one of them, got 'minilm' and 'router'",
        ),
        (["--encoder-of", "absent"], "readable router.json"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    mildroute: Callable[..., Any], table: Path, options: list[str], message: str
) -> None:
    result = mildroute("embed", table, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_has_an_example_and_json(mildroute: Callable[..., Any]) -> None:
    text = mildroute("embed", "--help").output
    assert "Example: mildroute embed" in text
    assert "--json" in text
