"""Errors for responses of experts that are missing, incomplete or unusable."""

from __future__ import annotations

from typing import ClassVar

from mildroute.exceptions import MildrouteError

__all__ = [
    "IncompleteStream",
    "ResponseTooLarge",
    "StreamError",
    "UnsupportedRequest",
    "UpstreamConnectError",
    "UpstreamConnectionLost",
    "UpstreamError",
    "UpstreamOverloaded",
    "UpstreamProtocolError",
    "UpstreamTimeout",
]


class UpstreamError(MildrouteError):
    """A response that did not arrive, or arrived incomplete.

    Attributes:
        reason: Name of the error in metrics and traces.
        detail: Explanation for the client of why the request cannot be served; may be empty.
    """

    reason: ClassVar[str] = "failed"
    detail: str = ""

    def __init__(self) -> None:
        super().__init__(self.reason)


class UpstreamConnectError(UpstreamError):
    """The expert could not be reached."""

    reason = "connect"


class UpstreamOverloaded(UpstreamError):  # noqa: N818 - as httpx names its PoolTimeout
    """No slot for another call to the expert became free in time."""

    reason = "overloaded"


class UpstreamTimeout(UpstreamError):  # noqa: N818 - as httpx names its ReadTimeout
    """The expert took too long."""

    reason = "timeout"


class UpstreamConnectionLost(UpstreamError):  # noqa: N818
    """The connection ended before the response did."""

    reason = "connection_lost"


class IncompleteStream(UpstreamError):  # noqa: N818
    """A stream of events ended without its last event."""

    reason = "incomplete_stream"


class StreamError(UpstreamError):
    """An event of a stream reported an error."""

    reason = "error_event"


class UpstreamProtocolError(UpstreamError):
    """The expert's response is not valid HTTP."""

    reason = "invalid_response"


class ResponseTooLarge(UpstreamError):  # noqa: N818
    """The response has more bytes than the gateway accepts."""

    reason = "response_too_large"


class UnsupportedRequest(UpstreamError):  # noqa: N818
    """The API of the expert cannot express the request, so it was not sent.

    Args:
        detail: Message that states the rule, the violation and the remedy. It quotes nothing from
            the request except names of fields.
    """

    reason = "unsupported"

    def __init__(self, detail: str = "") -> None:
        super().__init__()
        self.detail = detail
