"""Reloading of the client keys, experts and router of a running gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Hashable, Iterator
from pathlib import Path

from mildroute.decision.reload import PredictorManager
from mildroute.exceptions import MildrouteError
from mildroute.experts.config import read_experts
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.keys import KeyStore, check_shared_limits
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.upstream.pool import ExpertPool, check_prices

__all__ = ["Reloader"]

_LOG = logging.getLogger(__name__)
# Seconds between two checks of the key file.
_KEYS_INTERVAL = 1.0


class Reloader:
    """A reloader of router, experts and client keys, which rejects invalid files.

    After a rejected reload, the gateway continues with the old router, experts or keys.

    Args:
        manager: Holds the router.
        key_store: All clients; a reload changes this object.
        config: The gateway's configuration, which names the key file.
        pool: The experts; a reload changes this object.
        metrics: Counts reloads, or ``None``.
        is_worker: Whether several processes serve the port. Limits of keys then need a shared
            store, because each process would allow them in full.
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
        """Reload the router; raise an ArtifactError if it is invalid."""
        return await self._manager.reload(None)

    async def reload_experts(self) -> int:
        """Reload the experts; raise an ArgumentError if their file is invalid.

        Returns:
            The new number of experts.
        """
        with _reported(self._metrics, "experts", "the experts stay as they were"):
            async with self._lock:
                loop = asyncio.get_running_loop()
                file = await loop.run_in_executor(None, read_experts, self._pool.path)
                # Use a thread, because reading an expert's certificates takes a tenth of a second.
                change = await loop.run_in_executor(None, self._pool.prepare, file)
                has_budgets = self._key_store.has_budgets
                check_prices(change.experts.values(), self._config, has_budgets=has_budgets)
                await self._manager.change_experts(
                    frozenset(change.experts), lambda: self._pool.install(change)
                )
        _LOG.info("experts reloaded; count: %d", len(self._pool.experts))
        return len(self._pool.experts)

    async def reload_keys(self) -> int | None:
        """Reload the keys; raise an ArgumentError if their file is invalid.

        Requests and dollars that were counted for a client remain counted.

        Returns:
            The new number of clients, or ``None`` if the gateway requires no keys.
        """
        if self._key_file is None:
            return None
        with _reported(self._metrics, "keys", "the keys stay as they were"):
            async with self._lock:  # otherwise an older read could be written last
                loop = asyncio.get_running_loop()
                key_store = await loop.run_in_executor(None, KeyStore.read, self._key_file)
                experts = self._pool.experts.values()
                check_prices(experts, self._config, has_budgets=key_store.has_budgets)
                if self._is_worker:
                    check_shared_limits(key_store, self._config.store.url)
                self._key_store.replace(key_store)
        _LOG.info("keys reloaded; count: %d", len(self._key_store))
        return len(self._key_store)

    async def watch_keys(self, seconds: float = _KEYS_INTERVAL) -> None:
        """Reload the keys whenever their file changes; an invalid file is reported once."""
        last_state = None if self._key_file is None else await _keys_state(self._key_file)
        while self._key_file is not None:
            await asyncio.sleep(seconds)
            state = await _keys_state(self._key_file)
            if state is not None and state != last_state:
                with contextlib.suppress(MildrouteError):
                    await self.reload_keys()
            last_state = state or last_state

    async def try_reload(self) -> bool:
        """Reload everything; log errors and return whether there were none."""
        is_valid = True
        for reload in (self.reload_keys, self.reload_experts, self.reload_router):
            try:
                await reload()
            except MildrouteError:
                is_valid = False
        return is_valid


async def _keys_state(path: Path) -> Hashable:
    """Return a value that changes whenever the file does; ``None`` while it does not exist."""
    try:
        return await asyncio.get_running_loop().run_in_executor(None, _stat, path)
    except OSError:
        return None


@contextlib.contextmanager
def _reported(metrics: GatewayMetrics | None, kind: str, refusal: str) -> Iterator[None]:
    """Count a reload, and log the reason if it is rejected."""
    try:
        yield
    except MildrouteError as error:
        _LOG.warning("%s: %s", refusal, error)
        if metrics is not None:
            metrics.record_reload(kind, is_loaded=False)
        raise
    if metrics is not None:
        metrics.record_reload(kind, is_loaded=True)


def _stat(path: Path) -> Hashable:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size
