"""``mildroute decide``: what is wrong is said before a port is opened."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mildroute import TextRouter
from mildroute.cli.app import app
from mildroute.persistence import save_router

TEXTS = ["add 1 1", "sing a song"] * 40


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fitted = TextRouter().fit(TEXTS, [[0, 1], [1, 0]] * 40, experts=("small", "large"))
    return save_router(fitted, tmp_path_factory.mktemp("artifact") / "router")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "needs a key, got none for '0.0.0.0'"),  # noqa: S104
        (["--key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY must hold the key"),
        (["--quality", "0.9"], "knows no prices"),
        (["--quality", "0.9", "--budget", "1"], "give only one of --budget"),
        (["--labels", "unknown.yaml"], "'SIMPLE' must stand for experts"),
        (["--labels", "list.yaml"], "must map each label"),
    ],
)
def test_options_that_cannot_work_are_refused(
    router: Path, tmp_path: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("unknown.yaml").write_text("SIMPLE: tiny\n")
    Path("list.yaml").write_text("- small\n")
    result = CliRunner().invoke(app, ["decide", str(router), "--port", "0", *options])
    assert result.exit_code == 2
    assert message in result.output


def test_a_router_that_is_not_there_and_a_taken_port_are_refused(
    router: Path, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["decide", str(tmp_path / "nothing"), "--port", "0"])
    assert (result.exit_code, "must be a stored router" in result.output) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, ["decide", str(router), "--port", port])
    assert (result.exit_code, f"at port {port}" in result.output) == (2, True)
