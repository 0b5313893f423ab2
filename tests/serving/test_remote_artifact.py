"""Routers in object storage: a pointer names one by its digest."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import fsspec
import pytest
from moto.server import ThreadedMotoServer

from mildroute import TextRouter
from mildroute.exceptions import ArtifactError
from mildroute.persistence import remote, save_router
from mildroute.persistence.remote import fetch_artifact, read_pointer
from mildroute.routers.base import named_costs
from mildroute.serving.config import EncoderConfig
from mildroute.serving.routing.reload import PredictorManager

RULES = EncoderConfig(timeout=10.0)
TEXTS = [f"add {place}" for place in range(20)] + [f"sing {place}" for place in range(20)]


@pytest.fixture(scope="module")
def routers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("routers")
    rows = [[0.0, 1.0]] * 20 + [[1.0, 0.0]] * 20
    return [
        save_router(
            TextRouter().fit(TEXTS, named_costs(given, ("small", "large"))),  # type: ignore[arg-type]
            folder / str(number),
        )
        for number, given in enumerate((rows, rows[::-1]))
    ]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mildroute" / "routers"


class Store:
    """Uploads to a URL, pointer last."""

    def __init__(self, url: str) -> None:
        self.pointer = f"{url}/prod.json"
        self._system, self._base = fsspec.core.url_to_fs(url)

    def put(self, name: str, content: bytes) -> None:
        path = f"{self._base}/{name}"
        self._system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self._system.pipe_file(path, content)

    def publish(self, router: Path) -> str:
        digest: str = json.loads((router / "router.json").read_bytes())["sha256"]
        for path in router.iterdir():
            self.put(f"{digest}/{path.name}", path.read_bytes())
        self.put("prod.json", json.dumps({"digest": digest}).encode())
        return digest


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    place = tmp_path / "store" if request.param == "file" else Path("/") / uuid.uuid4().hex
    return Store(f"{request.param}://{place}")


def test_a_router_is_fetched_once_and_checked(
    store: Store, routers: list[Path], cache: Path
) -> None:
    digest = store.publish(routers[0])
    folder = fetch_artifact(store.pointer, digest)
    assert folder == cache / digest
    for name in ("router.json", "weights.safetensors"):
        assert (folder / name).read_bytes() == (routers[0] / name).read_bytes()
    before = (folder / "router.json").stat().st_mtime_ns
    store.put(f"{digest}/router.json", b"broken later, and not read again")
    assert fetch_artifact(store.pointer, digest) == folder
    assert (folder / "router.json").stat().st_mtime_ns == before
    assert [path.name for path in cache.iterdir()] == [digest]


def test_a_damaged_copy_in_the_cache_is_fetched_again(store: Store, routers: list[Path]) -> None:
    digest = store.publish(routers[0])
    folder = fetch_artifact(store.pointer, digest)
    (folder / "weights.safetensors").write_bytes(b"half of it")
    fetch_artifact(store.pointer, digest)
    weights = (routers[0] / "weights.safetensors").read_bytes()
    assert (folder / "weights.safetensors").read_bytes() == weights


@pytest.mark.parametrize("name", ["router.json", "weights.safetensors"])
def test_other_bytes_than_the_pointer_names_are_refused(
    store: Store, routers: list[Path], cache: Path, name: str
) -> None:
    """Each is valid, but of the other router."""
    digest = store.publish(routers[0])
    store.put(f"{digest}/{name}", (routers[1] / name).read_bytes())
    with pytest.raises(ArtifactError, match="must have the digest that its pointer names"):
        fetch_artifact(store.pointer, digest)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[1]", b'{"digest": 7}', b'{"digest": "../../etc"}', b"[" * 60_000, b"\xff"],
)
def test_what_is_no_pointer_is_refused(store: Store, content: bytes) -> None:
    store.put("prod.json", content)
    with pytest.raises(ArtifactError, match="must be JSON such as"):
        read_pointer(store.pointer)


@pytest.mark.parametrize("url", ["nothing://x/prod.json", "memory://nowhere/prod.json"])
def test_what_cannot_be_read_is_an_error_of_the_artifact(url: str) -> None:
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_pointer(url)


def test_a_secret_in_a_url_is_not_shown() -> None:
    with pytest.raises(ArtifactError) as refused:
        read_pointer("nothing://name:secret@place/prod.json")
    assert str(refused.value).startswith("nothing://place/prod.json cannot be read")
    assert "secret" not in str(refused.value)


def test_too_many_bytes_are_refused(
    store: Store, routers: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = store.publish(routers[0])
    monkeypatch.setattr(remote, "_MAX_ARTIFACT", 100)
    with pytest.raises(ArtifactError, match="must have at most 100 bytes"):
        fetch_artifact(store.pointer, digest)


def test_a_cache_that_cannot_be_written_is_told(
    store: Store, routers: list[Path], tmp_path: Path
) -> None:
    digest = store.publish(routers[0])
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="set XDG_CACHE_HOME"):
        fetch_artifact(store.pointer, digest, tmp_path / "file" / "cache")


def test_processes_may_fetch_the_same_router_at_once(
    store: Store, routers: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = store.publish(routers[0])
    check = remote._check_digest

    def check_while_another_is_faster(folder: Path, wanted: str) -> None:
        check(folder, wanted)
        if folder.name != digest:
            shutil.copytree(folder, cache / digest)

    monkeypatch.setattr(remote, "_check_digest", check_while_another_is_faster)
    assert fetch_artifact(store.pointer, digest) == cache / digest
    assert [path.name for path in cache.iterdir()] == [digest]


@pytest.mark.anyio
async def test_a_new_pointer_is_followed_a_bad_one_is_not_and_back_is_the_same(
    store: Store, routers: list[Path]
) -> None:
    first = store.publish(routers[0])
    manager = PredictorManager(store.pointer, RULES)
    manager.load()
    serving = [manager.predictor.digest]
    watching = asyncio.ensure_future(manager.watch(0.01))

    async def until_it_serves(folder: Path) -> None:
        manifest: dict[str, Any] = json.loads((folder / "router.json").read_bytes())
        async with asyncio.timeout(20):
            while manager.predictor.digest != manifest["sha256"][:16]:
                await asyncio.sleep(0.01)
        serving.append(manager.predictor.digest)

    # The folder comes later than its pointer, as it should not: it is tried again.
    second: str = json.loads((routers[1] / "router.json").read_bytes())["sha256"]
    store.put("prod.json", json.dumps({"digest": second}).encode())
    with pytest.raises(ArtifactError):
        await manager.reload()
    assert manager.predictor.digest == serving[0]
    store.publish(routers[1])
    await until_it_serves(routers[1])
    store.put("prod.json", json.dumps({"digest": first}).encode())
    await until_it_serves(routers[0])
    assert serving[0] == serving[2] != serving[1]
    watching.cancel()
    manager.close()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str]]:
    """An S3 on loopback, and what its URLs end with."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    client.create_bucket(Bucket="models")
    yield client, f"?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    server.stop()


def test_s3(bucket: tuple[Any, str], routers: list[Path], cache: Path) -> None:
    client, ending = bucket
    digest = json.loads((routers[0] / "router.json").read_bytes())["sha256"]
    for path in routers[0].iterdir():
        client.put_object(Bucket="models", Key=f"r/{digest}/{path.name}", Body=path.read_bytes())
    pointer = json.dumps({"digest": digest}).encode()
    client.put_object(Bucket="models", Key="r/prod.json", Body=pointer)
    assert fetch_artifact(f"s3://models/r/prod.json{ending}", digest) == cache / digest
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_pointer(f"s3://models/r/other.json{ending}")
