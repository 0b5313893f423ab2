"""A model that judges the answers of others.

Named on the command line, not asked itself, paid within the cap, closed at the end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mildroute.cli.app import app
from mildroute.collection.entries import CallStarted, Judged
from mildroute.collection.store import AnswerStore
from tests.experts.hostile_server import Behavior, Call, HostileServer, disconnects, says

FILE = """
experts:
  ann: {{kind: people, field: ann, price: {{per_answer: 0.01}}}}
  bob: {{kind: people, field: bob, price: {{per_answer: 0.01}}}}
judges:
  grader:
    {{kind: openai, base_url: "{url}", model: grader, price: {{input: 0, output: 1000000}},
     retries: {retries}{bound}}}
"""
BOUND = ", request: {max_tokens: 4}"
ROWS = 6


def grade(call: Call) -> Behavior:
    """Ten for Paris, one for all else; two tokens at a dollar each."""
    return says("Fine.\nGrade: 10" if "Paris" in call.prompt else "Wrong.\nGrade: 1", tokens=(0, 2))


def collect(
    folder: Path,
    server: HostileServer,
    *more: str,
    bound: str = BOUND,
    retries: int = 0,
    codes: Sequence[int] = (0, 3),
) -> dict[str, Any]:
    (folder / "experts.yaml").write_text(FILE.format(url=server.url, bound=bound, retries=retries))
    rows = (
        {"query_id": f"q{row}", "input": "Which city?", "ann": "Paris", "bob": "Rome"}
        for row in range(ROWS)
    )
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = [
        "--experts",
        str(folder / "experts.yaml"),
        "--judge",
        "graded",
        "--judge-setting",
        "expert=grader",
        "--out",
        str(folder / "costs"),
    ]
    run = CliRunner().invoke(
        app, ["collect", str(folder / "queries.jsonl"), *given, "--yes", "--json", *more]
    )
    assert run.exit_code in codes, run.output
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_it_is_named_on_the_command_line_and_only_judges(tmp_path: Path) -> None:
    with HostileServer(grade) as server:
        collect(tmp_path, server)
        assert len(server.calls) == 2 * ROWS
    table = pq.read_table(tmp_path / "costs" / "costs.parquet")
    assert [name for name in table.column_names if name.startswith("score:")] == [
        "score:ann",
        "score:bob",
    ]
    assert table["score:ann"].to_pylist() == [1.0] * ROWS
    assert table["score:bob"].to_pylist() == [0.0] * ROWS


def test_verdicts_are_paid_within_the_cap_and_the_rest_is_judged_by_a_later_run(
    tmp_path: Path,
) -> None:
    with HostileServer(grade) as server:
        found = collect(tmp_path, server, "--max-dollars", "9.5")
        assert found["spent"] <= 9.5
        # Each verdict costs two dollars; four must be set aside for it.
        assert 3 <= len(server.calls) <= 4
        found = collect(tmp_path, server, "--max-dollars", "100")
        assert len(server.calls) == 2 * ROWS
        assert found["spent"] == pytest.approx(2 * ROWS * 2.01)


def test_verdicts_that_never_came_are_reserved_and_not_paid(tmp_path: Path) -> None:
    with HostileServer([disconnects()]) as server:
        found = collect(tmp_path, server, "--max-dollars", "9.5", retries=3, codes=[4])
        # Each attempt may have cost four dollars, and a retry reserves them again.
        assert len(server.calls) == 2
    assert 0 < found["paid"] <= 2 * ROWS * 0.01
    assert found["reserved"] == 8.0
    assert found["lost_calls"] >= 1


def test_a_verdict_that_a_kill_has_lost_counts_one_attempt(tmp_path: Path) -> None:
    judge = ("grader", "1")
    with AnswerStore(tmp_path) as archive:
        archive.add(CallStarted("ann", "1", "q", 4.0, judge="grader"))
        archive.add(CallStarted("ann", "1", "r", 4.0, judge="grader"))
        archive.add(Judged("ann", "1", "r", *judge, 1.0, "", 2.0, 0.5))
    with AnswerStore(tmp_path) as archive:
        assert archive.spending() == (2.0, 4.5, 2)


def test_a_cap_needs_a_bound_on_verdicts(tmp_path: Path) -> None:
    with (
        HostileServer(grade) as server,
        pytest.raises(AssertionError, match=r"needs a bound on\s+each verdict"),
    ):
        collect(tmp_path, server, "--max-dollars", "9", bound="")
    assert not server.calls


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with (
        HostileServer(grade) as server,
        pytest.raises(AssertionError, match="needs an expert from"),
    ):
        collect(tmp_path, server, "--judge-setting", "expert=nobody")


def test_verdicts_on_answers_that_are_there_are_not_paid_without_consent(tmp_path: Path) -> None:
    with HostileServer(grade) as server:
        collect(tmp_path, server)
        server.calls.clear()
        given = [
            "--experts",
            str(tmp_path / "experts.yaml"),
            "--judge",
            "graded",
            "--out",
            str(tmp_path / "costs"),
        ]
        settings = ["--judge-setting", "expert=grader", "--judge-setting", "high=12"]
        command = ["collect", str(tmp_path / "queries.jsonl"), *given, *settings]
        asked = CliRunner().invoke(app, command, input="n\n")
        assert "0 calls to make" in asked.output
        assert "each verdict calls grader" in asked.output
        assert "nothing was called" in asked.output
        assert CliRunner().invoke(app, [*command, "--json"]).exit_code == 2
    assert not server.calls
