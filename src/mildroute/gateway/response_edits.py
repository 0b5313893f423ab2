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
    """An editor of responses on their way to the client, which passes other bytes unchanged.

    Args:
        parsed: The request.
        expert: Name of the expert that responds.
        hides_usage: Whether to remove the usage event, because the client did not request it.
        details: Returns the details of the decision to add to the response; ``None`` adds nothing.
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
        """Return the body of a response that is not streamed."""
        document = response.document
        if response.status >= 300 or type(document) is not dict:
            return response.body
        changed = self._with_ids(document) if self._parsed.path == "responses" else document
        if self._details is not None:
            changed = {**changed, "mildroute": self._details()}
        return response.body if changed is document else orjson.dumps(changed)

    def event(self, event: Event) -> bytes:
        """Return the bytes of a stream's event; empty if the client must not receive it."""
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
        # Like the usage event, this chunk has no choices.
        chunk = {"object": "chat.completion.chunk", "choices": [], "mildroute": self._details()}
        return event_bytes("", chunk) + event.raw

    def _with_ids(self, response: dict[str, Any]) -> dict[str, Any]:
        """Return the response with ids that name their experts."""
        changes = {}
        response_id = response.get("id")
        if type(response_id) is str:
            changes["id"] = encode_response_id(response_id, self._expert)
        owner = self._parsed.owner
        # The expert echoes its own form of the id.
        if owner is not None and response.get("previous_response_id") == self._parsed.previous_id:
            previous_id = self._parsed.previous_id or ""
            changes["previous_response_id"] = encode_response_id(previous_id, owner)
        return {**response, **changes}


def _is_usage(data: Any) -> bool:
    return type(data) is dict and data.get("choices") == [] and type(data.get("usage")) is dict
