"""Hot reload of the router and of the client keys."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import posixpath
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from mildroute._files import cache_folder, open_location, without_credentials
from mildroute._fit import Target
from mildroute.exceptions import ArgumentError, ArtifactError, MildrouteError
from mildroute.persistence.artifact import read_manifest
from mildroute.serving.auth.keys import KeyStore
from mildroute.serving.config import EncoderConfig, describe_target
from mildroute.serving.observability.metrics import GatewayMetrics
from mildroute.serving.routing.predictor import Predictor

__all__ = ["PredictorManager", "Reloader", "fetch_artifact", "read_pointer"]


_LOG = logging.getLogger(__name__)


class Reloader:
    """Reloads the router and the client keys; an invalid file is rejected and the old one stays.

    Args:
        key_store: All clients; it is the same object before and after.
        key_file: Of their keys, or the URL of their database; none if the gateway needs no keys.
        metrics: Count reloads, or none.

    Attributes:
        others: Reloads the other workers and tells of each whether all was valid, or none if there
            are no others.
    """

    def __init__(
        self,
        manager: PredictorManager,
        key_store: KeyStore,
        key_file: str | Path | None,
        metrics: GatewayMetrics | None = None,
    ) -> None:
        self._manager = manager
        self._key_store = key_store
        self._key_file = key_file
        self._metrics = metrics
        self._lock = asyncio.Lock()
        self.others: Callable[[], Awaitable[list[bool]]] | None = None

    async def reload_router(self) -> str:
        """Reload the router; an ArtifactError if it is invalid."""
        return await self._manager.reload(None)

    async def reload_keys(self) -> int | None:
        """Reload the keys; an ArgumentError if their file is invalid.

        What a client that stays has requested and spent is not forgotten.

        Returns:
            Clients that there are now, or none if the gateway needs no keys.
        """
        if self._key_file is None:
            return None
        with _reported(self._metrics, "keys", "the keys stay as they were"):
            async with self._lock:  # else the first to read could be the last to write
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, self._key_store.reread, self._key_file)
        _LOG.info("the keys were read again; clients: %d", len(self._key_store))
        return len(self._key_store)

    async def try_reload(self) -> bool:
        """Reload both; false if one is invalid, which is only logged."""
        is_valid = True
        try:
            await self.reload_keys()
        except MildrouteError:
            is_valid = False
        return await self._manager.try_reload() and is_valid

    async def reload_others(self) -> list[bool]:
        """Reload both in the other workers, and tell of each whether all was valid."""
        return [] if self.others is None else await self.others()


@contextlib.contextmanager
def _reported(metrics: GatewayMetrics | None, kind: str, refusal: str) -> Iterator[None]:
    """Count a reload, and log why it was rejected."""
    try:
        yield
    except MildrouteError as error:
        _LOG.warning("%s: %s", refusal, error)
        if metrics is not None:
            metrics.record_reload(kind, is_loaded=False)
        raise
    if metrics is not None:
        metrics.record_reload(kind, is_loaded=True)


# Seconds for which requests in flight may go on with the router that was replaced.
_GRACE = 30.0


class PredictorManager:
    """Holds one predictor; a request takes it once and keeps it to its end.

    Args:
        folder: Of the artifact, or the URL of a pointer to it, as :func:`fetch_artifact` takes it.
        experts: Names of those that can be called; an artifact that knows none of them is rejected.
            None allows any.
        on_change: Called with the new predictor after each change, or none.
        targets: Targets by the name of their preset or route; an artifact that cannot reach one of
            them is rejected.
        metrics: Count reloads, or none.
    """

    def __init__(
        self,
        folder: str | Path,
        config: EncoderConfig,
        experts: frozenset[str] | None = None,
        on_change: Callable[[Predictor], None] | None = None,
        targets: Mapping[str, Target] | None = None,
        metrics: GatewayMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self.folder = _location(folder)
        self._config = config
        self._experts = experts
        self._on_change = on_change
        self._targets = targets or {}
        self._predictor: Predictor | None = None
        self._replaced: set[Predictor] = set()
        self._seen: Hashable = None
        self._lock = asyncio.Lock()

    @property
    def predictor(self) -> Predictor:
        """The one in use."""
        if self._predictor is None:
            raise ArtifactError("no artifact has been loaded; call load first.")
        return self._predictor

    def load(self) -> Predictor:
        """Load the artifact for the first time."""
        self._predictor = self._load(self.folder)
        self._notify()
        return self._predictor

    async def reload(self, folder: str | Path | None = None) -> str:
        """Take the artifact again, or another one.

        If it is bad the old one stays and an ArtifactError says why.

        Args:
            folder: Another artifact, or none for the same folder.
        """
        async with self._lock:
            wanted = self.folder if folder is None else _location(folder)
            with _reported(self._metrics, "router", "the artifact was not replaced"):
                new = await asyncio.get_running_loop().run_in_executor(None, self._load, wanted)
            old = self._predictor
            self._predictor = new
            self.folder = wanted
            self._notify()
            if old is not None:
                self._replaced.add(old)
                asyncio.get_running_loop().call_later(_GRACE, self._close_replaced, old)
            _LOG.info("now serving router %s", new.digest)
            return new.digest

    async def watch(self, seconds: float) -> None:
        """Reload whenever the folder's router.json is another file, or the pointer names another.

        A bad folder is reported once and otherwise ignored. A bad pointer is tried again: the
        network may have been at fault.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(seconds)
            now = await loop.run_in_executor(None, _state_of, self.folder)
            if now != self._seen and now is not None:
                await self.try_reload()

    async def try_reload(self) -> bool:
        """Reload the folder; false if it is invalid, which is only logged."""
        try:
            await self.reload()
        except MildrouteError:
            return False
        return True

    def close(self) -> None:
        """Let all threads end."""
        for predictor in (*self._replaced, *([] if self._predictor is None else [self._predictor])):
            predictor.close()
        self._replaced.clear()

    def _load(self, location: Path | str) -> Predictor:
        state = _state_of(location)
        if isinstance(location, Path):
            self._seen = state
        predictor = self._checked(
            location if isinstance(location, Path) else fetch_artifact(location)
        )
        self._seen = state
        return predictor

    def _checked(self, folder: Path) -> Predictor:
        predictor = Predictor.load(folder, self._config)
        if self._experts is not None and not self._experts & set(predictor.experts):
            predictor.close()
            names = ", ".join(predictor.experts)
            raise ArtifactError(
                f"a router must choose between experts of experts.yaml, got one for {names}; take"
                " the names of the table."
            )
        for name, target in self._targets.items():
            _pin_target(predictor, name, target)
        return predictor

    def _notify(self) -> None:
        if self._on_change is not None and self._predictor is not None:
            self._on_change(self._predictor)

    def _close_replaced(self, predictor: Predictor) -> None:
        self._replaced.discard(predictor)
        predictor.close()


def _pin_target(predictor: Predictor, name: str, target: Target) -> None:
    try:
        predictor.pin(target)
    except ArgumentError as error:
        predictor.close()
        raise ArtifactError(
            f"the router must reach the target of {name!r} ({describe_target(target)}), got:"
            f" {error}"
        ) from None


def _location(folder: str | Path) -> Path | str:
    """A folder as a path, a URL as it is."""
    return folder if isinstance(folder, str) and "://" in folder else Path(folder)


def _state_of(location: Path | str) -> Hashable:
    """What changes when the artifact is replaced; none if that cannot be seen."""
    try:
        if isinstance(location, str):
            return read_pointer(location)
        found = (location / "router.json").stat()
    except (OSError, ArtifactError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


# Routers in object storage. A pointer, a small JSON file, names the digest of an artifact, which
# lies in a folder of that name beside it: a new router is a new folder and then a new pointer, and
# a gateway never sees half of one.


_MAX_POINTER = 1 << 16
_MAX_ARTIFACT = 4 << 30
_COPY_BYTES = 1 << 20
_MANIFEST = "router.json"
_WEIGHTS = "weights.safetensors"
_is_digest = re.compile("[0-9a-f]{64}").fullmatch


def read_pointer(url: str) -> str:
    """The digest that a pointer names, such as ``{"digest": "9f86d0..."}``.

    Raises:
        ArtifactError: It cannot be read, or is no pointer.
    """
    with _remote(url) as (system, path), system.open_input_stream(path) as file:
        content = file.read(_MAX_POINTER)
    try:
        digest = json.loads(content)["digest"]
    except (ValueError, TypeError, KeyError, RecursionError):
        digest = None
    if not isinstance(digest, str) or not _is_digest(digest):
        raise ArtifactError(
            f'{without_credentials(url)} must be JSON such as {{"digest": "..."}}, with the sha256'
            f" of a router.json, got {content[:60]!r}; write the pointer again."
        )
    return digest


def fetch_artifact(url: str, cache: Path | None = None) -> Path:
    """Download the artifact that a pointer names, unless the cache has it.

    Args:
        url: Of the pointer; any that pyarrow or fsspec can read.
        cache: Folder of artifacts by their digests; ``mildroute/routers`` in the user's cache by
            default.

    Returns:
        A folder whose content has the digest.

    Raises:
        ArtifactError: It cannot be read, or has another digest.
    """
    digest = read_pointer(url)
    cache = cache_folder("routers") if cache is None else cache
    folder = cache / digest
    with contextlib.suppress(ArtifactError):
        _check_digest(folder, digest)
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = Path(tempfile.mkdtemp(prefix=".", dir=cache))
    except OSError as error:
        raise ArtifactError(
            f"routers of a URL need a cache that can be written, got {cache}: {error.strerror}; set"
            " XDG_CACHE_HOME."
        ) from error
    try:
        for name in (_MANIFEST, _WEIGHTS):
            _download(url, f"{digest}/{name}", beside / name)
        _check_digest(beside, digest)
        _install(beside, folder, digest)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def _install(downloaded: Path, folder: Path, digest: str) -> None:
    try:
        downloaded.rename(folder)
    except OSError:
        # Another process was faster, and may be reading it; what is damaged is replaced.
        with contextlib.suppress(ArtifactError):
            _check_digest(folder, digest)
            return
        shutil.rmtree(folder, ignore_errors=True)
        downloaded.rename(folder)


def _check_digest(folder: Path, digest: str) -> None:
    manifest = read_manifest(folder)
    try:
        with (folder / _WEIGHTS).open("rb") as file:
            weights = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtifactError(f"{_WEIGHTS} cannot be read: {error.strerror}.") from error
    if manifest["sha256"] != digest or weights != manifest["weights"]["sha256"]:
        raise ArtifactError(
            f"the artifact must have the digest that its pointer names, {digest[:16]}..., got"
            " another one; upload it again."
        )


def _download(pointer: str, name: str, target: Path) -> None:
    left = _MAX_ARTIFACT
    with _remote(pointer) as (system, path):
        source = posixpath.join(posixpath.dirname(path), name)
        with system.open_input_stream(source) as file, target.open("wb") as copy:
            while chunk := file.read(_COPY_BYTES):
                left -= len(chunk)
                if left < 0:
                    raise ArtifactError(f"{name} must have at most {_MAX_ARTIFACT:,} bytes.")
                copy.write(chunk)


@contextlib.contextmanager
def _remote(url: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URL and the path in it; all errors become ArtifactErrors."""
    try:
        yield open_location(url)
    except ArtifactError:
        raise
    except (OSError, ValueError, pa.ArrowException, MildrouteError) as error:
        message = f"{url} cannot be read: {' '.join(str(error).split()):.300}"
        raise ArtifactError(
            f"{without_credentials(message)}; check the address and its permissions."
        ) from None
