from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.gateway.keys import ANYONE, APIClient, KeyStore, hash_key, new_key


def written(folder: Path, text: str) -> Path:
    path = folder / "keys.yaml"
    path.write_text(text)
    return path


def test_a_key_has_256_random_bits_and_only_its_hash_is_kept() -> None:
    key = new_key()
    assert len(base64.urlsafe_b64decode(key.removeprefix("mr-") + "=")) == 32
    assert key != new_key()
    ring = KeyStore([(hash_key(key), APIClient("a"))])
    assert key not in repr(ring) + repr(vars(ring))


def test_a_client_is_found_by_its_key_and_by_no_other() -> None:
    keys = [new_key() for _ in range(20)]
    ring = KeyStore(
        [(hash_key(key), APIClient(f"client-{place}")) for place, key in enumerate(keys)]
    )
    assert [ring.find(f"Bearer {key}") for key in keys] == [
        APIClient(f"client-{place}") for place in range(20)
    ]
    assert ring.find(f"bearer {keys[3]}") == APIClient("client-3")
    assert ring.find(f"Bearer {new_key()}") is None


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "{}",
        "Bearer",
        "Bearer ",
        "Basic {}",
        "Bearer  {}",
        "Bearer {} ",
        " Bearer {}",
        "Bearer {}\n",
        "Bearer {}x",
        "Bearer\t{}",
    ],
)
def test_a_header_that_is_not_exactly_a_bearer_key_is_nobodys(header: str | None) -> None:
    key = new_key()
    ring = KeyStore([(hash_key(key), APIClient("a"))])
    assert ring.find(None if header is None else header.format(key)) is None


def test_odd_characters_and_great_lengths_are_nobodys_and_no_error() -> None:
    ring = KeyStore([(hash_key(new_key()), APIClient("a"))])
    assert [
        ring.find(text)
        for text in (
            "Bearer mr-" + "é" * 43,
            "Bearer mr-" + "A" * 100_000,
            "Bearer mr-" + "\0" * 43,
        )
    ] == [None] * 3


def test_a_gateway_without_keys_lets_everyone_in_and_an_empty_file_nobody(tmp_path: Path) -> None:
    assert KeyStore().find(None) is ANYONE
    assert KeyStore().find("Bearer anything") is ANYONE
    empty = KeyStore.read(written(tmp_path, "# nobody yet\n"))
    assert empty.find(None) is None
    assert empty.find(f"Bearer {new_key()}") is None


def test_a_digest_with_the_start_of_another_is_not_taken_for_it() -> None:
    key = new_key()
    forged = hash_key(key)[: len("sha256:") + 16] + "0" * 48
    assert KeyStore([(forged, APIClient("a"))]).find(f"Bearer {key}") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n  hash: sha256:12\n", r"keys\.yaml:2: a\.hash: it must be 'sha256:' and 64 digits"),
        ("a: {}\n", r"keys\.yaml:1: a needs hash; add it"),
        (
            "a: {hash: HASH, requests_per_minut: 5}\n",
            r"keys\.yaml:1: a\.requests_per_minut is not a setting; did you mean"
            r" 'requests_per_minute'\?",
        ),
        (
            "a:\n  hash: HASH\n  dollars_per_day: 0\n",
            r"keys\.yaml:3: a\.dollars_per_day must be more than 0, got 0",
        ),
        ("a: {hash: HASH, requests_per_minute: true}\n", r"must be a number, got True"),
        ("a: {hash: HASH, requests_per_minute: .inf}\n", r"must be a finite number, got inf"),
        (f"a: {{hash: HASH, dollars_per_day: {10**400}}}\n", r"must be a finite number, got 1000"),
        ("a: {hash: HASH, models: []}\n", r"a\.models must be a list that is not empty"),
        ("a: {hash: HASH}\nb: {hash: HASH}\n", r"keys\.yaml:2: 'b' has the hash of 'a'"),
        ("a: {hash: HASH}\na: {hash: HASH}\n", r"keys\.yaml:2: duplicate key 'a', first in line 1"),
        ("'a b': {hash: HASH}\n", r"keys\.yaml:1: 'a b': a client's name must be"),
        ("- a\n", r"keys\.yaml:1: the file must be a mapping"),
        ("a: plain\n", r"keys\.yaml:1: a must be a mapping"),
        ("a: {hash: [HASH]}\n", r"keys\.yaml:1: a\.hash: it must be 'sha256:'"),
        ("a: {hash: HASH, models: all}\n", r"a\.models must be a list, got 'all'"),
        ("a: {hash: HASH, team: x}\n", r"keys\.yaml:1: a\.team is not a setting"),
        ("teams: [x]\n", r"keys\.yaml:1: teams must be a mapping"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = written(tmp_path, text.replace("HASH", hash_key("mr-x")))
    with pytest.raises(ArgumentError, match=message):
        KeyStore.read(path)


@pytest.mark.parametrize(
    "text",
    [
        "a: KEY\n",
        "a: {hash: KEY}\n",
        "KEY: {hash: HASH}\n",
        "a: {KEY: 1}\n",
        "a: [KEY]\n",
        "a: {hash: 'Bearer KEY'}\n",
    ],
)
def test_a_key_in_the_file_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    key = new_key()
    path = written(tmp_path, text.replace("KEY", key).replace("HASH", hash_key(key)))
    with pytest.raises(
        ArgumentError, match=r"keys\.yaml:1: the file must contain hashes and no keys"
    ) as caught:
        KeyStore.read(path)
    assert not re.search(re.escape(key[3:20]), str(caught.value))
