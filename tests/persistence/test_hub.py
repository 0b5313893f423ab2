"""Routers at URLs: downloaded once, checked against their own digests."""

from __future__ import annotations

import importlib
import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from mildroute import TextRouter, load_router
from mildroute.exceptions import ArtifactError, MissingExtraError
from mildroute.persistence import save_router
from mildroute.persistence.hub import RouterNotFoundError, fetch_router, is_url, remote_digest
from tests.support.s3 import s3_bucket

TEXTS = [f"add {place}" for place in range(20)] + [f"sing {place}" for place in range(20)]
COSTS = [[0.0, 1.0]] * 20 + [[1.0, 0.0]] * 20
FILES = ("router.json", "weights.safetensors")


@pytest.fixture(scope="module")
def routers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("routers")
    return [
        save_router(TextRouter().fit(TEXTS, costs), folder / str(number))
        for number, costs in enumerate((COSTS, COSTS[::-1]))
    ]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mildroute" / "routers"


def digest_of(router: Path) -> str:
    return str(json.loads((router / "router.json").read_bytes())["sha256"])


class Store:
    """A folder at a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._system, self._base = fsspec.core.url_to_fs(url)

    def put(self, name: str, content: bytes) -> None:
        self._system.makedirs(self._base, exist_ok=True)
        self._system.pipe_file(f"{self._base}/{name}", content)

    def upload(self, router: Path) -> None:
        for name in FILES:
            self.put(name, (router / name).read_bytes())


@pytest.fixture(params=["file", "memory", "hf"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "hf":
        return Store(hub_at(tmp_path / "hub", monkeypatch))
    place = tmp_path / "store" if request.param == "file" else Path("/") / uuid.uuid4().hex
    return Store(f"{request.param}://{place}")


def hub_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let ``hf://`` name repositories of a local folder."""

    class LocalHub(DirFileSystem):  # type: ignore[misc]
        protocol = "hf"

        def __init__(self, **_settings: Any) -> None:
            super().__init__(str(folder), LocalFileSystem())

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path.removeprefix("hf://").rstrip("/")

    implementations = importlib.import_module("fsspec.registry")._registry
    monkeypatch.setitem(implementations, "hf", LocalHub)
    return "hf://acme/router"


def test_a_router_is_downloaded_once_and_decides_as_the_local_one(
    store: Store, routers: list[Path], cache: Path
) -> None:
    store.upload(routers[0])
    digest = digest_of(routers[0])
    assert remote_digest(store.url) == digest
    folder = fetch_router(store.url)
    assert folder == cache / digest
    for name in FILES:
        assert (folder / name).read_bytes() == (routers[0] / name).read_bytes()
    before = (folder / "weights.safetensors").stat().st_mtime_ns
    store.put("weights.safetensors", b"broken later, and not read again")
    expected = load_router(routers[0]).predict(TEXTS)
    assert (load_router(store.url).predict(TEXTS) == expected).all()
    assert (folder / "weights.safetensors").stat().st_mtime_ns == before
    assert [path.name for path in cache.iterdir()] == [digest]


def test_another_router_at_the_same_url_is_downloaded(
    store: Store, routers: list[Path], cache: Path
) -> None:
    for router in routers:
        store.upload(router)
        assert fetch_router(store.url).name == digest_of(router)
    assert len(list(cache.iterdir())) == 2


def test_a_damaged_copy_in_the_cache_is_downloaded_again(store: Store, routers: list[Path]) -> None:
    store.upload(routers[0])
    folder = fetch_router(store.url)
    (folder / "weights.safetensors").write_bytes(b"half of it")
    fetch_router(store.url)
    weights = (routers[0] / "weights.safetensors").read_bytes()
    assert (folder / "weights.safetensors").read_bytes() == weights


@pytest.mark.parametrize("name", FILES)
def test_files_that_do_not_belong_together_are_refused(
    store: Store, routers: list[Path], cache: Path, name: str
) -> None:
    """Each is valid, but of the other router."""
    store.upload(routers[0])
    store.put(name, (routers[1] / name).read_bytes())
    with pytest.raises(ArtifactError, match="but its sha256 differs; upload the router again"):
        fetch_router(store.url)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"[" * 60_000, b"\xff"])
def test_what_is_no_manifest_is_refused(store: Store, content: bytes) -> None:
    store.put("router.json", content)
    with pytest.raises(ArtifactError):
        remote_digest(store.url)


def test_a_manifest_that_was_changed_is_refused(store: Store, routers: list[Path]) -> None:
    store.upload(routers[0])
    manifest = json.loads((routers[0] / "router.json").read_bytes())
    manifest["sha256"] = "0" * 64
    store.put("router.json", json.dumps(manifest).encode())
    with pytest.raises(ArtifactError):
        fetch_router(store.url)


def test_an_empty_folder_has_no_router(store: Store) -> None:
    with pytest.raises(RouterNotFoundError, match=r"there is no router\.json"):
        remote_digest(store.url)
    with pytest.raises(RouterNotFoundError):
        load_router(store.url)


def test_a_scheme_without_its_package_is_an_error_of_the_artifact() -> None:
    with pytest.raises((ArtifactError, MissingExtraError), match="nothing"):
        remote_digest("nothing://x/router")


def test_a_secret_in_a_url_is_not_shown() -> None:
    with pytest.raises(ArtifactError) as caught:
        remote_digest("memory://user:hush@nowhere/router")
    assert "hush" not in str(caught.value)


def test_a_cache_that_cannot_be_written_is_an_error(
    store: Store, routers: list[Path], tmp_path: Path
) -> None:
    store.upload(routers[0])
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="XDG_CACHE_HOME"):
        fetch_router(store.url, tmp_path / "file")


def test_another_process_that_was_faster_is_no_error(
    store: Store, routers: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.upload(routers[0])
    target = cache / digest_of(routers[0])
    rename: Callable[[Path, Path], Path] = Path.rename

    def late(path: Path, to: Path) -> Path:
        if not target.exists():
            shutil.copytree(routers[0], target)
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", late)
    assert fetch_router(store.url) == target
    assert [path.name for path in cache.iterdir()] == [target.name]


def test_a_router_is_read_from_a_bucket(
    routers: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_bucket("models", monkeypatch) as (client, options):
        url = f"s3://models/support/router{options}"
        with pytest.raises(RouterNotFoundError):
            remote_digest(url)
        for router in routers:
            for name in FILES:
                client.put_object(
                    Bucket="models", Key=f"support/router/{name}", Body=(router / name).read_bytes()
                )
            assert remote_digest(url) == digest_of(router)
            expected = load_router(router).predict(TEXTS)
            assert (load_router(url).predict(TEXTS) == expected).all()


def test_what_a_url_is() -> None:
    assert is_url("s3://models/router")
    assert is_url("hf://acme/router")
    assert not is_url("models/router")
    assert not is_url(Path("models/router"))
