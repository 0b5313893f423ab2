from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving.records import PLAIN

from mildroute.serving.config import DecisionLogConfig
from mildroute.serving.observability.decision_log import DecisionLog, read_log


def test_finished_files_become_parquet(tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    log = DecisionLog(DecisionLogConfig(tmp_path))
    log.write(PLAIN)
    assert json.loads(mildroute("log", "tidy", tmp_path, "--json").stdout) == {
        "files": 0,
        "rows": 0,
        "growing": 1,
    }
    log.close()
    assert (
        mildroute("log", "tidy", tmp_path).stdout
        == "1 file with 1 line is Parquet now; 0 are still written.\n"
    )
    assert list(read_log(tmp_path)) == [PLAIN]


def test_a_folder_that_is_not_there_is_one_line(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute("log", "tidy", tmp_path / "absent")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not a folder" in result.stderr


def test_help_has_an_example_and_json(mildroute: Callable[..., Any]) -> None:
    text = mildroute("log", "tidy", "--help").output
    assert "Example: mildroute log tidy" in text
    assert "--json" in text
