from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute.costs.table import CostTable
from mildroute.persistence import load_router, save_router
from mildroute.persistence.artifact import read_manifest
from tests.support.small_table import small_table


def test_the_router_keeps_its_operating_point_and_the_rest_is_held_out(
    fitted: tuple[Path, Path, dict[str, Any]],
) -> None:
    router, held_out, said = fitted
    manifest = read_manifest(router)
    assert manifest["metrics"]["price weight"] == pytest.approx(said["point"]["price_weight"])
    assert "keeps 95.0% of the score of large, the best in the table" in manifest["notes"]
    assert said["rows"] + len(CostTable.read(held_out)) == 240


def test_people_see_where_the_router_is_and_what_to_do_next(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute(
        "fit",
        table,
        "--budget",
        8,
        "--out",
        tmp_path / "router",
        "--hold-out",
        tmp_path / "held.parquet",
    )
    assert result.exit_code == 0
    assert "best score within 8 dollars per 1,000 queries" in result.output
    assert "mildroute evaluate" in result.output


def headline(stdout: str) -> tuple[str, str]:
    """The sentence behind the three lines, and what follows it."""
    lines = stdout.splitlines()
    place = next(
        number
        for number, line in enumerate(lines)
        if line.startswith(("saves ", "costs ", "this router"))
    )
    return lines[place], "\n".join(lines[place + 1 :])


def test_the_sentence_says_what_is_saved_against_what_and_then_how(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("fit", table, "--quality", 0.95, "--out", tmp_path / "router")
    first, text = headline(result.stdout)
    number = r"-?\d+"
    assert re.fullmatch(
        rf"saves {number}% \[{number}, {number}\] of the bill of large, keeps [\d.]+%"
        r" \[[\d.]+, [\d.]+\] of its score: "
        r"\$[\d.]+ instead of \$10\.00 per 1,000 queries",
        first,
    )
    assert re.search(
        "it (decides each request itself|makes a \\d+/\\d+ random split between )", text
    )
    assert "method: RegressionRouter" in text
    assert text.index("method:") < text.index("share")


def test_a_router_that_always_picks_one_expert_is_no_success(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    first, _ = headline(
        mildroute("fit", table, "--budget", 1.0, "--out", tmp_path / "router").stdout
    )
    assert first.startswith(
        "this router always picks small: nothing is gained by routing (small alone saves 90% [90,"
        " 90] of the bill of large"
    )
    assert first.endswith(
        "no better expert, mix or router stays within the budget with 95% confidence"
    )
    alone, _ = headline(
        mildroute("fit", table, "--quality", 1.0, "--out", tmp_path / "router").stdout
    )
    assert alone.startswith("this router always picks large: nothing is gained; ")


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_a_quality_in_percent_is_refused_before_the_table_is_read(
    command: str,
    fitted: tuple[Path, Path, dict[str, Any]],
    tmp_path: Path,
    mildroute: Callable[..., Any],
) -> None:
    result = mildroute(command, tmp_path / "none.parquet", "--quality", 95)
    assert result.exit_code == 2
    assert "must be at most 1.5, got 95; did you mean 0.95?" in result.stderr


def test_more_methods_and_processes_are_options(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    said = mildroute(
        "fit", table, "--thorough", "--jobs", 1, "--out", tmp_path / "router", "--json"
    )
    assert said.exit_code == 0, said.output
    assert "of 2 methods" in json.loads(said.stdout)["method"]
    for options, words in (
        (("--jobs", 0), "--jobs must be"),
        (("--thorough", "--router", "KNNRouter"), "leave one of them out"),
    ):
        refused = mildroute("fit", table, *options, "--out", tmp_path / "router")
        assert refused.exit_code == 2
        assert words in refused.stderr


def test_a_budget_out_of_reach_is_said_with_its_own_exit_code(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("fit", table, "--budget", 0.5, "--out", tmp_path / "router")
    assert result.exit_code == 3
    assert "raise the budget" in result.stderr
    assert not (tmp_path / "router").exists()


def test_two_targets_are_one_too_many(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("fit", table, "--budget", 5, "--quality", 0.9, "--out", tmp_path / "router")
    assert result.exit_code == 2
    assert (
        "give only one of --budget, --quality and --price-weight, got --budget and --quality"
        in result.stderr
    )


def test_without_dollars_quality_alone_counts_and_a_budget_is_refused(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    table = small_table(dollars=False).save(tmp_path / "costs.jsonl")
    result = mildroute("fit", table, "--out", tmp_path / "router")
    assert "no dollars in the table, so only quality counts" in result.output
    refused = mildroute("fit", table, "--budget", 5, "--out", tmp_path / "router")
    assert refused.exit_code == 2
    assert "a budget of 5 needs dollars" in refused.stderr
    refused = mildroute("fit", table, "--thorough", "--out", tmp_path / "router")
    assert refused.exit_code == 2
    assert "thorough=True needs dollars" in refused.stderr


def test_the_table_itself_and_files_that_exist_are_not_written_over(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    copy = tmp_path / "costs.parquet"
    copy.write_bytes(table.read_bytes())
    other = tmp_path / "other.csv"
    other.write_text("precious")
    for target, words in (
        (copy, "must not be the table itself"),
        (other, "must be a new file"),
        (tmp_path / "x.xlsx", "must be a file that ends in"),
    ):
        result = mildroute("fit", copy, "--out", tmp_path / "router", "--hold-out", target)
        assert result.exit_code == 2
        assert words in result.stderr
    assert copy.read_bytes() == table.read_bytes()
    assert other.read_text() == "precious"


def test_a_fit_that_fails_leaves_no_held_out_rows(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute(
        "fit",
        table,
        "--budget",
        0.1,
        "--out",
        tmp_path / "router",
        "--hold-out",
        tmp_path / "held.parquet",
    )
    assert result.exit_code == 3
    assert not (tmp_path / "held.parquet").exists()


def test_a_folder_that_is_no_router_is_refused_before_the_fit(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    (tmp_path / "precious.txt").write_text("keep")
    result = mildroute("fit", table, "--out", tmp_path)
    assert result.exit_code == 2
    assert "precious.txt" in result.stderr


def test_the_tables_own_split_is_kept(tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    columns = small_table(120, dollars=False).arrow.to_pydict()
    columns["split"] = ["test" if row % 3 == 0 else "train" for row in range(120)]
    table = CostTable.from_data(columns).save(tmp_path / "costs.parquet")
    result = mildroute(
        "fit", table, "--out", tmp_path / "router", "--hold-out", tmp_path / "held.csv"
    )
    assert result.exit_code == 0, result.output
    assert "mildroute evaluate" in result.output
    assert CostTable.read(tmp_path / "held.csv").query_ids == [
        columns["query_id"][row] for row in range(0, 120, 3)
    ]


def test_answer_tokens_without_prices_are_refused(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("fit", table, "--output-tokens", 5, "--out", tmp_path / "router")
    assert result.exit_code == 2
    assert "needs --prices" in result.stderr


def test_a_router_of_choice_is_fitted_and_named(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    table = small_table(dollars=False).save(tmp_path / "costs.parquet")
    result = mildroute(
        "fit",
        table,
        "--router",
        "RegressionRouter",
        "--encoder",
        "tfidf-sparse",
        "--out",
        tmp_path / "router",
    )
    assert result.exit_code == 0, result.output
    assert "learned from 240 queries, by RegressionRouter" in result.output
    assert (
        "Method: RegressionRouter; encoder: TfidfEncoder"
        in read_manifest(tmp_path / "router")["notes"]
    )


@pytest.mark.parametrize("encoder", ["characters", "characters+tfidf"])
def test_characters_are_fitted_stored_and_routed(
    encoder: str, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    songs = [f"{start}关于{row}的歌" for row in range(60) for start in ("写一首", "唱一首")]
    sums = [f"{row}{sign}{row + 3}等于多少" for row in range(60) for sign in "加减"]
    only_large = [1.0] * len(songs) + [0.0] * len(sums)
    table = CostTable.from_data(
        {
            "query_id": [f"q{row}" for row in range(240)],
            "input": songs + sums,
            "score:small": [1.0 - each for each in only_large],
            "score:large": only_large,
        }
    ).save(tmp_path / "costs.parquet")
    router = tmp_path / "router"
    result = mildroute(
        "fit", table, "--router", "RegressionRouter", "--encoder", encoder, "--out", router
    )
    assert result.exit_code == 0, result.output
    loaded = load_router(router)
    prompts = ["写一首关于秋天的歌", "七十加八等于多少"]
    assert [loaded.experts_[place] for place in loaded.predict(prompts)] == ["large", "small"]
    np.testing.assert_array_equal(
        loaded.predict_proba(prompts),
        load_router(save_router(loaded, tmp_path / "again")).predict_proba(prompts),
    )
    routed = mildroute("route", router, prompts[0])
    assert routed.exit_code == 0, routed.output
    assert routed.output.splitlines()[-1] == "large"


def test_an_unknown_router_is_refused_before_the_table_is_read(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("fit", tmp_path / "none.parquet", "--router", "vibes")
    assert result.exit_code == 2
    assert "router must be one of BestSingleRouter" in result.stderr


def test_a_model_that_cannot_be_found_is_one_line_with_the_way_out(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_given: object, **_settings: object) -> None:
        raise OSError("We couldn't connect to 'https://huggingface.co'\nto load the files.")

    monkeypatch.setattr("mildroute.encoders.hub_models.read_json_file", offline)
    refused = mildroute(
        "fit", table, "--encoder", "nobody/no-such-model", "--out", tmp_path / "router"
    )
    assert refused.exit_code == 2
    assert (
        "model 'nobody/no-such-model' must be a folder with a model, or be on the hub: We couldn't"
        " connect" in refused.stderr
    )
    assert "give the folder of a downloaded copy" in refused.stderr


def test_how_missing_scores_were_counted_is_said(
    table: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    holes = CostTable.read(table).arrow.to_pylist()
    holes[0]["score:small"] = None
    pq.write_table(pa.Table.from_pylist(holes), tmp_path / "costs.parquet")
    done = mildroute(
        "fit",
        tmp_path / "costs.parquet",
        "--missing",
        "zero",
        "--out",
        tmp_path / "router",
        "--json",
    )
    assert "repaired: 1 missing score counts as 0 (missing: zero)" in done.stderr
    assert json.loads(done.stdout)["rows"] == 240
