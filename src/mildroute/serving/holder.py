"""The router in use, and its replacement while requests go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from mildroute.errors import ArgumentError, ArtifactError, MildrouteError
from mildroute.evaluation.fitting import Target
from mildroute.serving.brain import Brain
from mildroute.serving.settings import EncoderRules
from mildroute.serving.targets import words_of

__all__ = ["Holder"]

_LOG = logging.getLogger(__name__)
_GRACE = 30.0
"""Seconds that requests under way may go on with the router that was replaced."""


class Holder:
    """Holds one brain; a request takes it once and keeps it to its end.

    Args:
        folder: The artifact.
        rules: How inputs become vectors.
        experts: Names of those who can be asked; an artifact that knows none of them is refused. None allows any.
        changed: Called with the new brain after each change, or none.
        targets: Targets by the name of their preset or route; an artifact that cannot reach one of them is refused.

    Example:
        >>> Holder("no such folder", EncoderRules()).brain
        Traceback (most recent call last):
        mildroute.errors.ArtifactError: no artifact has been loaded; call load first.
    """

    def __init__(
        self,
        folder: str | Path,
        rules: EncoderRules,
        experts: frozenset[str] | None = None,
        changed: Callable[[Brain], None] | None = None,
        targets: Mapping[str, Target] | None = None,
    ) -> None:
        self.folder, self._rules, self._experts, self._changed = Path(folder), rules, experts, changed
        self._targets = targets or {}
        self._brain: Brain | None = None
        self._old: set[Brain] = set()
        self._turn = asyncio.Lock()

    @property
    def brain(self) -> Brain:
        """The one in use."""
        if self._brain is None:
            raise ArtifactError("no artifact has been loaded; call load first.")
        return self._brain

    def load(self) -> Brain:
        """Load the artifact for the first time."""
        self._brain = self._checked(self.folder)
        self._tell()
        return self._brain

    async def reload(self, folder: str | Path | None = None) -> str:
        """Take the artifact anew, or another one; if it is bad the old one stays and an ArtifactError says why.

        Args:
            folder: Another artifact, or none for the same folder.

        Returns:
            Digest of the one now in use.
        """
        async with self._turn:
            wanted = self.folder if folder is None else Path(folder)
            new = await asyncio.get_running_loop().run_in_executor(None, self._checked, wanted)
            old, self._brain, self.folder = self._brain, new, wanted
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
        for brain in (*self._old, *([] if self._brain is None else [self._brain])):
            brain.close()
        self._old.clear()

    def _checked(self, folder: Path) -> Brain:
        brain = Brain.load(folder, self._rules)
        if self._experts is not None and not self._experts & set(brain.experts):
            brain.close()
            names = ", ".join(brain.experts)
            raise ArtifactError(f"a router must choose between experts of experts.yaml, got one for {names}; take the names of the table.")
        for name, target in self._targets.items():
            _pin(brain, name, target)
        return brain

    def _tell(self) -> None:
        if self._changed is not None and self._brain is not None:
            self._changed(self._brain)

    def _end(self, brain: Brain) -> None:
        self._old.discard(brain)
        brain.close()


def _pin(brain: Brain, name: str, target: Target) -> None:
    try:
        brain.pin(target)
    except ArgumentError as error:
        brain.close()
        raise ArtifactError(f"the router must reach the target of {name!r} ({words_of(target)}), got: {error}") from None


def _mark(folder: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced."""
    try:
        found = (folder / "router.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
