from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mildroute.routers.artifact import save
from mildroute.routers.single import BestSingleRouter

Fitted = tuple[Path, Path, dict[str, Any]]


def test_the_last_line_is_the_expert(fitted: Fitted, mildroute: Callable[..., Any]) -> None:
    result = mildroute("route", fitted[0], "sing a song")
    assert result.output.splitlines()[-1] == "large"


def test_a_file_gives_one_decision_a_line(fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    (tmp_path / "many.txt").write_text("sing a song\nadd 1\n")
    (tmp_path / "many.jsonl").write_text('{"input": "sing a song"}\n{"text": "add 1"}\n')
    plain, lines = (mildroute("route", fitted[0], "--file", tmp_path / name).stdout.splitlines() for name in ("many.txt", "many.jsonl"))
    assert plain == lines
    first = json.loads(lines[0])
    assert first["expert"] == first["ranking"][0]["expert"] == "large"
    assert sum(entry["posterior"] for entry in first["ranking"]) == pytest.approx(1, abs=1e-5)


def test_quality_at_any_price_and_price_at_any_quality(fitted: Fitted, mildroute: Callable[..., Any]) -> None:
    found = [json.loads(mildroute("route", fitted[0], "add 3", "--price-weight", weight, "--json").stdout) for weight in (0, 3000)]
    assert found[1]["expert"] == "small"
    assert found[0]["ranking"] != found[1]["ranking"]


@pytest.mark.parametrize("line", ['{"input": 3}', "{", "[]"])
def test_a_broken_line_is_named(line: str, fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    (tmp_path / "many.jsonl").write_text('{"input": "a"}\n' + line + "\n")
    result = mildroute("route", fitted[0], "--file", tmp_path / "many.jsonl")
    assert result.exit_code == 2
    assert "line 2 must" in result.stderr


def test_a_text_or_a_file_is_needed_but_not_both(fitted: Fitted, mildroute: Callable[..., Any]) -> None:
    assert "give a TEXT or --file" in mildroute("route", fitted[0]).stderr


def test_a_router_over_vectors_cannot_read_texts(tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    save(BestSingleRouter().fit([[0.0]], [[0, 1]]), tmp_path / "router")
    assert "reads vectors, not texts" in mildroute("route", tmp_path / "router", "a text").stderr


def test_files_that_we_write_are_read_whatever_separators_they_hold(fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    (tmp_path / "many.json").write_text("\ufeff" + json.dumps({"input": "sing a\u2028song"}, ensure_ascii=False) + "\n", encoding="utf-8")
    result = mildroute("route", fitted[0], "--file", tmp_path / "many.json")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 1


def test_an_empty_line_is_no_input(fitted: Fitted, tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    (tmp_path / "many.txt").write_text("add 1\n\nadd 2\n")
    result = mildroute("route", fitted[0], "--file", tmp_path / "many.txt")
    assert result.exit_code == 2
    assert "an empty line 2" in result.stderr
