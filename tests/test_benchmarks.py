"""Every script under benchmarks/ runs, prints its rows alone, and can be recorded and compared."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare, record

ROOT = Path(__file__).parents[1]
SCRIPTS = record.scripts()
# Commands, and processes that scripts start; all else that can be run must print rows.
OTHERS = {
    "compare.py",
    "record.py",
    "peers/adapters.py",
    "service/expert.py",
    "service/round_robin.py",
    "service/traffic.py",
    "speed/http_load.py",
    "speed/replay_server.py",
}
# Quick runs that would take the gate past 20 minutes; they run with the slow tests.
HEAVY = {"deep", "encoders", "engine", "gateway"}
SECONDS = 600
FIELDS = {"name": str, "value": float | int | None, "limit": float | int | None, "ok": bool}
# What a quick run must show beyond its rows' own limits: the lowest and the highest value.
BOUNDS = {
    "run": {
        "exact regret of the default, ratio 1:1": (0.0, 0.01),
        "exact regret of the default, ratio 1:100": (0.0, 0.01),
        "worst-expert recall / TDEF's, ratio 1:100": (0.9, 100.0),
    },
    "targets": {"draws in which the default collapses": (0.0, 0.0)},
    "feedback": {"lowest coverage of plain means": (0.0, 0.5)},
    "chaos": {
        "faults of experts": (4.0, 1e6),
        "reloads that were taken": (1.0, 1e6),
        "reloads that were rejected": (1.0, 1e6),
    },
}
TOY = """
import os
import sys

sys.path.insert(0, {folder!r})
from rows import at_least, at_most, main

def measure(quick, size):
    print("progress")
    os.system("echo of a child")
    yield at_most("value", {value}, 3.0)
    yield at_least("speed", size, 9.0, "slow", full_only=True)
    yield at_least("not measured", float("nan"), 9.0, full_only=True)

main("a toy", measure, {{"--size": {{"type": int, "default": 4}}}})
"""


def refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in HEAVY)) for name in SCRIPTS]
)
def test_a_quick_run_is_recorded_and_holds_its_limits(name: str, tmp_path: Path) -> None:
    if record.needs_data(SCRIPTS[name]) and "MILDROUTE_DATA" not in os.environ:
        pytest.skip("needs the benchmark data: set MILDROUTE_DATA to its folder")
    stored = record.record(name, ["--quick"], tmp_path, timeout=SECONDS)
    assert stored == tmp_path / f"{name}.json"
    run = json.loads(stored.read_text(), parse_constant=refuse)
    assert run["command"] == f"python {SCRIPTS[name].relative_to(ROOT).as_posix()} --quick"
    assert re.fullmatch(r"[0-9a-f]{12}\+?|unknown", run["commit"])
    for row in run["rows"]:
        assert set(row) == {*FIELDS, "note"}
        assert all(isinstance(row[field], kind) for field, kind in FIELDS.items()), row
    assert [row for row in run["rows"] if not row["ok"]] == []
    assert [row for row in run["rows"] if row["limit"] is not None]
    values = {row["name"]: row["value"] for row in run["rows"]}
    for figure, (lowest, highest) in BOUNDS.get(name, {}).items():
        assert lowest <= values[figure] <= highest, figure


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chaos", "hostile"])
def test_the_gateway_holds_its_limits_with_cascades(name: str, tmp_path: Path) -> None:
    stored = record.record(name, ["--quick", "--cascade"], tmp_path, timeout=SECONDS)
    assert [row for row in json.loads(stored.read_text())["rows"] if not row["ok"]] == []


def test_whatever_can_be_run_prints_rows_or_is_known_not_to() -> None:
    folder = ROOT / "benchmarks"
    runnable = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if "__main__" in path.read_text() or path.name == "__main__.py"
    }
    assert runnable - {path.relative_to(folder).as_posix() for path in SCRIPTS.values()} == OTHERS


@pytest.mark.parametrize("path", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_says_how_it_is_run(path: Path) -> None:
    command = f"python {path.relative_to(ROOT).as_posix()} [--json] [--quick]"
    assert re.search(rf"^Run: \S* ?{re.escape(command)}", path.read_text(), re.MULTILINE)


def test_the_list_names_every_script_with_its_path() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.record", "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = dict(line.split() for line in run.stdout.splitlines())
    assert listed == {name: path.relative_to(ROOT).as_posix() for name, path in SCRIPTS.items()}


def test_a_script_is_known_by_its_name_and_by_its_path() -> None:
    assert record.script_of("losses") == record.script_of("speed/losses.py") == SCRIPTS["losses"]
    with pytest.raises(SystemExit, match=r"must be one of losses|must be one of .*losses"):
        record.script_of("no such script")


def toy(folder: Path, value: float) -> Path:
    path = folder / "benchmarks" / "toy.py"
    path.parent.mkdir(parents=True)
    path.write_text(TOY.format(folder=str(ROOT / "benchmarks"), value=value))
    return path


def printed(path: Path, *options: str) -> tuple[int, list[dict[str, Any]], str]:
    run = subprocess.run(
        [sys.executable, str(path), "--json", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, json.loads(run.stdout, parse_constant=refuse), run.stderr


def test_json_stands_alone_and_a_quick_run_reports_what_only_a_full_one_is_held_to(
    tmp_path: Path,
) -> None:
    code, rows, said = printed(toy(tmp_path, 2.0), "--quick", "--size", "5")
    assert code == 0
    assert "progress" in said
    assert "of a child" in said
    assert rows == [
        {"name": "value", "value": 2.0, "limit": 3.0, "ok": True, "note": ""},
        {
            "name": "speed",
            "value": 5.0,
            "limit": None,
            "ok": True,
            "note": "slow; at least 9 in a full run",
        },
        {
            "name": "not measured",
            "value": None,
            "limit": None,
            "ok": True,
            "note": "at least 9 in a full run",
        },
    ]


def test_a_full_run_that_misses_a_limit_exits_with_1(tmp_path: Path) -> None:
    code, rows, _ = printed(toy(tmp_path, 2.0))
    assert code == 1
    assert [row["ok"] for row in rows] == [True, False, False]


def test_two_checkouts_are_compared_by_the_best_of_their_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for side, value in (("old", 2.0), ("new", 1.0)):
        toy(tmp_path / side, value)
    out = tmp_path / "compare.json"
    words = [str(tmp_path / "old"), str(tmp_path / "new"), "--scripts", "toy.py --size 3"]
    monkeypatch.setattr(sys, "argv", ["compare", *words, "--quick", "--out", str(out)])
    monkeypatch.setattr(compare, "HELP", "pass")
    compare.main()
    found = json.loads(out.read_text(), parse_constant=refuse)
    value, speed, start = found["rows"]
    assert (value["before"], value["after"], value["ratio"]) == (2.0, 1.0, 0.5)
    assert (value["limit"], value["bound"]) == (3.0, "at most")
    assert (speed["ratio"], speed["limit"], speed["bound"]) == (1.0, None, "at least")
    assert start["script"] == "mildroute --help"
    assert len(start["values"]["before"]) == len(start["values"]["after"]) == 10
    assert "toy.py: value" in capsys.readouterr().out


def test_the_best_of_a_figure_follows_its_bound() -> None:
    figure = compare.Figure("script", "speed")
    for value in (2.0, 4.0, 3.0):
        figure.add("before", {"value": value, "limit": 5.0, "ok": False, "note": ""})
        figure.add("after", {"value": 2 * value, "limit": 5.0, "ok": 2 * value >= 5, "note": ""})
    assert figure.bound == "at least"
    assert (figure.best("before"), figure.best("after")) == (4.0, 8.0)
