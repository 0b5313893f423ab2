"""``mildroute learn``: its exit code, its candidate and its figures."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from mildroute import load_router
from mildroute.cli.app import app
from mildroute.cli.learn import KEEP
from mildroute.persistence import save_router
from tests.learning.world import World, ideal_router

QUICK = ("--min-rows", "100", "--quality", "0.95")


def test_a_better_candidate_is_written_and_the_exit_code_is_zero(tmp_path: Path) -> None:
    World(tmp_path / "log", sampling=1.0).serve(700)
    output = tmp_path / "candidate"
    command = ["learn", str(tmp_path / "log"), "--output", str(output), *QUICK]
    run = CliRunner().invoke(app, [*command, "--json"])
    assert run.exit_code == 0, run.output
    figures = json.loads(run.stdout)
    assert figures["action"] == "promote"
    assert figures["evidence"] >= figures["needed"]
    names = load_router(output).predict(["sing 12"])
    assert names.tolist() == [1]


def test_the_router_in_use_stays_and_the_exit_code_says_so(tmp_path: Path) -> None:
    World(tmp_path / "log", lambda text: "large" if text[0] in "rs" else "small").serve(50)
    save_router(ideal_router(), tmp_path / "router")
    command = ["learn", str(tmp_path / "log"), "--router", str(tmp_path / "router"), *QUICK]
    run = CliRunner().invoke(app, [*command, "--output", str(tmp_path / "candidate")])
    assert run.exit_code == KEEP
    assert run.stdout.startswith("keep: 50 decisions with a text and a score")
    assert not (tmp_path / "candidate").exists()


def test_bad_input_is_another_code(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["learn", str(tmp_path / "none")])
    assert run.exit_code == 2
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").touch()
    command = ["learn", str(tmp_path), "--output", str(tmp_path / "notes")]
    assert CliRunner().invoke(app, command).exit_code == 2
