"""Client keys in SQLite and Postgres, and gateways that follow their changes."""

from __future__ import annotations

import json
import logging
import math
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.serving.auth import database_store
from mildroute.serving.auth.database import DatabaseError, KeyDatabase
from mildroute.serving.auth.database_store import DatabaseKeyStore
from mildroute.serving.auth.keys import (
    APIClient,
    KeyStore,
    add_client,
    add_clients,
    describe_clients,
    import_clients,
    numbered_clients,
    put_team,
    revoke_key,
    rotate_key,
)
from mildroute.serving.auth.snapshot import KeySnapshot, build_snapshot, newest_snapshot
from mildroute.serving.config import GatewayConfig, read_config
from mildroute.serving.factory import _key_store
from tests.experts.hostile_server import HostileServer, says
from tests.serving.running import running, until
from tests.support.postgres import PostgresServer


@pytest.fixture
def url(database_url: str) -> str:
    return database_url


@pytest.fixture
def opened(url: str, tmp_path: Path) -> Iterator[Callable[..., DatabaseKeyStore]]:
    """Opens a store of the database; all of them are stopped in the end."""
    stores = []

    def open_store(**settings: Any) -> DatabaseKeyStore:
        stores.append(DatabaseKeyStore(url, cache=tmp_path / "cache", **settings))
        return stores[-1]

    yield open_store
    for store in stores:
        store.stop()
        with store._lock:
            store._disconnect()
        if store._builder is not None:
            store._builder.wait(30)


def name_of(store: KeyStore, key: str) -> str | None:
    client = store.find(f"Bearer {key}")
    return None if client is None else client.name


def version_of(url: str) -> int:
    with closing(KeyDatabase(url)) as database:
        return database.state()[1]


def test_keys_are_made_rotated_and_revoked_as_in_a_file(
    url: str, opened: Callable[..., DatabaseKeyStore]
) -> None:
    put_team(url, "red", dollars_per_day=5.0)
    first = add_client(url, "a", team="red", models=["small"], requests_per_minute=60)
    store = opened()
    client = store.find(f"Bearer {first}")
    assert (client.name, client.requests_per_minute, client.models) == ("a", 60, {"small"})
    assert (client.team.name, client.team.dollars_per_day) == ("red", 5.0)
    assert store.find("Bearer mr-" + "x" * 43) is None
    assert KeyStore.read(url).find(f"Bearer {first}").limits == client.limits
    second = rotate_key(url, "a")
    store.refresh()
    assert name_of(store, first) == name_of(store, second) == "a"
    assert describe_clients(url, 0.0)[0]["status"] == "rotating"
    rotate_key(url, "a", finish=True)
    store.refresh()
    assert (name_of(store, first), name_of(store, second)) == (None, "a")
    revoke_key(url, "a", 1000.0)
    store.refresh()
    assert store.find(f"Bearer {second}").expires == 1000.0
    assert describe_clients(url, 2000.0) == [
        {
            "name": "a",
            "status": "expired",
            "requests_per_minute": 60,
            "models": ["small"],
            "expires": "1970-01-01T00:16:40+00:00",
            "team": "red",
        }
    ]
    assert len(store) == 1
    assert "1 clients" in repr(store)


def test_what_a_file_would_refuse_is_refused_and_changes_nothing(url: str) -> None:
    add_client(url, "a")
    before = describe_clients(url, 0.0)
    for change, words in (
        (lambda: add_client(url, "a"), "has a client 'a' already"),
        (lambda: add_client(url, "b c"), "a client's name must be"),
        (lambda: add_client(url, "b", dollars_per_day=-1), "positive number"),
        (lambda: add_client(url, "b", team="red"), "unknown team 'red'.*mildroute keys team"),
        (lambda: rotate_key(url, "b"), "must have the client 'b', got none"),
        (lambda: revoke_key(url, "b", 0.0), "must have the client 'b', got none"),
        (lambda: put_team(url, "red", dollars_per_day=math.inf), "positive number"),
        (
            lambda: add_clients(url, numbered_clients("b", 3, tokens_per_minute=0)),
            "positive number",
        ),
    ):
        with pytest.raises(ArgumentError, match=words):
            change()
    assert describe_clients(url, 0.0) == before


def test_many_clients_come_all_or_none(
    url: str, opened: Callable[..., DatabaseKeyStore], tmp_path: Path
) -> None:
    store = opened_after_first(url, opened)
    made = add_clients(url, numbered_clients("team", 3000, dollars_per_day=1.0))
    store.refresh()
    assert len(store) == 3001
    assert [name_of(store, key) for key in made.values()] == list(made)
    assert list(made)[::2999] == ["team-000001", "team-003000"]
    with pytest.raises(ArgumentError, match="got 'team-000001'"):
        add_clients(url, numbered_clients("team", 5000))

    def fail(_keys: object) -> None:
        raise OSError(28, "disk full")

    with pytest.raises(OSError, match="disk full"):
        add_clients(url, numbered_clients("other", 10), fail)
    store.refresh()
    assert len(store) == len(opened()) == 3001
    with pytest.raises(ArgumentError, match="need a database"):
        add_clients(str(tmp_path / "keys.yaml"), numbered_clients("team", 2))


def opened_after_first(url: str, opened: Callable[..., DatabaseKeyStore]) -> DatabaseKeyStore:
    add_client(url, "first")
    return opened()


def test_a_key_file_moves_to_a_database_with_its_keys(
    url: str, opened: Callable[..., DatabaseKeyStore], tmp_path: Path
) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("teams: {red: {dollars_per_day: 5}, blue: }\n")
    keys = {name: add_client(path, name, team="red") for name in ("a", "b")}
    rotated = rotate_key(path, "b")
    assert import_clients(path, url) == 2
    store = opened()
    assert {name_of(store, key) for key in (*keys.values(), rotated)} == {"a", "b"}
    team = store.find(f"Bearer {keys['a']}").team
    assert sorted(team.members) == ["a", "b"]
    assert ("a" in team.members, "c" in team.members, len(team.members)) == (True, False, 2)
    add_client(url, "c", team="red")
    put_team(url, "red", dollars_per_day=7)
    store.refresh()
    team = store.find(f"Bearer {keys['a']}").team
    assert (sorted(team.members), team.dollars_per_day) == (["a", "b", "c"], 7)
    with pytest.raises(ArgumentError, match="of its own"):
        import_clients(path, url)


def test_a_revoked_key_is_refused_by_every_gateway_within_five_seconds(
    url: str, opened: Callable[..., DatabaseKeyStore]
) -> None:
    key = add_client(url, "a", dollars_per_day=5.0)
    headers = {"authorization": f"Bearer {key}"}
    with (
        HostileServer([says("4")]) as expert,
        running(services={"key_store": opened(interval=0.2)}, small=expert.url) as one,
        running(services={"key_store": opened(interval=0.2)}, small=expert.url) as two,
    ):
        assert [gateway.chat(headers=headers).status_code for gateway in (one, two)] == [200] * 2
        revoke_key(url, "a", time.time())
        for gateway in (one, two):
            until(lambda gateway=gateway: gateway.chat(headers=headers).status_code == 401)
            assert gateway.chat(headers=headers).json()["error"]["code"] == "key_expired"
        new = {"authorization": f"Bearer {add_client(url, 'b')}"}
        for gateway in (one, two):
            until(lambda gateway=gateway: gateway.chat(headers=new).status_code == 200)
        age = [
            float(line.split()[1])
            for line in one.http.get("/metrics").text.splitlines()
            if line.startswith("mildroute_keys_age_seconds ")
        ]
        assert 0 <= age[0] < 5


def test_two_writers_at_once_lose_nothing(
    url: str, opened: Callable[..., DatabaseKeyStore]
) -> None:
    """Half of the changes are read while they come: a version must never appear late."""
    store = opened_after_first(url, opened)
    made: dict[str, str] = {}

    def write(letter: str) -> None:
        for number in range(15):
            name = f"{letter}{number}"
            made[name] = add_client(url, name)

    writers = [threading.Thread(target=write, args=(letter,)) for letter in "xy"]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        store.refresh()
    for writer in writers:
        writer.join()
    store.refresh()
    assert {name: name_of(store, key) for name, key in made.items()} == {n: n for n in made}
    assert version_of(url) == 31


def test_a_bulk_becomes_a_snapshot_in_another_process_and_revocations_do_not_wait(
    url: str, opened: Callable[..., DatabaseKeyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_store, "_MOST_READ", 50)
    keys = add_clients(url, numbered_clients("old", 10))
    store, other = opened(), opened()
    new = add_clients(url, numbered_clients("new", 200))
    revoke_key(url, "old-000003", 1000.0)
    rotate_key(url, "old-000004")
    rotate_key(url, "old-000004", finish=True)
    store.refresh()
    assert store.find(f"Bearer {keys['old-000003']}").expires == 1000.0
    assert name_of(store, keys["old-000004"]) is None
    assert name_of(store, new["new-000007"]) is None
    until(lambda: (store.refresh(), len(store))[1] == 210, 30)
    assert store.view.snapshot.version == version_of(url)
    assert {name_of(store, key) for key in new.values()} == set(new)
    assert store.find(f"Bearer {keys['old-000003']}").expires == 1000.0
    assert name_of(store, keys["old-000004"]) is None
    # Another process finds the file and makes none of its own.
    until(lambda: (other.refresh(), len(other))[1] == 210, 30)
    assert len(list(store._folder.glob("*.keys"))) == 1


def test_changes_become_a_part_of_the_snapshot_after_a_while(
    url: str, opened: Callable[..., DatabaseKeyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened_after_first(url, opened)
    key = add_client(url, "late")
    store.refresh()
    assert (len(store.view.changed), store._builder) == (1, None)
    monkeypatch.setattr(database_store, "_SNAPSHOT_SECONDS", 0.0)
    until(lambda: (store.refresh(), len(store.view.snapshot))[1] == 2, 30)
    assert (len(store), store.view.changed, name_of(store, key)) == (2, {}, "late")


def test_a_new_snapshot_forgets_no_revocation_even_if_the_database_fails_meanwhile(
    url: str, opened: Callable[..., DatabaseKeyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = add_clients(url, numbered_clients("c", 3))
    store = opened()
    add_client(url, "d")
    other = opened()
    with closing(KeyDatabase(url)) as database:
        build_snapshot(database, store._folder)
    revoke_key(url, "c-000001", 1000.0)
    store.refresh()
    monkeypatch.setattr(database_store, "_SNAPSHOT_SECONDS", 0.0)
    monkeypatch.setattr(KeyDatabase, "teams", fail_as_a_database)
    with pytest.raises(DatabaseError):
        store.refresh()
    assert store.find(f"Bearer {keys['c-000001']}").expires == 1000.0
    monkeypatch.undo()
    store._set_snapshot(store._connected(), newest_snapshot(store._folder))
    assert store.find(f"Bearer {keys['c-000001']}").expires == 1000.0
    assert (len(store), len(other)) == (4, 4)


def fail_as_a_database(_database: KeyDatabase) -> None:
    raise DatabaseError("gone")


class TestDatabaseAway:
    def away(self, url: str, server: PostgresServer | None) -> Callable[[], None]:
        """Take the database away; returns what brings it back."""
        if server is not None:
            server.stop()
            return server.start
        path = Path(url.removeprefix("sqlite:///"))
        hidden = path.with_suffix(".hidden")
        path.rename(hidden)
        return lambda: hidden.rename(path) and None

    @pytest.fixture
    def server_of(self, url: str, request: pytest.FixtureRequest) -> PostgresServer | None:
        return request.getfixturevalue("postgres") if "postgres" in url else None

    def test_the_last_keys_stay_and_it_is_said_once(
        self,
        url: str,
        opened: Callable[..., DatabaseKeyStore],
        server_of: PostgresServer | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.INFO)
        key = add_client(url, "a")
        store = opened(interval=0.02)
        store.refresh()
        store._disconnect()  # an open file of SQLite outlives its name
        back = self.away(url, server_of)
        try:
            store.start()
            until(lambda: len(caplog.messages) == 1)
            until(lambda: store.age > 0.3)
            assert name_of(store, key) == "a"
            assert [message[:30] for message in caplog.messages] == [
                "the keys stay as they are until"[:30]
            ]
            with pytest.raises(DatabaseError, match="says"):
                store.reread("")
        finally:
            back()
        later = add_client(url, "b")
        until(lambda: name_of(store, later) == "b")
        until(lambda: len(caplog.messages) == 2)
        assert caplog.messages[1].startswith("the database of the keys is back; clients: ")
        assert store.age < 0.3

    def test_a_gateway_starts_with_a_snapshot_or_says_that_it_cannot(
        self,
        url: str,
        opened: Callable[..., DatabaseKeyStore],
        server_of: PostgresServer | None,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        key = add_client(url, "a")
        opened()
        later = add_client(url, "b")
        back = self.away(url, server_of)
        try:
            store = opened(interval=0.02)
            assert "those of a snapshot until" in caplog.messages[0]
            assert (name_of(store, key), name_of(store, later)) == ("a", None)
            assert store.age == math.inf
            with pytest.raises(DatabaseError, match="a gateway needs its keys to start, got none"):
                DatabaseKeyStore(url, cache=tmp_path / "empty")
        finally:
            back()
        store.start()
        until(lambda: name_of(store, later) == "b")


def test_a_database_without_keys_is_told_from_one_that_is_away(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with pytest.raises(DatabaseError, match="has no table of keys; run 'mildroute keys new"):
        DatabaseKeyStore(postgres.new_database(), cache=tmp_path)


def test_a_backup_in_place_of_the_database_is_taken(
    url: str, opened: Callable[..., DatabaseKeyStore]
) -> None:
    keys = {name: add_client(url, name) for name in "abc"}
    store = opened()
    with closing(KeyDatabase(url)) as database:
        database.execute("DELETE FROM mildroute_clients WHERE name = 'c'")
        database.execute("UPDATE mildroute_key_state SET version = 2")
    store.refresh()
    assert [name_of(store, key) for key in keys.values()] == ["a", "b", None]
    add_client(url, "d")
    store.refresh()
    assert len(store) == 3


class TestSnapshotFile:
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/keys.db"

    def test_it_agrees_with_the_table_on_every_digest(self, url: str, tmp_path: Path) -> None:
        """By hand: 500 clients, one of them with two keys, and 500 digests of no client."""
        made = add_clients(url, numbered_clients("c", 500, team=None))
        rotate_key(url, "c-000250")
        with closing(KeyDatabase(url)) as database:
            found = KeySnapshot(build_snapshot(database, tmp_path))
            rows = {digest: row.name for row in database.clients() for digest in row.digests}
        assert len(rows) == 501
        assert {digest: found.record(found.find(digest))[0] for digest in rows} == rows
        near = [digest[:8] + bytes(24) for digest in rows]
        assert {found.find(digest) for digest in near} == {None}
        assert {found.find(os.urandom(32)) for _ in range(500)} == {None}
        assert {found.find(bytes(32)), found.find(b"\xff" * 32)} == {None}
        assert len(found) == len(made) == 500

    def test_a_later_one_is_made_from_the_changes_alone(self, url: str, tmp_path: Path) -> None:
        add_clients(url, numbered_clients("c", 100))
        rotate_key(url, "c-000050")
        (tmp_path / "whole").mkdir()
        with closing(KeyDatabase(url)) as database:
            build_snapshot(database, tmp_path)
            rotate_key(url, "c-000007")
            rotate_key(url, "c-000050", finish=True)
            add_clients(url, numbered_clients("d", 10))
            merged = KeySnapshot(build_snapshot(database, tmp_path))
            whole = KeySnapshot(build_snapshot(database, tmp_path / "whole"))
            rows = {digest: row.name for row in database.clients() for digest in row.digests}
        assert sorted(merged.rows()) == sorted(whole.rows())
        assert {digest: merged.record(merged.find(digest))[0] for digest in rows} == rows
        assert (len(merged), len(rows)) == (110, 111)

    def test_it_is_private_and_holds_no_key(
        self, url: str, opened: Callable[..., DatabaseKeyStore]
    ) -> None:
        key = add_client(url, "a")
        store = opened()
        (path,) = store._folder.glob("*.keys")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(url.removeprefix("sqlite:///")).stat().st_mode) == 0o600
        assert key.encode() not in path.read_bytes()

    def test_a_folder_that_others_may_write_is_refused(
        self, url: str, opened: Callable[..., DatabaseKeyStore], tmp_path: Path
    ) -> None:
        add_client(url, "a")
        opened()._folder.chmod(0o777)
        with pytest.raises(ArgumentError, match="must be the gateway's own"):
            opened()
        (tmp_path / "file").write_text("")
        with pytest.raises(ArgumentError, match="set keys_cache"):
            DatabaseKeyStore(url, cache=tmp_path / "file")

    @pytest.mark.parametrize("content", [b"", b"x\n", b"mildroute keys 1\n{}\n"])
    def test_a_broken_file_is_made_again(
        self, url: str, opened: Callable[..., DatabaseKeyStore], content: bytes
    ) -> None:
        key = add_client(url, "a")
        (path,) = opened()._folder.glob("*.keys")
        path.write_bytes(content)
        assert name_of(opened(), key) == "a"

    def test_a_file_that_was_cut_off_is_made_again(
        self, url: str, opened: Callable[..., DatabaseKeyStore]
    ) -> None:
        key = add_client(url, "a", dollars_per_day=5)
        (path,) = opened()._folder.glob("*.keys")
        path.write_bytes(path.read_bytes()[:-1])
        assert name_of(opened(), key) == "a"

    def test_few_clients_are_kept_decoded(
        self,
        url: str,
        opened: Callable[..., DatabaseKeyStore],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(database_store, "_DECODED", 3)
        made = list(add_clients(url, numbered_clients("c", 5)).values())
        store = opened()
        first = store.find(f"Bearer {made[0]}")
        for key in (made[1], made[2], made[0], made[3], made[4]):
            store.find(f"Bearer {key}")
        assert len(store.view.decoded) == 3
        assert store.find(f"Bearer {made[0]}") is first


def test_a_password_in_a_url_is_refused_and_not_shown() -> None:
    for bad in ("postgresql://me:hunter2@host/keys", "postgresql://host/keys?password=hunter2"):
        with pytest.raises(ArgumentError, match="PGPASSWORD") as caught:
            KeyDatabase(bad)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ArgumentError, match="named by its URL"):
        KeyDatabase("mysql://host/keys")


def test_settings_name_a_database_relative_to_their_file(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("keys: sqlite:///keys.db\nkeys_interval: 0.5\nkeys_cache: cache\n")
    config = read_config(path)
    assert config.keys == f"sqlite:///{tmp_path}/keys.db"
    key = add_client(config.keys, "a")
    store = _key_store(config)
    assert isinstance(store, DatabaseKeyStore)
    assert store.find(f"Bearer {key}") == APIClient("a")
    assert list((tmp_path / "cache").iterdir())
    path.write_text("keys: postgresql://host/name\n")
    assert read_config(path).keys == "postgresql://host/name"
    path.write_text("keys: keys.yaml\n")
    assert read_config(path).keys == tmp_path / "keys.yaml"
    assert math.isnan(_key_store(GatewayConfig()).age)


def test_the_command_line_manages_a_database(url: str, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from mildroute.cli.app import app

    def run(*words: object) -> str:
        result = CliRunner().invoke(app, ["keys", *map(str, words), "--file", url, "--json"])
        assert result.exit_code == 0, result.output
        return result.stdout

    run("team", "red", "--dollars-per-day", 9)
    key = json.loads(run("new", "a", "--team", "red"))["key"]
    out = tmp_path / "new.csv"
    assert json.loads(run("new", "b", "--count", 20, "--out", out))["clients"] == 20
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    head, *lines = out.read_text().splitlines()
    store = KeyStore.read(url)
    assert head == "name,key"
    assert [name_of(store, line.split(",")[1]) for line in lines] == [
        line.split(",")[0] for line in lines
    ]
    assert store.find(f"Bearer {key}").team.dollars_per_day == 9
    run("rotate", "a")
    run("revoke", "a")
    first = json.loads(run("list"))[0]
    assert (first["name"], first["status"], first["team"]) == ("a", "expired", "red")
    again = CliRunner().invoke(
        app, ["keys", "new", "c", "--count", "2", "--out", str(out), "--file", url]
    )
    assert again.exit_code == 2
    assert "choose another one" in again.output
    assert len(json.loads(run("list"))) == 21


def test_the_url_of_a_database_is_no_argument_of_a_process(
    url: str, opened: Callable[..., DatabaseKeyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All users of a machine can read arguments, and the URL names a host and its user."""
    commands: list[list[str]] = []
    start = subprocess.Popen.__init__

    def spy(self: Any, command: list[str], *others: Any, **further: Any) -> None:
        commands.append(command)
        start(self, command, *others, **further)

    monkeypatch.setattr(subprocess.Popen, "__init__", spy)
    monkeypatch.setattr(database_store, "_MOST_READ", 5)
    add_client(url, "a")
    store = opened()
    add_clients(url, numbered_clients("b", 20))
    until(lambda: (store.refresh(), len(store))[1] == 21, 30)
    assert commands
    assert not any(url in word for command in commands for word in command)


def test_a_new_database_can_be_opened_by_several_at_once(tmp_path: Path) -> None:
    """One of four was refused in 5 of 300 rounds: the database is locked."""
    for number in range(150):
        url = f"sqlite:///{tmp_path / f'{number}.db'}"
        opened: list[KeyDatabase] = []
        ready = threading.Barrier(4)

        def run(url: str = url, opened: list[KeyDatabase] = opened, ready: Any = ready) -> None:
            ready.wait()
            opened.append(KeyDatabase(url, create=True))

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for database in opened:
            database.close()
        assert len(opened) == 4


def test_processes_that_come_and_go_see_one_database(tmp_path: Path) -> None:
    """To open and close the file beside SQLite dropped the locks of a gateway.

    The next process then took itself for the last, and deleted the write-ahead log of the others.
    """
    url = f"sqlite:///{tmp_path}/keys.db"
    add_client(url, "first")
    code = (
        "import sys; from mildroute.serving.auth.keys import add_client, describe_clients;"
        "add_client(sys.argv[1], sys.argv[2]);"
        "print(*[each['name'] for each in describe_clients(sys.argv[1], 0.0)])"
    )

    def add_elsewhere(name: str) -> set[str]:
        command = [sys.executable, "-c", code, url, name]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return set(done.stdout.split())

    with closing(KeyDatabase(url)) as held:
        assert len(held.execute("SELECT name FROM mildroute_clients")) == 1
        KeyDatabase(url).close()
        add_elsewhere("second")
        assert len(held.execute("SELECT name FROM mildroute_clients")) == 2
        add_client(url, "third")
        assert add_elsewhere("fourth") == {"first", "second", "third", "fourth"}
        assert len(held.execute("SELECT name FROM mildroute_clients")) == 4
