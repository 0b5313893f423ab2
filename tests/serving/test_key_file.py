from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.serving.auth.keys import (
    APIClient,
    ClientTeam,
    KeyStore,
    add_client,
    revoke_key,
    rotate_key,
)


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
        (None, "teams", {}, "has a client 'teams' already"),
        (None, "a", {"requests_per_minute": 0}, "'requests_per_minute': it must be a positive"),
        (None, "a", {"dollars_per_day": float("nan")}, "'dollars_per_day': it must be a positive"),
        (None, "a", {"team": "x"}, "unknown team 'x'; write it below 'teams:'"),
        (None, "a", {"expires": "soon"}, r"keys\.yaml:1: 'expires': it must be a date as ISO"),
        (f"a: {{hash: '{HASH}'}}\n", "a", {}, "has a client 'a' already"),
        ("a: {hash: 7}\n", "b", {}, r"keys\.yaml:1: 'hash'"),
        (f"{{a: {{hash: '{HASH}'}}}}\n", "b", {}, "nothing can be changed"),
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


def test_a_rotation_keeps_two_keys_valid_until_it_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    add_client(path, "before")
    first = add_client(path, "a", dollars_per_day=5.0)
    path.write_text(path.read_text() + "# the next one\n")
    add_client(path, "b")
    second = rotate_key(path, "a")
    ring = KeyStore.read(path)
    client = APIClient("a", dollars_per_day=5.0)
    assert [ring.find(f"Bearer {key}") for key in (first, second)] == [client, client]
    assert [found.name for found in ring.clients] == ["before", "a", "b"]
    third = rotate_key(path, "a")  # one more drops the oldest
    assert _found(path, first, second, third) == [False, True, True]
    assert rotate_key(path, "a", finish=True) is None
    assert _found(path, first, second, third) == [False, False, True]
    assert "# the next one\n" in path.read_text()


def _found(path: Path, *keys: str | None) -> list[bool]:
    ring = KeyStore.read(path)
    return [ring.find(f"Bearer {key}") is not None for key in keys]


def test_a_revoked_key_expires_now_and_the_other_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(
        f"# ours\nteams:\n  x:\n    dollars_per_day: 9\na:\n  hash: {HASH}\n  team: x  # mild\n\n"
        f"# b's\nb: {{hash: '{OTHER}'}}"
    )
    revoke_key(path, "a", 1_800_000_000.5)
    a, b = KeyStore.read(path).clients
    team = ClientTeam("x", dollars_per_day=9, members=("a",))
    assert (a, b) == (APIClient("a", expires=1_800_000_000.0, team=team), APIClient("b"))
    lines = path.read_text().splitlines()
    assert lines[:4] == ["# ours", "teams:", "  x:", "    dollars_per_day: 9"]
    assert lines[5:] == ["", "# b's", f"b: {{hash: '{OTHER}'}}"]


def test_a_client_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    add_client(path, "team-a")
    for change in (rotate_key, lambda *args: revoke_key(*args, 0.0)):
        with pytest.raises(ArgumentError, match=r"'team-b', got none; did you mean 'team-a'\?"):
            change(path, "team-b")


def test_two_writers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    (tmp_path / ".keys.yaml.new").touch()
    with pytest.raises(ArgumentError, match="is being written by another process"):
        add_client(tmp_path / "keys.yaml", "a")
    assert (tmp_path / ".keys.yaml.new").exists()


def test_a_folder_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="cannot be written: No such file or directory"):
        add_client(tmp_path / "absent" / "keys.yaml", "a")
