"""Hot reload of the router and of the client keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from mildroute._fit import Target
from mildroute.exceptions import ArgumentError, ArtifactError, MildrouteError
from mildroute.serving.auth.keys import KeyStore
from mildroute.serving.config import EncoderConfig, words_of
from mildroute.serving.routing.predictor import Predictor
from mildroute.serving.services import PredictorHolder

__all__ = ["PredictorManager", "Reloader"]


# What is read again while a gateway runs: the router and the keys of clients, each by itself.


_LOG = logging.getLogger(__name__)


class Reloader:
    """Takes the router and the keys again; a bad file is refused and what was there stays.

    Args:
        manager: Has the router.
        key_store: All clients; it is the same object before and after.
        file: Of their keys, or none where the gateway asks for no keys.

    Example:
        >>> import asyncio
        >>> asyncio.run(Reloader(None, KeyStore(), None).keys()) is None
        True
    """

    def __init__(self, manager: PredictorHolder, key_store: KeyStore, file: Path | None) -> None:
        self._manager, self._keyring, self._file = manager, key_store, file
        self._turn = asyncio.Lock()

    async def router(self) -> str:
        """Read the router's folder again; an ArtifactError if it is bad.

        Returns:
            Digest of the one now in use.
        """
        return await self._manager.reload(None)

    async def keys(self) -> int | None:
        """Read the keys again; an ArgumentError if their file is bad. What a client that stays has asked and spent is not forgotten.

        Returns:
            Clients that there are now, or none where the gateway asks for no keys.
        """
        if self._file is None:
            return None
        async with self._turn:  # else whoever read first could be the last to write
            self._keyring.become(await asyncio.get_running_loop().run_in_executor(None, KeyStore.read, self._file))
        return len(self._keyring.clients)

    async def try_both(self) -> None:
        """Read both again, and say in the log what came of it."""
        await self._try_keys()
        await self._manager.try_reload()

    async def _try_keys(self) -> None:
        try:
            clients = await self.keys()
        except MildrouteError as error:
            _LOG.warning("the keys stay as they were: %s", error)
            return
        if clients is not None:
            _LOG.info("the keys were read again; clients: %d", clients)


# The router in use, and its replacement while requests go on.


_GRACE = 30.0
"""Seconds that requests under way may go on with the router that was replaced."""


class PredictorManager:
    """Holds one predictor; a request takes it once and keeps it to its end.

    Args:
        folder: The artifact.
        rules: How inputs become vectors.
        experts: Names of those who can be asked; an artifact that knows none of them is refused. None allows any.
        changed: Called with the new predictor after each change, or none.
        targets: Targets by the name of their preset or route; an artifact that cannot reach one of them is refused.
    """

    def __init__(
        self,
        folder: str | Path,
        rules: EncoderConfig,
        experts: frozenset[str] | None = None,
        changed: Callable[[Predictor], None] | None = None,
        targets: Mapping[str, Target] | None = None,
    ) -> None:
        self.folder, self._rules, self._experts, self._changed = Path(folder), rules, experts, changed
        self._targets = targets or {}
        self._predictor: Predictor | None = None
        self._old: set[Predictor] = set()
        self._turn = asyncio.Lock()

    @property
    def predictor(self) -> Predictor:
        """The one in use."""
        if self._predictor is None:
            raise ArtifactError("no artifact has been loaded; call load first.")
        return self._predictor

    def load(self) -> Predictor:
        """Load the artifact for the first time."""
        self._predictor = self._checked(self.folder)
        self._tell()
        return self._predictor

    async def reload(self, folder: str | Path | None = None) -> str:
        """Take the artifact again, or another one; if it is bad the old one stays and an ArtifactError says why.

        Args:
            folder: Another artifact, or none for the same folder.

        Returns:
            Digest of the one now in use.
        """
        async with self._turn:
            wanted = self.folder if folder is None else Path(folder)
            new = await asyncio.get_running_loop().run_in_executor(None, self._checked, wanted)
            old, self._predictor, self.folder = self._predictor, new, wanted
            self._tell()
            if old is not None:
                self._old.add(old)
                asyncio.get_running_loop().call_later(_GRACE, self._end, old)
            return new.digest

    async def watch(self, seconds: float) -> None:
        """Reload whenever the folder's router.json is another file; a bad one is reported once and otherwise ignored."""
        seen = _mark(self.folder)
        while True:
            await asyncio.sleep(seconds)
            now = _mark(self.folder)
            if now != seen and now is not None:
                seen = now
                await self.try_reload()

    async def try_reload(self) -> bool:
        """Reload the folder, and only report if that fails."""
        try:
            digest = await self.reload()
        except MildrouteError as error:
            _LOG.warning("the artifact was not replaced: %s", error)
            return False
        _LOG.info("now serving router %s", digest)
        return True

    def close(self) -> None:
        """Let all threads end."""
        for predictor in (*self._old, *([] if self._predictor is None else [self._predictor])):
            predictor.close()
        self._old.clear()

    def _checked(self, folder: Path) -> Predictor:
        predictor = Predictor.load(folder, self._rules)
        if self._experts is not None and not self._experts & set(predictor.experts):
            predictor.close()
            names = ", ".join(predictor.experts)
            raise ArtifactError(f"a router must choose between experts of experts.yaml, got one for {names}; take the names of the table.")
        for name, target in self._targets.items():
            _pin(predictor, name, target)
        return predictor

    def _tell(self) -> None:
        if self._changed is not None and self._predictor is not None:
            self._changed(self._predictor)

    def _end(self, predictor: Predictor) -> None:
        self._old.discard(predictor)
        predictor.close()


def _pin(predictor: Predictor, name: str, target: Target) -> None:
    try:
        predictor.pin(target)
    except ArgumentError as error:
        predictor.close()
        raise ArtifactError(f"the router must reach the target of {name!r} ({words_of(target)}), got: {error}") from None


def _mark(folder: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced."""
    try:
        found = (folder / "router.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
