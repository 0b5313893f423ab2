from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mildroute.decision.feedback import DecisionIds, FeedbackLog, read_feedback
from mildroute.exceptions import ArgumentError
from mildroute.gateway.config import DecisionLogConfig


def test_the_last_score_counts_by_time_and_not_by_file(tmp_path: Path) -> None:
    times = iter([30.0, 10.0, 20.0, 40.0, 40.0])
    one = FeedbackLog(DecisionLogConfig(tmp_path), clock=lambda: next(times))
    other = FeedbackLog(DecisionLogConfig(tmp_path), clock=lambda: next(times))
    one.write("d1", 0.3, "a")
    other.write("d1", 0.1, "a")
    one.write("d2", 0.2, "a")
    other.write("d2", 0.4, "b")
    other.write("d2", 0.5, "b")
    assert read_feedback(tmp_path) == {"d1": 0.3, "d2": 0.5}
    one.close()
    other.close()


def test_ids_are_known_to_all_gateways_of_a_log_and_to_no_other(tmp_path: Path) -> None:
    one, other = DecisionIds.of(tmp_path / "a"), DecisionIds.of(tmp_path / "a")
    made = {one.new() for _ in range(1000)}
    assert len(made) == 1000
    assert all(len(name) == 32 and other.has_made(name) for name in made)
    foreign = DecisionIds.of(tmp_path / "b")
    assert not any(foreign.has_made(name) for name in made)
    name = one.new()
    for wrong in ("", "d1", name[:-1], name + "0", name[:-1] + ("0" if name[-1] != "0" else "1")):
        assert not one.has_made(wrong)
    assert [path.name for path in (tmp_path / "a").iterdir()] == [".decision-ids"]
    assert (tmp_path / "a" / ".decision-ids").stat().st_mode & 0o077 == 0


def test_ids_are_made_where_no_key_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file where the folder should be")
    ids = DecisionIds.of(tmp_path / "log")
    assert ids.has_made(ids.new())


def test_a_line_has_id_score_time_key_and_detail(tmp_path: Path) -> None:
    feedback = FeedbackLog(DecisionLogConfig(tmp_path), clock=lambda: 7.0)
    assert feedback.write("d1", 1, "team-a", "well\ndone \ud800")
    feedback.close()
    (path,) = (tmp_path / "feedback").iterdir()
    expected = {
        "decision_id": "d1",
        "score": 1.0,
        "time": 7.0,
        "key": "team-a",
        "detail": "well\ndone ?",
    }
    assert json.loads(path.read_bytes()) == expected


@pytest.mark.parametrize(
    ("decision_id", "score", "detail", "message"),
    [
        (None, 1.0, None, "decision_id must be the text"),
        ("", 1.0, None, "decision_id must be the text"),
        ("x" * 129, 1.0, None, "decision_id must be the text"),
        ("a\nb", 1.0, None, "decision_id must be the text"),
        ("d", "1", None, "score must be a number from 0 to 1, got '1'"),
        ("d", True, None, "score must be a number from 0 to 1, got True"),
        ("d", 1.01, None, "score must be a number"),
        ("d", -0.01, None, "score must be a number"),
        ("d", float("nan"), None, "score must be a number"),
        ("d", 10**400, None, "score must be a number"),
        ("d", None, None, "score must be a number"),
        ("d", 1.0, "x" * 2001, "detail must be a text of at most 2,000 characters"),
        ("d", 1.0, {"a": 1}, "detail must be a text"),
    ],
)
def test_what_a_client_got_wrong_is_said_and_not_written(
    tmp_path: Path, decision_id: Any, score: Any, detail: Any, message: str
) -> None:
    feedback = FeedbackLog(DecisionLogConfig(tmp_path))
    with pytest.raises(ArgumentError, match=message):
        feedback.write(decision_id, score, "a", detail)
    feedback.close()
    assert read_feedback(tmp_path) == {}


def test_feedback_needs_a_folder() -> None:
    with pytest.raises(ArgumentError, match="needs the folder of the log"):
        FeedbackLog(DecisionLogConfig())
