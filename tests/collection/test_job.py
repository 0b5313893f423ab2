"""Nothing is asked twice, nothing is mixed, and a failure is never a wrong answer."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mildroute.collection.collector import collect
from mildroute.collection.entries import CallStarted
from mildroute.collection.job import CollectionJob
from mildroute.collection.queries import open_queries
from mildroute.collection.results import CollectionPlan
from mildroute.collection.store import AnswerStore
from mildroute.costs.table import CostTable
from mildroute.exceptions import ArgumentError, TableError
from mildroute.experts.base import Answer, Query
from mildroute.judges.base import Judge, Verdict
from mildroute.judges.exact_match import ExactMatchJudge
from mildroute.judges.registry import get_judge
from tests.collection.pools import Counting, run, write_queries, wrong


def test_the_table_has_scores_dollars_and_seconds_of_every_expert(tmp_path: Path) -> None:
    right = Counting("right", lambda query: Answer(query.reference, 7, 2, dollars=0.5, latency=1.5))
    found = run(tmp_path, [right, Counting("wrong", wrong)])
    table = CostTable.read(tmp_path / "costs")
    assert table.experts == ("right", "wrong")
    assert table.scores.mean(axis=0).tolist() == [1.0, 0.0]
    assert table.dollars is not None
    assert table.dollars[0].tolist() == [0.5, 0.01]
    assert pq.read_table(found.table)["latency:right"][3].as_py() == 1.5
    assert found.spent == pytest.approx(20 * 0.51)
    assert right.is_closed


def test_a_second_run_asks_nothing(tmp_path: Path) -> None:
    run(tmp_path, [Counting("a"), Counting("b", wrong)])
    again = [Counting("a"), Counting("b", wrong)]
    found = run(tmp_path, again)
    assert not again[0].asked
    assert not again[1].asked
    assert [tally.known for tally in found.tallies] == [20, 20]


def test_a_new_expert_and_a_new_query_ask_only_their_own_cells(tmp_path: Path) -> None:
    run(tmp_path, [Counting("a")], queries=write_queries(tmp_path, 10))
    first, second = Counting("a"), Counting("b")
    run(tmp_path, [first, second], queries=write_queries(tmp_path, 12))
    assert set(first.asked) == {"q10", "q11"}
    assert len(second.asked) == 12
    assert CostTable.read(tmp_path / "costs").scores.shape == (12, 2)


def test_a_new_version_is_asked_again_and_never_mixed_with_the_old(tmp_path: Path) -> None:
    run(tmp_path, [Counting("a", wrong), Counting("b")])
    newer = Counting("a", version="2")
    run(tmp_path, [newer, Counting("b")])
    assert len(newer.asked) == 20
    assert CostTable.read(tmp_path / "costs").scores[:, 0].tolist() == [1.0] * 20
    older = Counting("a", wrong)
    run(tmp_path, [older, Counting("b")])
    assert not older.asked
    assert CostTable.read(tmp_path / "costs").scores[:, 0].tolist() == [0.0] * 20


def test_a_query_that_was_changed_is_a_new_one(tmp_path: Path) -> None:
    run(tmp_path, [Counting("a")])
    again = Counting("a")
    run(tmp_path, [again], queries=write_queries(tmp_path, 20, hint="think"))
    assert len(again.asked) == 20


def test_failures_are_empty_cells_with_a_reason_and_are_asked_again(tmp_path: Path) -> None:
    def fails_on_odd(query: Query) -> Answer:
        return (
            Answer(None, error="timeout after 30 s")
            if int(query.query_id[1:]) % 2
            else Answer(query.reference)
        )

    found = run(tmp_path, [Counting("a", fails_on_odd), Counting("b")])
    assert (found.tallies[0].errors, found.empty) == (10, 10)
    with pytest.raises(TableError, match="a score is missing"):
        CostTable.read(tmp_path / "costs")
    assert len(CostTable.read(tmp_path / "costs", missing="drop").scores) == 10
    with AnswerStore(tmp_path / "costs" / "_collected") as archive:
        assert {row["error"] for row in archive.entries("answers")} == {"", "timeout after 30 s"}
    again = Counting("a")
    assert run(tmp_path, [again, Counting("b")]).empty == 0
    assert set(again.asked) == {f"q{place}" for place in range(1, 20, 2)}


class Doubting(Judge):
    """Cannot tell until it is told how."""

    name, version = "doubting", "1"

    def __init__(self, score: float | None) -> None:
        self.score = score

    async def judge(self, _query: Query, _text: str) -> Verdict:
        return Verdict(self.score, "hm", dollars=0.25)


def test_another_judge_scores_the_answers_that_are_there(tmp_path: Path) -> None:
    run(tmp_path, [Counting("a"), Counting("b", wrong)])
    again = [Counting("a"), Counting("b", wrong)]
    found = run(tmp_path, again, judge=Doubting(0.5))
    assert not again[0].asked
    assert CostTable.read(tmp_path / "costs").scores.mean() == 0.5
    assert found.spent == pytest.approx(20 * 0.01 + 40 * 0.25)


def test_a_judge_that_cannot_tell_leaves_the_cell_empty_and_is_asked_again_without_the_expert(
    tmp_path: Path,
) -> None:
    found = run(tmp_path, [Counting("a"), Counting("b")], judge=Doubting(None))
    assert found.empty == 40
    again = [Counting("a"), Counting("b")]
    assert run(tmp_path, again, judge=Doubting(1.0)).empty == 0
    assert not again[0].asked


def test_the_cap_holds_with_many_calls_under_way(tmp_path: Path) -> None:
    dear = Counting(
        "dear", lambda query: Answer(query.reference, dollars=0.9), concurrency=16, worst=1.0
    )
    found = run(tmp_path, [dear, Counting("free")], max_dollars=5.0)
    assert found.is_capped
    assert found.spent <= 5.0
    assert len(dear.asked) == 5
    assert found.tallies[0].state == "stopped by the cap"
    assert found.tallies[1].done == 20
    more = Counting("dear", lambda query: Answer(query.reference, dollars=0.9), worst=1.0)
    assert run(tmp_path, [more, Counting("free")], max_dollars=100.0).spent == pytest.approx(18.0)
    assert len(more.asked) == 15


def test_money_of_calls_lost_in_a_kill_counts_at_its_upper_bound(tmp_path: Path) -> None:
    with AnswerStore(tmp_path / "costs" / "_collected") as archive:
        archive.add(CallStarted("dear", "1", "lost", 3.0))
    dear = Counting("dear", lambda query: Answer(query.reference, dollars=1.0), worst=1.0)
    found = run(tmp_path, [dear, Counting("free")], max_dollars=5.0)
    assert len(dear.asked) == 2
    assert found.spent == pytest.approx(5.0)


def test_a_cap_needs_a_bound_on_each_answer(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="set max_tokens"):
        run(tmp_path, [Counting("a", worst=float("inf"))], max_dollars=5.0)


def test_nothing_is_asked_unless_agreed(tmp_path: Path) -> None:
    expert, seen = Counting("a", worst=0.25), []
    job = CollectionJob(
        open_queries(write_queries(tmp_path)), [expert], ExactMatchJudge(), tmp_path / "costs"
    )
    assert collect(job, agree=lambda plan: bool(seen.append(plan))) is None
    assert not expert.asked
    (estimate,) = seen[0].estimates
    assert (estimate.calls, estimate.at_most, seen[0].spending.total) == (20, 5.0, 0.0)


def test_each_query_goes_to_as_many_experts_as_wanted(tmp_path: Path) -> None:
    experts = [Counting(name) for name in "abc"]
    found = run(tmp_path, experts, experts_per_query=2)
    assert sum(len(expert.asked) for expert in experts) == 40
    assert all(len(expert.asked) > 5 for expert in experts)
    again = [Counting(name) for name in "abc"]
    run(tmp_path, again, experts_per_query=2)
    assert not any(expert.asked for expert in again)
    assert (found.empty, found.unwanted, found.reasons) == (0, 20, {})


def test_experts_that_were_not_wanted_never_count_as_wrong_and_can_be_asked_later(
    tmp_path: Path,
) -> None:
    run(tmp_path, [Counting(name) for name in "abc"], experts_per_query=2)
    with pytest.raises(
        TableError,
        match=(
            r"each query was given to 2 of the experts only; set missing .* collect the rest with"
            r" --experts-per-query all"
        ),
    ):
        CostTable.read(tmp_path / "costs", missing="zero")
    rest = [Counting(name) for name in "abc"]
    found = run(tmp_path, rest)
    assert sum(len(expert.asked) for expert in rest) == 20
    assert (found.empty, found.unwanted) == (0, 0)
    assert CostTable.read(tmp_path / "costs").scores.shape == (20, 3)


def test_batches_and_concurrency_are_the_experts_own(tmp_path: Path) -> None:
    expert = Counting("a", batch_size=8, concurrency=2)
    run(tmp_path, [expert])
    assert expert.most_at_once <= 2
    assert len(expert.asked) == 20


def test_two_processes_cannot_write_at_once(tmp_path: Path) -> None:
    with (
        AnswerStore(tmp_path / "costs" / "_collected"),
        pytest.raises(TableError, match="one process at a time"),
    ):
        run(tmp_path, [Counting("a")])


def test_an_exception_in_an_expert_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    def breaks(query: Query) -> Answer:
        if query.query_id == "q7":
            raise RuntimeError("broken")
        return Answer(query.reference)

    broken = Counting("a", breaks, concurrency=1)
    with pytest.raises(RuntimeError, match="broken"):
        run(tmp_path, [broken])
    again = Counting("a", concurrency=1)
    run(tmp_path, [again])
    assert set(broken.asked) & set(again.asked) == {"q7"}
    assert len({*broken.asked, *again.asked}) == 20


def test_the_table_says_who_was_asked_and_who_judged(tmp_path: Path) -> None:
    found = run(tmp_path, [Counting("a"), Counting("b")])
    about = json.loads(pq.read_schema(found.table).metadata[b"mildroute.collected"])
    assert about["experts"] == {"a": "1", "b": "1"}
    assert about["judge"][0] == "exact"


def fails(_query: Query) -> Answer:
    return Answer(None, error="no connection: refused (the last of 5 attempts)")


def test_an_expert_that_gives_no_answers_is_left_alone_and_the_reason_is_told(
    tmp_path: Path,
) -> None:
    dead, alive = Counting("dead", fails, concurrency=2), Counting("alive")
    found = run(tmp_path, [dead, alive], queries=write_queries(tmp_path, 100))
    assert 20 <= sum(dead.asked.values()) <= 22
    assert [tally.state for tally in found.tallies] == ["gives no answers", "done"]
    assert found.reasons == {"dead": [("no connection: refused", sum(dead.asked.values()))]}
    assert CostTable.read(tmp_path / "costs", missing="zero").scores[:, 1].mean() == 1.0


def test_failures_between_answers_do_not_stop_an_expert(tmp_path: Path) -> None:
    calls = itertools.count()
    flaky = Counting(
        "flaky",
        lambda query: fails(query) if next(calls) % 15 else Answer(query.reference),
        concurrency=1,
    )
    found = run(tmp_path, [flaky], queries=write_queries(tmp_path, 100))
    assert len(flaky.asked) == 100
    assert found.tallies[0].state == "done"


def test_reasons_of_cells_that_were_filled_later_are_forgotten(tmp_path: Path) -> None:
    run(tmp_path, [Counting("a", fails, concurrency=1)], queries=write_queries(tmp_path, 5))
    found = run(
        tmp_path,
        [Counting("a", lambda query: fails(query) if query.query_id == "q3" else Answer("?"))],
    )
    assert found.empty == 1
    assert found.reasons == {"a": [("no connection: refused", 1)]}


def test_what_the_judge_could_not_tell_is_a_reason(tmp_path: Path) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text(
        '{"query_id": "q0", "input": "2 + 2?"}\n{"query_id": "q1", "input": "2 + 3?", "answer":'
        ' "5"}'
    )
    found = run(tmp_path, [Counting("a", lambda _query: Answer("4"))], queries=queries)
    ((reason, count),) = found.reasons["a"]
    assert reason.startswith("the judge could not decide: ")
    assert count == 1


def test_when_money_is_short_a_batch_is_asked_as_far_as_it_lasts(tmp_path: Path) -> None:
    people = Counting(
        "people",
        lambda query: Answer(query.reference, dollars=0.05),
        batch_size=8,
        concurrency=1,
        worst=0.05,
    )
    found = run(tmp_path, [people], max_dollars=0.12)
    assert sum(people.asked.values()) == 2
    assert found.is_capped
    assert found.spent == pytest.approx(0.10)


BARE, REFERRED = {"input": "2 + 2?"}, {"input": "2 + 2?", "reference": "4"}


@pytest.mark.parametrize(
    ("judge", "query", "lack"),
    [
        (get_judge("exact"), BARE, "has no reference"),
        (get_judge("choice"), BARE, "has no reference"),
        (get_judge("choice"), REFERRED | {"reference": "Paris"}, "matches no choice"),
        (get_judge("numeric"), REFERRED | {"reference": "Paris"}, "is not a number"),
        (get_judge("label"), REFERRED, "there are no labels; set labels"),
        (
            get_judge("label", labels=["a", "b"]),
            REFERRED | {"reference": "c"},
            "is not one of the labels",
        ),
        (get_judge("regex"), REFERRED, "there is no pattern"),
        (get_judge("regex", pattern="(.)", group=1), BARE, "has no reference"),
        (get_judge("json"), REFERRED, "there is no path"),
        (get_judge("tests"), BARE, "has no tests"),
        (get_judge("tests"), REFERRED | {"tests": "x = 1"}, "must check something"),
    ],
)
def test_a_judge_that_could_score_nothing_is_refused_before_anybody_is_paid(
    tmp_path: Path, judge: Judge, query: dict[str, str], lack: str
) -> None:
    (tmp_path / "queries.jsonl").write_text(f"{json.dumps(query)}\n" * 2)
    expert = Counting("a")
    with pytest.raises(
        ArgumentError,
        match=f"can score no answer to any of the queries.*{lack}.*nothing was called",
    ):
        run(tmp_path, [expert], queries=tmp_path / "queries.jsonl", judge=judge)
    assert not expert.asked


def test_one_query_that_can_be_scored_is_enough_to_begin(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text(f"{json.dumps(BARE)}\n{json.dumps(REFERRED)}\n")
    assert (
        run(
            tmp_path,
            [Counting("a", lambda _query: Answer("4"))],
            queries=tmp_path / "queries.jsonl",
        ).empty
        == 1
    )


def test_the_share_of_queries_that_a_judge_can_score_is_told_before_paying(tmp_path: Path) -> None:
    rows = [
        *({"input": f"{place} + 1?", "answer": str(place + 1)} for place in range(150)),
        *({"input": "Where?", "answer": f"town {place * 'x'}"} for place in range(100)),
        *({"input": "Why?"} for _ in range(50)),
    ]
    seen: list[CollectionPlan] = []
    expert = Counting("a")
    assert (
        collect(
            rows,
            [expert],
            "numeric",
            tmp_path,
            agree=lambda plan: bool(seen.append(plan)),
        )
        is None
    )
    assert not expert.asked
    assert str(seen[0].coverage) == (
        "numeric can score 150 of 300 queries; 100 queries: the reference '...' is not a number;"
        " 50 queries: the query has no reference"
    )


def test_equal_reasons_are_grouped_whatever_they_quote(tmp_path: Path) -> None:
    rows = [
        {"input": "1 + 1?", "answer": "2"},
        *({"input": "Where?", "answer": f"town {place * 'x'}"} for place in range(120)),
    ]
    found = collect(rows, [Counting("a")], "numeric", tmp_path)
    assert found is not None
    assert found.reasons == {
        "a": [("the judge could not decide: the reference '...' is not a number", 120)]
    }
    assert found.coverage is not None
    assert found.coverage.scorable == 1


def test_each_query_may_have_a_judge_of_its_own(tmp_path: Path) -> None:
    rows = [
        {"input": "1 + 1?", "answer": "2", "judge": "numeric"},
        {"input": "Which town?", "answer": "Paris", "judge": "exact"},
        {"input": "Why?", "answer": "So", "judge": ""},
    ]
    expert = Counting("a", lambda query: Answer(f"{query.reference}.0"))
    found = collect(rows, [expert], "numeric,exact", tmp_path)
    assert found is not None
    scores = pq.read_table(found.table)["score:a"].to_pylist()
    assert scores == [1.0, 0.0, None]
    assert found.coverage is not None
    assert found.coverage.reasons == [
        ("the column 'judge' must be one of numeric, exact, got ''", 1)
    ]


def test_log_probabilities_stand_beside_answers_if_any_are_told(tmp_path: Path) -> None:
    tells = Counting("a", lambda query: Answer(query.reference, logprob=-0.5))
    run(tmp_path, [tells, Counting("b")], answers=True)
    table = CostTable.read(tmp_path / "costs", answers=True)
    assert table.logprobs("b") is None
    assert table.logprobs("a") is not None
    assert set(table.logprobs("a")) == {-0.5}  # type: ignore[arg-type]
    run(tmp_path, [tells, Counting("b")])
    assert "logprob:a" not in pq.read_schema(tmp_path / "costs" / "costs.parquet").names
