"""The small paths: what there is, how it is, and what clients think of it."""

from __future__ import annotations

from mildroute.errors import ArgumentError, ArtifactError
from mildroute.serving.caller import Caller
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.documents import read_object, send_document
from mildroute.serving.door import Hall
from mildroute.serving.entrance import Entrance
from mildroute.serving.guard import Guard
from mildroute.serving.openapi import description
from mildroute.serving.parts import Parts
from mildroute.serving.roster import CHOOSE, Roster

__all__ = ["SmallDoors"]


class SmallDoors:
    """Answers that need no expert.

    Args:
        parts: Of the gateway.
        roster: Who there is.
        entrance: Knows clients.
        hall: Knows whether the gateway is about to stop.
        guard: Whom to let see the figures, or none for everyone.

    Example:
        >>> SmallDoors.__name__
        'SmallDoors'
    """

    def __init__(self, parts: Parts, roster: Roster, entrance: Entrance, hall: Hall, guard: Guard | None = None) -> None:
        self._parts, self._roster, self._entrance, self._hall, self._guard = parts, roster, entrance, hall, guard
        has_admin = parts.settings.admin_key_env is not None
        self._description = description(parts.settings.policy.presets, with_admin=has_admin, guards_metrics=guard is not None)
        owners = dict.fromkeys((CHOOSE, *parts.settings.policy.routes), "mildroute") | dict.fromkeys(roster.candidates, "expert")
        self._models = {name: {"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in owners.items()}

    async def models(self, caller: Caller) -> None:
        """Routes and experts."""
        self._entrance.client_of(caller)
        await send_document(caller, {"object": "list", "data": [*self._models.values()]})

    async def model(self, caller: Caller) -> None:
        """One route or expert."""
        self._entrance.client_of(caller)
        found = self._models.get(caller.scope["path_params"]["model"])
        if found is None:
            raise ComplaintError(404, "no route or expert of this gateway has that name; see /v1/models.", code="model_not_found")
        await send_document(caller, found)

    async def health(self, caller: Caller) -> None:
        """Whether the process is alive."""
        await send_document(caller, {"status": "alive"})

    async def readiness(self, caller: Caller) -> None:
        """Whether it should get requests."""
        why = self._hindrance()
        if why:
            await send_document(caller, {"status": "not ready", "why": why}, 503)
        else:
            await send_document(caller, {"status": "ready", "router": self._parts.holder.brain.digest})

    def _hindrance(self) -> str:
        if self._hall.is_draining:
            return "draining"
        try:
            self._parts.holder.brain  # noqa: B018 - it raises where there is none
        except ArtifactError:
            return "no router"
        states = self._roster.circuits().values()
        return "every expert is down" if states and all(state == "open" for state in states) else ""

    async def metrics(self, caller: Caller) -> None:
        """Figures for Prometheus."""
        if self._guard is not None:
            self._guard.check(caller)
        page, kind = self._parts.telemetry.render()
        await caller.answer(200, [(b"content-type", kind.encode())], page)

    async def openapi(self, caller: Caller) -> None:
        """The description of all paths."""
        await send_document(caller, self._description)

    async def feedback(self, caller: Caller) -> None:
        """How good the answer to a decision was."""
        client = self._entrance.client_of(caller)
        if self._parts.feedback is None:
            raise ComplaintError(501, "this gateway keeps no log, so it takes no feedback; its operator can name a folder under log.")
        # A key that has spent its day may still say how good the answers were.
        self._entrance.admit_free(client)
        try:
            given = await read_object(caller, self._parts.settings.limits)
            is_kept = self._parts.feedback.write(given.get("decision_id"), given.get("score"), client.name, given.get("detail"))
        except ArgumentError as error:
            raise ComplaintError(400, str(error)) from None
        if not is_kept:
            raise ComplaintError(503, "the feedback could not be written down; send it again later.", retry_after=10.0)
        await send_document(caller, {"object": "mildroute.feedback", "decision_id": given["decision_id"]})
