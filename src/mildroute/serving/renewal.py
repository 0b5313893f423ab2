"""What is read anew while a gateway runs: the router and the keys of clients, each by itself."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from mildroute.errors import MildrouteError
from mildroute.serving.keys import KeyRing
from mildroute.serving.parts import Minded

__all__ = ["Renewal"]

_LOG = logging.getLogger(__name__)


class Renewal:
    """Takes the router and the keys anew; a bad file is refused and what was there stays.

    Args:
        holder: Has the router.
        keyring: All clients; it is the same object before and after.
        file: Of their keys, or none where the gateway asks for no keys.

    Example:
        >>> import asyncio
        >>> asyncio.run(Renewal(None, KeyRing(), None).keys()) is None
        True
    """

    def __init__(self, holder: Minded, keyring: KeyRing, file: Path | None) -> None:
        self._holder, self._keyring, self._file = holder, keyring, file
        self._turn = asyncio.Lock()

    async def router(self) -> str:
        """Read the router's folder anew; an ArtifactError if it is bad.

        Returns:
            Digest of the one now in use.
        """
        return await self._holder.reload(None)

    async def keys(self) -> int | None:
        """Read the keys anew; an ArgumentError if their file is bad. What a client that stays has asked and spent is not forgotten.

        Returns:
            Clients that there are now, or none where the gateway asks for no keys.
        """
        if self._file is None:
            return None
        async with self._turn:  # else whoever read first could be the last to write
            self._keyring.become(await asyncio.get_running_loop().run_in_executor(None, KeyRing.read, self._file))
        return len(self._keyring.clients)

    async def try_both(self) -> None:
        """Read both anew, and say in the log what came of it."""
        await self._try_keys()
        await self._holder.try_reload()

    async def _try_keys(self) -> None:
        try:
            clients = await self.keys()
        except MildrouteError as error:
            _LOG.warning("the keys stay as they were: %s", error)
            return
        if clients is not None:
            _LOG.info("the keys were read anew; clients: %d", clients)
