"""Errors for clients, in the formats of OpenAI and Anthropic."""

from __future__ import annotations

import json
import math

from mildroute.exceptions import MildrouteError

__all__ = ["CLIENT_CLOSED_REQUEST", "APIError", "shutting_down"]


_TYPES = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    429: "rate_limit_error",
}
_CODES = {
    401: "invalid_api_key",
    402: "insufficient_quota",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "request_too_large",
    429: "rate_limit_exceeded",
    500: "internal_error",
    502: "expert_failed",
    503: "unavailable",
    504: "timeout",
}
# Types of errors in Anthropic's API.
_MESSAGE_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_UNREAD_BODY = {408, 413}
# Status logged for a client that disconnects before it gets a response.
CLIENT_CLOSED_REQUEST = 499


class APIError(MildrouteError):
    """An error that is sent to the client of a request.

    Args:
        message: The rule that was violated and the remedy; never the text of another library's
            exception.
        code: Machine-readable code; defaults to that of the status.
        param: The invalid field of the request, or ``None``.
        retry_after: Seconds after which to retry, or ``None``.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.code = _CODES.get(status) if code is None else code

    def body(self, path: str = "") -> bytes:
        """Return the response's body.

        Args:
            path: Path of the request; ``"messages"`` and ``"systemone"`` have their own error
                formats.
        """
        if path == "systemone":
            return json.dumps({"detail": self.message}).encode()
        if path.startswith("messages"):
            default = "api_error" if self.status >= 500 else "invalid_request_error"
            kind = _MESSAGE_TYPES.get(self.status, default)
            error = {"type": kind, "message": self.message}
            return json.dumps({"type": "error", "error": error}).encode()
        kind = _TYPES.get(self.status) or (
            "server_error" if self.status >= 500 else "invalid_request_error"
        )
        return json.dumps(
            {
                "error": {
                    "message": self.message,
                    "type": kind,
                    "param": self.param,
                    "code": self.code,
                }
            }
        ).encode()

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the response's headers, except for the length."""
        headers = [(b"content-type", b"application/json")]
        if self.retry_after is not None:
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(self.retry_after))))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if self.status in _UNREAD_BODY:
            # Otherwise, the rest of the body would be read as the next request.
            headers.append((b"connection", b"close"))
        return headers

    def event(self, path: str) -> bytes:
        r"""Return the error as an event in the middle of a stream.

        Args:
            path: Path of the request; only ``"responses"`` and ``"messages"`` name their events.
        """
        if path == "messages":
            return b"event: error\ndata: " + self.body(path) + b"\n\n"
        if path == "responses":
            document = {
                "type": "error",
                "code": self.code,
                "message": self.message,
                "param": self.param,
                "sequence_number": 0,
            }
            return b"event: error\ndata: " + json.dumps(document).encode() + b"\n\n"
        return b"data: " + self.body() + b"\n\n"


def shutting_down() -> APIError:
    """Return the error for a request that outlasts the drain."""
    return APIError(503, "the gateway is shutting down; send the request again.", retry_after=1.0)
