from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from mildroute.costs.table import CostTable
from mildroute.decision.export import LoggedCostTable, costs_from_log
from mildroute.decision.feedback import FeedbackLog
from mildroute.decision.log import DecisionLog, DecisionRecord
from mildroute.evaluation.logged_data import read_logged_decisions
from mildroute.evaluation.off_policy import Method, estimate_expert_costs
from mildroute.exceptions import TableError
from mildroute.gateway.config import DecisionLogConfig
from tests.support.records import ATTEMPT, record


def joined(
    folder: Path,
    records: list[DecisionRecord],
    scores: dict[str, float],
    *,
    only_with_text: bool = False,
) -> LoggedCostTable:
    log, feedback = (
        DecisionLog(DecisionLogConfig(folder, log_prompts=True)),
        FeedbackLog(DecisionLogConfig(folder)),
    )
    for each in records:
        log.write(each)
    for name, score in scores.items():
        feedback.write(name, score, "a")
    log.close()
    feedback.close()
    return costs_from_log(folder, only_with_text=only_with_text)


def test_a_row_has_the_answer_and_the_chances_of_all(tmp_path: Path) -> None:
    found = joined(
        tmp_path,
        [record("d1"), record("d2", selected="large", served_by="large", propensity=0.025)],
        {"d1": 0.25, "d2": 1},
    )
    assert found.arrow.drop_columns(["time", "shadow"]).to_pylist() == [
        {
            "query_id": "d1", "score:small": 0.25, "score:large": None,
            "cost:small": 0.001, "cost:large": None,
            "latency:small": 0.5, "latency:large": None, "selected": "small", "propensity": 0.975,
            "propensity:small": 0.975, "propensity:large": 0.025,
            "posterior:small": 0.7, "posterior:large": 0.3,
        },
        {
            "query_id": "d2", "score:small": None, "score:large": 1.0,
            "cost:small": None, "cost:large": 0.001,
            "latency:small": None, "latency:large": 0.5, "selected": "large", "propensity": 0.025,
            "propensity:small": 0.975, "propensity:large": 0.025,
            "posterior:small": 0.7, "posterior:large": 0.3,
        },
    ]  # fmt: skip


def test_the_file_is_no_table_to_fit_on_and_who_did_not_answer_never_counts_as_wrong(
    tmp_path: Path,
) -> None:
    found = joined(
        tmp_path,
        [record("d1"), record("d2", selected="large", served_by="large")],
        {"d1": 0.5, "d2": 1.0},
    )
    path = found.save(tmp_path / "table.parquet")
    for missing in ("raise", "zero"):
        with pytest.raises(
            TableError, match=r"a score is missing.*not all experts answered each query"
        ):
            CostTable.read(path, missing=missing)
    with pytest.raises(TableError, match="every expert has a score, but none of 2 rows has"):
        CostTable.read(path, missing="drop")


def test_decisions_without_score_or_answer_are_counted(tmp_path: Path) -> None:
    records = [
        record("d1"),
        record("d2"),
        record("d3", served_by="", status=502),
        record("d4", served_by="stranger"),
    ]
    found = joined(tmp_path, records, {"d1": 1.0, "d3": 0.0, "d4": 1.0, "elsewhere": 1.0})
    assert (
        found.rows,
        found.decisions,
        found.without_score,
        found.without_answer,
        found.unknown,
    ) == (1, 4, 1, 2, 1)


def test_an_answer_of_another_expert_fills_its_cell_but_has_no_chance(tmp_path: Path) -> None:
    found = joined(
        tmp_path,
        [record("d1", selected="small", served_by="large", attempts=(ATTEMPT, ATTEMPT))],
        {"d1": 1.0},
    )
    (row,) = found.arrow.to_pylist()
    assert (row["score:small"], row["score:large"], row["propensity"], row["propensity:small"]) == (
        None,
        1.0,
        None,
        0.975,
    )
    assert any(
        "1 answers came from an expert other than the one chosen" in note for note in found.notes
    )


def test_a_look_of_a_cascade_is_a_choice_of_its_own(tmp_path: Path) -> None:
    look = "small, then decide at 24"
    names = {"experts": ("small", "large", look), "posterior": (0.2, 0.1, 0.7)}
    chances = {"propensities": (0.05, 0.05, 0.9), "propensity": 0.9}
    calls = (ATTEMPT, {**ATTEMPT, "expert": "large"})
    failed = ({**ATTEMPT, "reason": "timeout"}, {**ATTEMPT, "expert": "large"})
    looked = {**names, **chances, "selected": look, "look": look, "served_by": "large"}
    found = joined(
        tmp_path,
        [
            record("d1", **looked, attempts=calls, cost_usd=0.003),
            record("d2", **looked, attempts=failed),
        ],
        {"d1": 1, "d2": 1},
    )
    whole, broken = found.arrow.to_pylist()
    assert (whole[f"score:{look}"], whole[f"cost:{look}"], whole["score:large"]) == (1, 0.003, None)
    assert (whole["propensity"], whole[f"propensity:{look}"]) == (0.9, 0.9)
    assert (broken[f"score:{look}"], broken["score:large"], broken["propensity"]) == (None, 1, None)
    assert "1 answers came from an expert other than the one chosen" in " ".join(found.notes)


def test_an_expert_that_the_client_named_was_not_drawn(tmp_path: Path) -> None:
    named = record(
        "d1",
        reason="pinned",
        selected="large",
        served_by="large",
        propensity=1.0,
        propensities=(0.0, 1.0),
    )
    (row,) = joined(tmp_path, [named], {"d1": 1.0}).arrow.to_pylist()
    assert (
        row["score:large"],
        row["propensity"],
        row["propensity:small"],
        row["propensity:large"],
    ) == (1.0, None, None, None)


def test_experts_of_several_routers_share_the_table(tmp_path: Path) -> None:
    new = record(
        "d2",
        experts=("tiny", "small"),
        posterior=(0.6, 0.4),
        propensities=(0.9, 0.1),
        selected="tiny",
        served_by="tiny",
    )
    found = joined(tmp_path, [record("d1"), new], {"d1": 1.0, "d2": 0.5})
    assert found.experts == ("small", "large", "tiny")
    assert [found.arrow.column(f"propensity:{name}").to_pylist() for name in found.experts] == [
        [0.975, 0.1],
        [0.025, 0.0],
        [0.0, 0.9],
    ]


def test_a_decision_without_an_opinion_has_no_chances(tmp_path: Path) -> None:
    late = record(
        "d2",
        experts=(),
        posterior=(),
        propensities=(),
        reason="router_timeout",
        selected="large",
        served_by="large",
        propensity=1.0,
    )
    found = joined(tmp_path, [record("d1"), late], {"d1": 1.0, "d2": 0.5})
    assert found.arrow.column("propensity:small").to_pylist() == [0.975, None]
    assert found.arrow.column("score:large").to_pylist() == [None, 0.5]


def test_texts_and_conversations_are_there_if_they_were_kept(tmp_path: Path) -> None:
    records = [record("d1", text="hello", conversation="c1"), record("d2", text="you")]
    found = joined(tmp_path / "both", records, {"d1": 1.0, "d2": 0.5})
    assert found.arrow.column("input").to_pylist() == ["hello", "you"]
    assert found.arrow.column("conversation").to_pylist() == ["c1", ""]
    assert found.notes == ()
    mixed = [record("d1", text="hello"), record("d2")]
    found = joined(tmp_path / "mixed", mixed, {"d1": 1.0, "d2": 0.5})
    assert "input" not in found.arrow.column_names
    assert "1 of 2 rows have no text" in found.notes[0]
    found = joined(tmp_path / "only", mixed, {"d1": 1.0, "d2": 0.5}, only_with_text=True)
    assert found.arrow.column("input").to_pylist() == ["hello"]


def test_a_log_without_a_score_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        TableError, match="among 1 decisions and 0 scores; send scores to POST /v1/feedback"
    ):
        joined(tmp_path, [record("d1")], {})


def test_decisions_that_the_client_carried_out_itself_give_scores_alone(tmp_path: Path) -> None:
    told = [
        record(name, path="route", served_by="", attempts=(), cost_usd=0.0) for name in ("d1", "d2")
    ]
    alone = joined(tmp_path / "alone", told, {"d1": 0.25, "d2": 1.0})
    assert alone.arrow.column("score:small").to_pylist() == [0.25, 1.0]
    assert "cost:small" not in alone.arrow.column_names
    assert read_logged_decisions(alone.arrow).costs.tolist() == [0.75, 0.0]
    beside = joined(tmp_path / "beside", [*told, record("d3")], {"d1": 0.25, "d2": 1.0, "d3": 0.5})
    assert beside.arrow.column("query_id").to_pylist() == ["d3"]
    assert any("2 decisions of /v1/route are left out" in note for note in beside.notes)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[LoggedCostTable, float]:
    """Hard requests are dear for all.

    "a" fails on 40% of its requests, and "b" answers in its place. With a naive estimate of "b".
    """
    random, rows = np.random.default_rng(0), 3000
    hard = random.random(rows) < 0.5
    chances = np.where(hard[:, None], [0.9, 0.1], [0.2, 0.8])
    chosen = (random.random(rows) >= chances[:, 0]).astype(int)
    answered = np.where((chosen == 0) & (random.random(rows) < 0.4), 1, chosen)
    errors = np.where(hard[:, None], [0.6, 0.8], [0.1, 0.2])
    names = ("a", "b")
    records = [
        record(
            f"d{row}", experts=names, propensities=tuple(chances[row].tolist()),
            propensity=float(chances[row, chosen[row]]), selected=names[chosen[row]],
            served_by=names[answered[row]],
        )
        for row in range(rows)
    ]  # fmt: skip
    scores = {f"d{row}": float(1 - errors[row, answered[row]]) for row in range(rows)}
    weights = (answered == 1) / chances[np.arange(rows), answered]
    return joined(tmp_path_factory.mktemp("failing"), records, scores), float(
        np.average(errors[:, 1], weights=weights)
    )


@pytest.mark.parametrize(("method", "tolerance"), [("ips", 0.13), ("snips", 0.06), ("dr", 0.03)])
def test_failures_of_the_chosen_expert_do_not_bias_the_estimates(
    failing: tuple[LoggedCostTable, float], method: Method, tolerance: float
) -> None:
    """Tolerances are about four standard deviations of an estimate.

    0.033 for the widest, of "b", whose chance is 0.1 on hard requests.
    """
    (costs, naive), truth = failing, {"a": 0.35, "b": 0.5}
    found = estimate_expert_costs(read_logged_decisions(costs.arrow), method=method)
    assert {name: estimate.value for name, estimate in found.items()} == pytest.approx(
        truth, abs=tolerance
    )
    assert all(not found[name].excludes(truth[name]) for name in truth)
    assert naive > 0.6  # what it would be if the stand-in's answers counted with its own chance
    assert any("missing answers" in warning for warning in found["a"].warnings)


def test_rows_on_which_not_everyone_had_a_chance_are_left_out_of_estimates(tmp_path: Path) -> None:
    kept = record("d2", reason="sticky", propensity=1.0, propensities=(1.0, 0.0))
    named = record(
        "d3",
        reason="pinned",
        selected="large",
        served_by="large",
        propensity=1.0,
        propensities=(0.0, 1.0),
    )
    joined(tmp_path, [record("d1"), kept, named], {"d1": 0.5, "d2": 1.0, "d3": 1.0}).save(
        tmp_path / "table.parquet"
    )
    logged = read_logged_decisions(pq.read_table(tmp_path / "table.parquet"))
    assert (logged.rows, logged.costs.tolist()) == (1, [0.5])
    assert logged.notes == ("2 of 3 decisions are left out: not every expert had a chance in them",)
