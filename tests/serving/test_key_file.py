from __future__ import annotations

import stat
from pathlib import Path

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.serving.auth.keys import APIClient, KeyStore, add_client


def test_a_new_file_is_its_owners_alone_and_holds_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    key = add_client(path, APIClient("team-a", 600, 5))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key not in path.read_text()
    assert key.removeprefix("mr-") not in path.read_text()
    assert KeyStore.read(path).find(f"Bearer {key}") == APIClient("team-a", 600, 5)


def test_clients_are_appended_and_comments_stay(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    first = add_client(path, APIClient("a"))
    path.write_text("# ours\n" + path.read_text().rstrip("\n"))
    second = add_client(path, APIClient("007", dollars_per_day=0.5))
    ring = KeyStore.read(path)
    assert path.read_text().startswith("# ours\n")
    assert [ring.find(f"Bearer {key}") for key in (first, second)] == [
        APIClient("a"),
        APIClient("007", None, 0.5),
    ]


def test_access_to_an_existing_file_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    add_client(path, APIClient("a"))
    path.chmod(0o640)
    add_client(path, APIClient("b"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = tmp_path / "keys.yaml"
    path.symlink_to(tmp_path / "real" / "keys.yaml")
    add_client(path, APIClient("a"))
    assert path.is_symlink()
    assert [client.name for client in KeyStore.read(tmp_path / "real" / "keys.yaml").clients] == [
        "a"
    ]


@pytest.mark.parametrize(
    ("before", "client", "message"),
    [
        (None, APIClient("a b"), "a client's name must be"),
        (None, APIClient(""), "a client's name must be"),
        (
            None,
            APIClient("a", requests_per_minute=0),
            "requests_per_minute: it must be a positive number",
        ),
        (
            None,
            APIClient("a", dollars_per_day=float("nan")),
            "dollars_per_day: it must be a positive number",
        ),
        ("a: {hash: 'sha256:" + "0" * 64 + "'}\n", APIClient("a"), "has a client 'a' already"),
        ("a: {hash: 7}\n", APIClient("b"), r"keys\.yaml:1: 'hash'"),
        ("{a: {hash: 'sha256:" + "0" * 64 + "'}}\n", APIClient("b"), "nothing can be appended"),
    ],
)
def test_a_refusal_leaves_everything_as_it_was(
    tmp_path: Path, before: str | None, client: APIClient, message: str
) -> None:
    path = tmp_path / "keys.yaml"
    if before is not None:
        path.write_text(before)
    with pytest.raises(ArgumentError, match=message):
        add_client(path, client)
    assert {found.name: found.read_text() for found in tmp_path.iterdir()} == (
        {} if before is None else {"keys.yaml": before}
    )


def test_two_writers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    (tmp_path / ".keys.yaml.new").touch()
    with pytest.raises(ArgumentError, match="is being written by someone else"):
        add_client(tmp_path / "keys.yaml", APIClient("a"))
    assert (tmp_path / ".keys.yaml.new").exists()


def test_a_folder_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="cannot be written: No such file or directory"):
        add_client(tmp_path / "absent" / "keys.yaml", APIClient("a"))
