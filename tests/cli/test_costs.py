from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mildroute.decision.feedback import FeedbackLog
from mildroute.decision.log import DecisionLog
from mildroute.gateway.config import DecisionLogConfig
from tests.support.records import PLAIN


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hard requests go to "large", which a shadow router would send to "small".

    Both err on 60% of these and on 10% of the others.
    """
    folder, random = tmp_path_factory.mktemp("log"), np.random.default_rng(0)
    decisions, feedback = (
        DecisionLog(DecisionLogConfig(folder)),
        FeedbackLog(DecisionLogConfig(folder)),
    )
    for row in range(1500):
        hard, lot = random.random() < 0.5, random.random()
        chances = (0.1, 0.9) if hard else (0.9, 0.1)
        chosen = "small" if lot < chances[0] else "large"
        changes: dict[str, Any] = {
            "selected": chosen,
            "served_by": chosen,
            "propensities": chances,
            "shadow": "small",
        }
        decisions.write(
            replace(PLAIN, decision_id=f"d{row}", propensity=chances[chosen == "large"], **changes)
        )
        feedback.write(f"d{row}", float(random.random() > (0.6 if hard else 0.1)), "")
    decisions.close()
    feedback.close()
    return folder


def test_people_see_estimates_beside_plain_means(
    log: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("costs", "from-log", log, "--out", tmp_path / "table.parquet")
    assert result.exit_code == 0, result.output
    for words in (
        "1,500 of 1,500 decisions have a score",
        "plain mean",
        "95% interval",
        "the shadow router would have cost",
        "other routers cannot",
    ):
        assert words in result.output
    assert pq.read_metadata(tmp_path / "table.parquet").num_rows == 1500


def test_a_router_is_not_fitted_on_a_log_by_accident(
    log: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    mildroute("costs", "from-log", log, "--out", tmp_path / "table.parquet")
    for missing in ("raise", "zero"):
        refused = mildroute(
            "fit", tmp_path / "table.parquet", "--missing", missing, "--out", tmp_path / "router"
        )
        assert refused.exit_code == 2
        assert "not all experts answered each query; set missing (--missing)" in refused.stderr


def test_programs_get_the_same_and_the_estimates_hold(
    log: Path, tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    found = json.loads(
        mildroute("costs", "from-log", log, "--out", tmp_path / "table.parquet", "--json").stdout
    )
    assert (found["rows"], found["without_score"], found["unknown"]) == (1500, 0, 0)
    small, large = found["experts"]["small"], found["experts"]["large"]
    for expert in (small, large):
        assert expert["value"] == pytest.approx(0.35, abs=0.14)  # four standard deviations
        assert expert["low"] < expert["value"] < expert["high"]
    assert small["plain_mean"] < 0.25
    assert large["plain_mean"] > 0.45


def test_a_log_without_exploration_gives_a_table_and_says_so(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    decisions, feedback = (
        DecisionLog(DecisionLogConfig(tmp_path)),
        FeedbackLog(DecisionLogConfig(tmp_path)),
    )
    for name, chances in (("small", (1.0, 0.0)), ("large", (0.0, 1.0))):
        decisions.write(
            replace(
                PLAIN,
                decision_id=name,
                selected=name,
                served_by=name,
                propensity=1.0,
                propensities=chances,
            )
        )
        feedback.write(name, 1.0, "")
    decisions.close()
    feedback.close()
    result = mildroute("costs", "from-log", tmp_path, "--out", tmp_path / "table.parquet")
    assert result.exit_code == 0, result.output
    assert "let the gateway explore" in result.output
    assert (tmp_path / "table.parquet").exists()


@pytest.mark.parametrize(
    ("out", "folder", "message"),
    [
        ("table.csv", "", "choose a name that ends with .parquet"),
        ("table.parquet", "absent", "is not a folder"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    tmp_path: Path, mildroute: Callable[..., Any], out: str, folder: str, message: str
) -> None:
    result = mildroute("costs", "from-log", tmp_path / folder, "--out", tmp_path / out)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_help_has_an_example_and_json(mildroute: Callable[..., Any]) -> None:
    text = mildroute("costs", "from-log", "--help").output
    assert "Example: mildroute costs from-log" in text
    assert "--json" in text


def test_of_an_expert_that_has_not_answered_yet_nothing_is_known(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    config = DecisionLogConfig(tmp_path / "log")
    decisions, feedback = DecisionLog(config), FeedbackLog(config)
    for row in range(40):
        decisions.write(replace(PLAIN, decision_id=f"d{row}"))
        feedback.write(f"d{row}", float(row % 2), "")
    decisions.close()
    feedback.close()
    result = mildroute("costs", "from-log", tmp_path / "log", "--out", tmp_path / "table.parquet")
    assert result.exit_code == 0, result.output
    assert "unknown" in result.output
    assert "nan" not in result.output
