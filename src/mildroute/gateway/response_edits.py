"""Edits of an expert's response on its way to the client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from mildroute.experts.events import Event, event_bytes
from mildroute.gateway.http.body import ParsedRequest
from mildroute.gateway.response_ids import encode_response_id
from mildroute.gateway.upstream.base import UpstreamResponse

__all__ = ["ResponseEdits"]

_Json = Mapping[str, Any]


class ResponseEdits:
    """Changes a response on its way to the client; all else passes byte for byte.

    Args:
        parsed: The request.
        expert: Name of the expert that responds.
        hides_usage: Whether to take out the event with the usage, for which the client has not
            asked.
        details: Returns what the client wants to know of the decision, or ``None``.
    """

    def __init__(
        self,
        parsed: ParsedRequest,
        expert: str,
        *,
        hides_usage: bool,
        details: Callable[[], _Json] | None,
    ) -> None:
        self._parsed = parsed
        self._expert = expert
        self._hides_usage = hides_usage
        self._details = details

    def body(self, response: UpstreamResponse) -> bytes:
        """Return a whole body."""
        document = response.document
        if response.status >= 300 or type(document) is not dict:
            return response.body
        changed = self._with_ids(document) if self._parsed.path == "responses" else document
        if self._details is not None:
            changed = {**changed, "mildroute": self._details()}
        return response.body if changed is document else orjson.dumps(changed)

    def event(self, event: Event) -> bytes:
        """Return an event of a stream; nothing if the client does not get it."""
        path = self._parsed.path
        data = event.data
        if self._hides_usage and _is_usage(data):
            return b""
        if path == "responses":
            if type(data) is dict and type(data.get("response")) is dict:
                return event_bytes(
                    event.name, {**data, "response": self._with_ids(data["response"])}
                )
            return event.raw
        if self._details is None:
            return event.raw
        if path == "messages":
            if event.kind != "message_stop":
                return event.raw
            details = {"type": "mildroute", "mildroute": self._details()}
            return event.raw + event_bytes("mildroute", details)
        if not event.is_done:
            return event.raw
        # Without choices, as the event with the usage.
        chunk = {"object": "chat.completion.chunk", "choices": [], "mildroute": self._details()}
        return event_bytes("", chunk) + event.raw

    def _with_ids(self, response: dict[str, Any]) -> dict[str, Any]:
        """Return a response whose ids name their experts."""
        changes = {}
        response_id = response.get("id")
        if type(response_id) is str:
            changes["id"] = encode_response_id(response_id, self._expert)
        owner = self._parsed.owner
        # The expert repeats the id as it knows it.
        if owner is not None and response.get("previous_response_id") == self._parsed.previous_id:
            previous_id = self._parsed.previous_id or ""
            changes["previous_response_id"] = encode_response_id(previous_id, owner)
        return {**response, **changes}


def _is_usage(data: Any) -> bool:
    return type(data) is dict and data.get("choices") == [] and type(data.get("usage")) is dict
