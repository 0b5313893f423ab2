"""Hot reload of a router: from a local folder or a URL, whenever its content changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path

from mildroute.decision.async_predictor import AsyncPredictor
from mildroute.decision.settings import EncoderConfig
from mildroute.decision.targets import describe_target
from mildroute.exceptions import ArgumentError, ArtifactError, MildrouteError
from mildroute.persistence.artifact import MANIFEST
from mildroute.persistence.hub import RouterNotFoundError, fetch_router, is_url, remote_digest
from mildroute.routers.frontier.target import Target

__all__ = ["PredictorManager"]

_LOG = logging.getLogger(__name__)
# Seconds for which requests in flight can still use the router that was replaced.
_GRACE = 30.0
# Seconds between two attempts to load the first router.
_FIRST_INTERVAL = 2.0


class PredictorManager:
    """A holder of the router in use, which replaces it when the artifact changes.

    A request finishes with the router that it started with.

    Args:
        location: Folder or URL of the artifact; ``None`` means no router.
        config: Settings of the encoder.
        experts: Names of the experts that can be called; an artifact that knows none of them is
            refused. ``None`` means any expert.
        on_change: Function that receives the new predictor after each change, or ``None``.
        targets: Targets by the name of their preset or route; an artifact that cannot reach one of
            them is refused.
        on_reload: Function that receives whether each attempt to reload succeeded, or ``None``.

    Attributes:
        predictor: The router in use; ``None`` until there is one.
    """

    def __init__(
        self,
        location: str | Path | None,
        config: EncoderConfig,
        experts: frozenset[str] | None = None,
        on_change: Callable[[AsyncPredictor], None] | None = None,
        targets: Mapping[str, Target] | None = None,
        on_reload: Callable[[bool], None] | None = None,
    ) -> None:
        self.location = None if location is None else _normalize(location)
        self._config = config
        self._experts = experts
        self._on_change = on_change
        self._targets = targets or {}
        self._on_reload = on_reload
        self.predictor: AsyncPredictor | None = None
        self._is_started = False
        self._replaced: set[AsyncPredictor] = set()
        self._seen: Hashable = None
        self._lock = asyncio.Lock()

    @property
    def waiting(self) -> int:
        """The number of inputs that are waiting for their vectors."""
        return 0 if self.predictor is None else self.predictor.queue.waiting

    def load(self) -> AsyncPredictor | None:
        """Load the artifact for the first time.

        Returns:
            The predictor; ``None`` if there is no artifact yet.
        """
        if self.location is not None and not _is_missing(self.location):
            self._replace(self._load(self.location))
        self._is_started = True
        return self.predictor

    async def reload(self, location: str | Path | None = None) -> str:
        """Load the artifact again, or another one; if it is invalid, the old router stays in use.

        Args:
            location: Folder or URL of another artifact; ``None`` means the same location.

        Returns:
            The digest of the router; empty while there is none.

        Raises:
            ArtifactError: The artifact is invalid.
        """
        async with self._lock:
            requested = self.location if location is None else _normalize(location)
            loop = asyncio.get_running_loop()
            if requested is None or (
                self.predictor is None and await loop.run_in_executor(None, _is_missing, requested)
            ):
                return ""
            try:
                predictor = await loop.run_in_executor(None, self._load, requested)
            except MildrouteError as error:
                _LOG.warning("the router was not replaced: %s", error)
                self._report(is_loaded=False)
                raise
            self.location = requested
            replaced = self._replace(predictor)
            if replaced is not None:
                self._replaced.add(replaced)
                loop.call_later(_GRACE, self._close_replaced, replaced)
            self._report(is_loaded=True)
            return predictor.digest

    async def try_reload(self) -> bool:
        """Reload the artifact; return ``False`` if it is invalid, which is logged."""
        try:
            await self.reload()
        except MildrouteError:
            return False
        return True

    async def watch(self, seconds: float | None = None) -> None:
        """Reload whenever the artifact changes.

        An invalid folder is reported once and then ignored until it changes. An invalid artifact at
        a URL is tried again at each check, because the network may have been at fault or an upload
        may not have been complete.

        Args:
            seconds: Seconds between two checks; with ``None``, only wait for the first router.
        """
        loop = asyncio.get_running_loop()
        while self.location is not None and (seconds is not None or self.predictor is None):
            await asyncio.sleep(_FIRST_INTERVAL if seconds is None else seconds)
            try:
                state = await loop.run_in_executor(None, _state_of, self.location)
            except ArtifactError as error:
                # The first router may still appear. The reload reports and counts all other errors.
                if self.predictor is not None or not isinstance(error, RouterNotFoundError):
                    await self.try_reload()
                continue
            if state is not None and state != self._seen:
                await self.try_reload()

    async def change_experts(self, names: frozenset[str], install: Callable[[], None]) -> None:
        """Change the experts that can be called.

        Args:
            names: Names of the new experts.
            install: Function that puts the new experts in place.

        Raises:
            ArgumentError: The router knows none of the experts.
        """
        async with self._lock:
            predictor = self.predictor
            if predictor is not None:
                if not names & set(predictor.experts):
                    raise ArgumentError(
                        "experts.yaml must name an expert of the router in use, got"
                        f" {', '.join(sorted(names)):.200} for a router between"
                        f" {', '.join(predictor.experts):.200}; add new experts first, then the"
                        " router, and remove the old ones last."
                    )
                _warn_of_unknown(predictor, names)
            self._experts = names
            install()

    def close(self) -> None:
        """Shut down all threads."""
        for predictor in self._replaced:
            predictor.close()
        if self.predictor is not None:
            self.predictor.close()
        self._replaced.clear()

    def _replace(self, predictor: AsyncPredictor) -> AsyncPredictor | None:
        """Put a predictor in place and return the previous one."""
        previous = self.predictor
        self.predictor = predictor
        if self._is_started:
            _LOG.info("router %s is in use", predictor.digest)
        if self._on_change is not None:
            self._on_change(predictor)
        return previous

    def _load(self, location: Path | str) -> AsyncPredictor:
        if isinstance(location, Path):
            # The state is recorded before loading, so that an invalid folder is reported only once.
            self._seen = _state_of(location)
            return self._load_folder(location)
        folder = fetch_router(location)
        predictor = self._load_folder(folder)
        self._seen = predictor.sha256
        return predictor

    def _load_folder(self, folder: Path) -> AsyncPredictor:
        predictor = AsyncPredictor.load(folder, self._config)
        if self._experts is not None and not self._experts & set(predictor.experts):
            predictor.close()
            names = ", ".join(predictor.experts)
            raise ArtifactError(
                f"a router must choose between experts of experts.yaml, got one for {names}; use"
                " the names in the table."
            )
        for name, target in self._targets.items():
            _pin_target(predictor, name, target)
        if self._experts is not None:
            _warn_of_unknown(predictor, self._experts)
        return predictor

    def _report(self, *, is_loaded: bool) -> None:
        if self._on_reload is not None:
            self._on_reload(is_loaded)

    def _close_replaced(self, predictor: AsyncPredictor) -> None:
        self._replaced.discard(predictor)
        predictor.close()


def _warn_of_unknown(predictor: AsyncPredictor, names: Iterable[str]) -> None:
    unknown = [name for name in predictor.experts[: predictor.n_experts] if name not in names]
    if unknown:
        _LOG.warning(
            "experts.yaml lacks %s, which the router knows: they are never called",
            ", ".join(unknown),
        )


def _pin_target(predictor: AsyncPredictor, name: str, target: Target) -> None:
    try:
        predictor.pin(target)
    except ArgumentError as error:
        predictor.close()
        raise ArtifactError(
            f"the router must reach the target of {name!r} ({describe_target(target)}), got:"
            f" {error}"
        ) from None


def _normalize(location: str | Path) -> Path | str:
    """Return a folder as a path and a URL unchanged."""
    return str(location) if is_url(location) else Path(location)


def _is_missing(location: Path | str) -> bool:
    """Return whether there is no router yet.

    Raises:
        ArtifactError: The URL cannot be read.
    """
    if isinstance(location, Path):
        return not location.exists() or (location.is_dir() and not any(location.iterdir()))
    try:
        remote_digest(location)
    except RouterNotFoundError:
        return True
    return False


def _state_of(location: Path | str) -> Hashable:
    """Return a value that changes with the artifact; ``None`` if a folder has none.

    Raises:
        ArtifactError: The URL cannot be read.
    """
    if isinstance(location, str):
        return remote_digest(location)
    try:
        status = (location / MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
