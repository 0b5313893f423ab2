from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.gateway.key_changes import add_client, revoke_key
from mildroute.gateway.keys import APIClient, KeyStore


def test_a_new_file_is_its_owners_alone_and_holds_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    key = add_client(path, "team-a", requests_per_minute=600, dollars_per_day=5)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key not in path.read_text()
    assert key.removeprefix("mr-") not in path.read_text()
    assert KeyStore.read(path).find(f"Bearer {key}") == APIClient("team-a", 600, 5)


def test_clients_are_appended_and_comments_stay(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    first = add_client(path, "a")
    path.write_text("# ours\n" + path.read_text().rstrip("\n"))
    second = add_client(path, "007", dollars_per_day=0.5)
    ring = KeyStore.read(path)
    assert path.read_text().startswith("# ours\n")
    assert [ring.find(f"Bearer {key}") for key in (first, second)] == [
        APIClient("a"),
        APIClient("007", None, 0.5),
    ]


def test_access_to_an_existing_file_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    add_client(path, "a")
    path.chmod(0o640)
    add_client(path, "b")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = tmp_path / "keys.yaml"
    path.symlink_to(tmp_path / "real" / "keys.yaml")
    add_client(path, "a")
    assert path.is_symlink()
    assert [client.name for client in KeyStore.read(tmp_path / "real" / "keys.yaml").clients] == [
        "a"
    ]


HASH = "sha256:" + "0" * 64
OTHER = "sha256:" + "1" * 64


@pytest.mark.parametrize(
    ("before", "name", "settings", "message"),
    [
        (None, "a b", {}, "a client's name must be"),
        (None, "", {}, "a client's name must be"),
        (None, "a", {"requests_per_minute": 0}, "a.requests_per_minute must be more than 0"),
        (None, "a", {"dollars_per_day": float("nan")}, "a.dollars_per_day must be a number"),
        (None, "a", {"team": "x"}, "a.team is not a setting"),
        (f"a: {{hash: '{HASH}'}}\n", "a", {}, "already has a client 'a'"),
        ("a: {hash: 7}\n", "b", {}, r"keys\.yaml:1: a\.hash"),
        (f"{{a: {{hash: '{HASH}'}}}}\n", "b", {}, "keys.yaml cannot be changed"),
    ],
)
def test_a_refusal_leaves_everything_as_it_was(
    tmp_path: Path, before: str | None, name: str, settings: dict[str, Any], message: str
) -> None:
    path = tmp_path / "keys.yaml"
    if before is not None:
        path.write_text(before)
    with pytest.raises(ArgumentError, match=message):
        add_client(path, name, **settings)
    assert {found.name: found.read_text() for found in tmp_path.iterdir()} == (
        {} if before is None else {"keys.yaml": before}
    )


def _found(path: Path, *keys: str | None) -> list[bool]:
    ring = KeyStore.read(path)
    return [ring.find(f"Bearer {key}") is not None for key in keys]


def test_two_writers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    (tmp_path / ".keys.yaml.new").touch()
    with pytest.raises(ArgumentError, match="is being written by another process"):
        add_client(tmp_path / "keys.yaml", "a")
    assert (tmp_path / ".keys.yaml.new").exists()


def test_a_folder_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="cannot be written: No such file or directory"):
        add_client(tmp_path / "absent" / "keys.yaml", "a")


def test_a_revoked_client_is_gone_and_the_other_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    first = add_client(path, "a")
    second = add_client(path, "b", dollars_per_day=5, models=["mildroute"])
    path.write_text("# ours\n" + path.read_text())
    revoke_key(path, "a")
    store = KeyStore.read(path)
    assert store.find(f"Bearer {first}") is None
    assert store.find(f"Bearer {second}") == APIClient("b", None, 5, frozenset(["mildroute"]))
    assert path.read_text().startswith("# ours\n")


def test_a_client_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    add_client(path, "team-a")
    before = path.read_text()
    with pytest.raises(ArgumentError, match="did you mean 'team-a'"):
        revoke_key(path, "team-b")
    assert path.read_text() == before


@pytest.mark.parametrize("setting", ["expires: 2027-01-31", "team: x", "tokens_per_minute: 5"])
def test_settings_of_earlier_versions_are_refused_with_their_line(
    tmp_path: Path, setting: str
) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(f"a:\n  hash: sha256:{'0' * 64}\n  {setting}\n")
    with pytest.raises(ArgumentError, match=r"keys.yaml:3: a.*is not a setting"):
        KeyStore.read(path)
