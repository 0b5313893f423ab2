from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mildroute.costs.table import CostTable
from mildroute.exceptions import TableError
from tests.collection.pools import write_queries
from tests.experts.hostile_server import HostileServer, says

EXPERTS = """
prices_date: 2026-11-01
experts:
  first:
    kind: openai
    base_url: {url}
    model: one
    price: {{input: 1, output: 2}}
    request: {{max_tokens: 10}}
  clerk:
    kind: people
    field: clerk
    price: {{per_answer: 0.5}}
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    with HostileServer(lambda call: says(str(int(call.prompt.split()[0]) + 1))) as server:
        write_queries(tmp_path, 12, clerk="no idea")
        (tmp_path / "experts.yaml").write_text(EXPERTS.format(url=server.url))
        yield server


def test_people_see_an_estimate_are_asked_and_get_a_table(
    pool: HostileServer, mildroute: Callable[..., Any]
) -> None:
    refused = mildroute(
        "collect", "queries.jsonl", "--experts", "experts.yaml", "--judge", "exact", input="n\n"
    )
    assert refused.exit_code == 0
    for words in (
        "12 queries, 24 calls to make",
        "6",
        "no cap",
        "call them?",
        "nothing was called",
    ):
        assert words in refused.output
    assert not pool.calls
    agreed = mildroute(
        "collect", "queries.jsonl", "--experts", "experts.yaml", "--judge", "exact", input="y\n"
    )
    assert agreed.exit_code == 0, agreed.output
    assert CostTable.read("costs").scores.mean(axis=0).tolist() == [1.0, 0.0]
    assert "12/12" in agreed.output


def test_programs_get_counts_and_a_capped_run_says_so(
    pool: HostileServer, mildroute: Callable[..., Any]
) -> None:
    options = ["--experts", "experts.yaml", "--judge", "exact", "--max-dollars", 2, "--json"]
    refused = mildroute("collect", "queries.jsonl", *options)
    assert refused.exit_code == 2
    assert "does not prompt before spending up to" in refused.stderr
    assert "add --yes" in refused.stderr
    assert not pool.calls
    found = json.loads(mildroute("collect", "queries.jsonl", *options, "--yes").stdout)
    assert found["is_capped"]
    assert found["spent"] <= 2
    assert found["empty"] == 24 - sum(expert["done"] for expert in found["experts"])
    assert len(pool.calls) <= 12


def test_calls_without_a_price_need_no_consent_in_json(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    write_queries(tmp_path, 3, ann="1", bob="2")
    (tmp_path / "experts.yaml").write_text(
        "experts: {ann: {kind: people, field: ann}, bob: {kind: people, field: bob}}"
    )
    options = [
        "--experts",
        tmp_path / "experts.yaml",
        "--judge",
        "exact",
        "--out",
        tmp_path / "costs",
        "--json",
    ]
    assert (
        json.loads(mildroute("collect", tmp_path / "queries.jsonl", *options).stdout)["empty"] == 0
    )


def test_cells_that_were_not_wanted_are_not_called_empty(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    write_queries(tmp_path, 30, ann="1", bob="2", cat="3")
    people = "\n".join(
        f"  {name}: {{kind: people, field: {name}}}" for name in ("ann", "bob", "cat")
    )
    (tmp_path / "experts.yaml").write_text(f"experts:\n{people}\n")
    options = [
        "--experts",
        tmp_path / "experts.yaml",
        "--judge",
        "exact",
        "--out",
        tmp_path / "costs",
        "--yes",
    ]
    said = mildroute(
        "collect", tmp_path / "queries.jsonl", *options, "--experts-per-query", "2"
    ).output
    assert "30 cells were left out" in said
    assert "empty" not in said
    for command in ("fit", "compare", "inspect"):
        refused = mildroute(command, tmp_path / "costs", "--missing", "zero")
        assert refused.exit_code == 2
        assert "collect the rest with --experts-per-query all" in refused.stderr
    assert "left out" not in mildroute("collect", tmp_path / "queries.jsonl", *options).output
    assert mildroute("inspect", tmp_path / "costs").exit_code == 0


def test_settings_reach_the_judge(pool: HostileServer, mildroute: Callable[..., Any]) -> None:
    options = [
        "--experts",
        "experts.yaml",
        "--judge",
        "numeric",
        "--judge-setting",
        "absolute=100",
        "--yes",
    ]
    assert mildroute("collect", "queries.jsonl", *options).exit_code == 0
    assert CostTable.read("costs").scores[:, 0].tolist() == [1.0] * 12


def test_the_share_that_a_judge_can_score_is_told_before_the_question(
    tmp_path: Path, pool: HostileServer, mildroute: Callable[..., Any]
) -> None:
    with (tmp_path / "queries.jsonl").open("a") as file:
        file.write('\n{"query_id": "town", "input": "1 town?", "answer": "Paris"}')
    options = ["--experts", "experts.yaml", "--judge", "numeric"]
    refused = mildroute("collect", "queries.jsonl", *options, input="n\n")
    before, _, _ = refused.output.partition("call them?")
    assert "numeric can score 12 of 13 queries; 1 query: the reference 'Paris' is no" in before
    assert not pool.calls
    done = mildroute("collect", "queries.jsonl", *options, "--yes")
    assert (
        "1 answer: the judge could not decide: the reference 'Paris' is not a number" in done.output
    )
    found = json.loads(mildroute("collect", "queries.jsonl", *options, "--yes", "--json").stdout)
    assert found["scorable"] == 12


def test_settings_of_several_judges_begin_with_their_names(
    tmp_path: Path, pool: HostileServer, mildroute: Callable[..., Any]
) -> None:
    write_queries(tmp_path, 12, clerk="no idea", judge="numeric")
    options = ["--judge", "numeric,exact", "--judge-setting", "numeric.absolute=100", "--yes"]
    done = mildroute("collect", "queries.jsonl", "--experts", "experts.yaml", *options)
    assert done.exit_code == 0, done.output
    assert len(pool.calls) == 12
    assert CostTable.read("costs").scores[:, 0].tolist() == [1.0] * 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--judge", "vibes"], "judge must be one of"),
        (["--judge", "exact", "--experts-per-query", "some"], "must be all or a whole number"),
        (["--judge", "exact", "--experts-per-query", "7"], "must be from 1 to 2"),
        (["--judge", "exact", "--judge-setting", "absolute"], "must be name=value"),
    ],
)
@pytest.mark.usefixtures("pool")
def test_what_cannot_be_done_is_said_in_one_line(
    mildroute: Callable[..., Any], options: list[str], message: str
) -> None:
    result = mildroute("collect", "queries.jsonl", "--experts", "experts.yaml", "--yes", *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_answers_are_written_on_request_and_cost_no_further_calls(
    pool: HostileServer, mildroute: Callable[..., Any]
) -> None:
    options = ["queries.jsonl", "--experts", "experts.yaml", "--judge", "exact", "--yes", "--json"]
    assert mildroute("collect", *options).exit_code == 0
    calls = len(pool.calls)
    with pytest.raises(TableError, match="got no column 'answer:first'; collect with --answers"):
        CostTable.read("costs", answers=True)
    again = mildroute("collect", *options, "--answers")
    assert again.exit_code == 0, again.output
    assert len(pool.calls) == calls
    table = CostTable.read("costs", answers=True)
    assert table.answers("clerk") == ["no idea"] * 12
    assert [int(text) for text in table.answers("first")] == [
        int(str(text).split()[0]) + 1 for text in table.inputs or ()
    ]
