from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mildroute.gateway.keys import APIClient, KeyStore


def test_a_key_is_printed_once_and_opens_the_gateway(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    path = tmp_path / "keys.yaml"
    result = mildroute(
        "keys",
        "new",
        "team-a",
        "--requests-per-minute",
        600,
        "--dollars-per-day",
        5,
        "--file",
        path,
    )
    assert result.exit_code == 0, result.output
    key = result.stdout.strip()
    assert key not in result.stderr
    assert "shown only this once" in result.stderr
    assert KeyStore.read(path).find(f"Bearer {key}") == APIClient("team-a", 600.0, 5.0)


def test_programs_get_json(tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    found = json.loads(
        mildroute("keys", "new", "b", "--file", tmp_path / "keys.yaml", "--json").stdout
    )
    assert KeyStore.read(tmp_path / "keys.yaml").find(f"Bearer {found['key']}") == APIClient("b")


def test_a_name_that_is_taken_is_one_line_and_an_exit_code(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    arguments = ("keys", "new", "b", "--file", tmp_path / "keys.yaml")
    mildroute(*arguments)
    result = mildroute(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: keys.yaml already has a client 'b'")


def test_help_has_an_example_and_json(mildroute: Callable[..., Any]) -> None:
    text = mildroute("keys", "new", "--help").output
    assert "Example: mildroute keys new" in text
    assert "--json" in text


def test_keys_are_revoked_and_listed(tmp_path: Path, mildroute: Callable[..., Any]) -> None:
    path = tmp_path / "keys.yaml"
    made = ("keys", "new", "a", "--model", "mildroute", "--model", "small", "--file", path)
    first = mildroute(*made, "--dollars-per-day", 5).stdout.strip()
    mildroute("keys", "new", "b", "--file", path)
    assert mildroute("keys", "list", "--file", path).stdout == (
        "a  dollars_per_day=5.0  models=mildroute, small\nb\n"
    )
    assert "is revoked" in mildroute("keys", "revoke", "b", "--file", path).stdout
    rows = json.loads(mildroute("keys", "list", "--file", path, "--json").stdout)
    assert [row["name"] for row in rows] == ["a"]
    assert "sha256" not in str(rows)
    assert json.loads(mildroute("keys", "revoke", "a", "--file", path, "--json").stdout) == {
        "name": "a",
        "file": str(path),
    }
    assert KeyStore.read(path).find(f"Bearer {first}") is None
