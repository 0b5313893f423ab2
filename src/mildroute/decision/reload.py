"""Hot reload of the router, the experts and the client keys."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from mildroute.decision.predictor import Predictor
from mildroute.exceptions import ArgumentError, ArtifactError, MildrouteError
from mildroute.experts.config import read_experts
from mildroute.gateway.config import EncoderConfig, GatewayConfig, describe_target
from mildroute.gateway.keys import KeyStore, check_shared_limits
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.upstream.pool import ExpertPool, check_prices
from mildroute.persistence.artifact import MANIFEST, SIGNATURE, read_manifest
from mildroute.persistence.remote import (
    Pointer,
    PointerNotFoundError,
    fetch_artifact,
    fetch_signature,
    read_pointer,
    read_signature,
    verify_signature,
)
from mildroute.routers.frontier.target import Target

__all__ = ["Canary", "CanaryError", "PredictorManager", "Reloader"]


_LOG = logging.getLogger(__name__)
# Seconds between two looks at the file of keys.
_KEYS_INTERVAL = 1.0


class Reloader:
    """Reloads router, experts and client keys; an invalid file is rejected and the old one stays.

    Args:
        key_store: All clients; it is the same object before and after.
        config: Names the file of their keys, if the gateway needs keys.
        pool: The experts; it is the same object before and after.
        metrics: Count reloads, or none.
        is_worker: Whether several processes serve the port, each of which would allow the limits of
            keys unless they share a store.
    """

    def __init__(
        self,
        manager: PredictorManager,
        key_store: KeyStore,
        config: GatewayConfig,
        pool: ExpertPool,
        metrics: GatewayMetrics | None = None,
        *,
        is_worker: bool = False,
    ) -> None:
        self._manager = manager
        self._is_worker = is_worker
        self._key_store = key_store
        self._config = config
        self._key_file = config.keys
        self._pool = pool
        self._metrics = metrics
        self._lock = asyncio.Lock()

    async def reload_router(self) -> str:
        """Reload the router; an ArtifactError if it is invalid."""
        return await self._manager.reload(None)

    async def reload_experts(self) -> int:
        """Read experts.yaml again; an ArgumentError if it is invalid.

        Returns:
            Experts that there are now.
        """
        with _reported(self._metrics, "experts", "the experts stay as they were"):
            async with self._lock:
                loop = asyncio.get_running_loop()
                file = await loop.run_in_executor(None, read_experts, self._pool.path)
                # In a thread: the certificates of an expert take a tenth of a second to read.
                change = await loop.run_in_executor(None, self._pool.prepare, file)
                has_budgets = self._key_store.has_budgets
                check_prices(change.experts.values(), self._config, has_budgets=has_budgets)
                await self._manager.change_experts(
                    frozenset(change.experts), lambda: self._pool.install(change)
                )
        _LOG.info("the experts were read again; experts: %d", len(self._pool.experts))
        return len(self._pool.experts)

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
                fresh = await loop.run_in_executor(None, KeyStore.read, self._key_file)
                experts = self._pool.experts.values()
                check_prices(experts, self._config, has_budgets=fresh.has_budgets)
                if self._is_worker:
                    check_shared_limits(fresh, self._config.store.url)
                self._key_store.replace(fresh)
        _LOG.info("the keys were read again; clients: %d", len(self._key_store))
        return len(self._key_store)

    async def watch_keys(self, seconds: float = _KEYS_INTERVAL) -> None:
        """Reload the keys whenever their file changes; an invalid file is reported once."""
        seen = None if self._key_file is None else await _keys_state(self._key_file)
        while self._key_file is not None:
            await asyncio.sleep(seconds)
            state = await _keys_state(self._key_file)
            if state is not None and state != seen:
                with contextlib.suppress(MildrouteError):
                    await self.reload_keys()
            seen = state or seen

    async def try_reload(self) -> bool:
        """Reload all; false if one is invalid, which is only logged."""
        is_valid = True
        for reload in (self.reload_keys, self.reload_experts, self.reload_router):
            try:
                await reload()
            except MildrouteError:
                is_valid = False
        return is_valid


async def _keys_state(path: Path) -> Hashable:
    """Return what changes when the file does; ``None`` while it is not there."""
    try:
        return await asyncio.get_running_loop().run_in_executor(None, _stat, path)
    except OSError:
        return None


@contextlib.contextmanager
def _reported(
    metrics: GatewayMetrics | None, kind: str, refusal: str, *, level: int = logging.WARNING
) -> Iterator[None]:
    """Count a reload, and log why it was rejected."""
    try:
        yield
    except MildrouteError as error:
        _LOG.log(level, "%s: %s", refusal, error)
        if metrics is not None:
            metrics.record_reload(kind, is_loaded=False)
        raise
    if metrics is not None:
        metrics.record_reload(kind, is_loaded=True)


class CanaryError(ArtifactError):
    """The canary was rejected; the router that serves continues alone."""


class Canary(NamedTuple):
    """A router that decides a share of the requests.

    Args:
        predictor: It.
        share: From 0 to 1.
    """

    predictor: Predictor
    share: float

    def takes(self, key: str) -> bool:
        """Whether it decides the requests of a key: the same in every process, at any time.

        A larger share takes all keys of a smaller one. The digest salts the hash, so that the next
        canary meets other conversations.
        """
        salt = bytes.fromhex(self.predictor.sha256)
        drawn = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, key=salt)
        return int.from_bytes(drawn.digest()) < self.share * 2**64


class _Loaded(NamedTuple):
    predictor: Predictor
    canary: Canary | None = None
    canary_error: MildrouteError | None = None
    # That named a canary which was refused.
    pointer: Pointer | None = None


# Seconds for which requests in flight may continue with the router that was replaced.
_GRACE = 30.0
# Seconds between looks for the first router.
_FIRST_INTERVAL = 2.0


class PredictorManager:
    """Holds the router that serves and perhaps a canary; a request keeps its own to its end.

    Args:
        folder: Of the artifact, or the URL of a pointer to it, as
            :func:`mildroute.persistence.remote.read_pointer` takes it; none for no router.
        experts: Names of those that can be called; an artifact that knows none of them is rejected.
            None allows any.
        on_change: Called with the new predictor after each change, or none.
        targets: Targets by the name of their preset or route; an artifact that cannot reach one of
            them is rejected.
        metrics: Count reloads, or none.
        public_keys: PEM file of keys one of which must have signed an artifact, or none. It is read
            at each load.

    Attributes:
        predictor: The router that serves, or none until there is one.
        canary: Decides a share of the requests, or none.
    """

    def __init__(
        self,
        folder: str | Path | None,
        config: EncoderConfig,
        experts: frozenset[str] | None = None,
        on_change: Callable[[Predictor], None] | None = None,
        targets: Mapping[str, Target] | None = None,
        metrics: GatewayMetrics | None = None,
        public_keys: Path | None = None,
    ) -> None:
        self._metrics = metrics
        self.folder = None if folder is None else _location(folder)
        self._config = config
        self._experts = experts
        self._on_change = on_change
        self._targets = targets or {}
        self._public_keys = public_keys
        self.predictor: Predictor | None = None
        self._is_started = False
        self.canary: Canary | None = None
        self._replaced: set[Predictor] = set()
        self._seen: Hashable = None
        # The pointer whose canary was refused at the last look, or none.
        self._refused: Pointer | None = None
        self._lock = asyncio.Lock()

    @property
    def waiting(self) -> int:
        """Inputs that wait for their vectors."""
        return sum(predictor.queue.waiting for predictor in self._held())

    def load(self) -> Predictor | None:
        """Load the artifact for the first time; a canary that is bad is only logged.

        None if there is none yet: neither a folder, or an empty one, nor a pointer.
        """
        if self.folder is not None and not _is_missing(self.folder):
            loaded = self._load(self.folder)
            self._replace(loaded)
            with contextlib.suppress(CanaryError):
                self._report_canary(loaded)
        self._is_started = True
        return self.predictor

    async def reload(self, folder: str | Path | None = None) -> str:
        """Take the artifact again, or another one; its digest, empty while there is none yet.

        If it is bad the old one stays and an ArtifactError says why. If its canary is bad it serves
        alone, and a CanaryError says why.

        Args:
            folder: Another artifact, or none for the same folder.
        """
        async with self._lock:
            wanted = self.folder if folder is None else _location(folder)
            loop = asyncio.get_running_loop()
            if wanted is None or (
                self.predictor is None and await loop.run_in_executor(None, _is_missing, wanted)
            ):
                return ""
            with _reported(self._metrics, "router", "the artifact was not replaced"):
                loaded = await loop.run_in_executor(None, self._load, wanted)
            self.folder = wanted
            for old in self._replace(loaded):
                self._replaced.add(old)
                loop.call_later(_GRACE, self._close_replaced, old)
            self._report_canary(loaded)
            return loaded.predictor.digest

    async def change_experts(self, names: frozenset[str], install: Callable[[], None]) -> None:
        """Change the experts that can be called; an ArgumentError if a router knows none of them.

        Args:
            names: Of the new ones.
            install: Makes them the ones that are called.
        """
        async with self._lock:
            for predictor in self._held():
                if not names & set(predictor.experts):
                    raise ArgumentError(
                        "experts.yaml must name an expert of the router that serves, got"
                        f" {', '.join(sorted(names)):.200} for one between"
                        f" {', '.join(predictor.experts):.200}; add new experts first, then the"
                        " router, and remove the old ones last."
                    )
                _warn_of_unknown(predictor, names)
            self._experts = names
            install()

    async def watch(self, seconds: float | None = None) -> None:
        """Reload whenever the folder's files are others, or the pointer says something else.

        A bad folder is reported once and otherwise ignored. A bad pointer or canary is tried again:
        the network may have been at fault. Without seconds, only the first router is waited for.
        """
        loop = asyncio.get_running_loop()
        while self.folder is not None and (seconds is not None or self.predictor is None):
            await asyncio.sleep(_FIRST_INTERVAL if seconds is None else seconds)
            try:
                now = await loop.run_in_executor(None, _state_of, self.folder)
            except ArtifactError as error:
                # The first one may still appear; of all else the reload says why, and counts it.
                if self.predictor is not None or not isinstance(error, PointerNotFoundError):
                    await self.try_reload()
                continue
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
        for predictor in (*self._replaced, *self._held()):
            predictor.close()
        self._replaced.clear()

    def _held(self) -> list[Predictor]:
        canary = [] if self.canary is None else [self.canary.predictor]
        return canary if self.predictor is None else [self.predictor, *canary]

    def _replace(self, loaded: _Loaded) -> list[Predictor]:
        """Let others serve from now on; those that do not any more."""
        before = self._held()
        is_changed = loaded.predictor is not self.predictor
        is_other_canary = loaded.canary != self.canary
        self.predictor = loaded.predictor
        self.canary = loaded.canary
        if is_changed and self._is_started:
            _LOG.info("now serving router %s", loaded.predictor.digest)
        if is_changed and self._on_change is not None:
            self._on_change(loaded.predictor)
        if is_other_canary and self.canary is not None:
            name = self.canary.predictor.digest
            _LOG.info("the canary %s gets %g of the requests", name, self.canary.share)
        elif is_other_canary:
            _LOG.info("router %s serves without a canary", loaded.predictor.digest)
        held = self._held()
        return [predictor for predictor in before if predictor not in held]

    def _report_canary(self, loaded: _Loaded) -> None:
        # One that was refused is tried again at each look, and said once for each pointer.
        is_known = loaded.pointer is not None and loaded.pointer == self._refused
        self._refused = loaded.pointer
        if loaded.canary is None and loaded.canary_error is None:
            return
        level = logging.DEBUG if is_known else logging.WARNING
        with _reported(self._metrics, "canary", "the canary was not taken", level=level):
            if loaded.canary_error is not None:
                raise CanaryError(str(loaded.canary_error))

    def _load(self, location: Path | str) -> _Loaded:
        if isinstance(location, Path):
            self._seen = _state_of(location)
            return _Loaded(self._load_folder(location))
        pointer = read_pointer(location)
        loaded = _Loaded(self._fetch(location, pointer.digest))
        if pointer.canary is not None:
            try:
                canary = Canary(self._fetch(location, pointer.canary), pointer.share)
            except MildrouteError as error:
                return loaded._replace(canary_error=error, pointer=pointer)
            loaded = loaded._replace(canary=canary)
        self._seen = pointer
        return loaded

    def _load_folder(self, folder: Path) -> Predictor:
        digest = str(read_manifest(folder)["sha256"])
        if self._public_keys is not None:
            verify_signature(digest, read_signature(folder), self._public_keys)
        return self._load_predictor(folder, digest)

    def _fetch(self, url: str, digest: str) -> Predictor:
        """The predictor of a digest; one that is in use already is used on."""
        if self._public_keys is not None:
            verify_signature(digest, fetch_signature(url, digest), self._public_keys)
        for predictor in self._held():
            if predictor.sha256 == digest:
                return predictor
        return self._load_predictor(fetch_artifact(url, digest), digest)

    def _load_predictor(self, folder: Path, digest: str) -> Predictor:
        predictor = Predictor.load(folder, self._config, digest)
        if self._experts is not None and not self._experts & set(predictor.experts):
            predictor.close()
            names = ", ".join(predictor.experts)
            raise ArtifactError(
                f"a router must choose between experts of experts.yaml, got one for {names}; take"
                " the names of the table."
            )
        for name, target in self._targets.items():
            _pin_target(predictor, name, target)
        if self._experts is not None:
            _warn_of_unknown(predictor, self._experts)
        if self._metrics is not None:
            predictor.queue.on_batch = self._metrics.record_batch
        return predictor

    def _close_replaced(self, predictor: Predictor) -> None:
        self._replaced.discard(predictor)
        predictor.close()


def _warn_of_unknown(predictor: Predictor, known: Iterable[str]) -> None:
    unknown = [name for name in predictor.experts[: predictor.n_experts] if name not in known]
    if unknown:
        names = ", ".join(unknown)
        _LOG.warning("experts.yaml lacks %s, which the router knows: they are never called", names)


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


def _is_missing(location: Path | str) -> bool:
    """Whether there is no router yet; an ArtifactError if that cannot be known."""
    if isinstance(location, Path):
        return not location.exists() or (location.is_dir() and not any(location.iterdir()))
    try:
        read_pointer(location)
    except PointerNotFoundError:
        return True
    return False


def _state_of(location: Path | str) -> Hashable:
    """What changes when the artifact is replaced; none if a folder does not show it.

    An ArtifactError if a pointer cannot be read.
    """
    if isinstance(location, str):
        return read_pointer(location)
    try:
        return _stat(location / MANIFEST), _stat(location / SIGNATURE, missing_ok=True)
    except OSError:
        return None


def _stat(path: Path, *, missing_ok: bool = False) -> Hashable:
    try:
        found = path.stat()
    except FileNotFoundError:
        if missing_ok:
            return None
        raise
    return found.st_ino, found.st_mtime_ns, found.st_size
