from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute.persistence import load_router, save_router
from mildroute.routers.baselines import BestSingleRouter

Fitted = tuple[Path, Path, dict[str, Any]]


def test_the_last_line_is_the_expert(fitted: Fitted, mildroute: Callable[..., Any]) -> None:
    result = mildroute("route", fitted[0], "sing a song")
    assert result.output.splitlines()[-1] == "large"


def test_a_file_gives_one_decision_a_line(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    (tmp_path / "many.txt").write_text("sing a song\nadd 1\n")
    (tmp_path / "many.jsonl").write_text('{"input": "sing a song"}\n{"text": "add 1"}\n')
    plain, lines = (
        mildroute("route", fitted[0], "--file", tmp_path / name).stdout.splitlines()
        for name in ("many.txt", "many.jsonl")
    )
    assert plain == lines
    first = json.loads(lines[0])
    assert first["expert"] == first["ranking"][0]["expert"] == "large"
    assert sum(entry["posterior"] for entry in first["ranking"]) == pytest.approx(1, abs=1e-5)


def test_a_file_may_be_any_table(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    texts = ["sing a song", "add 1, 2"]
    (tmp_path / "many.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "many.csv").write_text("Nr;Prompt\n1;sing a song\n2;add 1, 2\n")
    (tmp_path / "many.tsv").write_text("Frage\tkind\nsing a song\tx\nadd 1, 2\ty\n")
    pq.write_table(pa.table({"question": texts}), tmp_path / "many.parquet")
    (tmp_path / "many.jsonl").write_text('{"frage": "sing a song"}\n{"frage": "add 1, 2"}\n')
    want = mildroute("route", fitted[0], "--file", tmp_path / "many.txt").stdout
    for name, options in (
        ("many.csv", ()),
        ("many.tsv", ("--input", "Frage")),
        ("many.parquet", ()),
        ("many.jsonl", ("--input", "frage")),
    ):
        assert mildroute("route", fitted[0], "--file", tmp_path / name, *options).stdout == want
    unclear = mildroute("route", fitted[0], "--file", tmp_path / "many.tsv")
    assert unclear.exit_code == 2
    assert "got the columns 'Frage', 'kind'; say which one it is" in unclear.stderr
    alone = mildroute("route", fitted[0], "add 1", "--input", "Prompt")
    assert "--input Prompt names a column of --file" in alone.stderr


def test_a_row_of_a_table_without_a_text_is_named(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    (tmp_path / "many.csv").write_text("Prompt,n\nadd 1,1\n,2\n")
    result = mildroute("route", fitted[0], "--file", tmp_path / "many.csv")
    assert result.exit_code == 2
    assert "got none in column 'Prompt', row 1" in result.stderr


def test_quality_at_any_price_and_price_at_any_quality(
    fitted: Fitted, mildroute: Callable[..., Any]
) -> None:
    found = [
        json.loads(
            mildroute("route", fitted[0], "add 3", "--price-weight", weight, "--json").stdout
        )
        for weight in (0, 3000)
    ]
    assert found[1]["expert"] == "small"
    assert found[0]["ranking"] != found[1]["ranking"]


@pytest.mark.parametrize("line", ['{"input": 3}', "{", "[]"])
def test_a_broken_line_is_named(
    line: str, fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    (tmp_path / "many.jsonl").write_text('{"input": "a"}\n' + line + "\n")
    result = mildroute("route", fitted[0], "--file", tmp_path / "many.jsonl")
    assert result.exit_code == 2
    assert "line 2 must" in result.stderr


def test_a_decision_tells_what_to_expect_and_why(
    fitted: Fitted, mildroute: Callable[..., Any]
) -> None:
    found = json.loads(mildroute("route", fitted[0], "sing 12", "--json").stdout)
    (said,) = load_router(fitted[0]).explain(["sing 12"])  # type: ignore[union-attr]
    assert (found["expert"], found["reason"], found["is_out_of_distribution"]) == (
        said.name,
        said.reason,
        said.is_out_of_distribution,
    )
    assert found["price_weight"] == pytest.approx(said.price_weight)
    assert [entry["expert"] for entry in found["ranking"]] == [
        said.experts[place] for place in said.ranking
    ]
    for entry, place in zip(found["ranking"], said.ranking, strict=True):
        assert entry["probability"] == pytest.approx(said.probabilities[place], abs=1e-6)
        assert entry["score"] == pytest.approx(said.scores[place], abs=1e-6)
        assert entry["dollars"] == pytest.approx(said.dollars[place], rel=1e-5)
    shown = mildroute("route", fitted[0], "sing 12").stdout
    for words in ("expected score", "expected $ per 1,000", "probability", found["why"]):
        assert words in shown


def test_the_request_id_seeds_the_coin(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    """A budget between two vertices.

    The share of ids that go to the large one is its probability.
    """
    lines = [
        json.dumps({"input": "sing 12", "request_id" if row % 2 else "id": f"req-{row}"})
        for row in range(400)
    ]
    (tmp_path / "many.jsonl").write_text("\n".join(lines) + "\n")
    found = [
        json.loads(line)
        for line in mildroute(
            "route", fitted[0], "--file", tmp_path / "many.jsonl", "--budget", 4
        ).stdout.splitlines()
    ]
    (probability,) = {
        entry["probability"]
        for one in found
        for entry in one["ranking"]
        if entry["expert"] == "large"
    }
    assert {one["reason"] for one in found} == {"split"}
    assert np.mean([one["expert"] == "large" for one in found]) == pytest.approx(
        probability, abs=0.08
    )
    alone = [
        json.loads(
            mildroute(
                "route", fitted[0], "sing 12", "--request-id", f"req-{row}", "--budget", 4, "--json"
            ).stdout
        )
        for row in range(4)
    ]
    assert [one["expert"] for one in alone] == [one["expert"] for one in found[:4]]
    assert "a draw, the same for the same request, chose" in alone[0]["why"]


def test_an_id_for_a_whole_file_or_of_no_known_kind_is_refused(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    (tmp_path / "many.jsonl").write_text('{"input": "a", "id": [1]}\n')
    assert (
        "line 1 must have a text or a whole number"
        in mildroute("route", fitted[0], "--file", tmp_path / "many.jsonl").stderr
    )
    assert (
        "needs a TEXT"
        in mildroute(
            "route", fitted[0], "--file", tmp_path / "many.jsonl", "--request-id", "a"
        ).stderr
    )


def test_what_is_unlike_the_training_data_goes_to_the_best_single_expert(
    fitted: Fitted, mildroute: Callable[..., Any]
) -> None:
    """Training texts are a start and a number.

    At 3,000 errors per dollar the small one is the best.
    """
    found = [
        json.loads(
            mildroute("route", fitted[0], "sing a song", "--price-weight", at, "--json").stdout
        )
        for at in (0, 3000)
    ]
    assert [(one["expert"], one["reason"], one["is_out_of_distribution"]) for one in found] == [
        ("large", "out_of_distribution", True),
        ("small", "out_of_distribution", True),
    ]
    assert "unlike the training data" in found[0]["why"]


def test_a_text_or_a_file_is_needed_but_not_both(
    fitted: Fitted, mildroute: Callable[..., Any]
) -> None:
    assert "give either a TEXT or --file" in mildroute("route", fitted[0]).stderr


def test_a_router_over_vectors_cannot_read_texts(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    save_router(BestSingleRouter().fit([[0.0]], [[0, 1]]), tmp_path / "router")
    assert "reads vectors, not texts" in mildroute("route", tmp_path / "router", "a text").stderr


def test_files_that_we_write_are_read_whatever_separators_they_hold(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    (tmp_path / "many.json").write_text(
        "\ufeff" + json.dumps({"input": "sing a\u2028song"}, ensure_ascii=False) + "\n",
        encoding="utf-8",
    )
    result = mildroute("route", fitted[0], "--file", tmp_path / "many.json")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 1


def test_an_empty_line_is_no_input(
    fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    (tmp_path / "many.txt").write_text("add 1\n\nadd 2\n")
    result = mildroute("route", fitted[0], "--file", tmp_path / "many.txt")
    assert result.exit_code == 2
    assert "an empty line 2" in result.stderr
