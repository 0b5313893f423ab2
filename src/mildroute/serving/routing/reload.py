"""Hot reload of the router and of the client keys."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mildroute._fit import Target
from mildroute.exceptions import ArgumentError, ArtifactError, MildrouteError
from mildroute.serving.auth.keys import KeyStore
from mildroute.serving.config import EncoderConfig, describe_target
from mildroute.serving.observability.metrics import GatewayMetrics
from mildroute.serving.routing.predictor import Predictor

__all__ = ["PredictorManager", "Reloader"]


_LOG = logging.getLogger(__name__)


class Reloader:
    """Reloads the router and the client keys; an invalid file is rejected and the old one stays.

    Args:
        key_store: All clients; it is the same object before and after.
        key_file: Of their keys, or the URL of their database; none if the gateway needs no keys.
        metrics: Count reloads, or none.
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

    async def try_reload(self) -> None:
        """Reload both; what is invalid is only logged."""
        with contextlib.suppress(MildrouteError):
            await self.reload_keys()
        await self._manager.try_reload()


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
        self.folder = Path(folder)
        self._config = config
        self._experts = experts
        self._on_change = on_change
        self._targets = targets or {}
        self._predictor: Predictor | None = None
        self._replaced: set[Predictor] = set()
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
            wanted = self.folder if folder is None else Path(folder)
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
        """Reload whenever the folder's router.json is another file.

        A bad one is reported once and otherwise ignored.
        """
        seen = _file_state(self.folder)
        while True:
            await asyncio.sleep(seconds)
            now = _file_state(self.folder)
            if now != seen and now is not None:
                seen = now
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

    def _load(self, folder: Path) -> Predictor:
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


def _file_state(folder: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced."""
    try:
        found = (folder / "router.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
