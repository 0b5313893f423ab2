"""Routers in object storage: a pointer names one by its digest."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from mildroute import TextRouter
from mildroute.decision.reload import Canary, CanaryError, PredictorManager
from mildroute.exceptions import ArtifactError, MissingExtraError
from mildroute.gateway.config import EncoderConfig
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.persistence import remote, save_router
from mildroute.persistence.remote import (
    Pointer,
    fetch_artifact,
    promote_canary,
    publish_router,
    read_pointer,
    roll_back,
    sign_router,
)
from mildroute.routers.base import named_costs
from tests.support.s3 import s3_bucket

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
        for number, given in enumerate((rows, rows[::-1], [[1.0, 0.0], [0.0, 1.0]] * 20))
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


@pytest.mark.anyio
async def test_a_pointer_that_cannot_be_read_is_reported_and_does_not_stop_the_watch(
    tmp_path: Path, routers: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(f"file://{tmp_path}/store")
    store.publish(routers[0])
    metrics = GatewayMetrics()
    manager = PredictorManager(store.pointer, RULES, metrics=metrics)
    manager.load()
    watching = asyncio.ensure_future(manager.watch(0.01))
    pointer = Path(store.pointer.removeprefix("file://"))
    try:
        # A pipe blocked its reader for good.
        for spoil in (lambda path: path.write_text("{"), os.mkfifo):
            pointer.unlink()
            spoil(pointer)
            caplog.clear()
            async with asyncio.timeout(20):
                while "the artifact was not replaced" not in caplog.text:
                    await asyncio.sleep(0.01)
        pointer.unlink()
        store.publish(routers[1])
        wanted = json.loads((routers[1] / "router.json").read_bytes())["sha256"][:16]
        async with asyncio.timeout(20):
            while manager.predictor.digest != wanted:
                await asyncio.sleep(0.01)
    finally:
        watching.cancel()
        manager.close()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str]]:
    """An S3 on loopback, and what its URLs end with."""
    with s3_bucket("models", monkeypatch) as found:
        yield found


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


def digest_of(router: Path) -> str:
    return str(json.loads((router / "router.json").read_bytes())["sha256"])


# Signatures.


@pytest.fixture(scope="module")
def signing_keys(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two private keys as openssl makes them; beside each its public key, and one file of both."""
    folder = tmp_path_factory.mktemp("signing")
    found = [folder / "one.pem", folder / "two.pem"]
    for path in found:
        make = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", path]
        subprocess.run(make, check=True, capture_output=True)
        public = ["openssl", "pkey", "-in", path, "-pubout", "-out", path.with_suffix(".pub")]
        subprocess.run(public, check=True, capture_output=True)
    both = b"".join(path.with_suffix(".pub").read_bytes() for path in found)
    (folder / "both.pub").write_bytes(both)
    return found


def rejections(metrics: GatewayMetrics, kind: str) -> float | None:
    name, labels = "mildroute_reloads_total", {"kind": kind, "result": "rejected"}
    return metrics.registry.get_sample_value(name, labels)


def test_a_signed_router_is_loaded_from_a_folder_and_by_a_pointer(
    store: Store, routers: list[Path], signing_keys: list[Path], tmp_path: Path
) -> None:
    key = signing_keys[0]
    folder = shutil.copytree(routers[0], tmp_path / "router")
    digest = sign_router(folder, key)
    publish_router(routers[0], store.pointer, key=key)
    for place in (folder, store.pointer):
        for public in ("one.pub", "both.pub"):
            manager = PredictorManager(place, RULES, public_keys=key.with_name(public))
            assert manager.load().sha256 == digest
            manager.close()
    # A folder that is signed can be fitted into again, and loses its signature.
    save_router(TextRouter().fit(TEXTS, named_costs([[0.0, 1.0]] * 40, ("a", "b"))), folder)  # type: ignore[arg-type]
    assert sorted(path.name for path in folder.iterdir()) == [
        "CARD.md",
        "router.json",
        "weights.safetensors",
    ]


def other_digest(signature: bytes) -> bytes:
    """A flipped bit."""
    decoded = bytearray(base64.b64decode(signature))
    decoded[7] ^= 1
    return base64.b64encode(decoded)


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "unsigned": lambda _: b"",
    "garbage": lambda _: b"\xff\x00 garbage",
    "truncated": lambda signature: signature[:40],
    "other bits": other_digest,
    "twice": lambda signature: signature.strip() * 2,
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
@pytest.mark.anyio
async def test_what_is_not_signed_is_refused_at_the_start_and_at_a_reload(
    store: Store,
    routers: list[Path],
    signing_keys: list[Path],
    tmp_path: Path,
    spoil: Callable[[bytes], bytes],
) -> None:
    key, metrics = signing_keys[0], GatewayMetrics()
    publish_router(routers[0], store.pointer, key=key)
    manager = PredictorManager(
        store.pointer, RULES, metrics=metrics, public_keys=key.with_suffix(".pub")
    )
    first = manager.load()
    publish_router(routers[1], store.pointer, key=key)
    folder = shutil.copytree(routers[1], tmp_path / "router")
    sign_router(folder, key)
    signature = spoil((folder / "router.json.sig").read_bytes())
    (folder / "router.json.sig").write_bytes(signature)
    store.put(f"{digest_of(routers[1])}/router.json.sig", signature)
    for place in (store.pointer, folder):
        with pytest.raises(
            ArtifactError, match=r"must be signed by a key of one\.pub, got .*; sign"
        ):
            await manager.reload(place)
        with pytest.raises(ArtifactError, match="must be signed by a key"):
            PredictorManager(place, RULES, public_keys=key.with_suffix(".pub")).load()
    assert manager.predictor is first
    assert rejections(metrics, "router") == 2
    manager.close()


@pytest.mark.anyio
async def test_a_router_of_another_key_is_refused_until_the_key_is_known(
    store: Store, routers: list[Path], signing_keys: list[Path], tmp_path: Path
) -> None:
    """Also if the cache has it, and signed by a key that is known no more."""
    old, new = signing_keys
    keys = tmp_path / "keys.pem"
    keys.write_bytes(old.with_suffix(".pub").read_bytes())
    publish_router(routers[0], store.pointer, key=old)
    manager = PredictorManager(store.pointer, RULES, public_keys=keys)
    manager.load()
    publish_router(routers[0], store.pointer, key=new)
    with pytest.raises(ArtifactError, match="fits none of its 1"):
        await manager.reload()
    keys.write_bytes(new.with_name("both.pub").read_bytes())
    assert await manager.reload() == manager.predictor.digest
    publish_router(routers[0], store.pointer, key=old)
    keys.write_bytes(new.with_suffix(".pub").read_bytes())
    with pytest.raises(ArtifactError, match="fits none of its 1"):
        await manager.reload()
    manager.close()


@pytest.mark.parametrize("content", ["", "no key", "private", "rsa", None])
def test_a_file_without_public_keys_is_refused(
    routers: list[Path], signing_keys: list[Path], tmp_path: Path, content: str | None
) -> None:
    keys = tmp_path / "keys.pem"
    if content == "private":
        shutil.copy(signing_keys[0], keys)
    elif content == "rsa":
        generate = ["openssl", "genrsa", "2048"]
        private = subprocess.run(generate, check=True, capture_output=True)
        command = ["openssl", "pkey", "-pubout", "-out", keys]
        subprocess.run(command, input=private.stdout, check=True, capture_output=True)
    elif content is not None:
        keys.write_text(content)
    with pytest.raises(ArtifactError, match=r"must be a (readable )?PEM file"):
        PredictorManager(routers[0], RULES, public_keys=keys).load()


def test_only_an_ed25519_key_signs(routers: list[Path], signing_keys: list[Path]) -> None:
    with pytest.raises(ArtifactError, match="must be a PEM file with an Ed25519 private key"):
        sign_router(routers[0], signing_keys[0].with_suffix(".pub"))
    with pytest.raises(ArtifactError, match="must be a readable PEM file"):
        sign_router(routers[0], signing_keys[0].with_name("none.pem"))


def test_without_the_package_a_router_that_must_be_signed_is_refused(
    routers: list[Path], signing_keys: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[fleet\]"):
        PredictorManager(routers[0], RULES, public_keys=signing_keys[0].with_suffix(".pub")).load()


def test_a_folder_that_is_replaced_after_its_signature_was_verified_is_refused(
    routers: list[Path], signing_keys: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(routers[0], tmp_path / "router")
    sign_router(folder, signing_keys[0])

    def verify_and_swap(*_: object) -> None:
        for name in ("router.json", "weights.safetensors"):
            shutil.copy(routers[1] / name, folder)

    monkeypatch.setattr("mildroute.decision.reload.verify_signature", verify_and_swap)
    with pytest.raises(ArtifactError, match="must hold the router"):
        PredictorManager(folder, RULES, public_keys=tmp_path / "keys.pem").load()


@pytest.mark.anyio
async def test_a_signature_that_comes_later_is_seen(
    routers: list[Path], signing_keys: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "router"
    shutil.copytree(routers[0], folder)
    sign_router(folder, signing_keys[0])
    manager = PredictorManager(folder, RULES, public_keys=signing_keys[0].with_suffix(".pub"))
    manager.load()
    watching = asyncio.ensure_future(manager.watch(0.01))
    shutil.rmtree(folder)
    shutil.copytree(routers[1], folder)
    await asyncio.sleep(0.05)
    sign_router(folder, signing_keys[0])
    async with asyncio.timeout(20):
        while manager.predictor.sha256 != digest_of(routers[1]):
            await asyncio.sleep(0.01)
    watching.cancel()
    manager.close()


# Publishing.


def test_a_rollout_from_the_first_router_to_a_rollback(store: Store, routers: list[Path]) -> None:
    a, b, c = map(digest_of, routers)
    lines: list[str] = []
    assert publish_router(routers[0], store.pointer, report=lines.append) == Pointer(a)
    assert lines == [
        f"{name}: uploaded and verified"
        for name in ("router.json", "weights.safetensors", "CARD.md")
    ]
    assert publish_router(routers[1], store.pointer, canary=0.25) == Pointer(a, b, 0.25)
    assert read_pointer(store.pointer) == Pointer(a, b, 0.25)
    assert promote_canary(store.pointer) == Pointer(b, history=(a,))
    lines.clear()
    assert publish_router(routers[1], store.pointer, report=lines.append) == Pointer(
        b, history=(a,)
    )
    assert {line.split(": ")[1] for line in lines} == {"there already"}
    assert publish_router(routers[2], store.pointer) == Pointer(c, history=(b, a))
    assert publish_router(routers[0], store.pointer, canary=1.0).canary == a
    for expected in (Pointer(c, history=(b, a)), Pointer(b, history=(a,)), Pointer(a)):
        assert roll_back(store.pointer) == read_pointer(store.pointer) == expected
    with pytest.raises(ArtifactError, match="must name a canary or a router that served before"):
        roll_back(store.pointer)
    with pytest.raises(ArtifactError, match="must name a canary, got none"):
        promote_canary(store.pointer)


def test_a_canary_needs_another_router_and_a_share(store: Store, routers: list[Path]) -> None:
    with pytest.raises(ArtifactError, match="beside another router that serves, got none"):
        publish_router(routers[0], store.pointer, canary=0.1)
    publish_router(routers[0], store.pointer)
    with pytest.raises(ArtifactError, match="got the same one"):
        publish_router(routers[0], store.pointer, canary=0.1)
    for share in (0.0, -1.0, 1.5, math.nan):
        with pytest.raises(ArtifactError, match="share of a canary must be"):
            publish_router(routers[1], store.pointer, canary=share)
    assert read_pointer(store.pointer) == Pointer(digest_of(routers[0]))


def test_the_history_is_short(store: Store, routers: list[Path]) -> None:
    store.publish(routers[0])
    history = [f"{number:064x}" for number in range(10)]
    pointer = {"digest": digest_of(routers[0]), "history": history}
    store.put("prod.json", json.dumps(pointer).encode())
    published = publish_router(routers[1], store.pointer)
    assert published.history == (digest_of(routers[0]), *history[:9])


def test_a_router_is_not_published_if_it_is_damaged_or_comes_back_otherwise(
    store: Store, routers: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish(routers[0])
    damaged = shutil.copytree(routers[1], tmp_path / "router")
    (damaged / "weights.safetensors").write_bytes(b"half of it")
    with pytest.raises(ArtifactError, match="must be the file that was stored"):
        publish_router(damaged, store.pointer)
    write = remote._write

    def write_half(system: Any, path: str, chunks: Any) -> None:
        write(system, path, [next(iter(chunks))[:-1]])

    monkeypatch.setattr(remote, "_write", write_half)
    with pytest.raises(ArtifactError, match="got other bytes back"):
        publish_router(routers[1], store.pointer)
    assert read_pointer(store.pointer) == Pointer(digest_of(routers[0]))


def test_a_rollback_to_a_router_that_was_deleted_is_refused(
    store: Store, routers: list[Path]
) -> None:
    store.publish(routers[0])
    pointer = Pointer(digest_of(routers[0]), history=("ab" * 32,))
    store.put("prod.json", json.dumps(pointer.document()).encode())
    with pytest.raises(ArtifactError, match=r"lacks router\.json"):
        roll_back(store.pointer)
    assert read_pointer(store.pointer) == pointer


def test_publishing_to_s3(
    bucket: tuple[Any, str], routers: list[Path], signing_keys: list[Path]
) -> None:
    client, ending = bucket
    pointer = f"s3://models/r/prod.json{ending}"
    a, b, _ = map(digest_of, routers)
    public = signing_keys[0].with_suffix(".pub")
    publish_router(routers[0], pointer, key=signing_keys[0])
    publish_router(routers[1], pointer, key=signing_keys[0], canary=0.5)
    listed = client.list_objects_v2(Bucket="models")["Contents"]
    names = ("CARD.md", "router.json", "router.json.sig", "weights.safetensors")
    expected = {f"r/{digest}/{name}" for digest in (a, b) for name in names}
    assert {each["Key"] for each in listed} == {*expected, "r/prod.json"}
    manager = PredictorManager(pointer, RULES, public_keys=public)
    assert manager.load().sha256 == a
    assert manager.canary is not None
    assert (manager.canary.predictor.sha256, manager.canary.share) == (b, 0.5)
    manager.close()
    client.delete_object(Bucket="models", Key=f"r/{a}/router.json.sig")
    with pytest.raises(ArtifactError, match=r"without router\.json\.sig"):
        PredictorManager(pointer, RULES, public_keys=public).load()
    assert promote_canary(pointer) == Pointer(b, history=(a,))
    assert roll_back(pointer) == Pointer(a)


# Canaries.


@pytest.mark.parametrize(
    "canary",
    [7, [], {}, {"digest": "ab" * 32}, {"digest": "x", "share": 0.1}]
    + [{"digest": "ab" * 32, "share": share} for share in (-0.1, 1.1, True, "0.1", None, math.nan)],
)
def test_a_pointer_with_another_canary_is_refused(store: Store, canary: Any) -> None:
    store.put("prod.json", json.dumps({"digest": "cd" * 32, "canary": canary}).encode())
    with pytest.raises(ArtifactError, match="must be JSON such as"):
        read_pointer(store.pointer)


class NamedPredictor:
    def __init__(self, sha256: str) -> None:
        self.sha256 = sha256


def test_a_canary_gets_its_share_and_the_next_one_meets_others() -> None:
    """Bounds of five standard deviations of a binomial."""
    conversations = [f"conversation {number}" for number in range(20_000)]

    def taken(share: float, sha256: str = "ab" * 32) -> set[str]:
        canary = Canary(NamedPredictor(sha256), share)  # type: ignore[arg-type]
        return {key for key in conversations if canary.takes(key)}

    for share in (0.01, 0.1, 0.5):
        bound = 5 * math.sqrt(share * (1 - share) * len(conversations))
        assert abs(len(taken(share)) - share * len(conversations)) < bound
    assert taken(0.0) == set()
    assert len(taken(1.0)) == len(conversations)
    assert taken(0.01) < taken(0.1) < taken(0.5)
    both = len(taken(0.1) & taken(0.1, "cd" * 32))
    assert abs(both - 0.01 * len(conversations)) < 5 * math.sqrt(0.01 * 0.99 * len(conversations))


@pytest.mark.anyio
async def test_a_canary_comes_is_promoted_and_goes_without_being_loaded_again(
    store: Store, routers: list[Path]
) -> None:
    heard: list[str] = []
    publish_router(routers[0], store.pointer)
    manager = PredictorManager(
        store.pointer, RULES, on_change=lambda predictor: heard.append(predictor.sha256)
    )
    first = manager.load()
    publish_router(routers[1], store.pointer, canary=0.1)
    await manager.reload()
    assert manager.predictor is first
    assert manager.canary is not None
    second = manager.canary.predictor
    promote_canary(store.pointer)
    await manager.reload()
    assert manager.predictor is second
    assert manager.canary is None
    roll_back(store.pointer)
    await manager.reload()
    assert heard == [digest_of(routers[0]), digest_of(routers[1]), digest_of(routers[0])]
    manager.close()


@pytest.mark.anyio
async def test_a_bad_canary_is_refused_and_the_current_router_goes_on_alone(
    store: Store,
    routers: list[Path],
    signing_keys: list[Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    key, metrics = signing_keys[0], GatewayMetrics()
    publish_router(routers[0], store.pointer, key=key)
    publish_router(routers[1], store.pointer, key=key, canary=0.1)
    public = key.with_suffix(".pub")
    manager = PredictorManager(store.pointer, RULES, metrics=metrics, public_keys=public)
    first = manager.load()
    publish_router(routers[2], store.pointer, canary=0.1)
    for _ in range(3):
        with pytest.raises(CanaryError, match="must be signed"):
            await manager.reload()
    assert (manager.predictor, manager.canary) == (first, None)
    assert (rejections(metrics, "canary"), rejections(metrics, "router")) == (3, 0)
    # Each look counts it, and one line says it.
    assert caplog.text.count("the canary was not taken") == 1
    again = PredictorManager(store.pointer, RULES, metrics=metrics, public_keys=public)
    assert again.load().sha256 == first.sha256
    assert again.canary is None
    # The watcher tries it again, and takes it when it is good.
    watching = asyncio.ensure_future(manager.watch(0.01))
    publish_router(routers[2], store.pointer, key=key, canary=0.1)
    async with asyncio.timeout(20):
        while manager.canary is None:
            await asyncio.sleep(0.01)
    assert manager.predictor is first
    watching.cancel()
    manager.close()
    again.close()
